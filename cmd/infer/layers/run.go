package layers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
	"gpt2scope/layers"
	"gpt2scope/layers/plot"
	"gpt2scope/record"
)

// layersRun is an experiment under way.
type layersRun struct {
	*layersFlags
	*layers.Experiment
	opened  *cli.Opened
	journal *layers.Journal
	stderr  io.Writer
	notes   []string
}

// configuration is what an experiment is of. Measurements of different ones do not go together. What is predicted from
// them is not part of it.
func (l *layersFlags) configuration(o *cli.Opened, variants []layers.Variant, text string, tokens int) map[string]any {
	s := o.Setting()
	geometry, _ := o.Model.Config.JSON(s.DType) // numbers and names: it cannot fail
	labels := make([]string, len(variants))
	for i, v := range variants {
		labels[i] = v.Label
	}
	c := map[string]any{
		"model": s.Model, "geometry": json.RawMessage(geometry), "device": s.Device, "dtype": s.DType, "context": s.Context, "chunk": o.Flags.Chunk, "version": s.Version,
		"variants": labels, "phases": l.phases, "prompt_len": l.promptLen, "past": l.past, "batch": l.batch,
		"repeat": l.repeat, "passes": l.passes, "seed": l.seed, "window": l.window, "energy_seconds": l.energy, "memory": !l.noMemory,
	}
	if text != "" {
		c["text_sha256"], c["text_tokens"] = text, tokens
	}
	if l.part.Count > 0 {
		c["shard"] = fmt.Sprintf("%d/%d", l.part.Index, l.part.Count)
	}
	if s.Threads > 0 {
		c["threads"] = s.Threads
	}
	if d := o.Backend.Describe(); d.GPU {
		c["gpu"], c["mode"] = d.Processor, d.Mode
		if len(d.Variants) > 0 {
			c["kernels"] = d.Variants
		}
	} else if b, ok := o.Backend.(gpt2.CeilingMeasurer); ok {
		c["processor"], _ = b.CeilingsKey()
	}
	return c
}

// all does what is not done yet, and writes the result.
func (r *layersRun) all(ctx context.Context, variants []layers.Variant, configuration map[string]any) (*layers.Result, error) {
	known, err := r.known(ctx)
	if err != nil {
		return nil, err
	}
	defer r.measures()()
	schedule := layers.Schedule{Phases: r.phases, Repeat: r.repeat, Seed: r.seed, Memory: r.Experiment.Memory != nil, Energy: r.Meter != nil, Quality: true}
	tasks := schedule.Tasks(variants)
	if again := r.verified(r.opened); len(again) > 0 {
		schedule.Energy, schedule.Quality = false, false
		tasks = append(tasks, schedule.Tasks(again)...)
	}
	tasks = layers.Of(r.part, tasks)
	total := len(tasks)
	tasks = slices.DeleteFunc(tasks, r.journal.Done)
	stopped := r.measure(ctx, tasks, append(slices.Clone(variants), r.verified(r.opened)...))
	done := total - len(slices.DeleteFunc(tasks, r.journal.Done))
	result, err := r.Summarize(variants, r.journal.Rows(), r.predicted, known)
	if err == nil {
		result.Configuration, result.Command = configuration, record.CommandLine()
		result.Notes = append(result.Notes, r.notes...)
		if done < total {
			result.Notes = append(result.Notes, layers.NotAll(done, total))
		}
		err = layers.Write(context.WithoutCancel(ctx), r.dir, r.journal.Rows(), result)
	}
	switch {
	case stopped != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("%w; %d of %d measurements are in %s, and the same command goes on from there", context.Cause(ctx), done, total, r.dir)
	case stopped != nil:
		return nil, fmt.Errorf("%w; %d of %d measurements are in %s", stopped, done, total, r.dir)
	case err != nil:
		return nil, err
	}
	if r.noPlots {
		return result, nil
	}
	return result, plot.Write(ctx, r.dir, result)
}

// measure does tasks, under a progress bar.
func (r *layersRun) measure(ctx context.Context, tasks []layers.Task, variants []layers.Variant) error {
	bar, done := r.opened.Flags.Progress("measuring memory", false), 0
	defer func() { bar.Done() }()
	notes, err := r.Do(ctx, tasks, r.journal, layers.Hooks{
		Load: func() error {
			bar.Done()
			if err := r.begin(ctx, variants); err != nil {
				return err
			}
			bar = r.opened.Flags.Progress("measuring", false)
			return nil
		},
		Done: func() {
			done++
			bar.Set(int64(done), int64(len(tasks)))
		},
	})
	r.notes = append(r.notes, notes...)
	return err
}

// begin loads the weights, and warms up with the variant of the most layers.
func (r *layersRun) begin(ctx context.Context, variants []layers.Variant) error {
	bar := r.opened.Flags.Progress("loading weights", true)
	r.Progress = bar.Set
	err := r.Load(ctx, variants)
	bar.Done()
	if err != nil {
		return err
	}
	most := slices.MaxFunc(variants, func(a, b layers.Variant) int { return a.Layers - b.Layers })
	defer r.opened.Flags.Spin("warming up")()
	return r.WarmUp(ctx, most, time.Duration(r.warmUp*float64(time.Second)))
}

