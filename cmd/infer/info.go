package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"gpt2scope/gpt2"
)

// newInfo makes "infer info".
func newInfo(m *modelFlags) *cobra.Command {
	var o infoFlags
	c := &cobra.Command{
		Use:   "info",
		Short: "Show the model, its memory, and the plan of a prefill and a decode step with FLOPs and bytes",
		RunE: func(c *cobra.Command, _ []string) error {
			return o.run(m, c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.IntVar(&o.batch, "batch", 1, "sequences of the pass")
	f.IntVar(&o.promptLen, "prompt-len", 0, "tokens of the prefill (default: half the context)")
	f.IntVar(&o.past, "past", 0, "tokens in the cache at the decode step (default: as many as the prefill has)")
	f.BoolVar(&o.fused, "fused", true, "show the steps as the device fuses them; --fused=false shows every stage")
	return c
}

type infoFlags struct {
	batch, promptLen, past int
	fused                  bool
}

func (o *infoFlags) run(m *modelFlags, w io.Writer) error {
	backend, err := m.backend()
	if err != nil {
		return err
	}
	model, err := m.open()
	if err != nil {
		return err
	}
	defer model.Close()
	options, err := m.options(model.Config)
	if err != nil {
		return err
	}
	c := model.Config
	capacity := c.Positions
	if m.context > 0 {
		capacity = m.context
	}
	if o.promptLen == 0 {
		o.promptLen = max(1, capacity/2)
	}
	if o.past == 0 {
		o.past = min(o.promptLen, capacity-1)
	}
	if o.past < 0 || o.past >= capacity {
		return usageError{fmt.Errorf("--past %d: it must be less than the context of %d", o.past, capacity)}
	}
	sizes := backend.Sizes()
	plan := func(ph gpt2.Phase) (*gpt2.Plan, error) {
		if err := ph.Check(c, options.Layers, capacity); err != nil {
			return nil, err
		}
		p := gpt2.Forward(c, options.Layers, ph)
		if o.fused {
			p = backend.Fuse(p)
		}
		return p, nil
	}
	prefill, err := plan(gpt2.Phase{Batch: o.batch, Tokens: o.promptLen, Logits: gpt2.LogitsLast, Sample: true})
	if err != nil {
		return err
	}
	decode, err := plan(gpt2.Phase{Batch: o.batch, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true})
	if err != nil {
		return err
	}

	run := c // the part of the model that runs
	run.Layers = len(options.Layers)
	fmt.Fprintf(w, "model       %s\n", model.Name)
	fmt.Fprintf(w, "geometry    L=%d C=%d NH=%d HS=%d V=%d, context %d, MLP %d, %s\n", c.Layers, c.Channels, c.Heads, c.HeadSize(), c.Vocab, c.Positions, c.Inner, c.Activation)
	fmt.Fprintf(w, "parameters  %s, of which %s run in %d of %d layers\n", thousands(int64(c.Parameters())), thousands(int64(run.Parameters())), run.Layers, c.Layers)
	fmt.Fprintf(w, "memory      weights %s, KV cache %s for %d tokens x %d, logits %s a row\n",
		size(int64(run.Parameters())*int64(sizes.Weight)), size(2*int64(run.Layers)*int64(c.Channels)*int64(capacity)*int64(o.batch)*int64(sizes.KV)), capacity, o.batch, size(4*int64(c.Vocab)))
	if model.Tokenizer == nil {
		fmt.Fprintln(w, "tokenizer   none: give token ids")
	} else {
		fmt.Fprintf(w, "tokenizer   %d tokens\n", model.Tokenizer.VocabSize())
	}
	fmt.Fprintf(w, "device      %s, weights %s\n", backend.Name(), map[int]string{2: "bfloat16", 4: "float32", 8: "float64"}[sizes.Weight])
	fmt.Fprintf(w, "\nprefill, B=%d T=%d, last row of logits\n", o.batch, o.promptLen)
	if err := printPlan(w, prefill, 0, sizes); err != nil {
		return err
	}
	fmt.Fprintf(w, "\ndecode step, B=%d, %d tokens in the cache\n", o.batch, o.past)
	return printPlan(w, decode, o.past, sizes)
}

// printPlan writes the table of a plan: for each step the shape of its matrix
// product or rows, and the least FLOPs and bytes.
func printPlan(w io.Writer, p *gpt2.Plan, past int, sizes gpt2.Sizes) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "tag\top\trows x K -> N\tMFLOP\tKB\tFLOP/byte\t  step")
	row := func(tag, op, shape string, c gpt2.Cost, name string) {
		bytes := c.Bytes(sizes)
		intensity := 0.0
		if bytes > 0 {
			intensity = float64(c.FLOPs) / float64(bytes)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.3f\t%.1f\t%.2f\t  %s\n", tag, op, shape, float64(c.FLOPs)/1e6, float64(bytes)/1e3, intensity, name)
	}
	for _, s := range p.Steps {
		first, last := s.Ops[0], s.Last()
		row(fmt.Sprint(s.Tag), s.Op().String(), fmt.Sprintf("%d x %d -> %d", p.Phase.Batch*first.Rows, first.K, last.N), s.Cost(past), s.Name())
	}
	row("", "", "", p.Cost(past), "total")
	return t.Flush()
}

// size writes bytes in a unit that fits.
func size(bytes int64) string {
	switch b := float64(bytes); {
	case b >= 1<<30:
		return fmt.Sprintf("%.2f GiB", b/(1<<30))
	case b >= 1<<20:
		return fmt.Sprintf("%.1f MiB", b/(1<<20))
	default:
		return fmt.Sprintf("%.1f KiB", b/(1<<10))
	}
}

// thousands writes a number with separators.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
