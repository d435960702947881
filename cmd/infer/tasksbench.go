package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cpu"
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
		Annotations: map[string]string{usesKey: "device threads quiet", argumentKey: "-o"},
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
	chosen, err := tasks.Find(t.names)
	if err != nil {
		return usagef("--tasks: %w", err)
	}
	if err := (weights.Folder{Path: t.dir, Force: t.force}).Check(); err != nil {
		return fmt.Errorf("--out %w", err)
	}
	if t.machine == "" {
		t.machine, _ = os.Hostname()
	}
	backend, err := cpu.New(cpu.Options{Threads: m.threads})
	if err != nil {
		return err
	}
	defer backend.Close()
	machine := &tasks.Machine{Name: t.machine, Team: backend.Team()}
	if machine.CPU.Ceilings, _, err = ceilingsOf(ctx, backend, m, false, stderr); err != nil {
		return err
	}
	machine.CPU.Key = machine.CPU.Ceilings.Key
	b := tasks.Bench{Machine: machine, Suite: tasks.Suite{Tasks: chosen, Devices: []string{tasks.CPU}, Plain: t.plain, Repeat: t.repeat, Rounds: t.rounds, Seed: t.seed, Most: t.most << 20}}
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