// known finds what the device can do, and what a GPU says of its memory.
func (r *layersRun) known(ctx context.Context) (k layers.Known, err error) {
	o := r.opened
	if _, ok := o.Backend.(gpt2.Surveyor); ok {
		k.Memory = func(order []int) (int64, error) {
			options := o.Options
			options.Layers, options.Batch = order, r.batch
			s, err := gpt2.SurveyOf(o.Backend, o.Model, options, r.Prefill(), r.Decode())
			if err != nil {
				return 0, err
			}
			return s.Total(), nil
		}
	}
	if r.noFloor {
		return k, nil
	}
	set, _, err := cli.CeilingsOf(ctx, o.Backend, o.Flags, false)
	switch {
	case errors.Is(err, cli.ErrNoCeilings):
		r.notes = append(r.notes, "There are no floors: "+err.Error()+".")
		return k, nil
	case err != nil:
		return k, err
	}
	k.Floor = func(p *gpt2.Plan, past int) time.Duration {
		return set.PassFloor(p.Work(past, o.Backend.Sizes()))
	}
	return k, nil
}

// measures says how memory and energy are measured.
func (r *layersRun) measures() (done func()) {
	if !r.noMemory {
		r.Experiment.Memory = r.childMemory
	}
	if r.energy == 0 || !slices.Contains(r.phases, layers.TaskDecode) {
		return func() {}
	}
	counter, err := r.open(r.opened.Backend)
	if err != nil {
		r.notes = append(r.notes, "There is no energy: "+err.Error()+".")
		return func() {}
	}
	r.notes = append(r.notes, fmt.Sprintf("Energy is of decode steps from %d tokens in the cache, by %s, of %s; its interval is by when exactly the counter stepped.", r.past, counter.Source(), counter.Covers))
	r.Meter, r.EnergyTime = counter, time.Duration(r.energy*float64(time.Second))
	return counter.Close
}

// newLayersMemory makes the command that "infer layers" runs in processes of their own.
func newLayersMemory(m *cli.ModelFlags) *cobra.Command {
	var order string
	var batch, promptLen, past int
	c := &cobra.Command{
		Use: "memory", Hidden: true,
		Short:   "Load a list of layers, run a few passes and print how much memory that took",
		Example: `  infer layers memory --order 0,2,1 --prompt-len 64`,
		RunE: func(c *cobra.Command, _ []string) error {
			return runLayersMemory(c.Context(), m, order, batch, promptLen, past, c.OutOrStdout())
		},
	}
	cli.AddFlags(c.Flags(), "Measurement", func(f *pflag.FlagSet) {
		f.StringVar(&order, "order", "0", "run these `LAYERS`, such as 0,2,1")
		f.Var(cli.Int(&batch, 1, cli.Batches), "batch", "passes have `N` sequences")
		f.Var(cli.Int(&promptLen, 1, cli.AtLeast(1)), "prompt-len", "the prefill has `N` tokens")
		f.Var(cli.Int(&past, 0, cli.AtLeast(0)), "past", "the cache holds `N` tokens before the decode step")
	})
	return c
}

func runLayersMemory(ctx context.Context, m *cli.ModelFlags, order string, batch, promptLen, past int, stdout io.Writer) error {
	m.Layers, m.Quiet = "all", true
	o, err := m.Open()
	if err != nil {
		return err
	}
	defer o.Close()
	capacity := o.Options.Context
	v, err := layers.InOrder(order, o.Model.Config.Layers)
	switch {
	case err != nil:
		return cli.Usagef("--order %s: %w", cli.ShellQuote(order), err)
	case promptLen > capacity || past >= capacity:
		return cli.Usagef("--prompt-len %d, --past %d: the context holds %s", promptLen, past, cli.Count(capacity, "token"))
	}
	options := o.Options
	options.Batch = batch
	e := layers.Experiment{Model: o.Model, Backend: o.Backend, Options: options, PromptLen: promptLen, Past: past}
	use, err := e.MeasureMemory(ctx, v.Order)
	if err != nil {
		return err
	}
	return cli.WriteJSON(stdout, use)
}

// childMemory measures a variant in a process of its own: what other variants left behind does not count there.
func (r *layersRun) childMemory(ctx context.Context, v layers.Variant) ([]layers.Value, error) {
	order := make([]string, len(v.Order))
	for i, n := range v.Order {
		order[i] = strconv.Itoa(n)
	}
	args := append([]string{"layers", "memory", "--quiet", "--order=" + strings.Join(order, ","), "--batch=" + strconv.Itoa(r.batch),
		"--prompt-len=" + strconv.Itoa(r.promptLen), "--past=" + strconv.Itoa(r.past)}, cli.GivenFlags(r.persistent, "quiet", "layers")...)
	var m layers.MemoryUse
	if err := cli.RunSelf(ctx, args, &m); err != nil {
		return nil, err
	}
	var values []layers.Value
	if m.Host > 0 {
		values = append(values, layers.Value{Metric: "host memory", Unit: "bytes", Value: float64(m.Host)})
	}
	if m.Device > 0 {
		values = append(values, layers.Value{Metric: "device memory", Unit: "bytes", Value: float64(m.Device)})
	}
	return values, nil
}
