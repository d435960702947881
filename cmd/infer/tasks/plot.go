package tasks

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/humanize"
	"gpt2scope/tasks"
	"gpt2scope/tasks/plot"
)

// newTasksPlot makes "infer tasks plot".
func newTasksPlot() *cobra.Command {
	c := &cobra.Command{
		Use:   "plot DIR",
		Short: "Draw times on CPU and GPU over the size, and where they cross",
		Long: `plot draws the samples of 'infer tasks bench' in DIR: of each task the times on the CPU and
on the GPU over the size, the kernels alone and with copies from pageable and pinned memory,
with the crossover and its interval; and how the time on the GPU divides into copies and
kernels. It writes pictures into DIR, SVG and PNG, and tasks.html, a page with all of them.`,
		Example:     "  infer tasks plot out",
		Annotations: map[string]string{cli.UsesKey: ""},
		Args:        cli.Words(1, 1, "the directory of the samples", "DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			return plotTasks(c.Context(), args[0], c.OutOrStdout())
		},
	}
	return c
}

func plotTasks(ctx context.Context, dir string, stdout io.Writer) error {
	if info, err := os.Stat(dir); err != nil {
		return fmt.Errorf("%s: %w", dir, humanize.Cause(err))
	} else if !info.IsDir() {
		return fmt.Errorf("%s is a file; give the directory that holds %s", dir, tasks.SamplesFile)
	}
	samples, err := tasks.ReadFiles(dir)
	if err != nil {
		return err
	}
	n, err := plot.Write(ctx, dir, samples, 1)
	if err != nil {
		return err
	}
	return cli.WriteOutput(stdout, fmt.Appendf(nil, "%s and %s are in %s\n", cli.Count(n, "picture"), filepath.Join(dir, "tasks.html"), dir))
}
