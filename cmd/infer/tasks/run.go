package tasks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/dispatch"
	"gpt2scope/internal/humanize"
	"gpt2scope/predict"
	"gpt2scope/tasks"
)

// runFlags are the flags of "infer tasks run".
type runFlags struct {
	simulateFlags
	names    []string
	policies []string
	rounds   int
	longest  float64 // ms
	most     int64   // MiB
	keep     bool
	jobs     string
	lanes    int // of each GPU; 0: as the cores allow
}

// newTasksRun makes "infer tasks run".
func newTasksRun(m *cli.ModelFlags) *cobra.Command {
	var r runFlags
	c := &cobra.Command{
		Use:   "run [SAMPLES...]",
		Short: "Run a stream of tasks on CPU and GPUs at once, by several policies",
		Long: `run does for real what simulate computes: it runs a stream of tasks on the CPU and the
GPUs at once, under each policy in turns, and prints what the simulation said beside it.
Each GPU has a thread of the host that feeds it tasks over arrays, two in flight, and one for
each of its --lanes, which run a task of GPT-2 each. The tasks of the CPU run on the cores that
are left, or on --threads. Each result is compared with a reference. What a lost GPU had not
finished is done on another device, and so are tasks too large for its memory.

SAMPLES are those of 'infer tasks bench' on this machine. Without them the tasks are
measured first. The model is fitted to every second size; the stream is of the others.
The bound and the oracle know only the medians of the samples. Times vary from run to run, so
that a run may be closer to the bound than the oracle is, or below it.`,
		Example: `  infer tasks run
  infer tasks run out/samples.csv --device cpu,cuda:0 --gantt schedule.svg`,
		Annotations: map[string]string{cli.UsesKey: "model device threads quiet", cli.ListsKey: "device", cli.AllDevicesKey: "yes",
			cli.HelpKey + "device": "run on `DEVICES`: cpu, a list such as cpu,cuda:1, or all\n(default: the CPU, and the first GPU if all that it needs is there)"},
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			return r.run(c.Context(), m, args, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	cli.AddFlags(c.Flags(), "Stream", func(f *pflag.FlagSet) {
		f.IntVar(&r.n, "count", 300, "the stream has `N` tasks")
		f.Float64Var(&r.interval, "interval", 0, "tasks arrive `US` microseconds apart on average; 0: all at once")
		f.Uint64Var(&r.seed, "seed", 1, "`SEED` of the stream and of the order of policies")
		f.StringSliceVar(&r.names, "tasks", nil, "of these `TASKS`, such as vector.add (default: all)")
		f.Float64Var(&r.longest, "longest", 10, "leave out tasks that take the CPU more than `MS` at least")
		f.Int64Var(&r.most, "max-size", 64, "leave out inputs and results of more than `MIB` together")
		f.StringVar(&r.load, "load", "", "put `LOAD` on a device, such as cpu:50 or cuda:0:100 (percent), from when\na third of the tasks have ended")
		f.IntVar(&r.lanes, "lanes", 0, "each GPU runs up to `N` tasks of GPT-2 at once (default: as cores\nallow, 6 at most)")
		f.BoolVar(&r.keep, "keep", false, "inputs stay on a GPU once a task has brought them there")
	})
	cli.AddFlags(c.Flags(), "Policies", func(f *pflag.FlagSet) {
		f.StringSliceVar(&r.policies, "policy", nil, "run these `POLICIES`, named as in the table (default: all)")
		f.IntVar(&r.rounds, "rounds", 3, "run each policy `N` times, in turns; the table shows the median")
		f.StringVar(&r.heldOut, "held-out", "sizes", "`WHAT` the model has not seen: sizes, task, nothing")
		f.StringVar(&r.model, "model-file", "", "use the model in `FILE` of 'infer tasks fit' instead")
	})
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVar(&r.gantt, "gantt", "", "draw the schedule to `FILE`, an SVG picture")
		f.StringVar(&r.ganttPolicy, "gantt-policy", "ours", "draw the schedule of `POLICY`")
		f.StringVar(&r.jobs, "jobs", "", "write a row for each task of each run to `FILE`, as CSV")
		f.BoolVar(&r.json, "json", false, "print one JSON object")
	})
	return c
}

