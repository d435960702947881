//go:build cgo

package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/auto"
	"gpt2scope/cmd/infer/cli"
	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/internal/files"
	"gpt2scope/internal/humanize"
	"gpt2scope/weights"
)

type dumpFlags struct {
	in         cli.InputFlags
	stage, out string
}

func newDump(m *cli.ModelFlags) *cobra.Command {
	var d dumpFlags
	c := &cobra.Command{
		Use:   "dump --stage STAGE --out FILE.npy",
		Short: "Write what a stage of the model computes, as a NumPy file",
		Long: `dump evaluates a text and writes what one stage computes for each of its tokens: a float32 array [T, width] in
NumPy's format, for lm_head the logits [T, V]. Stages are wte+wpe, ln_f, lm_head, and in layer N (from 0)
h.N.ln_1, h.N.attn.c_attn, h.N.attn.sdpa, h.N.attn.c_proj, h.N.residual_1, h.N.ln_2, h.N.mlp.c_fc,
h.N.mlp.gelu, h.N.mlp.c_proj, h.N.residual_2.`,
		Example: `  infer dump -p "ROMEO:" --stage h.0.attn.c_attn --out qkv.npy
  infer dump --ids 1,2,3 --stage lm_head --layers all --out logits.npy
  python -c 'import numpy; print(numpy.load("logits.npy").shape)'`,
		RunE: func(c *cobra.Command, _ []string) error {
			return d.run(c, m)
		},
	}
	d.in.Use = "evaluate"
	cli.AddFlags(c.Flags(), "Text to evaluate", d.in.Register)
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVar(&d.stage, "stage", "", "write the output of `STAGE`")
		f.StringVarP(&d.out, "out", "o", "", "`FILE` to write; - is standard output")
	})
	return c
}

func (d *dumpFlags) run(c *cobra.Command, m *cli.ModelFlags) error {
	if d.stage == "" {
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
			return cli.Usagef("--stage %s: this layer does not run, as %d of %d do; --layers all runs all",
				cli.ShellQuote(d.stage), len(o.Options.Layers), o.Model.Config.Layers)
		}
		return cli.Usagef("--stage %s: %w", cli.ShellQuote(d.stage), err)
	}
	ctx := c.Context()
	ids, err := d.in.Tokens(ctx, m, o.Model, c.InOrStdin())
	if err == nil {
		err = o.Fits(len(ids))
	}
	if err != nil {
		return err
	}
	s, err := o.Load(ctx, 1)
	if err != nil {
		return err
	}
	stop := m.Spin("evaluating")
	data, shape, err := s.Activations(ctx, ids, stage.String())
	stop()
	if err != nil {
		return err
	}
	err = cli.WriteFile(ctx, d.out, func(w io.Writer) error {
		return weights.WriteNPY(w, shape.Rows, shape.Width, data)
	})
	name := d.out
	if name == "-" {
		name = "standard output"
	}
	if first := weights.FirstNonFinite(data); err == nil && first >= 0 { // --quiet too: the values are wrong
		n := 0
		for _, x := range data {
			if x-x != 0 {
				n++
			}
		}
		fmt.Fprintf(m.Stderr, "infer: %s: %s of %s of %s, the first %g of token %d at %d: what comes before overflows\n",
			name, humanize.Thousands(int64(n)), cli.Count(len(data), "value"), stage.String()+" are not finite", data[first],
			first/shape.Width, first%shape.Width)
	}
	if err == nil && !m.Quiet {
		fmt.Fprintf(m.Stderr, "%s: %s, float32 [%d, %d] | %s\n", name, stage, shape.Rows, shape.Width, o.Setting())
	}
	return err
}

type tokenizeFlags struct {
	in   cli.InputFlags
	json bool
}

func newTokenize(m *cli.ModelFlags) *cobra.Command {
	var t tokenizeFlags
	c := &cobra.Command{
		Use:   "tokenize -p TEXT",
		Short: "Show the tokens of a text, or of ids",
		Long: `tokenize shows the tokens of a text, or of ids: each id with its piece of the text, quoted. A piece may be a
part of a character; \x escapes show its bytes.`,
		Example: `  infer tokenize -p "ROMEO:"
  infer tokenize -m random:gpt2 -f play.txt
  infer tokenize -m random:gpt2 --ids 15496,995 --json`,
		Annotations: map[string]string{cli.UsesKey: "model tokenizer quiet"},
		RunE: func(c *cobra.Command, _ []string) error {
			return t.run(c, m)
		},
	}
	t.in.Use = "split into tokens"
	t.in.Whole = true
	cli.AddFlags(c.Flags(), "Text", t.in.Register)
	cli.AddJSON(c, &t.json)
	return c
}

