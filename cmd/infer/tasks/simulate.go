package tasks

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/dispatch"
	"gpt2scope/internal/humanize"
	"gpt2scope/predict"
)

// simulateFlags are the flags of "infer tasks simulate".
type simulateFlags struct {
	n                  int
	interval           float64
	seed               uint64
	memory, heldOut    string
	machine            string
	model              string
	gantt, ganttPolicy string
	load               string
	json               bool

	injected *dispatch.Injected // load, parsed; nil: none
}

// newTasksSimulate makes "infer tasks simulate".
func newTasksSimulate() *cobra.Command {
	var s simulateFlags
	c := &cobra.Command{
		Use:   "simulate [SAMPLES...]",
		Short: "Schedule a stream of measured tasks by several policies",
		Long: `simulate draws a stream of tasks from samples of 'infer tasks bench', without SAMPLES
from those stored in the program, and schedules it on the CPU and the GPUs of a machine:
by an oracle that knows all times, always on one device, by the best threshold in
hindsight, by expected finish as StarPU's dmda (on floors, on history), and by the
scheduler of this program. No GPU is needed.

The first table is of the whole stream on all devices at once; the bound is a time that
no schedule can beat. The second table is of the same tasks one at a time: how much
longer each took than on its best device.

Unless --held-out says otherwise, the model is fitted to every second size of each task,
and the stream is of the others.`,
		Example: `  infer tasks simulate
  infer tasks simulate out/samples.csv --held-out task --gantt schedule.svg`,
		Annotations: map[string]string{cli.UsesKey: ""},
		Args:        cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			return s.run(c.Context(), args, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	cli.AddFlags(c.Flags(), "Stream", func(f *pflag.FlagSet) {
		f.IntVar(&s.n, "count", 1000, "the stream has `N` tasks")
		f.Float64Var(&s.interval, "interval", 0, "tasks arrive `US` microseconds apart on average; 0: all at once")
		f.Uint64Var(&s.seed, "seed", 1, "`SEED` of the stream")
		f.StringVar(&s.memory, "memory", "pinned", "`WHERE` inputs and results are: pinned or pageable memory of the\nhost, or resident on the GPU")
		f.StringVar(&s.load, "load", "", "other work takes `LOAD` of a device, such as cpu:50 or cuda:0:100\n(percent), from when a third of the tasks have ended")
		f.StringVar(&s.machine, "machine", "", "take the samples of machine `NAME` (default: the first with a GPU)")
	})
	cli.AddFlags(c.Flags(), "Model", func(f *pflag.FlagSet) {
		f.StringVar(&s.heldOut, "held-out", "sizes", "`WHAT` the model has not seen: sizes, task, nothing")
		f.StringVar(&s.model, "model-file", "", "use the model in `FILE` of 'infer tasks fit' instead")
	})
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVar(&s.gantt, "gantt", "", "draw the schedule to `FILE`, an SVG picture")
		f.StringVar(&s.ganttPolicy, "gantt-policy", "ours", "draw the schedule of `POLICY`")
		f.BoolVar(&s.json, "json", false, "print one JSON object")
	})
	return c
}

// maxStream bounds the tasks of a stream.
const maxStream = 1_000_000

func (s *simulateFlags) check() (predict.Memory, error) {
	memory, err := predict.ParseMemory(s.memory)
	switch {
	case s.n < 1 || s.n > maxStream:
		return 0, cli.Usagef("--count %d: it must be from 1 to %d", s.n, maxStream)
	case !(s.interval >= 0 && s.interval <= 1e9):
		return 0, cli.Usagef("--interval %g: it must be from 0 to 1e9 microseconds", s.interval)
	case err != nil || memory == predict.Host:
		return 0, cli.Usagef("--memory %s: it must be pinned, pageable or resident", cli.ShellQuote(s.memory))
	}
	if s.load != "" {
		load, err := dispatch.ParseInjected(s.load)
		if err != nil {
			return 0, cli.Usagef("--load: %w", err)
		}
		s.injected = &load
	}
	switch dispatch.HeldOut(s.heldOut) {
	case dispatch.Sizes, dispatch.Tasks, dispatch.Nothing:
	default:
		return 0, cli.Usagef("--held-out %s: it must be sizes, task or nothing", cli.ShellQuote(s.heldOut))
	}
	return memory, nil
}

// keeps refuses a file to write that is one of those that are read.
func (s *simulateFlags) keeps(flag, path string, samples []string) error {
	if path == "" {
		return nil
	}
	return cli.CheckSame(flag, path, append(slices.Clone(samples), s.model)...)
}