func (r *runFlags) checkRun(samples []string) error {
	r.memory = "pinned"
	if _, err := r.check(); err != nil {
		return err
	}
	switch {
	case r.n > 100_000:
		return cli.Usagef("--count %d: it must be from 1 to 100000", r.n)
	case r.rounds < 1 || r.rounds > 1000:
		return cli.Usagef("--rounds %d: it must be from 1 to 1000", r.rounds)
	case !(r.longest > 0 && r.longest <= 1e6):
		return cli.Usagef("--longest %g: it must be more than 0 and at most 1e6 milliseconds", r.longest)
	case r.most < 1 || r.most > 1<<20:
		return cli.Usagef("--max-size %d: it must be from 1 to %d", r.most, 1<<20)
	case r.lanes < 0 || r.lanes > dispatch.MaxLanes:
		return cli.Usagef("--lanes %d: it must be from 1 to %d", r.lanes, dispatch.MaxLanes)
	case r.gantt != "" && filepath.Clean(r.gantt) == filepath.Clean(r.jobs):
		return cli.Usagef("--gantt and --jobs %s: give two files", cli.ShellQuote(r.jobs))
	}
	return cmp.Or(r.keeps("--gantt", r.gantt, samples), r.keeps("--jobs", r.jobs, samples))
}

// chosen returns the names of the policies to run, in the order of the table.
func (r *runFlags) chosen(devices []dispatch.Device) ([]string, error) {
	names := dispatch.PolicyNames(devices)
	for _, name := range r.policies {
		if !slices.Contains(names, name) {
			return nil, cli.Usagef("--policy %s: there is no such policy; policies are %s", cli.ShellQuote(name), strings.Join(names, ", "))
		}
	}
	if !slices.Contains(names, r.ganttPolicy) {
		return nil, cli.Usagef("--gantt-policy %s: there is no such policy; policies are %s", cli.ShellQuote(r.ganttPolicy), strings.Join(names, ", "))
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
	chosen, err := tasks.Find(tasks.ForModel(model.Config), r.names)
	if err != nil {
		return cli.Usagef("--tasks: %w", err)
	}
	o, err := (&tasksFlags{}).options(m, model)
	if err != nil {
		return err
	}
	threads, lanes := dispatch.Threads(runtime.GOMAXPROCS(0), len(o.GPUs), r.lanes)
	o.Threads, r.lanes = cmp.Or(o.Threads, threads), lanes // --threads changes no lanes
	machine, err := tasks.Open(o)
	if err != nil {
		return err
	}
	defer machine.Close()
	devices := machine.Devices()
	if devices[0] != tasks.CPU {
		return cli.Usagef("--device %s: the CPU must take part; give cpu,%s", m.Device, m.Device)
	}
	of := dispatch.DevicesOf(devices, r.lanes)
	names, err := r.chosen(of)
	if err != nil {
		return err
	}
	if r.injected != nil {
		if _, err := r.injected.Index(of); err != nil {
			return cli.Usagef("--load %s: %w", cli.ShellQuote(r.load), err)
		}
	}
	if len(args) == 0 { // floors are in samples
		if err := (&tasksFlags{}).ceilings(ctx, m, machine, stderr); err != nil {
			return err
		}
	}
	p, err := r.prepare(ctx, m, machine, chosen, args, stderr)
	if err != nil {
		return err
	}
	real, err := p.Open(ctx, machine, tasks.ForModel(model.Config))
	if err != nil {
		return err
	}
	defer real.Close()
	real.Keep, real.Load = r.keep, r.injected
	watched, stop := context.WithCancel(ctx)
	defer stop()
	real.WatchNVML(watched)
	runs, err := r.runs(ctx, m, p, real, names, stderr)
	if err != nil {
		return err
	}
	if err := r.write(ctx, p, runs); err != nil {
		return err
	}
	report := p.ReportOf(p.Medians(), runs, real.Load)
	if r.json {
		return cli.WriteJSON(stdout, report)
	}
	var b bytes.Buffer
	writeRuns(&b, p, report)
	return cli.WriteOutput(stdout, b.Bytes())
}

// prepare draws the stream, of samples or of what it measures.
func (r *runFlags) prepare(ctx context.Context, m *cli.ModelFlags, machine *tasks.Machine, chosen []*tasks.Task, args []string, stderr io.Writer) (*dispatch.Prepared, error) {
	setup := dispatch.Setup{Devices: machine.Devices(), Memory: predict.Pinned, HeldOut: dispatch.HeldOut(r.heldOut), Jobs: r.n, Interval: r.interval, Seed: r.seed, Lanes: r.lanes}
	var err error
	if len(args) > 0 {
		setup.Rows, err = ReadRows(stderr, args)
	} else {
		bar := m.Progress(stderr, "measuring", false)
		var samples []tasks.Sample
		var leftOut int
		samples, leftOut, err = dispatch.Measure(ctx, machine, chosen, 5, r.longest*1e3, r.most<<20, r.seed, func(done, of int) { bar.Set(int64(done), int64(of)) })
		bar.Done()
		if leftOut > 0 {
			m.Notice(fmt.Sprintf("%s of tasks are left out, since a GPU has too little memory for them", cli.Count(leftOut, "size")))
		}
		setup.Rows, _ = tasks.Rows(samples)
	}
	if err != nil {
		return nil, err
	}
	setup.Rows = dispatch.Within(setup.Rows, chosen, r.longest*1e3, r.most<<20)
	if setup.Model, err = r.readModel(); err != nil {
		return nil, err
	}
	return setup.Prepare()
}

// runs runs the policies in turns.
func (r *runFlags) runs(ctx context.Context, m *cli.ModelFlags, p *dispatch.Prepared, real *dispatch.Machine, names []string, stderr io.Writer) (map[string][]dispatch.Result, error) {
	runs := map[string][]dispatch.Result{}
	random := rand.New(rand.NewPCG(r.seed, 2))
	bar := m.Progress(stderr, "running", false)
	defer bar.Done()
	for round := range r.rounds {
		for i, at := range random.Perm(len(names)) {
			policies := p.Policies(p.Medians()) // anew: some have learnt
			policy := policies[slices.IndexFunc(policies, func(p dispatch.Policy) bool { return p.Name == names[at] })]
			result, err := real.Run(ctx, p, policy)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", policy.Name, err)
			}
			if result.Lost != nil {
				m.Notice(fmt.Sprintf("a GPU was lost, and its tasks were done on the CPU: %v", result.Lost))
			}
			runs[policy.Name] = append(runs[policy.Name], result)
			bar.Set(int64(round*len(names)+i+1), int64(r.rounds*len(names)))
		}
	}
	return runs, nil
}

