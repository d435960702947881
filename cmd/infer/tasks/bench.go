package tasks

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/ceilings"
	"gpt2scope/cmd/infer/cli"
	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/internal/files"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/journal"
	"gpt2scope/internal/table"
	"gpt2scope/predict"
	"gpt2scope/tasks"
	"gpt2scope/tasks/plot"
	"gpt2scope/tasks/samples"
)

// tasksFlags are the flags of "infer tasks bench".
type tasksFlags struct {
	dir            string
	names          []string
	repeat, rounds int
	seed           uint64
	most           int // MiB
	few            int // shapes of each task; 0 is all
	sizes          []int
	short          bool
	machine        string
	shard          string
	noFloor        bool
	force, json    bool
}

func newTasksBench(m *cli.ModelFlags) *cobra.Command {
	var t tasksFlags
	c := &cobra.Command{
		Use:   "bench -o DIR",
		Short: "Measure the suite of tasks",
		Long: `bench measures tasks at many sizes on the CPU and on GPUs, in turns and in random order, after a warm-up, on
random numbers. The result of each run is compared with a reference in float64. A run on a GPU is taken
apart: the calls that queue it, copies to the GPU, kernels, copies back; from ordinary (pageable) memory,
from pinned memory, and with the data on the GPU. Beside the tuned ways stand plain ones of the CPU: a loop
in one thread.

DIR holds samples.csv, with a row for each run. It holds a table each of vector.add, square matmul and
reduce.sum, if they were measured, with the columns size,cpu_time_ms,gpu_time_ms and more. Runs that other
programs may have slowed are marked. Where there is no GPU and nothing else is asked for, these three tasks are
measured at the sizes of introductions to GPU profiling, within a minute (--short), beside the times of an H200 that
are stored in the program. After Ctrl-C the same command goes on from there (tasks.state). --shard
divides the work among several processes or machines; 'infer tasks merge' puts their samples together.`,
		Example: `  infer tasks bench -o out
  infer tasks bench -o out --few 10
  infer tasks bench -o out --tasks vector.add --size 1000000,10000000
  infer tasks bench -o out --tasks gpt2 -m random:gpt2 --device cpu,cuda:0
  infer tasks bench -o part2 --shard 2/8`,
		Annotations: map[string]string{cli.UsesKey: "model device threads quiet", cli.ListsKey: "device",
			cli.AllDevicesKey: "yes", cli.HelpKey + "device": "measure `DEVICES`: cpu, cuda, cuda:N, a list of them, or all\n" +
				"(default: the CPU, and the first GPU if all that it needs is there)"},
		RunE: func(c *cobra.Command, _ []string) error {
			return t.run(c, m)
		},
	}
	cli.AddFlags(c.Flags(), "Tasks", func(f *pflag.FlagSet) {
		f.StringSliceVar(&t.names, "tasks", nil, "measure these `TASKS`, such as vector.add, or vector for vector.add\n"+
			"and vector.square (default: all)")
		f.Var(cli.Int(&t.most, 1024, megabytes), "max-size", "leave out inputs and results of more than `MIB` together")
		f.Var(cli.Int(&t.few, 0, cli.Between(0, 1000)), "few", "measure only `N` shapes of each task, from the smallest to "+
			"the largest; ten adapt the cost model to this machine (default: all)")
		f.IntSliceVar(&t.sizes, "size", nil, "measure arrays of `N` numbers, products with m = n = k = N; a list")
		f.BoolVar(&t.short, "short", false, "measure vector.add, matmul and reduce.sum at few sizes, within a minute\n"+
			"(default: without a GPU, unless tasks, sizes or a part are named)")
		f.StringVar(&t.shard, "shard", "", "measure part `I/N` of the work, such as 2/8")
	})
	cli.AddFlags(c.Flags(), "Measurement", func(f *pflag.FlagSet) {
		f.Var(cli.Int(&t.repeat, 10, repeats), "repeat", "measure each case `N` times")
		f.Var(cli.Int(&t.rounds, 2, repeats), "rounds", "in `N` rounds, each in another order")
		f.Uint64Var(&t.seed, "seed", 1, "`SEED` of the order")
		f.BoolVar(&t.noFloor, "no-floor", false, "do not measure the devices for floors, without which a prediction\n"+
			"cannot be fitted")
		f.StringVar(&t.machine, "machine", "", "`NAME` of this machine in the samples (default: its host name)")
	})
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVarP(&t.dir, "out", "o", "", "`DIR` for the results; it is made if it does not exist")
		f.BoolVar(&t.force, "force", false, "write into a DIR that holds other files than those of a measurement")
		f.BoolVar(&t.json, "json", false, "print one JSON object for the table")
	})
	return c
}