func (t *tokenizeFlags) run(c *cobra.Command, m *cli.ModelFlags) error {
	model, err := m.OpenModel()
	if err != nil {
		return err
	}
	defer model.Close()
	if err := cli.NeedText(model, ""); err != nil {
		return err
	}
	ids, err := t.in.Tokens(c.Context(), m, model, c.InOrStdin())
	if err != nil {
		return err
	}
	if err := model.Tokenizer.Check(ids); err != nil {
		return err
	}
	out := tokensJSON{IDs: ids, Pieces: make([]string, len(ids)), Bytes: make([]string, len(ids))}
	for i, id := range ids {
		piece := model.Tokenizer.AppendPiece(nil, id)
		out.Pieces[i], out.Bytes[i] = string(piece), hex.EncodeToString(piece)
	}
	return cli.Print(c, t.json, out, func(w io.Writer) {
		for i, id := range ids {
			fmt.Fprintf(w, "%6d  %q\n", id, out.Pieces[i])
		}
	})
}

// tokensJSON is what tokenize --json prints: for each token its id, its text, and the bytes of its text in hexadecimal.
type tokensJSON struct {
	IDs    []int32  `json:"ids"`
	Pieces []string `json:"pieces"` // text of each; parts of characters are replaced by U+FFFD
	Bytes  []string `json:"bytes"`  // bytes of each, in hexadecimal
}

type evalFlags struct {
	text           string
	window, stride int
	json           bool
}

