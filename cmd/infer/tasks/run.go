package tasks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/humanize"
	"gpt2scope/predict"
	"gpt2scope/schedule"
	"gpt2scope/tasks"
)

// runFlags are the flags of 'infer tasks run'.
type runFlags struct {
	streamFlags
	names    []string
	policies []string
	rounds   int
	longest  float64 // ms
	most     int     // MiB
	jobs     string
}

// newTasksRun makes "infer tasks run".
func newTasksRun(m *cli.ModelFlags) *cobra.Command {
	var r runFlags
	c := &cobra.Command{
		Use:   "run [SAMPLES...]",
		Short: "Run a stream of tasks on CPU and GPUs at once, by several policies",
		Long: `run does for real what simulate computes: it runs a stream of tasks on the CPU and the
GPUs at once, under each policy in turns, and prints what the simulation said beside it.
Each GPU has two tasks in flight, each with a thread of the host. The tasks of the CPU run
on the cores that are left, or on --threads. Each result is compared with a reference.
What a lost GPU had not finished is done on another device, and so are tasks too large
for its memory.

SAMPLES are those of 'infer tasks bench' on this machine. Without them the tasks are
measured first. The model is fitted to every second size; the stream is of the others.
The bound and the oracle know only the medians of the samples. Times vary from run to run,
so that a run may be closer to the bound than the oracle is, or below it.`,
		Example: `  infer tasks run
  infer tasks run out/samples.csv --device cpu,cuda:0 --gantt schedule.svg`,
		Annotations: map[string]string{cli.UsesKey: "model device threads quiet", cli.ListsKey: "device", cli.AllDevicesKey: "yes",
			cli.HelpKey + "device": "run on `DEVICES`: cpu, a list such as cpu,cuda:1, or all\n(default: the CPU, and the first GPU if all that it needs is there)"},
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			return r.run(c.Context(), m, args, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	r.register(c.Flags(), 300, 100_000)
	cli.AddFlags(c.Flags(), "Stream", func(f *pflag.FlagSet) {
		f.StringSliceVar(&r.names, "tasks", nil, "of these `TASKS`, such as vector.add (default: all)")
		f.Var(cli.Float(&r.longest, 10, cli.Between(math.SmallestNonzeroFloat64, 1e6)), "longest", "leave out tasks that take the CPU more than `MS` at least")
		f.Var(cli.Int(&r.most, 64, megabytes), "max-size", "leave out inputs and results of more than `MIB` together")
	})
	cli.AddFlags(c.Flags(), "Policies", func(f *pflag.FlagSet) {
		f.StringSliceVar(&r.policies, "policy", nil, "run these `POLICIES`, named as in the table (default: all)")
		f.Var(cli.Int(&r.rounds, 3, repeats), "rounds", "run each policy `N` times, in turns; the table shows the median")
	})
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVar(&r.jobs, "jobs", "", "write a row for each task of each run to `FILE`, as CSV")
	})
	return c
}

func (r *runFlags) checkRun(samples []string) error {
	if r.gantt != "" && filepath.Clean(r.gantt) == filepath.Clean(r.jobs) {
		return cli.Usagef("--gantt and --jobs %s: give two files", cli.ShellQuote(r.jobs))
	}
	return cmp.Or(r.keeps("--gantt", r.gantt, samples), r.keeps("--jobs", r.jobs, samples))
}

// chosen returns the names of the policies to run, in the order of the table.
func (r *runFlags) chosen(names []string) ([]string, error) {
	for _, name := range r.policies {
		if err := checkPolicy("--policy", name, names); err != nil {
			return nil, err
		}
	}
	if err := checkPolicy("--gantt-policy", r.ganttPolicy, names); err != nil {
		return nil, err
	}
	if len(r.policies) > 0 {
		names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(r.policies, name) })
	}
	if r.gantt != "" && !slices.Contains(names, r.ganttPolicy) {
		return nil, cli.Usagef("--gantt-policy %s: that policy is not run", cli.ShellQuote(r.ganttPolicy))
	}
	return names, nil
}