func (s *simulateFlags) run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	memory, err := s.check()
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
	setup := dispatch.Setup{Rows: rows, Machine: s.machine, Memory: memory, HeldOut: dispatch.HeldOut(s.heldOut), Jobs: s.n, Interval: s.interval, Seed: s.seed}
	if setup.Model, err = s.readModel(); err != nil {
		return err
	}
	p, err := setup.Prepare()
	if err != nil {
		return err
	}
	drawn := slices.Index(dispatch.PolicyNames(p.Devices), s.ganttPolicy)
	if drawn < 0 {
		return cli.Usagef("--gantt-policy %s: there is no such policy; see the first column of the table", cli.ShellQuote(s.ganttPolicy))
	}
	c, err := p.Compare(s.injected)
	if err != nil {
		return cli.Usagef("--load %s: %w", cli.ShellQuote(s.load), err)
	}
	if s.gantt != "" {
		if err := cli.WriteFile(ctx, s.gantt, func(w io.Writer) error { return dispatch.Gantt(w, c.Results[drawn], p.Kinds) }); err != nil {
			return err
		}
	}
	if s.json {
		return cli.WriteJSON(stdout, c.Report())
	}
	var b bytes.Buffer
	writeComparison(&b, p, c)
	return cli.WriteOutput(stdout, b.Bytes())
}

// writeComparison writes the tables.
func writeComparison(w io.Writer, p *dispatch.Prepared, c dispatch.Comparison) {
	report := c.Report()
	held := map[dispatch.HeldOut]string{dispatch.Sizes: "sizes that the model has not seen", dispatch.Tasks: "each task predicted from the others", dispatch.Nothing: "work that the model was fitted to"}[p.HeldOut]
	fmt.Fprintf(w, "%s of %s, %s in %s, on %s\n", cli.Count(report.Tasks, "task"), cli.Count(len(p.Kinds), "kind"), held, cli.Count(p.Cases, "case"), p.Machine)
	fmt.Fprintf(w, "lower bound of the makespan %s; a decision takes %.0f ns (mean of %s)\n\n", humanize.Milliseconds(report.BoundUs/1e3), report.DecisionNs, humanize.Thousands(int64(report.Decisions)))
	heading := "policy\tmakespan ms\tover bound"
	for _, d := range p.Devices {
		heading += "\tbusy " + d.Name + " %"
	}
	cli.PrintText(w, cli.FirstLeft, heading+"\tmoved\tmeasured", report.Policies, func(r dispatch.PolicyReport) string {
		var b strings.Builder
		fmt.Fprintf(&b, "%s\t%.2f\t%.3f", r.Policy, r.MakespanUs/1e3, r.OverBound)
		for _, busy := range r.Busy {
			fmt.Fprintf(&b, "\t%.0f", 100*busy)
		}
		fmt.Fprintf(&b, "\t%d\t%d", r.Moved, r.Probes)
		return b.String()
	})
	if c.Load != nil {
		fmt.Fprintf(w, "\nload %s once %s had ended; the oracle does not know of it\n", c.Load, cli.Count(c.Load.After(report.Tasks), "task"))
		cli.PrintText(w, cli.FirstLeft, "policy\trecovered after\tlost ms", report.Policies, func(r dispatch.PolicyReport) string {
			return r.Policy + "\t" + recovered(r.Recovered, r.LostUs)
		})
		fmt.Fprintln(w, recoveryWords)
	}
	fmt.Fprintf(w, "\none task at a time, over its best device%s\n", map[bool]string{true: ", without the load"}[c.Load != nil])
	cli.PrintText(w, cli.FirstLeft, "policy\tgeometric mean\tp99\tworst\ttime lost %\tbest device %", report.Policies, func(r dispatch.PolicyReport) string {
		return fmt.Sprintf("%s\t%.4f\t%.3f\t%.2f\t%.2f\t%.1f", r.Policy, r.GeoMean, r.P99, r.Worst, 100*r.Regret, 100*r.Right)
	})
}

// recoveryWords say what the columns of recovered are.
const recoveryWords = `recovered: tasks of the device after which predictions hold within a factor of 1.5; lost: what these took
beyond their usual time on the best other device`

// recovered writes two columns.
func recovered(after *int, lostUs float64) string {
	tasks := "never"
	if after != nil {
		tasks = strconv.Itoa(*after)
	}
	return fmt.Sprintf("%s\t%.2f", tasks, lostUs/1e3)
}
