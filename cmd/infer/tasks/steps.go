package tasks

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/stats"
	"gpt2scope/internal/table"
	"gpt2scope/predict"
	"gpt2scope/tasks"
	"gpt2scope/tasks/samples"
)

// stepRuns is how often 'infer tasks steps' runs the program.
const stepRuns = 8

func newTasksSteps(m *cli.ModelFlags) *cobra.Command {
	var n int
	c := &cobra.Command{
		Use:   "steps [TASK]",
		Short: "Time the steps of a GPU program one by one",
		Long: `steps runs a task as a program does that is written step by step: allocate, fill, allocate on the GPU, copy
there, launch, wait, copy back, free. It times each step, the first time and later ones, and draws them one
after the other. Without a GPU it runs the task on the CPU, and shows the GPU's steps from the stored times of
an H200. TASK is vector.add (default), vector.square, reduce.sum or matmul.`,
		Example: `  infer tasks steps
  infer tasks steps matmul --size 512`,
		Annotations: map[string]string{cli.UsesKey: "device threads quiet",
			cli.HelpKey + "device": "`DEVICE`: auto (a GPU if it can be used, or else the CPU), cpu, or a GPU: cuda or cuda:N"},
		Args: cli.Words(0, 1, "a task", "TASK"),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"vector.add"}
			}
			t, err := tasks.OverArrays(args[0])
			if err != nil {
				return cli.Usagef("%w", err)
			}
			if n == 0 {
				n = 10_000_000
				if t.Short != nil {
					n = slices.Max(t.Short)
				}
			}
			if _, err := t.Cost(t.Of(n), tasks.Float32); err != nil {
				return cli.Usagef("--size %d: %w", n, err)
			}
			return showSteps(c, m, t, t.Of(n))
		},
	}
	cli.AddFlags(c.Flags(), "Tasks", func(f *pflag.FlagSet) {
		f.Var(cli.Int(&n, 0, cli.Between(1, 1<<28)), "size", "`N` numbers, or a product with m = n = k = N (default: 10,000,000, of matmul 1,024)")
		f.Lookup("size").DefValue = ""
	})
	return c
}

func showSteps(c *cobra.Command, m *cli.ModelFlags, t *tasks.Task, shape tasks.Shape) error {
	o, err := devices(m, nil)
	if err != nil {
		return err
	}
	o.CPU = len(o.GPUs) == 0
	machine, err := tasks.Open(o)
	if err != nil {
		return err
	}
	defer machine.Close()
	stop := m.Spin(t.Name)
	steps, err := machine.Steps(c.Context(), t, shape, stepRuns)
	stop()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s of %s, each step %d times\n\n", t.Name, shape, stepRuns)
	writeSteps(&b, steps, func(s tasks.Step) (string, float64) {
		return cli.Digits(s.Us[0]), stats.MedianOf(s.Us[1:])
	})
	if len(machine.GPUs) == 0 {
		stored, at, err := storedSteps(t, shape)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "\nThe GPU's steps, stored times of an NVIDIA H200, pageable memory, %s (allocating is in 'infer learn 8'):\n\n", at)
		writeSteps(&b, stored, func(s tasks.Step) (string, float64) { return "-", stats.MedianOf(s.Us) })
	}
	fmt.Fprintln(&b, "\n'infer learn 2' runs a vector addition with two faults: a kernel that is given pointers of the host, and no copy back.")
	return cli.WriteOutput(c.OutOrStdout(), b.Bytes())
}

// writeSteps writes steps with a line of time in letters; times gives the first time and that of later ones.
func writeSteps(b *bytes.Buffer, steps []tasks.Step, times func(tasks.Step) (first string, us float64)) {
	var total, at float64
	for _, s := range steps {
		_, us := times(s)
		total += us
	}
	const width = 50 // letters of the line of time
	lines := [][]string{{"step", "first us", "later us", "%", ""}}
	for _, s := range steps {
		first, us := times(s)
		from := min(width-1, int(width*at/total))
		at += us
		long := max(1, int(math.Round(width*at/total))-from)
		lines = append(lines, []string{s.Name, first, cli.Digits(us), fmt.Sprintf("%.1f", 100*us/total),
			strings.Repeat(" ", from) + strings.Repeat("#", long)})
	}
	table.Align(b, func(column int) bool { return column == 0 || column == 4 }, lines)
	fmt.Fprintf(b, "together %s\n", humanize.Milliseconds(total/1e3))
}

// storedSteps are those that samples of the H200 have of the nearest size, which at names.
func storedSteps(t *tasks.Task, shape tasks.Shape) (steps []tasks.Step, at string, err error) {
	all, err := samples.H200()
	n, nearest := float64(shape[0].Value), math.Inf(1)
	for i := range all {
		s := &all[i]
		is, err := tasks.ParseShape(s.Shape)
		if err != nil || s.Task != t.Name || s.DType != tasks.Float32 || s.Cold || s.Memory != predict.Pageable || t.Of(is[0].Value).String() != s.Shape {
			continue
		}
		if off := math.Abs(math.Log(float64(is[0].Value) / n)); off < nearest {
			nearest, at = off, s.Shape
			steps = []tasks.Step{{Name: "copy to the GPU"}, {Name: "launch: until the call returns"}, {Name: "kernel"}, {Name: "copy back"}}
		}
		if s.Shape == at {
			for i, us := range []float64{s.H2DUs, s.SubmitUs, s.KernelUs, s.D2HUs} {
				steps[i].Us = append(steps[i].Us, us)
			}
		}
	}
	return steps, at, err
}
