package tasks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/predict"
	"gpt2scope/schedule"
	"gpt2scope/tasks/samples"
)

// streamFlags are the flags of 'infer tasks simulate', most of which 'infer tasks run' has too.
type streamFlags struct {
	n                  int
	interval           float64
	seed               uint64
	memory, machine    string
	model              string
	gantt, ganttPolicy string
	json               bool
}

// register adds the flags that both commands have.
func (s *streamFlags) register(f *pflag.FlagSet, count, most int) {
	cli.AddFlags(f, "Stream", func(f *pflag.FlagSet) {
		f.Var(cli.Int(&s.n, count, cli.Between(1, most)), "count", "the stream has `N` tasks")
		f.Var(cli.Float(&s.interval, 0, cli.Between(0, 1e9)), "interval", "tasks arrive `US` microseconds apart on average; 0: all at once")
		f.Uint64Var(&s.seed, "seed", 1, "`SEED` of the stream")
	})
	cli.AddFlags(f, "Policies", func(f *pflag.FlagSet) {
		f.StringVar(&s.model, "model-file", "", "predict by the model in `FILE` of 'infer tasks fit'")
	})
	cli.AddFlags(f, "Output", func(f *pflag.FlagSet) {
		f.StringVar(&s.gantt, "gantt", "", "draw the schedule to `FILE`, an SVG picture")
		f.StringVar(&s.ganttPolicy, "gantt-policy", "ours", "draw the schedule of `POLICY`")
		f.BoolVar(&s.json, "json", false, "print one JSON object")
	})
}

// newTasksSimulate makes "infer tasks simulate".
func newTasksSimulate() *cobra.Command {
	var s streamFlags
	c := &cobra.Command{
		Use:   "simulate [SAMPLES...]",
		Short: "Schedule a stream of measured tasks by several policies",
		Long: `simulate draws a stream of tasks from samples of 'infer tasks bench', without SAMPLES
from those stored in the program, and schedules it on the CPU and the GPUs of a machine:
by an oracle that knows all times, always on one device, by the best threshold in
hindsight, by expected finish on floors, and by the scheduler of this program. No GPU
is needed. The bound is a time that no schedule can beat.

The stream is of every second size of each task. The model is fitted to the other sizes
of SAMPLES; without SAMPLES it is the one that ships, which is fitted to all.`,
		Example: `  infer tasks simulate
  infer tasks simulate out/samples.csv --gantt schedule.svg`,
		Annotations: map[string]string{cli.UsesKey: ""},
		Args:        cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			return s.run(c.Context(), args, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	s.register(c.Flags(), 1000, 1_000_000)
	cli.AddFlags(c.Flags(), "Stream", func(f *pflag.FlagSet) {
		f.Var(cli.OneOf(&s.memory, "pinned", "pinned", "pageable", "resident"), "memory", "`WHERE` inputs and results are: pinned or pageable memory of the\nhost, or resident on the GPU")
		f.StringVar(&s.machine, "machine", "", "take the samples of machine `NAME` (default: the first with a GPU)")
	})
	return c
}

// keeps refuses a file to write that is one of those that are read.
func (s *streamFlags) keeps(flag, path string, samples []string) error {
	if path == "" {
		return nil
	}
	return cli.CheckSame(flag, path, append(slices.Clone(samples), s.model)...)
}

// checkPolicy refuses a policy that there is not.
func checkPolicy(flag, name string, names []string) error {
	if slices.Contains(names, name) {
		return nil
	}
	return cli.Usagef("%s %s: there is no such policy; policies are %s", flag, cli.ShellQuote(name), strings.Join(names, ", "))
}

// predictor returns what makes the model: --model-file or the one that ships if it is asked for, else a fit.
func (s *streamFlags) predictor(ctx context.Context, ships bool) func(rows []predict.Row) (*predict.Model, error) {
	return func(rows []predict.Row) (*predict.Model, error) {
		switch {
		case s.model != "":
			return readModel(s.model)
		case ships:
			return samples.Model()
		}
		return predict.Fit(ctx, rows)
	}
}

// readModel reads --model-file.
func readModel(path string) (*predict.Model, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("model %s cannot be opened: %w", path, humanize.Cause(err))
	}
	model, err := predict.Read(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("model %s: %w", path, err)
	}
	return model, nil
}

func (s *streamFlags) run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	memory, err := predict.ParseMemory(s.memory)
	if err != nil {
		return err
	}
	if err := s.keeps("--gantt", s.gantt, args); err != nil {
		return err
	}
	rows, err := ReadRows(stderr, args)
	if err != nil {
		return err
	}
	setup := schedule.Setup{Rows: rows, Machine: s.machine, Memory: memory, Jobs: s.n, Interval: s.interval, Seed: s.seed}
	_, devices, err := setup.Place()
	if err != nil {
		return err
	}
	if err := checkPolicy("--gantt-policy", s.ganttPolicy, schedule.PolicyNames(schedule.DevicesOf(devices))); err != nil {
		return err
	}
	setup.Model = s.predictor(ctx, len(args) == 0)
	p, err := setup.Prepare()
	if err != nil {
		return err
	}
	runs := p.Simulate()
	if err := s.draw(ctx, p, runs); err != nil {
		return err
	}
	report := p.Report(runs)
	if s.json {
		return cli.WriteJSON(stdout, report)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s of %s in %s, on %s\n", cli.Count(report.Tasks, "task"), cli.Count(len(p.Kinds), "kind"), cli.Count(p.Cases, "case"), p.Machine)
	fmt.Fprintf(&b, "lower bound of the makespan %s\n\n", humanize.Milliseconds(report.BoundUs/1e3))
	writePolicies(&b, report, false)
	return cli.WriteOutput(stdout, b.Bytes())
}

// draw writes --gantt.
func (s *streamFlags) draw(ctx context.Context, p *schedule.Prepared, runs map[string][]schedule.Result) error {
	if s.gantt == "" {
		return nil
	}
	return cli.WriteFile(ctx, s.gantt, func(w io.Writer) error {
		return schedule.Gantt(w, schedule.Median(runs[s.ganttPolicy]), p.Devices, p.Kinds)
	})
}

// writePolicies writes the table of policies: of a stream that ran, beside what the simulation says.
func writePolicies(w io.Writer, report schedule.Report, ran bool) {
	heading := "policy\tmakespan ms\tover bound"
	if ran {
		heading += "\tsimulated ms"
	}
	for _, d := range report.Devices {
		heading += fmt.Sprintf("\t%s tasks\tbusy %%\terror %%", d)
	}
	table.Lines(w, table.LeftFirst, heading+"\tmoved\tplans", report.Policies, func(r schedule.Result) string {
		var b strings.Builder
		fmt.Fprintf(&b, "%s\t%.2f\t%.3f", r.Policy, r.MakespanUs/1e3, r.OverBound)
		if ran {
			fmt.Fprintf(&b, "\t%.2f", r.SimulatedUs/1e3)
		}
		for _, d := range r.Devices {
			off := "-"
			if d.Error != nil {
				off = fmt.Sprintf("%.0f", 100**d.Error)
			}
			fmt.Fprintf(&b, "\t%d\t%.0f\t%s", d.Tasks, 100*d.Busy, off)
		}
		fmt.Fprintf(&b, "\t%d\t%d", r.Moved, r.Plans)
		return b.String()
	})
	fmt.Fprintf(w, "\nerror: median of the expected times; moved: tasks that changed their queue\n")
}