// write writes the picture and the rows of tasks.
func (r *runFlags) write(ctx context.Context, p *dispatch.Prepared, runs map[string][]dispatch.Result) error {
	if r.gantt != "" {
		if err := cli.WriteFile(ctx, r.gantt, func(w io.Writer) error { return dispatch.Gantt(w, dispatch.Median(runs[r.ganttPolicy]), p.Kinds) }); err != nil {
			return err
		}
	}
	if r.jobs == "" {
		return nil
	}
	return cli.WriteFile(ctx, r.jobs, func(w io.Writer) error {
		c := csv.NewWriter(w)
		c.Write(strings.Split("policy,round,id,task,shape,dtype,device,measured,predicted_us,us,in_us,run_us,out_us,planned_start_us,planned_end_us,start_us,end_us,checked_us", ","))
		us := func(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }
		for _, policy := range dispatch.PolicyNames(p.Devices) {
			for round, result := range runs[policy] {
				for _, d := range result.Done {
					c.Write([]string{policy, strconv.Itoa(round + 1), strconv.Itoa(d.Job.ID), d.Job.Task, d.Job.Shape, d.Job.Work[dispatch.Host].DType, result.Devices[d.Device].Name, strconv.FormatBool(d.Probe),
						us(d.Decided.Total()), us(d.Times.Total()), us(d.Times.In), us(d.Times.Run), us(d.Times.Out), us(d.Plan.Start), us(d.Plan.End), us(d.Actual.Start), us(d.Actual.End), us(d.Checked)})
				}
			}
		}
		c.Flush()
		return c.Error()
	})
}

// readModel reads --model-file, nil if it was not given.
func (s *simulateFlags) readModel() (*predict.Model, error) {
	if s.model == "" {
		return nil, nil
	}
	f, err := os.Open(s.model)
	if err != nil {
		return nil, fmt.Errorf("model %s cannot be opened: %w", s.model, humanize.Cause(err))
	}
	model, err := predict.Read(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("model %s: %w", s.model, err)
	}
	return model, nil
}

