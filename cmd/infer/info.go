package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
)

// newInfo makes "infer info".
func newInfo(m *modelFlags) *cobra.Command {
	var i infoFlags
	c := &cobra.Command{
		Use:   "info",
		Short: "Show the model, its memory, and what a prefill and a decode step cost",
		Long: `info shows the model, its memory, and the plan of a prefill and of a decode step:
for each step the shape of its matrix product (rows x K -> N), and the FLOPs and bytes
that it needs at least, at the sizes in which the device holds weights and activations.
For a GPU it also shows the algorithm that cuBLASLt has for each product, tuned or by its
heuristic, and the memory that a run takes. Nothing is loaded or run.`,
		Example: `  infer info --layers all
  infer info -m random:gpt2-xl --dtype bf16 --prompt-len 512
  infer info -m random:gpt2 --layers 1 --fused=false     every stage by itself
  infer info --device cuda --variant attn.sdpa=naive     kernels and algorithms of a GPU`,
		Annotations: map[string]string{argumentKey: "-m"},
		RunE: func(c *cobra.Command, _ []string) error {
			return i.run(m, c.Flags(), c.OutOrStdout())
		},
	}
	addFlags(c.Flags(), "Passes shown", func(f *pflag.FlagSet) {
		f.IntVar(&i.batch, "batch", 1, "the passes have `N` sequences")
		f.IntVar(&i.promptLen, "prompt-len", 0, "the prefill has `N` tokens (default: half the context)")
		f.IntVar(&i.past, "past", 0, "the cache holds `N` tokens before the decode step (default: as\nmany as the prefill has)")
		f.BoolVar(&i.fused, "fused", true, "show steps as the device fuses them; --fused=false shows every\nstage")
		f.BoolVar(&i.json, "json", false, "print one JSON object: the steps of both plans with their names")
	})
	return c
}

// infoFlags are the flags of "infer info".
type infoFlags struct {
	batch, promptLen, past int
	fused, json            bool
}

func (i *infoFlags) run(m *modelFlags, flags *pflag.FlagSet, stdout io.Writer) error {
	switch {
	case i.batch < 1 || i.batch > maxBatch:
		return usagef("--batch %d: it must be from 1 to %d", i.batch, maxBatch)
	case flags.Changed("prompt-len") && i.promptLen < 1:
		return usagef("--prompt-len %d: it must be at least 1", i.promptLen)
	case i.past < 0:
		return usagef("--past %d: it must be at least 0", i.past)
	case m.tune:
		return usagef("--tune: info runs nothing that could be timed; tune with a run, such as infer bench, and info shows what was found")
	}
	o, err := m.open()
	if err != nil {
		return err
	}
	defer o.leave()
	capacity := o.options.Context
	promptLen, past := i.promptLen, i.past
	if promptLen == 0 {
		promptLen = max(1, capacity/2)
	}
	if !flags.Changed("past") {
		past = min(promptLen, capacity-1)
	}
	switch {
	case promptLen > capacity:
		return usagef("--prompt-len %d: the context holds %s; give at most that", promptLen, count(capacity, "token"))
	case past >= capacity:
		return usagef("--past %d: the context holds %s, one of them the step's own; give at most %d", past, count(capacity, "token"), capacity-1)
	}
	phase := func(tokens int) gpt2.Pass {
		return gpt2.Pass{Batch: i.batch, Tokens: tokens, Logits: gpt2.LogitsLast, Sample: true}
	}
	plan := func(tokens int) *gpt2.Plan {
		p := gpt2.Forward(o.model.Config, o.options.Layers, phase(tokens))
		if i.fused {
			p = o.backend.Fuse(p)
		}
		return p
	}
	sizes := o.backend.Sizes()
	options := o.options
	options.Batch = i.batch
	survey, err := gpt2.SurveyOf(o.backend, o.model, options, phase(promptLen), phase(1)) // nil of a CPU
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if i.json {
		j := infoJSON{Model: o.model.Name, Device: o.backend.Name(), Layers: o.options.Layers,
			Prefill: newPlanJSON(plan(promptLen), 0, sizes), Decode: newPlanJSON(plan(1), past, sizes)}
		if survey != nil {
			j.GPU = newGPUJSON(o.backend.Describe(), survey)
		}
		return writeJSON(stdout, j)
	}
	var b bytes.Buffer
	i.describe(&b, o)
	if survey != nil {
		describeGPU(&b, o.backend, survey)
	}
	fmt.Fprintf(&b, "\nprefill, B=%d T=%d, last row of logits\n", i.batch, promptLen)
	printPlan(&b, plan(promptLen), 0, sizes)
	if survey != nil {
		printProducts(&b, "prefill", survey, 0)
	}
	fmt.Fprintf(&b, "\ndecode step, B=%d, %s in the cache\n", i.batch, count(past, "token"))
	printPlan(&b, plan(1), past, sizes)
	if survey != nil {
		printProducts(&b, "decode step", survey, 1)
	}
	return writeOutput(stdout, b.Bytes())
}

