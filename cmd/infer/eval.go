package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/auto"
	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
)

// evalFlags are the flags of "infer eval".
type evalFlags struct {
	text           string
	window, stride int
	json           bool
}

// newEval makes "infer eval".
func newEval(m *cli.ModelFlags) *cobra.Command {
	var e evalFlags
	c := &cobra.Command{
		Use:   "eval --text FILE",
		Short: "Measure how well the model predicts a text: loss, perplexity, bits per byte",
		Long: `eval measures how well the model predicts a text: the loss in nats per token, the
perplexity, and the bits per byte to which the model could compress the text.

It scores each token once. Windows of tokens are evaluated at a stride: the first
scores all of its tokens, each later one the last stride of them, so that those
have at least window - stride tokens before them. The first token is predicted
from the end-of-text token.`,
		Example: `  infer eval --text play.txt --layers all
  infer eval --text - --window 1024 --stride 1024 < play.txt     quick: windows do not overlap
  infer eval --text play.txt -m random:gpt2 --json`,
		Annotations: map[string]string{cli.ArgumentKey: "--text"},
		RunE: func(c *cobra.Command, _ []string) error {
			return e.run(c.Context(), m, c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	cli.AddFlags(c.Flags(), "Evaluation", func(f *pflag.FlagSet) {
		f.StringVar(&e.text, "text", "", "`FILE` with the text; - is standard input")
		f.Var(cli.Int(&e.window, 0, cli.AtLeast(1)), "window", "`N` tokens are evaluated at once (default: 512, or the context\nif it is shorter)")
		f.Var(cli.Int(&e.stride, 0, cli.AtLeast(1)), "stride", "`N` tokens from one window to the next (default: half a window)")
	})
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		m.AutoFlags.Register(f)
		f.BoolVar(&e.json, "json", false, "print one JSON object")
	})
	return c
}

func (e *evalFlags) run(ctx context.Context, m *cli.ModelFlags, stdin io.Reader, stdout, stderr io.Writer) error {
	if e.text == "" {
		return cli.Usagef("give the text: --text FILE; - is standard input")
	}
	m.Soonest = true
	o, err := m.Open()
	if err != nil {
		return err
	}
	defer o.Leave()
	window, stride := e.window, e.stride
	if window == 0 {
		window = min(512, o.Options.Context)
	}
	if stride == 0 {
		stride = max(1, window/2)
	}
	switch {
	case window > o.Options.Context:
		return cli.Usagef("--window %d: the context holds %s; give at most that", window, cli.Count(o.Options.Context, "token"))
	case stride > window:
		return cli.Usagef("--stride %d: it must be at most the window of %s", stride, cli.Count(window, "token"))
	case o.Model.Tokenizer == nil:
		return fmt.Errorf("model %s has no tokenizer; a text cannot be evaluated", o.Model.Name)
	}
	text, err := cli.ReadText(ctx, e.text, stdin)
	if err != nil {
		return err
	}
	if text == "" {
		return fmt.Errorf("--text %s: it is empty; there is nothing to evaluate", e.text)
	}
	ids, err := cli.Await(ctx, func() ([]int32, error) { return o.Model.Tokenizer.EncodeOrdinary(text), nil })
	if err != nil {
		return err
	}

	run := auto.Run{Config: o.Model.Config, Layers: o.Options.Layers, Context: o.Options.Context, Chunk: o.Options.Chunk,
		Prompt: min(window, len(ids)), Windows: 1 + max(0, len(ids)-window+stride-1)/stride}
	if err := o.Place(run); err != nil {
		return err
	}
	s, err := o.Load(ctx, stderr, 1)
	if err != nil {
		return err
	}
	bar := m.Progress(stderr, "evaluating", false)
	r, err := s.Evaluate(ctx, ids, window, stride, func(done, total int) { bar.Set(int64(done), int64(total)) })
	bar.Done()
	if err != nil {
		return err
	}
	o.Remember(o.Run, gpt2.Stats{PrefillTime: r.Time})
	rate := cli.PerSecond(float64(r.Passed), r.Time)
	if e.json {
		return cli.WriteJSON(stdout, evalJSON{
			Loss: cli.Number(r.Loss()), Perplexity: cli.Number(r.Perplexity()), BitsPerByte: cli.Number(r.BitsPerByte(len(text))),
			Tokens: r.Tokens, Bytes: len(text), Window: window, Stride: stride,
			Seconds: r.Time.Seconds(), Rate: rate, Auto: o.Choice, Configuration: o.Setting(),
		})
	}
	return cli.WriteOutput(stdout, fmt.Appendf(nil,
		"loss %.4f nats/token, perplexity %.3f, %.4f bits/byte\n%s, %s, window %d, stride %d | %s | %.2f s, %.0f tokens/s\n",
		r.Loss(), r.Perplexity(), r.BitsPerByte(len(text)),
		cli.Count(r.Tokens, "token"), cli.Count(len(text), "byte"), window, stride, o.Setting(), r.Time.Seconds(), rate))
}

// evalJSON is what eval --json prints.
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