// repeats are how often something may be measured, megabytes how large it may be.
var (
	repeats   = cli.Between(1, 1000)
	megabytes = cli.Between(1, 1<<20)
)

func (t *tasksFlags) run(c *cobra.Command, m *cli.ModelFlags) error {
	ctx := c.Context()
	if err := cli.CheckFolder(t.dir, tasks.State.File, t.force); err != nil {
		return err
	}
	var part journal.Shard
	if t.shard != "" {
		var err error
		if part, err = journal.ParseShard(t.shard); err != nil {
			return cli.Usagef("--shard: %w", err)
		}
	}
	model, err := m.OpenModel()
	if err != nil {
		return err
	}
	defer model.Close()
	chosen, err := tasks.Find(tasks.ForModel(model.Config), t.names)
	if err != nil {
		return cli.Usagef("--tasks: %w", err)
	}
	for _, n := range t.sizes {
		if n < 1 || n > 1<<30 {
			return cli.Usagef("--size %d: give numbers from 1 to %d", n, 1<<30)
		}
	}
	o, err := devices(m, model)
	if err != nil {
		return err
	}
	if given := c.Flags().Changed; !given("short") {
		t.short = len(o.GPUs) == 0 && !given("tasks") && !given("few") && !given("size") && !given("shard") && !given("model")
	}
	if t.short {
		chosen = slices.DeleteFunc(slices.Clone(chosen), func(t *tasks.Task) bool { return t.Short == nil })
	}
	o.Name = cmp.Or(t.machine, o.Name)
	machine, err := tasks.Open(o)
	if err != nil {
		return err
	}
	defer machine.Close()
	if err := os.MkdirAll(t.dir, 0o777); err != nil { // before ceilings are measured, which takes a while
		return noDirectory(t.dir, err)
	}
	if err := setCeilings(ctx, m, machine, !t.noFloor); err != nil {
		return err
	}
	b := tasks.Bench{Machine: machine, Suite: tasks.Suite{
		Tasks: chosen, Devices: machine.Devices(), Few: t.few, Repeat: t.repeat,
		Rounds: min(t.rounds, t.repeat), Seed: t.seed, Most: int64(t.most) << 20, Shard: part, Sizes: t.sizes, Short: t.short,
	}}
	if len(b.Suite.Turns()) == 0 {
		return cli.Usagef("nothing is measured: no chosen task has such sizes, or all are larger than --max-size")
	}
	journal, err := tasks.State.Open(t.dir, t.configuration(m, &b))
	if err != nil {
		return fmt.Errorf("--out %s: %w", cli.ShellQuote(t.dir), err)
	}
	defer journal.Close()
	bar := m.Progress("measuring", false)
	stopped := b.Run(ctx, journal, func(done, total int) { bar.Set(int64(done), int64(total)) })
	bar.Done()
	rows := journal.Rows()
	if err := tasks.Write(context.WithoutCancel(ctx), t.dir, rows); err != nil {
		return err
	}
	there := cli.Count(len(rows), "sample") + " are in " + t.dir
	switch {
	case stopped != nil && ctx.Err() != nil:
		return fmt.Errorf("%w; %s, and the same command goes on from there", context.Cause(ctx), there)
	case stopped != nil:
		return fmt.Errorf("%w; %s", stopped, there)
	}
	beside, err := withStored(rows)
	if err != nil {
		return err
	}
	object := TasksObject{t.dir, len(rows), 0, tasks.Crossovers(beside, t.seed)}
	for i := range rows {
		if rows[i].Disturbed {
			object.Disturbed++
		}
	}
	return cli.Print(c, t.json, object, func(w io.Writer) {
		writeTimes(w, rows, beside)
		writeCrossovers(w, object.Crossovers)
		if len(beside) > len(rows) {
			fmt.Fprintln(w, "\nNo GPU was measured: its times are stored ones of an NVIDIA H200 in another machine, at the sizes "+
				"that both have;\ncrossovers are as they would be with that GPU, and the columns gpu_... of the tables in DIR are empty.\n"+
				"'infer tasks plot "+t.dir+"' draws all stored times.")
		}
		fmt.Fprintf(w, "\n%s", there)
		if n := object.Disturbed; n > 0 {
			fmt.Fprintf(w, "; %s marked as disturbed", humanize.Count(n, "is", "are"))
		}
		fmt.Fprintln(w)
	})
}

