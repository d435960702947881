package tasks

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/files"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/predict"
	"gpt2scope/schedule"
	"gpt2scope/tasks"
	"gpt2scope/tasks/samples"
)

// streamFlags are the flags of 'infer tasks simulate', most of which 'infer tasks run' has too.
type streamFlags struct {
	n              int
	interval       float64
	seed           uint64
	machine, model string
	gantt          string
	json           bool
}

// register adds the flags that both commands have.
func (s *streamFlags) register(f *pflag.FlagSet, count, most int) {
	cli.AddFlags(f, "Stream", func(f *pflag.FlagSet) {
		f.Var(cli.Int(&s.n, count, cli.Between(1, most)), "count", "the stream has `N` tasks")
		f.Var(cli.Float(&s.interval, 0, cli.Between(0, 1e9)), "interval",
			"tasks arrive `US` microseconds apart on average; 0: all at once")
		f.Uint64Var(&s.seed, "seed", 1, "`SEED` of the stream")
	})
	cli.AddFlags(f, "Policies", func(f *pflag.FlagSet) {
		f.StringVar(&s.model, "model-file", "", "predict by the model in `FILE` of 'infer tasks fit'")
	})
	cli.AddFlags(f, "Output", func(f *pflag.FlagSet) {
		f.StringVar(&s.gantt, "gantt", "", "draw the schedule of the policy \"ours\" to `FILE`, an SVG picture")
		f.BoolVar(&s.json, "json", false, "print one JSON object")
	})
}

func newTasksSimulate() *cobra.Command {
	var s streamFlags
	c := &cobra.Command{
		Use:   "simulate [SAMPLES...]",
		Short: "Schedule a stream of measured tasks by several policies",
		Long: `simulate draws a stream of tasks from samples of 'infer tasks bench', without SAMPLES from those stored in
the program, and schedules it on the CPU and the GPUs of a machine: by an oracle that knows all times,
always on one device, by the best threshold in hindsight, by expected finish on floors, and by the scheduler
of this program. No GPU is needed. The bound is a time that no schedule can beat.

The stream is of every second size of each task. The model is fitted to the other sizes of SAMPLES; without
SAMPLES it is the one that ships, which is fitted to all.`,
		Example: `  infer tasks simulate
  infer tasks simulate out/samples.csv --gantt schedule.svg`,
		Annotations: map[string]string{cli.UsesKey: ""},
		Args:        cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			return s.run(c, args)
		},
	}
	s.register(c.Flags(), 1000, 1_000_000)
	cli.AddFlags(c.Flags(), "Stream", func(f *pflag.FlagSet) {
		f.StringVar(&s.machine, "machine", "", "take the samples of machine `NAME` (default: the first with a GPU)")
	})
	return c
}

// keeps refuses a picture to write that is a file that is read.
func (s *streamFlags) keeps(samples []string) error {
	if s.gantt == "" {
		return nil
	}
	return cli.CheckSame("--gantt", s.gantt, append(slices.Clone(samples), s.model)...)
}

// predictor returns what makes the model: --model-file or the one that ships if it is asked for, else a fit.
func (s *streamFlags) predictor(ctx context.Context, ships bool) func(rows []predict.Row) (*predict.Model, error) {
	return func(rows []predict.Row) (*predict.Model, error) {
		switch {
		case s.model == "" && ships:
			return samples.Model()
		case s.model == "":
			return predict.Fit(ctx, rows)
		}
		f, err := os.Open(s.model)
		if err != nil {
			return nil, fmt.Errorf("model %s cannot be opened: %w", s.model, humanize.Cause(err))
		}
		defer f.Close()
		model, err := predict.Read(f)
		if err != nil {
			err = fmt.Errorf("model %s: %w", s.model, err)
		}
		return model, err
	}
}

