package main

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

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
	"gpt2scope/tasks"
	"gpt2scope/weights"
)

// tasksFlags are the flags of "infer tasks bench".
type tasksFlags struct {
	dir            string
	names          []string
	repeat, rounds int
	seed           uint64
	plain          bool
	most           int64 // MiB
	machine        string
	force          bool
}

// newTasksBench makes "infer tasks bench".
func newTasksBench(m *modelFlags) *cobra.Command {
	var t tasksFlags
	c := &cobra.Command{
		Use:   "bench -o DIR",
		Short: "Measure the suite of tasks",
		Long: `bench measures tasks at many sizes, each way in turns and in random order, on random
numbers. The result of each run is compared with a reference in float64. DIR holds
samples.csv, a row for each measured run.`,
		Example: `  infer tasks bench -o out
  infer tasks bench -o out --tasks vector.add --repeat 20`,
		Annotations: map[string]string{usesKey: "model device threads quiet", argumentKey: "-o", listsKey: "device", allDevicesKey: "yes",
			helpKey + "device": "measure `DEVICES`: cpu, cuda, cuda:N, a list of them, or all\n(default: the CPU, and the first GPU if all that it needs is there)"},
		RunE: func(c *cobra.Command, _ []string) error {
			return t.run(c.Context(), m, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	addFlags(c.Flags(), "Tasks", func(f *pflag.FlagSet) {
		f.StringSliceVar(&t.names, "tasks", nil, "measure these `TASKS`, such as vector.add (default: all)")
		f.BoolVar(&t.plain, "plain", true, "measure the plain variants too, which are slow")
		f.Int64Var(&t.most, "max-size", 1024, "leave out inputs and results of more than `MIB` together")
	})
	addFlags(c.Flags(), "Measurement", func(f *pflag.FlagSet) {
		f.IntVar(&t.repeat, "repeat", 10, "measure each case `N` times")
		f.IntVar(&t.rounds, "rounds", 2, "in `N` rounds, each in another order")
		f.Uint64Var(&t.seed, "seed", 1, "`SEED` of the order")
		f.StringVar(&t.machine, "machine", "", "`NAME` of this machine in the samples (default: its host name)")
	})
	addFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVarP(&t.dir, "out", "o", "", "`DIR` for the results; it is made if it does not exist")
		f.BoolVar(&t.force, "force", false, "write into a DIR that holds other files")
	})
	return c
}

// check finds values that are wrong whatever the machine has.
func (t *tasksFlags) check() error {
	switch {
	case t.dir == "":
		return usagef("give the directory to write: --out DIR")
	case t.repeat < 1 || t.repeat > maxTasksRepeat:
		return usagef("--repeat %d: it must be from 1 to %d", t.repeat, maxTasksRepeat)
	case t.rounds < 1 || t.rounds > t.repeat:
		return usagef("--rounds %d: it must be from 1 to --repeat (%d)", t.rounds, t.repeat)
	case t.most < 1 || t.most > 1<<20:
		return usagef("--max-size %d: it must be from 1 to %d", t.most, 1<<20)
	}
	return nil
}

const maxTasksRepeat = 1000

func (t *tasksFlags) run(ctx context.Context, m *modelFlags, stdout, stderr io.Writer) error {
	if err := t.check(); err != nil {
		return err
	}
	if err := (weights.Folder{Path: t.dir, Force: t.force}).Check(); err != nil {
		return fmt.Errorf("--out %w", err)
	}
	model, err := m.openModel()
	if err != nil {
		return err
	}
	defer model.Close()
	chosen, err := tasks.Find(tasks.ForModel(model.Config), t.names)
	if err != nil {
		return usagef("--tasks: %w", err)
	}
	machine, err := t.open(m, model)
	if err != nil {
		return err
	}
	defer machine.Close()
	for _, name := range machine.Devices() {
		set, _, err := ceilingsOf(ctx, machine.Measurers()[name], m, false, stderr)
		if err != nil {
			return err
		}
		machine.SetCeilings(name, set)
	}
	b := tasks.Bench{Machine: machine, Suite: tasks.Suite{Tasks: chosen, Devices: machine.Devices(), Plain: t.plain, Repeat: t.repeat, Rounds: t.rounds, Seed: t.seed, Most: t.most << 20}}
	var samples []tasks.Sample
	turns := b.Suite.Turns()
	bar := m.progress(stderr, "measuring", false)
	defer func() { bar.done() }()
	for i, turn := range turns {
		some, err := b.Turn(ctx, turn)
		if err != nil {
			return err
		}
		samples = append(samples, some...)
		bar.set(int64(i+1), int64(len(turns)))
	}
	if err := os.MkdirAll(t.dir, 0o777); err != nil {
		return fmt.Errorf("directory %s cannot be made: %w", t.dir, humanize.Cause(err))
	}
	err = weights.WriteFile(ctx, filepath.Join(t.dir, "samples.csv"), func(w io.Writer) error { return tasks.WriteSamples(w, samples) })
	if err != nil {
		return err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s in %s\n", count(len(samples), "sample"), t.dir)
	return writeOutput(stdout, out.Bytes())
}

// open opens the devices of --device: auto is the CPU, and the first GPU if there is one that
// can be used; all is the CPU and all GPUs.
func (t *tasksFlags) open(m *modelFlags, model *gpt2.Model) (*tasks.Machine, error) {
	o := tasks.Options{Name: t.machine, Threads: m.threads, Model: model}
	if o.Name == "" {
		o.Name, _ = os.Hostname()
	}
	for device := range strings.SplitSeq(m.device, ",") {
		name, index, _ := strings.Cut(device, ":")
		switch name {
		case "reference":
			return nil, usagef("--device reference: it is not measured; give cpu, cuda, cuda:N, a list of them, or all")
		case "cpu":
			o.CPU = true
		case "cuda":
			i, _ := strconv.Atoi(index) // checked with the flag
			o.GPUs = append(o.GPUs, i)
		case "auto", "all":
			o.CPU = true
			n, err := usableGPUs()
			if err != nil && m.findDriver().Present {
				m.notice(fmt.Sprintf("only the CPU is measured, since the GPU cannot be used: %v", err))
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
	return tasks.Open(o)
}

// usableGPUs returns how many GPUs there are with all that they need.
func usableGPUs() (int, error) {
	lib, err := cuda.Open()
	if err != nil {
		return 0, err
	}
	return lib.DeviceCount()
}
