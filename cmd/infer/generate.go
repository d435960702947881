package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"gpt2scope/gpt2"
)

// newGenerate makes the root command, which writes text.
func newGenerate(m *modelFlags) *cobra.Command {
	var in inputFlags
	g := generateFlags{modelFlags: m, in: &in}
	c := &cobra.Command{
		Use:   "infer",
		Short: "Run GPT-2, and see where the time goes",
		Long: `infer runs GPT-2 and shows what it does. Without a subcommand it writes text:
the text to standard output as it is made, everything else to standard error.`,
		Example: `  infer -p "ROMEO:"                     one transformer layer of the built-in model
  infer -p "ROMEO:" --layers all        all six
  infer -p "ROMEO:" --temp 0 -n 100     greedy
  infer -m DIR -f prompt.txt --json     another model, one JSON object
  infer info -m random:gpt2             what a pass costs`,
		RunE: func(c *cobra.Command, _ []string) error {
			g.seedGiven = c.Flags().Changed("seed")
			return g.run(c.Context(), c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	in.register(c.Flags())
	f := c.Flags()
	f.IntVarP(&g.tokens, "tokens", "n", 256, "new tokens")
	f.Uint64VarP(&g.sampling.Seed, "seed", "s", 0, "seed of the random numbers (default: a random one, printed)")
	f.Float64Var(&g.sampling.Temperature, "temp", 0.8, "temperature; 0 is greedy")
	f.IntVar(&g.sampling.TopK, "top-k", 40, "sample from the k likeliest tokens; 0 is all")
	f.Float64Var(&g.sampling.TopP, "top-p", 0, "sample from the fewest tokens whose probabilities sum to p; 0 is all")
	f.StringArrayVar(&g.stop, "stop", nil, "end before this text; may be repeated")
	f.BoolVar(&g.ignoreEOS, "ignore-eos", false, "go on after the end-of-text token")
	f.BoolVar(&g.sampling.LogProbs, "logprobs", false, "print each token with its log-probability (stderr, or in the JSON)")
	f.BoolVar(&g.json, "json", false, "print one JSON object: text, ids, timings, configuration")
	return c
}

// generateFlags are the flags of text generation.
type generateFlags struct {
	*modelFlags
	in        *inputFlags
	tokens    int
	sampling  gpt2.Sampling
	seedGiven bool
	stop      []string
	ignoreEOS bool
	json      bool
}

// check finds values that no model could make right.
func (g *generateFlags) check() error {
	if g.tokens < 1 {
		return usageError{fmt.Errorf("--tokens %d: it must be at least 1", g.tokens)}
	}
	if err := g.sampling.Check(); err != nil {
		return usageError{err}
	}
	return nil
}

// result is what --json prints.
type result struct {
	Prompt   []int32   `json:"prompt_ids"`
	Text     *string   `json:"text"` // null where the model has no tokenizer
	IDs      []int32   `json:"ids"`
	LogProbs []float64 `json:"logprobs,omitempty"`
	Seed     uint64    `json:"seed"`
	Timings  timings   `json:"timings"`
	Setting  setting   `json:"configuration"`
}

// timings are in milliseconds.
type timings struct {
	FirstToken       float64 `json:"first_token_ms"` // from the start of the process
	PrefillTokens    int     `json:"prefill_tokens"`
	Prefill          float64 `json:"prefill_ms"`
	PrefillPerSecond float64 `json:"prefill_tokens_per_s"`
	DecodeTokens     int     `json:"decode_tokens"`
	DecodePerToken   float64 `json:"decode_ms_per_token"`
	DecodePerSecond  float64 `json:"decode_tokens_per_s"`
}

func newTimings(s gpt2.Stats, first time.Duration) timings {
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	t := timings{FirstToken: ms(first), PrefillTokens: s.PrefillTokens, Prefill: ms(s.PrefillTime), DecodeTokens: s.DecodeTokens}
	if s.PrefillTime > 0 {
		t.PrefillPerSecond = float64(s.PrefillTokens) / s.PrefillTime.Seconds()
	}
	if s.DecodeTokens > 0 {
		t.DecodePerToken = ms(s.DecodeTime) / float64(s.DecodeTokens)
		t.DecodePerSecond = float64(s.DecodeTokens) / s.DecodeTime.Seconds()
	}
	return t
}

// run generates.
func (g *generateFlags) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	if err := g.check(); err != nil {
		return err
	}
	if !g.seedGiven {
		g.sampling.Seed = uint64(rand.Uint32())
	}
	s, closeSession, err := g.session(ctx, stderr)
	if err != nil {
		return err
	}
	defer closeSession()
	ids, err := g.in.tokens(s.Model(), stdin)
	if err != nil {
		return err
	}

	r := result{Prompt: ids, IDs: []int32{}, Seed: g.sampling.Seed}
	out := output{model: s.Model(), w: stdout}
	if g.json {
		out.w = nil
	}
	shifted := false
	generation := gpt2.Generation{Tokens: g.tokens, Sampling: g.sampling, IgnoreEOS: g.ignoreEOS, Stop: g.stop,
		OnShift: func(kept int) {
			if !shifted && !g.quiet {
				fmt.Fprintf(stderr, "infer: the context of %d tokens is full; going on from its last %d\n", s.Options().Context, kept)
			}
			shifted = true
		}}
	out.begin(generation)
	var first time.Duration
	for token, stepErr := range s.Generate(ctx, ids, generation) {
		if err = stepErr; err != nil {
			break
		}
		if first == 0 {
			first = time.Since(started)
		}
		r.IDs = append(r.IDs, token.ID)
		if g.sampling.LogProbs {
			r.LogProbs = append(r.LogProbs, float64(token.LogProb))
			if !g.json {
				g.printLogProb(stderr, s.Model(), token)
			}
		}
		if err = out.push(token.ID); err != nil || out.stopped() {
			break
		}
	}
	if flushErr := out.finish(); err == nil {
		err = flushErr
	}
	r.Timings, r.Setting = newTimings(s.Stats(), first), g.setting(s)
	if err == nil || errors.Is(err, errInterrupted) {
		if g.json {
			r.Text = out.text()
			if encodeErr := writeJSON(stdout, r); encodeErr != nil {
				return encodeErr
			}
		} else if !g.quiet {
			out.endLine(stderr)
			g.closingLine(stderr, r)
		}
	}
	return err
}

// printLogProb writes a token's line of --logprobs.
func (g *generateFlags) printLogProb(w io.Writer, m *gpt2.Model, t gpt2.Token) {
	piece := ""
	if m.Tokenizer != nil {
		piece = string(m.Tokenizer.AppendPiece(nil, t.ID))
	}
	fmt.Fprintf(w, "%6d  %-12q logprob %.4f  p %.4f\n", t.ID, piece, t.LogProb, math.Exp(float64(t.LogProb)))
}

// closingLine sums up a run.
func (g *generateFlags) closingLine(w io.Writer, r result) {
	t, s := r.Timings, r.Setting
	device := s.Device
	if s.Threads > 0 {
		device += fmt.Sprintf(" (%d threads)", s.Threads)
	}
	fmt.Fprintf(w, "%s, %s, layers %d of %d, seed %d | prefill %d tokens %.1f ms, %.0f tokens/s | decode %.3f ms/token, %.0f tokens/s | first token after %.0f ms\n",
		device, s.DType, s.Layers, s.OfTotal, r.Seed, t.PrefillTokens, t.Prefill, t.PrefillPerSecond, t.DecodePerToken, t.DecodePerSecond, t.FirstToken)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// output shows tokens: as text where the model has a tokenizer, else as ids.
type output struct {
	model *gpt2.Model
	w     io.Writer // nil: only collect
	shown []byte
	tw    *gpt2.TextWriter
}

func (o *output) begin(g gpt2.Generation) {
	if o.model.Tokenizer != nil {
		o.tw = gpt2.NewTextWriter(o.model, g)
	}
}

// text returns what was shown, nil where there is no tokenizer.
func (o *output) text() *string {
	if o.tw == nil {
		return nil
	}
	s := string(o.shown)
	return &s
}

func (o *output) stopped() bool { return o.tw != nil && o.tw.Stopped() }

func (o *output) push(id int32) error {
	if o.tw != nil {
		return o.show(o.tw.Push(id))
	}
	if len(o.shown) > 0 {
		return o.show(fmt.Sprintf(",%d", id))
	}
	return o.show(fmt.Sprint(id))
}

func (o *output) show(s string) error {
	o.shown = append(o.shown, s...)
	if o.w == nil || s == "" {
		return nil
	}
	if _, err := io.WriteString(o.w, s); err != nil {
		return fmt.Errorf("cannot write the text: %w", err)
	}
	return nil
}

func (o *output) finish() error {
	if o.tw != nil {
		if err := o.show(o.tw.Flush()); err != nil {
			return err
		}
	}
	return nil
}

// endLine ends the last line of the text on a terminal, or else on stderr, so
// that what follows stands on a line of its own and a file holds the text alone.
func (o *output) endLine(stderr io.Writer) {
	if n := len(o.shown); o.w == nil || n == 0 || o.shown[n-1] == '\n' {
		return
	}
	if isTerminal(o.w) {
		fmt.Fprintln(o.w)
	} else {
		fmt.Fprintln(stderr)
	}
}
