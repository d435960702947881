package layers

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/layers"
	"gpt2scope/layers/plot"
	"gpt2scope/record"
)

// mergeFlags are the flags of "infer layers merge".
type mergeFlags struct {
	dir                  string
	force, json, noPlots bool
}

// newLayersMerge makes "infer layers merge".
func newLayersMerge() *cobra.Command {
	var f mergeFlags
	c := &cobra.Command{
		Use:   "merge DIR... -o DIR",
		Short: "Put an experiment together that was measured in several parts",
		Long: `merge puts the parts of an experiment together that 'infer layers --shard' measured, each in
a DIR of its own, and prints the tables that one run prints. All parts must be of the same
model, the same kind of device and the same flags. The DIR that it writes is that of one run:
the same command without --shard measures there what is missing. A measurement that several
parts hold counts once; floors are those of the part whose device has the highest ceilings.`,
		Example:     `  infer layers merge part1 part2 -o all`,
		Annotations: map[string]string{cli.UsesKey: ""},
		Args:        cli.Words(1, 0, "the directories to put together", "DIR... -o DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			return f.run(c.Context(), args, c.OutOrStdout())
		},
	}
	cli.AddFlags(c.Flags(), "Output", func(flags *pflag.FlagSet) {
		flags.StringVarP(&f.dir, "out", "o", "", "`DIR` for the results; it is made if it does not exist")
		flags.BoolVar(&f.force, "force", false, "write into a DIR that holds files")
		flags.BoolVar(&f.json, "json", false, "print one JSON object, which is that of layers.json, for the tables")
		flags.BoolVar(&f.noPlots, "no-plots", false, "draw no pictures and no page")
	})
	return c
}

func (f *mergeFlags) run(ctx context.Context, from []string, stdout io.Writer) error {
	if err := cli.CheckFolder(f.dir, f.force); err != nil {
		return err
	}
	for _, dir := range from {
		if err := cli.CheckSame("--out", filepath.Join(f.dir, layers.StateFile), filepath.Join(dir, layers.StateFile)); err != nil {
			return err
		}
	}
	merged, err := layers.Merge(from)
	if err != nil {
		return err
	}
	if err := merged.Save(f.dir); err != nil {
		return fmt.Errorf("--out %s: %w", cli.ShellQuote(f.dir), err)
	}
	result := merged.Result()
	result.Command = record.CommandLine()
	if err := layers.Write(ctx, f.dir, merged.Rows, result); err != nil {
		return err
	}
	if !f.noPlots {
		if err := plot.Write(ctx, f.dir, result); err != nil {
			return err
		}
	}
	return showLayers(stdout, result, f.dir, f.json)
}
