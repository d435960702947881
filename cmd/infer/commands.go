package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"gpt2scope/gpt2"
	"gpt2scope/weights"
)

// newEval makes "infer eval".
func newEval(m *modelFlags) *cobra.Command {
	var text string
	var window, stride int
	var asJSON bool
	c := &cobra.Command{
		Use:   "eval --text FILE",
		Short: "Measure how well the model predicts a text: loss, perplexity, bits per byte",
		Long: `eval scores every token of a text once, in windows at a stride, so that each has at
least window - stride tokens before it where there are any. The first token is
predicted from the end-of-text token.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if text == "" {
				return usageError{errors.New("give the text: --text FILE, - is standard input")}
			}
			return runEval(c.Context(), m, text, window, stride, asJSON, c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringVar(&text, "text", "", "file with the text; - is standard input")
	f.IntVar(&window, "window", 512, "tokens evaluated at once")
	f.IntVar(&stride, "stride", 256, "tokens from one window to the next")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func runEval(ctx context.Context, m *modelFlags, path string, window, stride int, asJSON bool, stdin io.Reader, stdout, stderr io.Writer) error {
	text, err := readText(path, stdin)
	if err != nil {
		return err
	}
	s, closeSession, err := m.session(ctx, stderr)
	if err != nil {
		return err
	}
	defer closeSession()
	if s.Model().Tokenizer == nil {
		return fmt.Errorf("model %s has no tokenizer; a text cannot be evaluated", s.Model().Name)
	}
	ids := s.Model().Tokenizer.EncodeOrdinary(text)
	bar := m.progress(stderr, "evaluating", false)
	e, err := s.Evaluate(ctx, ids, window, stride, func(done, total int) { bar.set(int64(done), int64(total)) })
	bar.done()
	if err != nil {
		return err
	}
	perSecond := float64(e.Passed) / e.Time.Seconds()
	if asJSON {
		return writeJSON(stdout, map[string]any{
			"loss": e.Loss(), "perplexity": e.Perplexity(), "bits_per_byte": e.BitsPerByte(len(text)), "tokens": e.Tokens, "bytes": len(text),
			"window": window, "stride": stride, "tokens_per_s": perSecond, "seconds": e.Time.Seconds(), "configuration": m.setting(s),
		})
	}
	_, err = fmt.Fprintf(stdout, "loss %.4f nats/token, perplexity %.3f, %.4f bits/byte | %d tokens, %d bytes, window %d, stride %d | layers %d of %d | %.1f s, %.0f tokens/s\n",
		e.Loss(), e.Perplexity(), e.BitsPerByte(len(text)), e.Tokens, len(text), window, stride, len(s.Options().Layers), s.Model().Config.Layers, e.Time.Seconds(), perSecond)
	return err
}

// newDump makes "infer dump".
func newDump(m *modelFlags) *cobra.Command {
	var in inputFlags
	var stage, out string
	c := &cobra.Command{
		Use:   "dump --stage STAGE --out FILE.npy",
		Short: "Write a stage's activations [T, width] (for lm_head the logits [T, V]) as a NumPy file",
		Example: `  infer dump -p "ROMEO:" --stage h.0.attn.c_attn --out qkv.npy
  infer dump --ids 1,2,3 --stage lm_head --layers all --out logits.npy`,
		RunE: func(c *cobra.Command, _ []string) error {
			if stage == "" || out == "" {
				return usageError{errors.New("give the stage and the file: --stage h.0.attn.c_attn --out x.npy")}
			}
			s, closeSession, err := m.session(c.Context(), c.ErrOrStderr())
			if err != nil {
				return err
			}
			defer closeSession()
			ids, err := in.tokens(s.Model(), c.InOrStdin())
			if err != nil {
				return err
			}
			data, shape, err := s.Activations(c.Context(), ids, stage)
			if err != nil {
				return err
			}
			err = weights.WriteFile(c.Context(), out, func(w io.Writer) error {
				array, err := weights.NewNPYWriter(w, []int{shape.Rows, shape.Width})
				if err != nil {
					return err
				}
				if err := array.Write(data); err != nil {
					return err
				}
				return array.Close()
			})
			if err != nil {
				return err
			}
			if !m.quiet {
				fmt.Fprintf(c.ErrOrStderr(), "%s: %s, float32 [%d, %d]\n", out, stage, shape.Rows, shape.Width)
			}
			return nil
		},
	}
	in.register(c.Flags())
	c.Flags().StringVar(&stage, "stage", "", "stage whose output is written, as 'infer info' names them")
	c.Flags().StringVarP(&out, "out", "o", "", "file to write")
	return c
}

// newTokenize makes "infer tokenize".
func newTokenize(m *modelFlags) *cobra.Command {
	var in inputFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "tokenize -p TEXT",
		Short: "Show token ids and pieces of a text, or of ids",
		RunE: func(c *cobra.Command, _ []string) error {
			model, err := m.open()
			if err != nil {
				return err
			}
			defer model.Close()
			ids, err := in.tokens(model, c.InOrStdin())
			if err != nil {
				return err
			}
			if model.Tokenizer == nil {
				return fmt.Errorf("model %s has no tokenizer", model.Name)
			}
			if err := model.Tokenizer.Check(ids); err != nil {
				return err
			}
			var pieces []string
			for _, id := range ids {
				pieces = append(pieces, string(model.Tokenizer.AppendPiece(nil, id)))
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), map[string]any{"ids": ids, "pieces": pieces})
			}
			for i, id := range ids {
				if _, err := fmt.Fprintf(c.OutOrStdout(), "%6d  %q\n", id, pieces[i]); err != nil {
					return err
				}
			}
			return nil
		},
	}
	in.register(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// newExport makes "infer export".
func newExport(m *modelFlags) *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:     "export --out DIR",
		Short:   "Write any model as a Hugging Face directory",
		Example: `  infer export -m random:gpt2 --out gpt2-random`,
		RunE: func(c *cobra.Command, _ []string) error {
			if out == "" {
				return usageError{errors.New("give the directory: --out DIR")}
			}
			dtype, err := m.weightType()
			if err != nil {
				return err
			}
			model, err := m.open()
			if err != nil {
				return err
			}
			defer model.Close()
			bar := m.progress(c.ErrOrStderr(), "exporting", true)
			total := int64(model.Config.Parameters()) * int64(dtype.Bits()/8)
			err = model.Export(c.Context(), out, dtype, bar.set)
			bar.done()
			if err == nil && !m.quiet {
				fmt.Fprintf(c.ErrOrStderr(), "%s: %s parameters as %s, %s\n", out, thousands(int64(model.Config.Parameters())), dtype, size(total))
			}
			return err
		},
	}
	c.Flags().StringVarP(&out, "out", "o", "", "directory to write")
	return c
}

// newBench makes "infer bench".
func newBench(m *modelFlags) *cobra.Command {
	var b benchFlags
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure a prefill or a decode step",
		RunE: func(c *cobra.Command, _ []string) error {
			return b.run(c.Context(), m, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringVar(&b.phase, "phase", "decode", "prefill or decode")
	f.IntVar(&b.promptLen, "prompt-len", 256, "tokens of the prefill")
	f.StringVar(&b.logits, "logits", "last", "rows of logits of the prefill: all or last")
	f.IntVar(&b.past, "past", 128, "tokens in the cache at the decode step")
	f.IntVar(&b.batch, "batch", 1, "sequences of the pass")
	f.IntVar(&b.repeat, "repeat", 20, "passes measured, after a warm-up")
	f.BoolVar(&b.json, "json", false, "print one JSON object")
	return c
}

type benchFlags struct {
	phase, logits                  string
	promptLen, past, batch, repeat int
	json                           bool
}

func (b *benchFlags) run(ctx context.Context, m *modelFlags, stdout, stderr io.Writer) error {
	which, ok := map[string]gpt2.Logits{"all": gpt2.LogitsAll, "last": gpt2.LogitsLast}[b.logits]
	switch {
	case !ok:
		return usageError{fmt.Errorf("--logits %s: it must be all or last", b.logits)}
	case b.phase != "prefill" && b.phase != "decode":
		return usageError{fmt.Errorf("--phase %s: it must be prefill or decode", b.phase)}
	case b.repeat < 1 || b.batch < 1 || b.promptLen < 1 || b.past < 1:
		return usageError{errors.New("--repeat, --batch, --prompt-len and --past must be at least 1")}
	}
	s, closeSession, err := m.sessionOf(ctx, stderr, b.batch)
	if err != nil {
		return err
	}
	defer closeSession()
	phase := gpt2.Phase{Batch: b.batch, Tokens: b.promptLen, Logits: which}
	past := 0
	if b.phase == "decode" {
		phase = gpt2.Phase{Batch: b.batch, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}
		past = b.past
	}
	result, err := s.Measure(ctx, phase, past, b.repeat)
	if err != nil {
		return err
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	plan, err := s.Plan(phase)
	if err != nil {
		return err
	}
	cost := plan.Cost(past)
	gflops := float64(cost.FLOPs) / result.Median.Seconds() / 1e9
	gbs := float64(cost.Bytes(s.Backend().Sizes())) / result.Median.Seconds() / 1e9
	if b.json {
		return writeJSON(stdout, map[string]any{
			"phase": b.phase, "tokens": phase.Tokens, "batch": b.batch, "past": past, "logits": b.logits, "repeat": b.repeat,
			"median_ms": ms(result.Median), "p10_ms": ms(result.P10), "p90_ms": ms(result.P90),
			"gflop_per_s": gflops, "gb_per_s": gbs, "configuration": m.setting(s),
		})
	}
	_, err = fmt.Fprintf(stdout, "%s B=%d T=%d past=%d: median %.4f ms, 10%% to 90%% %.4f to %.4f ms, %d passes | %.1f GFLOP/s, %.2f GB/s of the least bytes | layers %d of %d\n",
		b.phase, b.batch, phase.Tokens, past, ms(result.Median), ms(result.P10), ms(result.P90), b.repeat, gflops, gbs, len(s.Options().Layers), s.Model().Config.Layers)
	return err
}