func (s *streamFlags) run(c *cobra.Command, args []string) error {
	if err := s.keeps(args); err != nil {
		return err
	}
	ctx := c.Context()
	rows, err := ReadRows(ctx, c.ErrOrStderr(), args)
	if err != nil {
		return err
	}
	setup := schedule.Setup{Rows: rows, Machine: s.machine, Jobs: s.n, Interval: s.interval, Seed: s.seed}
	setup.Model = s.predictor(ctx, len(args) == 0)
	p, err := files.Await(ctx, setup.Prepare)
	if err != nil {
		return err
	}
	var runs map[string][]schedule.Result
	report, err := files.Await(ctx, func() (schedule.Report, error) {
		runs = p.Simulate()
		return p.Report(runs), nil
	})
	if err != nil {
		return err
	}
	if err := s.draw(ctx, p, runs); err != nil {
		return err
	}
	return cli.Print(c, s.json, report, func(w io.Writer) {
		fmt.Fprintf(w, "%s of %s in %s, on %s\n", cli.Count(report.Tasks, "task"), cli.Count(len(p.Kinds), "kind"),
			cli.Count(p.Cases, "case"), p.Machine)
		fmt.Fprintf(w, "lower bound of the makespan %s\n\n", humanize.Milliseconds(report.BoundUs/1e3))
		writePolicies(w, report, false)
	})
}