// describe writes what holds for every pass.
func (i *infoFlags) describe(w io.Writer, o *opened) {
	c, sizes, capacity := o.model.Config, o.backend.Sizes(), o.options.Context
	run := c // the part of the model that runs
	run.Layers = len(o.options.Layers)
	kv := 2 * int64(run.Layers) * int64(c.Channels) * int64(capacity) * int64(i.batch) * int64(sizes.KV)
	head := "tied to wte"
	if !c.Tied {
		head = "of its own"
	}
	stored := ""
	if o.model.Stored != "" {
		stored = fmt.Sprintf(" (GGUF, mostly %s)", o.model.Stored)
	}
	fmt.Fprintf(w, "model       %s%s\n", o.model.Name, stored)
	fmt.Fprintf(w, "geometry    L=%d C=%d NH=%d HS=%d V=%d, context %d, MLP %d, %s, lm_head %s\n", c.Layers, c.Channels, c.Heads, c.HeadSize(), c.Vocab, c.Positions, c.Inner, c.Activation, head)
	fmt.Fprintf(w, "runs        layers %d of %d: %s of %s parameters\n", run.Layers, c.Layers, humanize.Thousands(int64(run.Parameters())), humanize.Thousands(int64(c.Parameters())))
	fmt.Fprintf(w, "memory      weights %s, KV cache %s for %d x %s, logits %s a row\n",
		humanize.Size(int64(float64(run.Parameters())*sizes.Weight)), humanize.Size(kv), i.batch, count(capacity, "token"), humanize.Size(4*int64(c.Vocab)))
	if o.model.Tokenizer == nil {
		fmt.Fprintln(w, "tokenizer   none: give token ids")
	} else {
		fmt.Fprintf(w, "tokenizer   %s\n", count(o.model.Tokenizer.VocabSize(), "token"))
	}
	d := o.backend.Describe()
	device := d.Name
	if d.GPU {
		device += fmt.Sprintf(" (%s), mode %s (%s)", d.Processor, d.Mode, d.ModeReason)
	}
	held := map[string]string{
		"q8":   "q8 (8-bit integers, a scale for 32; a decode step rounds activations to 8 bits too, a longer prefill widens weights to float32)",
		"bf16": "bfloat16", "f32": "float32", "f64": "float64",
	}
	fmt.Fprintf(w, "device      %s, weights %s\n", device, held[d.WeightType])
}

// printPlan writes the table of a plan: for each step the shape of its matrix
// product or rows, and the least FLOPs and bytes.
func printPlan(w io.Writer, p *gpt2.Plan, past int, sizes gpt2.Sizes) {
	line := func(tag, op, shape string, c gpt2.Cost, name string) string {
		bytes := c.Bytes(sizes)
		intensity := 0.0
		if bytes > 0 {
			intensity = float64(c.FLOPs) / float64(bytes)
		}
		return fmt.Sprintf("%s\t%s\t%s\t%.3f\t%.1f\t%.2f\t%s", tag, op, shape, float64(c.FLOPs)/1e6, float64(bytes)/1e3, intensity, name)
	}
	var lines []string
	for _, s := range p.Steps {
		first, last := s.Ops[0], s.Last()
		rows := first.Rows
		if first.Op == gpt2.OpAttention { // keys and values of all rows, but work per query
			rows = first.Queries
		}
		lines = append(lines, line(fmt.Sprint(s.Tag), s.Op().String(), fmt.Sprintf("%d x %d -> %d", p.Pass.Batch*rows, first.K, last.N), s.Cost(past), s.Name()))
	}
	lines = append(lines, line("", "", "", p.Cost(past), "total"))
	printText(w, nameLast, "step\top\trows x K -> N\tMFLOP\tKB\tFLOP/byte\tstages", lines, func(line string) string { return line })
}

// describeGPU writes the memory that a run on the GPU takes, and the variants of kernels
// that were asked for.
func describeGPU(w io.Writer, b gpt2.Backend, s *gpt2.Survey) {
	free, total, err := gpt2.MemoryOf(b)
	of := ""
	if err == nil {
		of = fmt.Sprintf("; %s of %s are free", humanize.Size(int64(free)), humanize.Size(int64(total)))
	}
	fmt.Fprintf(w, "GPU memory  %s: weights %s, KV cache %s, activations %s, workspaces %s%s\n",
		humanize.Size(s.Total()), humanize.Size(s.Weights), humanize.Size(s.Cache), humanize.Size(s.Activations), humanize.Size(s.Work), of)
	var chosen []string
	for stage, name := range b.Describe().Variants {
		chosen = append(chosen, stage+"="+name)
	}
	if slices.Sort(chosen); len(chosen) > 0 {
		fmt.Fprintf(w, "variants    %s\n", strings.Join(chosen, ", "))
	}
}

// printProducts writes the algorithms of a pass's products. Layers that are alike
// share a line.
func printProducts(w io.Writer, pass string, s *gpt2.Survey, phase int) {
	products := s.Products[phase]
	if len(products) == 0 {
		fmt.Fprintf(w, "\nproducts of the %s by cuBLASLt: none, kernels of our own do them\n", pass)
		return
	}
	type line struct {
		gpt2.Product
		more int
	}
	var lines []*line
	for _, p := range products {
		alike := func(l *line) bool {
			q := l.Product
			q.Step = p.Step
			return q == p
		}
		if n := slices.IndexFunc(lines, alike); n >= 0 {
			lines[n].more++
		} else {
			lines = append(lines, &line{Product: p})
		}
	}
	fmt.Fprintf(w, "\nproducts of the %s by cuBLASLt, which runs as T=%d\n", pass, s.Passes[phase].Tokens)
	printText(w, toLeft, "M x N x K\tchosen by\talgorithm\tstep", lines, func(l *line) string {
		by, name := "heuristic", l.Step
		if l.Tuned {
			by = "tuning"
		}
		if l.more > 0 {
			name += fmt.Sprintf(" and %d more", l.more)
		}
		return fmt.Sprintf("%d x %d x %d\t%s\t%s\t%s", l.M, l.N, l.K, by, l.Algorithm, name)
	})
}