// setCeilings finds or measures what the devices can do, for floors; without floors it finds their keys.
func setCeilings(ctx context.Context, m *cli.ModelFlags, to *tasks.Machine, floors bool) (err error) {
	for _, name := range to.Devices() {
		backend, set := to.Measurer(name), ceilings.Set{}
		if !floors {
			set.Key, err = backend.(gpt2.CeilingMeasurer).CeilingsKey()
		} else {
			set, _, err = cli.CeilingsOf(ctx, backend, m, false)
		}
		if err != nil {
			return err
		}
		to.SetCeilings(name, set)
	}
	return nil
}

// configuration is what a measurement is of. Samples of different ones do not go together.
func (t *tasksFlags) configuration(m *cli.ModelFlags, b *tasks.Bench) map[string]any {
	var names []string
	for _, task := range b.Suite.Tasks {
		names = append(names, task.Name)
	}
	return map[string]any{
		"model": b.Machine.Model.Name, "version": cli.Version(), "machine": b.Machine.Name, "keys": b.Machine.Keys(),
		"tasks": names, "max_size": t.most, "repeat": t.repeat, "rounds": t.rounds, "seed": t.seed,
		"shard": t.shard, "threads": m.Threads, "floors": !t.noFloor, "few": t.few, "sizes": t.sizes, "short": t.short,
	}
}

// devices returns what a machine of the devices of --device is opened with: auto is the CPU, and the first GPU if there
// is one that can be used; all is the CPU and all GPUs.
func devices(m *cli.ModelFlags, model *gpt2.Model) (o tasks.Options, err error) {
	o = tasks.Options{Threads: m.Threads, Model: model}
	o.Name, _ = os.Hostname()
	for device := range strings.SplitSeq(m.Device, ",") {
		name, index, _ := strings.Cut(device, ":")
		switch name {
		case "reference":
			return o, cli.Usagef("--device reference: it is not measured; give auto, cpu, cuda or cuda:N")
		case "cpu":
			o.CPU = true
		case "cuda":
			i, _ := strconv.Atoi(index) // checked with the flag
			o.GPUs = append(o.GPUs, i)
		case "auto", "all":
			o.CPU = true
			n := 0
			lib, err := cuda.Open()
			if err == nil {
				n, err = lib.DeviceCount()
			}
			if err != nil && m.FindDriver().Present {
				m.Notice(fmt.Sprintf("only the CPU is measured, since the GPU cannot be used: %v", err))
			}
			if name == "auto" {
				n = min(n, 1)
			}
			for i := range n {
				o.GPUs = append(o.GPUs, i)
			}
		}
	}
	slices.Sort(o.GPUs)
	o.GPUs = slices.Compact(o.GPUs)
	return o, nil
}