func (s *streamFlags) draw(ctx context.Context, p *schedule.Prepared, runs map[string][]schedule.Result) error {
	if s.gantt == "" {
		return nil
	}
	return cli.WriteFile(ctx, s.gantt, func(w io.Writer) error {
		return schedule.Gantt(w, schedule.Median(runs["ours"]), p.Devices, p.Kinds)
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

// runFlags are the flags of 'infer tasks run'.
type runFlags struct {
	streamFlags
	names   []string
	rounds  int
	longest float64 // ms
	most    int     // MiB
}

func newTasksRun(m *cli.ModelFlags) *cobra.Command {
	var r runFlags
	c := &cobra.Command{
		Use:   "run [SAMPLES...]",
		Short: "Run a stream of tasks on CPU and GPUs at once, by several policies",
		Long: `run does for real what simulate computes: it runs a stream of tasks on the CPU and the GPUs at once, under
each policy in turns, and prints what the simulation said beside it. Each GPU has two tasks in flight, each
with a thread of the host. The tasks of the CPU run on the cores that are left, or on --threads. Each result
is compared with a reference. What a lost GPU had not finished is done on another device, and so are tasks
too large for its memory.

SAMPLES are those of 'infer tasks bench' on this machine. Without them the tasks are measured first. The
model is fitted to every second size; the stream is of the others. The bound and the oracle know only the
medians of the samples. Times vary from run to run, so that a run may be closer to the bound than the oracle
is, or below it.`,
		Example: `  infer tasks run
  infer tasks run out/samples.csv --device cpu,cuda:0 --gantt schedule.svg`,
		Annotations: map[string]string{cli.UsesKey: "model device threads quiet", cli.ListsKey: "device",
			cli.AllDevicesKey: "yes", cli.HelpKey + "device": "run on `DEVICES`: cpu, a list such as cpu,cuda:1, or all\n" +
				"(default: the CPU, and the first GPU if all that it needs is there)"},
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			return r.run(c, m, args)
		},
	}
	r.register(c.Flags(), 300, 100_000)
	cli.AddFlags(c.Flags(), "Stream", func(f *pflag.FlagSet) {
		f.StringSliceVar(&r.names, "tasks", nil, "of these `TASKS`, such as vector.add (default: all)")
		f.Var(cli.Float(&r.longest, 10, cli.Between(math.SmallestNonzeroFloat64, 1e6)), "longest",
			"leave out tasks that take the CPU more than `MS` at least")
		f.Var(cli.Int(&r.most, 64, megabytes), "max-size", "leave out inputs and results of more than `MIB` together")
	})
	cli.AddFlags(c.Flags(), "Policies", func(f *pflag.FlagSet) {
		f.Var(cli.Int(&r.rounds, 3, repeats), "rounds", "run each policy `N` times, in turns; the table shows the median")
	})
	return c
}

func (r *runFlags) run(c *cobra.Command, m *cli.ModelFlags, args []string) error {
	if err := r.keeps(args); err != nil {
		return err
	}
	ctx := c.Context()
	model, err := m.OpenModel()
	if err != nil {
		return err
	}
	defer model.Close()
	suite := tasks.ForModel(model.Config)
	chosen, err := tasks.Find(suite, r.names)
	if err != nil {
		return cli.Usagef("--tasks: %w", err)
	}
	o, err := devices(m, model)
	if err != nil {
		return err
	}
	o.Threads = cmp.Or(o.Threads, schedule.Threads(runtime.GOMAXPROCS(0), len(o.GPUs)))
	machine, err := tasks.Open(o)
	if err != nil {
		return err
	}
	defer machine.Close()
	names := machine.Devices()
	if names[0] != tasks.CPU {
		return cli.Usagef("--device %s: the CPU must take part; give cpu,%s", m.Device, m.Device)
	}
	rows, err := r.rows(ctx, m, machine, chosen, args, c.ErrOrStderr())
	if err != nil {
		return err
	}
	p, err := files.Await(ctx, schedule.Setup{
		Rows: rows, Devices: names, Jobs: r.n, Interval: r.interval, Seed: r.seed,
		Chosen: chosen, LongestUs: r.longest * 1e3, Most: int64(r.most) << 20, Model: r.predictor(ctx, false),
	}.Prepare)
	if err != nil {
		return err
	}
	real, err := p.Open(ctx, machine, suite)
	if err != nil {
		return err
	}
	defer real.Close()
	watched, stop := context.WithCancel(ctx)
	defer stop()
	real.Read = schedule.NVML(watched, machine.PCI())
	runs, err := r.runs(ctx, m, p, real)
	if err != nil {
		return err
	}
	if err := r.draw(ctx, p, runs); err != nil {
		return err
	}
	report := p.Report(runs)
	return cli.Print(c, r.json, report, func(w io.Writer) {
		fmt.Fprintf(w, "%s of %s on %s, %s\n", cli.Count(report.Tasks, "task"), cli.Count(len(p.Kinds), "kind"),
			report.Machine, strings.Join(report.Devices, " and "))
		fmt.Fprintf(w, "lower bound of the makespan %s, from medians of single tasks; makespans are medians of %s\n\n",
			humanize.Milliseconds(report.BoundUs/1e3), cli.Count(report.Rounds, "run"))
		if len(report.Devices) == 1 {
			fmt.Fprint(w, "One device: there is nothing to choose, and the policies differ by noise alone. 'infer tasks simulate' "+
				"has two.\n\n")
		}
		writePolicies(w, report, true)
		for _, r := range report.Policies {
			if r.NoRoom > 0 {
				fmt.Fprintf(w, "%s: %s done on the CPU, since a GPU had too little memory\n", r.Policy, cli.Count(r.NoRoom, "task"))
			}
		}
	})
}

// rows reads samples, or measures what the stream can be made of.
func (r *runFlags) rows(ctx context.Context, m *cli.ModelFlags, machine *tasks.Machine, chosen []*tasks.Task,
	args []string, stderr io.Writer) ([]predict.Row, error) {
	if len(args) > 0 {
		return ReadRows(ctx, stderr, args)
	}
	if err := setCeilings(ctx, m, machine, true); err != nil { // floors are made of them
		return nil, err
	}
	bar := m.Progress("measuring", false)
	samples, leftOut, err := schedule.Measure(ctx, machine, chosen, 5, r.longest*1e3, int64(r.most)<<20, r.seed,
		func(done, of int) { bar.Set(int64(done), int64(of)) })
	bar.Done()
	if leftOut > 0 {
		m.Notice(cli.Count(leftOut, "size") + " of tasks are left out, since a GPU has too little memory for them")
	}
	rows, _, _ := tasks.Rows(samples)
	return rows, err
}

func (r *runFlags) runs(ctx context.Context, m *cli.ModelFlags, p *schedule.Prepared, real *schedule.Machine) (
	map[string][]schedule.Result, error) {
	runs := map[string][]schedule.Result{}
	policies := p.Policies()
	random := rand.New(rand.NewPCG(r.seed, 2))
	bar := m.Progress("running", false)
	defer bar.Done()
	for round := range r.rounds {
		for i, at := range random.Perm(len(policies)) {
			policy := policies[at]
			result, err := real.Run(ctx, p, policy)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", policy.Name, err)
			}
			if result.Lost != "" {
				m.Notice("a GPU was lost, and its tasks were done on other devices: " + result.Lost)
			}
			runs[policy.Name] = append(runs[policy.Name], result)
			bar.Set(int64(round*len(policies)+i+1), int64(r.rounds*len(policies)))
		}
	}
	return runs, nil
}
