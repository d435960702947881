package tasks

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/humanize"
	"gpt2scope/tasks"
)

// newTasksMerge makes "infer tasks merge".
func newTasksMerge() *cobra.Command {
	var dir string
	var force bool
	c := &cobra.Command{
		Use:   "merge DIR... -o DIR",
		Short: "Put samples of several parts or machines together",
		Long: `merge puts samples together that 'infer tasks bench' measured in several parts (--shard),
or on several machines. Each DIR that it reads holds samples.csv, or is such a file itself,
perhaps compressed by gzip. A sample that is in several of them counts once.`,
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
	if err := cli.CheckFolder(dir, force); err != nil {
		return err
	}
	samples, err := tasks.ReadFiles(from...)
	if err != nil {
		return err
	}
	for _, path := range from {
		if err := cli.CheckSame("--out", filepath.Join(dir, tasks.SamplesFile), path, filepath.Join(path, tasks.SamplesFile)); err != nil {
			return err
		}
	}
	merged := tasks.Merge(samples)
	if err := tasks.Write(ctx, dir, merged); err != nil {
		return err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s are in %s", cli.Count(len(merged), "sample"), dir)
	if n := len(samples) - len(merged); n > 0 {
		fmt.Fprintf(&b, "; %s given more than once", humanize.Count(n, "was", "were"))
	}
	fmt.Fprintln(&b)
	return cli.WriteOutput(stdout, b.Bytes())
}