// writeRuns writes the table.
func writeRuns(w io.Writer, p *dispatch.Prepared, report dispatch.RunReport) {
	fmt.Fprintf(w, "%s of %s on %s, %s\n", cli.Count(report.Tasks, "task"), cli.Count(len(p.Kinds), "kind"), report.Machine, strings.Join(report.Devices, " and "))
	fmt.Fprintf(w, "lower bound of the makespan %s, from medians of single tasks; makespans are medians of %s\n", humanize.Milliseconds(report.BoundUs/1e3), cli.Count(report.Rounds, "run"))
	if len(report.Devices) > 1 {
		fmt.Fprintf(w, "it would be %s if a GPU ran one task at a time (serial)", humanize.Milliseconds(report.SerialUs/1e3))
		if report.AtWorkUs > 0 {
			fmt.Fprintf(w, ", and is %s from what tasks took while all devices worked", humanize.Milliseconds(report.AtWorkUs/1e3))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
	heading := "policy\tmakespan ms\tover bound"
	if len(report.Devices) > 1 {
		heading += "\tover serial"
	}
	heading += "\tsimulated ms"
	if report.AtWorkUs > 0 {
		heading += "\tat work ms"
	}
	for _, d := range report.Devices {
		heading += fmt.Sprintf("\t%s tasks\tbusy %%\terror %%\tsettled", d)
	}
	cli.PrintText(w, cli.FirstLeft, heading+"\tmoved\tmeasured", report.Runs, func(r dispatch.PolicyRun) string {
		var b strings.Builder
		fmt.Fprintf(&b, "%s\t%.2f\t%.3f", r.Policy, r.MakespanUs/1e3, r.OverBound)
		if len(r.Devices) > 1 {
			fmt.Fprintf(&b, "\t%.3f", r.OverSerial)
		}
		fmt.Fprintf(&b, "\t%.2f", r.SimulatedUs/1e3)
		if report.AtWorkUs > 0 {
			fmt.Fprintf(&b, "\t%.2f", r.AtWorkUs/1e3)
		}
		for _, d := range r.Devices {
			off, settled := "-", "-"
			if d.Error != nil {
				off, settled = fmt.Sprintf("%.0f", 100**d.Error), strconv.Itoa(d.Settled)
			}
			fmt.Fprintf(&b, "\t%d\t%.0f\t%s\t%s", d.Tasks, 100*d.Busy, off, settled)
		}
		fmt.Fprintf(&b, "\t%d\t%d", r.Moved, r.Probes)
		return b.String()
	})
	fmt.Fprintln(w)
	if report.AtWorkUs > 0 {
		fmt.Fprintln(w, "at work: simulated with what tasks took while all devices worked, over medians of single tasks for each kind and device")
	}
	fmt.Fprintf(w, "error: median of the predictions; settled: tasks of the device after which predictions hold within 15 %%\n\n")
	if report.Load != "" {
		fmt.Fprintf(w, "load %s once a third of the tasks had ended; the oracle does not know of it\n", report.Load)
	}
	heading = "policy\tover best device\tp99\tworst"
	for _, d := range report.Devices {
		heading += fmt.Sprintf("\t%s recovered after\tlost ms", d)
	}
	cli.PrintText(w, cli.FirstLeft, heading, report.Runs, func(r dispatch.PolicyRun) string {
		line := fmt.Sprintf("%s\t%.3f\t%.2f\t%.2f", r.Policy, r.OverBest, r.P99, r.Worst)
		for _, d := range r.Devices {
			if d.Tasks == 0 {
				line += "\t-\t-"
			} else {
				line += "\t" + recovered(d.Recovered, d.LostUs)
			}
		}
		return line
	})
	fmt.Fprintf(w, "over best device: time over the usual time on the device that is best for the task, geometric mean\n%s\n", recoveryWords)
	for _, r := range report.Runs {
		if r.NoRoom > 0 {
			fmt.Fprintf(w, "%s: %s done on the CPU, since a GPU had too little memory\n", r.Policy, cli.Count(r.NoRoom, "task"))
		}
	}
}
