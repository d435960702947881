package layers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
	"gpt2scope/internal/journal"
	"gpt2scope/layers"
	"gpt2scope/measure"
	"gpt2scope/record"
)

// layersRun is an experiment under way.
type layersRun struct {
	*layersFlags
	*layers.Experiment
	opened  *cli.Opened
	journal *journal.Journal[layers.Row]
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
		"model": s.Model, "geometry": json.RawMessage(geometry), "device": s.Device, "dtype": s.DType, "context": s.Context,
		"chunk": o.Flags.Chunk, "version": s.Version,
		"variants": labels, "phases": l.phases, "prompt_len": l.promptLen, "past": l.past, "batch": l.batch,
		"repeat": l.repeat, "passes": l.passes, "seed": l.seed, "window": l.window, "energy_seconds": l.energy,
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
func (r *layersRun) all(ctx context.Context, variants []layers.Variant, configuration map[string]any) (
	*layers.Result, error) {
	if err := r.know(ctx); err != nil {
		return nil, err
	}
	defer r.measures()()
	schedule := layers.Schedule{Phases: r.phases, Repeat: r.repeat, Seed: r.seed}
	if r.Meter != nil {
		schedule.Once = []string{layers.TaskEnergy}
	}
	schedule.Once = append(schedule.Once, layers.TaskQuality)
	if r.batch == 1 && slices.Contains(r.phases, layers.TaskDecode) {
		schedule.Once = append(schedule.Once, layers.TaskDraft)
	}
	tasks := schedule.Tasks(variants)
	if again := r.verified(r.opened); len(again) > 0 {
		schedule.Once = nil
		tasks = append(tasks, schedule.Tasks(again)...)
	}
	tasks = journal.Of(r.part, tasks)
	total := len(tasks)
	isDone := func(t layers.Task) bool { return r.journal.Done(t.Key()) }
	tasks = slices.DeleteFunc(tasks, isDone)
	stopped := r.measure(ctx, tasks, append(slices.Clone(variants), r.verified(r.opened)...))
	done := total - len(slices.DeleteFunc(tasks, isDone))
	result, err := r.Summarize(variants, r.journal.Rows(), r.predicted)
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
		return nil, fmt.Errorf("%w; %d of %d measurements are in %s, and the same command goes on from there",
			context.Cause(ctx), done, total, r.dir)
	case stopped != nil:
		return nil, fmt.Errorf("%w; %d of %d measurements are in %s", stopped, done, total, r.dir)
	}
	return result, err
}

// measure does tasks, under a progress bar.
func (r *layersRun) measure(ctx context.Context, tasks []layers.Task, variants []layers.Variant) error {
	if len(tasks) == 0 {
		return nil
	}
	if err := r.begin(ctx, variants); err != nil {
		return err
	}
	bar, done := r.opened.Flags.Progress("measuring", false), 0
	defer bar.Done()
	notes, err := r.Do(ctx, tasks, r.journal, func() {
		done++
		bar.Set(int64(done), int64(len(tasks)))
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

// know finds what the device can do, and what a GPU says of its memory.
func (r *layersRun) know(ctx context.Context) error {
	o := r.opened
	if b, ok := o.Backend.(gpt2.Surveyor); ok {
		r.Memory = func(order []int) (int64, error) {
			options := o.Options
			options.Layers, options.Batch = order, r.batch
			s, err := b.Survey(o.Model, options, r.Prefill(), r.Decode())
			if err != nil {
				return 0, err
			}
			return s.Total(), nil
		}
	}
	if r.noFloor {
		return nil
	}
	set, _, err := cli.CeilingsOf(ctx, o.Backend, o.Flags, false)
	switch {
	case errors.Is(err, cli.ErrNoCeilings):
		r.notes = append(r.notes, "There are no floors: "+err.Error()+".")
		return nil
	case err != nil:
		return err
	}
	r.Floor = func(p *gpt2.Plan, past int) time.Duration {
		return set.PassFloor(p.Work(past, o.Backend.Sizes(o.Model)))
	}
	return nil
}

// measures says how energy is measured.
func (r *layersRun) measures() (done func()) {
	if r.energy == 0 || !slices.Contains(r.phases, layers.TaskDecode) {
		return func() {}
	}
	counter, err := measure.OpenMeter(r.opened.Backend)
	if err != nil {
		r.notes = append(r.notes, "There is no energy: "+err.Error()+".")
		return func() {}
	}
	r.notes = append(r.notes, fmt.Sprintf("Energy is of decode steps from %d tokens in the cache, by %s, of %s; its "+
		"interval is by when exactly the counter stepped.", r.past, counter.Source(), counter.Covers))
	r.Meter, r.EnergyTime = counter, time.Duration(r.energy*float64(time.Second))
	return counter.Close
}