// TasksObject is what "infer tasks bench --json" prints.
type TasksObject struct {
	Dir        string            `json:"dir"`
	Samples    int               `json:"samples"`
	Disturbed  int               `json:"disturbed"`
	Crossovers []tasks.Crossover `json:"crossovers"`
}

func newTasksMerge() *cobra.Command {
	var dir string
	var force bool
	c := &cobra.Command{
		Use:   "merge DIR... -o DIR",
		Short: "Put samples of several parts or machines together",
		Long: `merge puts samples together that 'infer tasks bench' measured in several parts (--shard), or on several
machines. Each DIR that it reads holds samples.csv, or is such a file itself, perhaps compressed by gzip. A
sample that is in several of them counts once.`,
		Example: `  infer tasks merge part1 part2 -o all
  infer tasks merge h200.csv.gz laptop -o all`,
		Annotations: map[string]string{cli.UsesKey: ""},
		Args:        cli.Words(1, 0, "the directories or files to put together", "DIR... -o DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			return mergeTasks(c.Context(), args, dir, force, c.OutOrStdout())
		},
	}
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVarP(&dir, "out", "o", "", "`DIR` for the samples; it is made if it does not exist")
		f.BoolVar(&force, "force", false, "write into a DIR that holds files")
	})
	return c
}

func mergeTasks(ctx context.Context, from []string, dir string, force bool, stdout io.Writer) error {
	if err := cli.CheckFolder(dir, "", force); err != nil {
		return err
	}
	samples, err := files.Await(ctx, func() ([]tasks.Sample, error) { return tasks.ReadFiles(from...) })
	if err != nil {
		return err
	}
	for _, path := range from {
		out := filepath.Join(dir, tasks.SamplesFile)
		if err := cli.CheckSame("--out", out, path, filepath.Join(path, tasks.SamplesFile)); err != nil {
			return err
		}
	}
	merged := tasks.Merge(samples)
	if err := tasks.Write(ctx, dir, merged); err != nil {
		return err
	}
	text := fmt.Appendf(nil, "%s are in %s", cli.Count(len(merged), "sample"), dir)
	if n := len(samples) - len(merged); n > 0 {
		text = fmt.Appendf(text, "; %s given more than once", humanize.Count(n, "was", "were"))
	}
	return cli.WriteOutput(stdout, append(text, '\n'))
}

func noDirectory(dir string, err error) error {
	return fmt.Errorf("--out %s: the directory cannot be made: %w", cli.ShellQuote(dir), humanize.Cause(err))
}

func newTasksPlot() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "plot [DIR]",
		Short: "Draw times on CPU and GPU over the size, and where they cross",
		Long: `plot draws the samples of 'infer tasks bench' in DIR: of each task the times on the CPU and on the GPU over
the size, the kernels alone and with copies from pageable and pinned memory, with the crossover and its
interval; and how the time on the GPU divides into copies and kernels. Where no GPU was measured, the times of
an H200 that are stored in the program stand beside them, dashed. It writes pictures into DIR, SVG and PNG, and
tasks.html, a page with all of them. Without DIR it draws the stored samples of the H200 and its CPU.`,
		Example: `  infer tasks plot out
  infer tasks plot -o h200`,
		Annotations: map[string]string{cli.UsesKey: ""},
		Args:        cli.Words(0, 1, "the directory of the samples", "DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			all, err := samples.H200()
			dir := cmp.Or(out, "tasks-h200")
			if len(args) > 0 {
				if info, err := os.Stat(args[0]); err == nil && !info.IsDir() {
					return fmt.Errorf("%s is a file; give the directory that holds %s", args[0], tasks.SamplesFile)
				}
				dir = cmp.Or(out, args[0])
				if all, err = tasks.ReadFiles(args[0]); err == nil {
					all, err = withStored(all)
				}
			}
			if err != nil {
				return err
			}
			if err := os.MkdirAll(dir, 0o777); err != nil {
				return noDirectory(dir, err)
			}
			charts := tasks.Charts(all, 1)
			var crossovers []tasks.Crossover
			for _, chart := range charts {
				crossovers = append(crossovers, chart.Crossovers...)
			}
			var b bytes.Buffer
			writeCrossovers(&b, crossovers)
			n, err := plot.Write(c.Context(), dir, charts, b.String())
			if err != nil {
				return err
			}
			text := fmt.Appendf(nil, "%s and %s are in %s\n", cli.Count(n, "picture"), filepath.Join(dir, "tasks.html"), dir)
			return cli.WriteOutput(c.OutOrStdout(), text)
		},
	}
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVarP(&out, "out", "o", "", "`DIR` for the pictures (default: that of the samples, tasks-h200 without one)")
	})
	return c
}

