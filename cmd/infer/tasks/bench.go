package tasks

import (
	"bytes"
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
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/journal"
	"gpt2scope/tasks"
)

// tasksFlags are the flags of "infer tasks bench".
type tasksFlags struct {
	dir            string
	names          []string
	repeat, rounds int
	seed           uint64
	plain          bool
	most           int // MiB
	few            int // shapes of each task; 0 is all
	machine        string
	shard          string
	noFloor        bool
	force, json    bool

	part journal.Shard // parsed
}

// newTasksBench makes "infer tasks bench".
func newTasksBench(m *cli.ModelFlags) *cobra.Command {
	var t tasksFlags
	c := &cobra.Command{
		Use:   "bench -o DIR",
		Short: "Measure the suite of tasks",
		Long: `bench measures tasks at many sizes on the CPU and on GPUs, in turns and in random order,
after a warm-up, on random numbers. The result of each run is compared with a reference in
float64. A run on a GPU is taken apart: the calls that queue it, copies to the GPU, kernels,
copies back; from ordinary (pageable) memory, from pinned memory, and with the data on the
GPU. Beside the tuned ways stand plain ones: a loop in one thread, one thread of a GPU.

DIR holds samples.csv, with a row for each run. It holds a table each of vector.add, square
matmul and reduce.sum, if they were measured, with the columns size,cpu_time_ms,gpu_time_ms
and more. Runs that other programs may have slowed are marked. After Ctrl-C the same
command goes on from there (tasks.state). --shard divides the work among several processes or
machines; 'infer tasks merge' puts their samples together.`,
		Example: `  infer tasks bench -o out
  infer tasks bench -o out --few 10
  infer tasks bench -o out --tasks vector.add --repeat 20
  infer tasks bench -o out --tasks gpt2 -m random:gpt2 --device cpu,cuda:0
  infer tasks bench -o part2 --shard 2/8`,
		Annotations: map[string]string{cli.UsesKey: "model device threads quiet", cli.ArgumentKey: "-o", cli.ListsKey: "device", cli.AllDevicesKey: "yes",
			cli.HelpKey + "device": "measure `DEVICES`: cpu, cuda, cuda:N, a list of them, or all\n(default: the CPU, and the first GPU if all that it needs is there)"},
		RunE: func(c *cobra.Command, _ []string) error {
			return t.run(c.Context(), m, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	cli.AddFlags(c.Flags(), "Tasks", func(f *pflag.FlagSet) {
		f.StringSliceVar(&t.names, "tasks", nil, "measure these `TASKS`, such as vector.add, or vector for vector.add\nand vector.square (default: all)")
		f.BoolVar(&t.plain, "plain", true, "measure the plain ways too, up to some size")
		f.Var(cli.Int(&t.most, 1024, megabytes), "max-size", "leave out inputs and results of more than `MIB` together")
		f.Var(cli.Int(&t.few, 0, cli.Between(0, 1000)), "few", "measure only `N` shapes of each task, from the smallest to the largest; ten adapt\nthe cost model to this machine (default: all)")
		f.StringVar(&t.shard, "shard", "", "measure part `I/N` of the work, such as 2/8")
	})
	cli.AddFlags(c.Flags(), "Measurement", func(f *pflag.FlagSet) {
		f.Var(cli.Int(&t.repeat, 10, repeats), "repeat", "measure each case `N` times")
		f.Var(cli.Int(&t.rounds, 2, repeats), "rounds", "in `N` rounds, each in another order")
		f.Uint64Var(&t.seed, "seed", 1, "`SEED` of the order")
		f.BoolVar(&t.noFloor, "no-floor", false, "do not measure the devices for floors, without which a prediction\ncannot be fitted")
		f.StringVar(&t.machine, "machine", "", "`NAME` of this machine in the samples (default: its host name)")
	})
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVarP(&t.dir, "out", "o", "", "`DIR` for the results; it is made if it does not exist")
		f.BoolVar(&t.force, "force", false, "write into a DIR that holds other files than those of a measurement")
		f.BoolVar(&t.json, "json", false, "print one JSON object for the table")
	})
	return c
}

// check finds what is wrong whatever the machine has.
func (t *tasksFlags) check() (err error) {
	_, absent := os.Stat(filepath.Join(t.dir, tasks.State.File))
	if err := cli.CheckFolder(t.dir, t.force || absent == nil); err != nil {
		return err
	}
	if t.shard != "" {
		if t.part, err = journal.ParseShard(t.shard); err != nil {
			return cli.Usagef("--shard: %w", err)
		}
	}
	return nil
}

// repeats are how often something may be measured, megabytes how large it may be.
var (
	repeats   = cli.Between(1, 1000)
	megabytes = cli.Between(1, 1<<20)
)

func (t *tasksFlags) run(ctx context.Context, m *cli.ModelFlags, stdout, stderr io.Writer) error {
	if err := t.check(); err != nil {
		return err
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
	machine, err := t.open(m, model)
	if err != nil {
		return err
	}
	defer machine.Close()
	if err := os.MkdirAll(t.dir, 0o777); err != nil { // before ceilings are measured, which takes a while
		return fmt.Errorf("--out %s: the directory cannot be made: %w", cli.ShellQuote(t.dir), humanize.Cause(err))
	}
	if err := t.ceilings(ctx, m, machine, stderr); err != nil {
		return err
	}
	b := tasks.Bench{Machine: machine, Suite: tasks.Suite{Tasks: chosen, Devices: machine.Devices(), Plain: t.plain, Few: t.few,
		Repeat: t.repeat, Rounds: min(t.rounds, t.repeat), Seed: t.seed, Most: int64(t.most) << 20, Shard: t.part}}
	journal, err := tasks.State.Open(t.dir, t.configuration(m, &b))
	if err != nil {
		return fmt.Errorf("--out %s: %w", cli.ShellQuote(t.dir), err)
	}
	defer journal.Close()
	bar := m.Progress(stderr, "measuring", false)
	stopped := b.Run(ctx, journal, func(done, total int) { bar.Set(int64(done), int64(total)) })
	bar.Done()
	samples := journal.Rows()
	if err := tasks.Write(context.WithoutCancel(ctx), t.dir, samples); err != nil {
		return err
	}
	switch {
	case stopped != nil && ctx.Err() != nil:
		return fmt.Errorf("%w; %s are in %s, and the same command goes on from there", context.Cause(ctx), cli.Count(len(samples), "sample"), t.dir)
	case stopped != nil:
		return fmt.Errorf("%w; %s are in %s", stopped, cli.Count(len(samples), "sample"), t.dir)
	}
	crossings := tasks.Crossovers(samples, t.seed)
	if t.json {
		return cli.WriteJSON(stdout, TasksObject{t.dir, len(samples), disturbed(samples), crossings})
	}
	var out bytes.Buffer
	writeCrossovers(&out, crossings)
	fmt.Fprintf(&out, "\n%s are in %s", cli.Count(len(samples), "sample"), t.dir)
	if n := disturbed(samples); n > 0 {
		fmt.Fprintf(&out, "; %s marked as disturbed", humanize.Count(n, "is", "are"))
	}
	fmt.Fprintln(&out)
	return cli.WriteOutput(stdout, out.Bytes())
}

// ceilings finds or measures what the devices can do, for floors.
func (t *tasksFlags) ceilings(ctx context.Context, m *cli.ModelFlags, machine *tasks.Machine, stderr io.Writer) (err error) {
	for _, name := range machine.Devices() {
		backend, set := machine.Measurer(name), ceilings.Set{}
		if t.noFloor {
			set.Key, err = backend.(gpt2.CeilingMeasurer).CeilingsKey()
		} else {
			set, _, err = cli.CeilingsOf(ctx, backend, m, false, stderr)
		}
		if err != nil {
			return err
		}
		machine.SetCeilings(name, set)
	}
	return nil
}

// disturbed counts samples that others may have slowed.
func disturbed(samples []tasks.Sample) int {
	n := 0
	for i := range samples {
		if samples[i].Disturbed {
			n++
		}
	}
	return n
}

// configuration is what a measurement is of. Samples of different ones do not go together.
func (t *tasksFlags) configuration(m *cli.ModelFlags, b *tasks.Bench) map[string]any {
	var names []string
	for _, task := range b.Suite.Tasks {
		names = append(names, task.Name)
	}
	return map[string]any{
		"model": b.Machine.Model.Name, "version": cli.Version(), "machine": b.Machine.Name, "keys": b.Machine.Keys(),
		"tasks": names, "plain": t.plain, "max_size": t.most, "repeat": t.repeat, "rounds": t.rounds, "seed": t.seed,
		"shard": t.shard, "threads": m.Threads, "floors": !t.noFloor, "few": t.few,
	}
}

// open opens the devices of --device.
func (t *tasksFlags) open(m *cli.ModelFlags, model *gpt2.Model) (*tasks.Machine, error) {
	o, err := t.options(m, model)
	if err != nil {
		return nil, err
	}
	return tasks.Open(o)
}

// options returns what a machine of the devices of --device is opened with: auto is the CPU, and the first GPU if
// there is one that can be used; all is the CPU and all GPUs.
func (t *tasksFlags) options(m *cli.ModelFlags, model *gpt2.Model) (tasks.Options, error) {
	o := tasks.Options{Name: t.machine, Threads: m.Threads, Model: model}
	if o.Name == "" {
		o.Name, _ = os.Hostname()
	}
	for device := range strings.SplitSeq(m.Device, ",") {
		name, index, _ := strings.Cut(device, ":")
		switch name {
		case "reference":
			return o, cli.Usagef("--device reference: it is not measured; give cpu, cuda, cuda:N, a list of them, or all")
		case "cpu":
			o.CPU = true
		case "cuda":
			i, _ := strconv.Atoi(index) // checked with the flag
			o.GPUs = append(o.GPUs, i)
		case "auto", "all":
			o.CPU = true
			n, err := usableGPUs()
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

// usableGPUs returns how many GPUs there are with all that they need.
func usableGPUs() (int, error) {
	lib, err := cuda.Open()
	if err != nil {
		return 0, err
	}
	return lib.DeviceCount()
}

// TasksObject is what "infer tasks bench --json" prints.
type TasksObject struct {
	Dir        string            `json:"dir"`
	Samples    int               `json:"samples"`
	Disturbed  int               `json:"disturbed"`
	Crossovers []tasks.Crossover `json:"crossovers"`
}
