package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
	"gpt2scope/weights"
)

// newExport makes "infer export".
func newExport(m *cli.ModelFlags) *cobra.Command {
	var out string
	var force bool
	c := &cobra.Command{
		Use:   "export --out DIR",
		Short: "Write a model as a Hugging Face directory",
		Long: `export writes a model as a Hugging Face directory: config.json, model.safetensors
and the tokenizer's files. transformers' GPT2LMHeadModel reads it, and so does
--model. It writes all layers, or with --layers N a model of the first N; --dtype
is the type of the weights in the file (default f32).

The directory must be new or empty; --force writes into one that holds files, and replaces
those of a model. It may not be the directory that the model is read from. After an error or
Ctrl-C what was there is still there.`,
		Example: `  infer export --out shakespeare                       the built-in model
  infer export -m random:gpt2 --dtype bf16 --out gpt2-random
  infer export -m DIR --layers 2 --out first-two`,
		Annotations: map[string]string{cli.ArgumentKey: "--out", cli.UsesKey: "model layers dtype quiet",
			cli.HelpKey + "layers": "write a model of the first `N` layers, or 'all' (default: all, of the built-in\nmodel too)",
			cli.HelpKey + "dtype":  "`TYPE` of the weights in the file: f32 or bf16 (default: f32)"},
		RunE: func(c *cobra.Command, _ []string) error {
			return runExport(c.Context(), m, out, force, c.ErrOrStderr())
		},
	}
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVarP(&out, "out", "o", "", "`DIR` to write; it is made if it does not exist")
		f.BoolVar(&force, "force", false, "write into a DIR that holds files: those of a model are replaced")
	})
	return c
}

func runExport(ctx context.Context, m *cli.ModelFlags, out string, force bool, stderr io.Writer) error {
	if out == "" {
		return cli.Usagef("give the directory to write: --out DIR")
	}
	model, err := m.OpenModel()
	if err != nil {
		return err
	}
	defer model.Close()
	if m.Layers != "" {
		layers, err := m.RunOrder(model.Config)
		if err != nil {
			return err
		}
		model.Config.Layers = len(layers) // the first ones are a model by themselves
	}
	bar := m.Progress(stderr, "exporting", true)
	err = model.Export(ctx, out, gpt2.ExportOptions{DType: m.WeightType(), Force: force, Progress: bar.Set})
	bar.Done()
	if errors.Is(err, weights.ErrNotEmpty) || errors.Is(err, weights.ErrSamePlace) {
		err = fmt.Errorf("--out %w", err)
	}
	if err == nil && !m.Quiet {
		parameters := int64(model.Config.Parameters())
		fmt.Fprintf(stderr, "%s: %s, %s parameters as %s, %s\n", out, cli.Count(model.Config.Layers, "layer"), humanize.Thousands(parameters), map[weights.DType]string{weights.F32: "f32", weights.BF16: "bf16"}[m.WeightType()],
			humanize.Size(parameters*int64(m.WeightType().Bits()/8)))
	}
	return err
}