// withStored adds the stored times of a GPU to samples that have none.
func withStored(all []tasks.Sample) ([]tasks.Sample, error) {
	stored, err := samples.H200()
	return tasks.Beside(all, stored), err
}

// timeColumns are those of the table of times.
var timeColumns = []tasks.Column{
	{Name: "CPU, plain loop", Device: tasks.CPU, Memory: predict.Host, Time: tasks.TimePlain},
	{Name: "CPU", Device: tasks.CPU, Memory: predict.Host, Time: tasks.TimeWall},
	{Name: "GPU, pageable", Device: tasks.GPU, Memory: predict.Pageable, Time: tasks.TimeWall},
	{Name: "pinned", Device: tasks.GPU, Memory: predict.Pinned, Time: tasks.TimeWall},
	{Name: "data there", Device: tasks.GPU, Memory: predict.Resident, Time: tasks.TimeWall},
	{Name: "kernel", Device: tasks.GPU, Memory: predict.Resident, Time: tasks.TimeKernel},
}

// writeTimes writes the medians of the tasks that have a table of their own, at the sizes that were measured.
func writeTimes(w io.Writer, measured, beside []tasks.Sample) {
	var lines [][]string
	for _, p := range tasks.Profiles {
		own := map[string]bool{}
		for _, row := range p.Table(measured, timeColumns, cli.Digits) {
			own[row[0]] = true
		}
		for i, row := range p.Table(beside, timeColumns, cli.Digits) {
			if i == 0 && lines == nil {
				lines = append(lines, append([]string{"task"}, row...))
			}
			if size, err := strconv.Atoi(row[0]); err == nil && own[row[0]] {
				row[0] = humanize.Thousands(int64(size))
				for i := range row {
					row[i] = cmp.Or(row[i], "-")
				}
				lines = append(lines, append([]string{p.Task}, row...))
			}
		}
	}
	if lines != nil {
		fmt.Fprintln(w, "median times in us; -: not measured")
		table.Align(w, func(column int) bool { return column == 0 }, lines)
		fmt.Fprintln(w)
	}
}

// writeCrossovers writes where the GPU becomes faster, as a table.
func writeCrossovers(w io.Writer, all []tasks.Crossover) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no crossover: it takes samples of a CPU and of a GPU at three sizes at least")
		return
	}
	const head = "task\ttype\tshape\tdevice\tmemory\tGPU faster from *\t95% interval\totherwise at"
	table.Lines(w, table.Left, head, all, func(c tasks.Crossover) string {
		from, interval, otherwise := "", "", ""
		if c.Exceptions > 0 {
			otherwise = fmt.Sprintf("%d of %s", c.Exceptions, cli.Count(c.Sizes, "size"))
		}
		switch {
		case c.Faster == tasks.CPU:
			from = "no size"
		case c.Size == nil:
			from = "all sizes"
		default:
			from, interval = humanize.Short(*c.Size), humanize.Short(*c.Low)+" - "+humanize.Short(*c.High)
		}
		return strings.Join([]string{c.Task, c.DType, c.Line, c.Device, string(c.Memory), from, interval, otherwise}, "\t")
	})
}
