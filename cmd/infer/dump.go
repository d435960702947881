package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
	"gpt2scope/weights"
)

// dumpFlags are the flags of "infer dump".
type dumpFlags struct {
	in         cli.InputFlags
	stage, out string
}

// newDump makes "infer dump".
func newDump(m *cli.ModelFlags) *cobra.Command {
	var d dumpFlags
	c := &cobra.Command{
		Use:   "dump --stage STAGE --out FILE.npy",
		Short: "Write what a stage of the model computes, as a NumPy file",
		Long: `dump evaluates a text and writes what one stage computes for each of its tokens:
a float32 array [T, width] in NumPy's format, for lm_head the logits [T, V].

Stages are wte+wpe, ln_f, lm_head, and in layer N (from 0) h.N.ln_1,
h.N.attn.c_attn, h.N.attn.sdpa, h.N.attn.c_proj, h.N.residual_1, h.N.ln_2,
h.N.mlp.c_fc, h.N.mlp.gelu, h.N.mlp.c_proj, h.N.residual_2. The name of a step that fuses
stages, such as h.0.mlp.c_proj+h.0.residual_2, stands for the last of them.`,
		Example: `  infer dump -p "ROMEO:" --stage h.0.attn.c_attn --out qkv.npy
  infer dump --ids 1,2,3 --stage lm_head --layers all --out logits.npy
  python -c 'import numpy; print(numpy.load("logits.npy").shape)'`,
		Annotations: map[string]string{cli.ArgumentKey: "--stage"},
		RunE: func(c *cobra.Command, _ []string) error {
			return d.run(c.Context(), m, c.InOrStdin(), c.ErrOrStderr())
		},
	}
	d.in.Use = "evaluate"
	cli.AddFlags(c.Flags(), "Text to evaluate", d.in.Register)
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.Var(cli.Suggest(&d.stage, "", cli.StagesAs("h.0.")...), "stage", "write the output of `STAGE`")
		f.StringVarP(&d.out, "out", "o", "", "`FILE` to write; - is standard output")
	})
	return c
}

func (d *dumpFlags) run(ctx context.Context, m *cli.ModelFlags, stdin io.Reader, stderr io.Writer) error {
	switch {
	case d.stage == "":
		return cli.Usagef("give the stage, such as --stage h.0.attn.c_attn; 'infer dump --help' lists them")
	}
	if err := cli.CheckOut(d.out, ".npy", d.in.Files()...); err != nil {
		return err
	}
	o, err := m.Open()
	if err != nil {
		return err
	}
	defer o.Leave()
	if err := cli.CheckSame("--out", d.out, o.Model.Source); err != nil {
		return err
	}
	stage, err := gpt2.FindOutput(d.stage, o.Options.Layers)
	if err != nil {
		if _, other := gpt2.FindOutput(d.stage, gpt2.FirstLayers(o.Model.Config.Layers)); other == nil {
			return cli.Usagef("--stage %s: this layer does not run, as %d of %d do; --layers all runs all", cli.ShellQuote(d.stage), len(o.Options.Layers), o.Model.Config.Layers)
		}
		return cli.Usagef("--stage %s: %w", cli.ShellQuote(d.stage), err)
	}
	d.in.Notice = m.Notice
	ids, err := d.in.Tokens(ctx, o.Model, stdin)
	if err == nil {
		err = o.Fits(len(ids))
	}
	if err != nil {
		return err
	}
	s, err := o.Load(ctx, stderr, 1)
	if err != nil {
		return err
	}
	stop := m.Spin(stderr, "evaluating")
	data, shape, err := s.Activations(ctx, ids, stage.String())
	stop()
	if err != nil {
		return err
	}
	err = cli.WriteFile(ctx, d.out, func(w io.Writer) error {
		return weights.WriteNPY(w, []int{shape.Rows, shape.Width}, data)
	})
	if err == nil && !m.Quiet {
		name := d.out
		if name == "-" {
			name = "standard output"
		}
		fmt.Fprintf(stderr, "%s: %s, float32 [%d, %d] | %s\n", name, stage, shape.Rows, shape.Width, o.Setting())
	}
	return err
}