func (r *runFlags) run(ctx context.Context, m *cli.ModelFlags, args []string, stdout, stderr io.Writer) error {
	if err := r.checkRun(args); err != nil {
		return err
	}
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
	o, err := (&tasksFlags{}).options(m, model)
	if err != nil {
		return err
	}
	o.Threads = cmp.Or(o.Threads, schedule.Threads(runtime.GOMAXPROCS(0), len(o.GPUs)))
	machine, err := tasks.Open(o)
	if err != nil {
		return err
	}
	defer machine.Close()
	devices := machine.Devices()
	if devices[0] != tasks.CPU {
		return cli.Usagef("--device %s: the CPU must take part; give cpu,%s", m.Device, m.Device)
	}
	names, err := r.chosen(schedule.PolicyNames(schedule.DevicesOf(devices)))
	if err != nil {
		return err
	}
	rows, err := r.rows(ctx, m, machine, chosen, args, stderr)
	if err != nil {
		return err
	}
	p, err := schedule.Setup{
		Rows: rows, Devices: devices, Memory: predict.Pinned, Jobs: r.n, Interval: r.interval, Seed: r.seed,
		Chosen: chosen, LongestUs: r.longest * 1e3, Most: int64(r.most) << 20, Model: r.predictor(ctx, false),
	}.Prepare()
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
	runs, err := r.runs(ctx, m, p, real, names, stderr)
	if err != nil {
		return err
	}
	if err := cmp.Or(r.draw(ctx, p, runs), r.writeJobs(ctx, p, runs)); err != nil {
		return err
	}
	report := p.Report(runs)
	if r.json {
		return cli.WriteJSON(stdout, report)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s of %s on %s, %s\n", cli.Count(report.Tasks, "task"), cli.Count(len(p.Kinds), "kind"), report.Machine, strings.Join(report.Devices, " and "))
	fmt.Fprintf(&b, "lower bound of the makespan %s, from medians of single tasks; makespans are medians of %s\n\n", humanize.Milliseconds(report.BoundUs/1e3), cli.Count(report.Rounds, "run"))
	writePolicies(&b, report, true)
	for _, r := range report.Policies {
		if r.NoRoom > 0 {
			fmt.Fprintf(&b, "%s: %s done on the CPU, since a GPU had too little memory\n", r.Policy, cli.Count(r.NoRoom, "task"))
		}
	}
	return cli.WriteOutput(stdout, b.Bytes())
}

// rows reads samples, or measures what the stream can be made of.
func (r *runFlags) rows(ctx context.Context, m *cli.ModelFlags, machine *tasks.Machine, chosen []*tasks.Task, args []string, stderr io.Writer) ([]predict.Row, error) {
	if len(args) > 0 {
		return ReadRows(stderr, args)
	}
	if err := (&tasksFlags{}).ceilings(ctx, m, machine, stderr); err != nil { // floors are made of them
		return nil, err
	}
	bar := m.Progress(stderr, "measuring", false)
	samples, leftOut, err := schedule.Measure(ctx, machine, chosen, 5, r.longest*1e3, int64(r.most)<<20, r.seed,
		func(done, of int) { bar.Set(int64(done), int64(of)) })
	bar.Done()
	if leftOut > 0 {
		m.Notice(fmt.Sprintf("%s of tasks are left out, since a GPU has too little memory for them", cli.Count(leftOut, "size")))
	}
	rows, _, _ := tasks.Rows(samples)
	return rows, err
}

// runs runs the policies in turns.
func (r *runFlags) runs(ctx context.Context, m *cli.ModelFlags, p *schedule.Prepared, real *schedule.Machine, names []string, stderr io.Writer) (map[string][]schedule.Result, error) {
	runs := map[string][]schedule.Result{}
	policies := p.Policies()
	random := rand.New(rand.NewPCG(r.seed, 2))
	bar := m.Progress(stderr, "running", false)
	defer bar.Done()
	for round := range r.rounds {
		for i, at := range random.Perm(len(names)) {
			policy := policies[slices.IndexFunc(policies, func(p schedule.Policy) bool { return p.Name == names[at] })]
			result, err := real.Run(ctx, p, policy)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", policy.Name, err)
			}
			if result.Lost != "" {
				m.Notice("a GPU was lost, and its tasks were done on other devices: " + result.Lost)
			}
			runs[policy.Name] = append(runs[policy.Name], result)
			bar.Set(int64(round*len(names)+i+1), int64(r.rounds*len(names)))
		}
	}
	return runs, nil
}

// writeJobs writes --jobs.
func (r *runFlags) writeJobs(ctx context.Context, p *schedule.Prepared, runs map[string][]schedule.Result) error {
	if r.jobs == "" {
		return nil
	}
	return cli.WriteFile(ctx, r.jobs, func(w io.Writer) error {
		c := csv.NewWriter(w)
		c.Write(strings.Split("policy,round,id,task,shape,dtype,device,expected_us,us,in_us,run_us,out_us,planned_end_us,start_us,end_us", ","))
		us := func(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }
		for _, policy := range schedule.PolicyNames(p.Devices) {
			for round, result := range runs[policy] {
				for _, d := range result.Done {
					c.Write([]string{policy, strconv.Itoa(round + 1), strconv.Itoa(d.Job.ID), d.Job.Task, d.Job.Shape,
						d.Job.Work[schedule.Host].DType, p.Devices[d.Device].Name, us(d.Expected.Total()), us(d.Times.Total()),
						us(d.Times.In), us(d.Times.Run), us(d.Times.Out), us(d.Plan.End), us(d.Actual.Start), us(d.Actual.End)})
				}
			}
		}
		c.Flush()
		return c.Error()
	})
}