func newEval(m *cli.ModelFlags) *cobra.Command {
	var e evalFlags
	c := &cobra.Command{
		Use:   "eval --text FILE",
		Short: "Measure how well the model predicts a text: loss, perplexity, bits per byte",
		Long: `eval measures how well the model predicts a text: the loss in nats per token, the perplexity, and the bits
per byte to which the model could compress the text. It scores each token once, in windows at a stride: the
first scores all of its tokens, each later one its last stride of them.`,
		Example: `  infer eval --text play.txt --layers all
  infer eval --text - --window 1024 --stride 1024 < play.txt     quick: windows do not overlap
  infer eval --text play.txt -m random:gpt2 --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			return e.run(c, m)
		},
	}
	cli.AddFlags(c.Flags(), "Evaluation", func(f *pflag.FlagSet) {
		f.StringVar(&e.text, "text", "", "`FILE` with the text; - is standard input")
		f.Var(cli.Int(&e.window, 0, cli.AtLeast(1)), "window",
			"`N` tokens are evaluated at once (default: 512, or a shorter context)")
		f.Var(cli.Int(&e.stride, 0, cli.AtLeast(1)), "stride",
			"`N` tokens from one window to the next (default: half a window)")
		m.AutoFlags.Register(f)
	})
	cli.AddJSON(c, &e.json)
	return c
}

func (e *evalFlags) run(c *cobra.Command, m *cli.ModelFlags) error {
	ctx := c.Context()
	if e.text == "" {
		return cli.Usagef("give the text: --text FILE; - is standard input")
	}
	m.Soonest = true
	o, err := m.Open()
	if err != nil {
		return err
	}
	defer o.Leave()
	window := cmp.Or(e.window, min(512, o.Options.Context))
	stride := cmp.Or(e.stride, max(1, window/2))
	switch {
	case window > o.Options.Context:
		return cli.Usagef("--window %d: the context holds %s; give at most that", window,
			cli.Count(o.Options.Context, "token"))
	case stride > window:
		return cli.Usagef("--stride %d: it must be at most the window of %s", stride, cli.Count(window, "token"))
	}
	if err := cli.NeedText(o.Model, ""); err != nil {
		return err
	}
	text, err := cli.ReadText(ctx, e.text, c.InOrStdin())
	if err != nil {
		return err
	}
	if text == "" {
		return fmt.Errorf("--text %s: it is empty; there is nothing to evaluate", e.text)
	}
	ids, err := files.Await(ctx, func() ([]int32, error) {
		ids := o.Model.Tokenizer.EncodeOrdinary(text)
		return ids, o.Model.Tokenizer.Unknown(text, ids)
	})
	if err != nil {
		return err
	}

	windows := 1 + max(0, len(ids)-window+stride-1)/stride
	if err := o.Place(auto.Run{Prompt: min(window, len(ids)), Windows: windows}); err != nil {
		return err
	}
	batch := 1
	if o.Backend.Describe().GPU { // one window does not fill it
		batch = max(1, min(windows, cuda.WGMMARows/window))
	}
	s, err := o.Load(ctx, batch)
	if err != nil {
		return err
	}
	bar := m.Progress("evaluating", false)
	r, err := s.Evaluate(ctx, ids, window, stride, func(done, total int) { bar.Set(int64(done), int64(total)) })
	bar.Done()
	if err != nil {
		return err
	}
	o.Remember(o.Run, gpt2.Stats{PrefillTime: r.Time})
	out := evalJSON{
		Loss: cli.Number(r.Loss()), Perplexity: cli.Number(r.Perplexity()), BitsPerByte: cli.Number(r.BitsPerByte(len(text))),
		Tokens: r.Tokens, Bytes: len(text), Window: window, Stride: stride,
		Seconds: r.Time.Seconds(), Rate: cli.PerSecond(float64(r.Passed), r.Time), Auto: o.Choice, Configuration: o.Setting(),
	}
	return cli.Print(c, e.json, out, func(w io.Writer) {
		fmt.Fprintf(w, "loss %.4f nats/token, perplexity %.3f, %.4f bits/byte\n", out.Loss, out.Perplexity, out.BitsPerByte)
		fmt.Fprintf(w, "%s, %s, window %d, stride %d | %s | %.2f s, %.0f tokens/s\n", cli.Count(out.Tokens, "token"),
			cli.Count(out.Bytes, "byte"), window, stride, out.Configuration, out.Seconds, out.Rate)
	})
}

type evalJSON struct {
	Loss          cli.Number    `json:"loss"` // nats a token
	Perplexity    cli.Number    `json:"perplexity"`
	BitsPerByte   cli.Number    `json:"bits_per_byte"`
	Tokens        int           `json:"tokens"` // of the text
	Bytes         int           `json:"bytes"`  // of the text
	Window        int           `json:"window"`
	Stride        int           `json:"stride"`
	Seconds       float64       `json:"seconds"`
	Rate          float64       `json:"tokens_per_s"`
	Auto          *cli.AutoJSON `json:"auto,omitempty"` // how --device auto chose
	Configuration cli.Setting   `json:"configuration"`
}

func newExport(m *cli.ModelFlags) *cobra.Command {
	var out, format string
	var force bool
	c := &cobra.Command{
		Use:   "export --out PATH",
		Short: "Write a model as a Hugging Face directory or a GGUF file",
		Long: `export writes a model, or with --layers N its first N layers, as a Hugging Face directory, which transformers'
GPT2LMHeadModel reads, or as a GGUF file (PATH.gguf), which llama.cpp reads; --model reads both.
--dtype is the type of the weights in the file (default f32).
What lies beside the weights and is not understood is carried over as it is: other fields of config.json, the
tokenizer's files, generation_config.json. The directory must be new or empty, or --force replaces a model
in it; after an error what was there is still there.`,
		Example: `  infer export --out shakespeare                       the built-in model
  infer export -m random:gpt2 --dtype bf16 --out gpt2-random
  infer export -m ckpt.pt --out nano                  another program's checkpoint
  infer export -m DIR --lora ADAPTER --out merged.gguf`,
		Annotations: map[string]string{cli.UsesKey: "model tokenizer lora activation layers dtype quiet",
			cli.HelpKey + "layers": "write a model of the first `N` layers, or 'all' (default: all, of the built-in model\ntoo)",
			cli.HelpKey + "dtype":  "`TYPE` of the weights in the file: f32 or bf16 (default: f32)"},
		RunE: func(c *cobra.Command, _ []string) error {
			return runExport(c.Context(), m, out, format, force)
		},
	}
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVarP(&out, "out", "o", "", "`PATH` to write: a directory, which is made if it does not exist, or a file")
		f.Var(cli.OneOf(&format, "", "hf", "gguf"), "format", "`FORMAT`: hf (a Hugging Face directory) or gguf (a GGUF file)\n(default: gguf if PATH ends in .gguf, else hf)")
		f.BoolVar(&force, "force", false,
			"write into a directory that holds files, where those of a model are replaced, or replace a file")
	})
	return c
}

func runExport(ctx context.Context, m *cli.ModelFlags, out, format string, force bool) error {
	if m.Dtype == "q8" {
		return cli.Usagef("--dtype q8: checkpoints are written as f32 or bf16; 8-bit weights are made of either when " +
			"they are loaded")
	}
	if out == "" {
		return cli.Usagef("say what to write: --out PATH")
	}
	if format == "" && strings.HasSuffix(out, ".gguf") {
		format = "gguf"
	}
	if format == "gguf" {
		if err := cli.CheckSame("--out", out); err != nil {
			return err
		}
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
	export := model.Export
	if format == "gguf" {
		export = model.ExportGGUF
	}
	bar := m.Progress("exporting", true)
	err = export(ctx, out, gpt2.ExportOptions{DType: m.WeightType(), Force: force, Progress: bar.Set})
	bar.Done()
	if errors.Is(err, weights.ErrNotEmpty) || errors.Is(err, weights.ErrSamePlace) {
		err = fmt.Errorf("--out %w", err)
	}
	if err == nil && !m.Quiet {
		n := int64(model.Config.Parameters())
		name := map[weights.DType]string{weights.F32: "f32", weights.BF16: "bf16"}[m.WeightType()]
		fmt.Fprintf(m.Stderr, "%s: %s, %s parameters as %s, %s\n", out, cli.Count(model.Config.Layers, "layer"),
			humanize.Thousands(n), name,
			humanize.Size(n*int64(m.WeightType().Bits()/8)))
	}
	return err
}
