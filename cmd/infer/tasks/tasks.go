// Package tasks is 'infer tasks': it measures work on CPU and GPU, and predicts where it finishes first.
package tasks

import (
	"github.com/spf13/cobra"

	"gpt2scope/cmd/infer/cli"
)

// New makes "infer tasks" and its commands.
func New(m *cli.ModelFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "tasks COMMAND",
		Short: "Measure work on CPU and GPU, to decide where it should run",
		Long: `tasks measures a suite of work that a CPU and a GPU can both do: sums and squares of
arrays, reductions, matrix products and passes of the model.`,
		Example: `  infer tasks bench -o out
  infer tasks bench -o out --tasks vector.add --device cpu
  infer tasks steps vector.add
  infer tasks fit out -o model.json
  infer tasks check out
  infer tasks simulate
  infer tasks run`,
		Annotations: map[string]string{cli.UsesKey: ""},
	}
	c.AddCommand(newTasksBench(m), newTasksSteps(m), newTasksMerge(), newTasksPlot(), newTasksFit(), newTasksCheck(), newTasksSimulate(),
		newTasksRun(m))
	return c
}
