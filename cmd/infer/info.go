package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
heuristic, and the memory that a run takes. Nothing is loaded or run.

The built-in model runs one of its six layers unless --layers says otherwise, to profile a
layer; it was trained to write text after any of them. Other models run all of theirs.`,
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
		f.BoolVar(&i.json, "json", false, "print one JSON object with all of it")
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
	j, err := newInfoJSON(o, i.batch, promptLen, past, i.fused)
	if err != nil {
		return err
	}
	if i.json {
		return writeJSON(stdout, j)
	}
	var b bytes.Buffer
	j.write(&b)
	return writeOutput(stdout, b.Bytes())
}

// write writes what the JSON has for people.
func (j *infoJSON) write(w io.Writer) {
	g := j.Geometry
	head := "tied to wte"
	if !g.Tied {
		head = "of its own"
	}
	stored := ""
	if j.Stored != "" {
		stored = fmt.Sprintf(" (GGUF, mostly %s)", j.Stored)
	}
	fmt.Fprintf(w, "model       %s%s\n", j.Model, stored)
	fmt.Fprintf(w, "geometry    L=%d C=%d NH=%d HS=%d V=%d, context %d, MLP %d, %s, lm_head %s\n", g.Layers, g.Channels, g.Heads, g.HeadSize, g.Vocab, g.Positions, g.Inner, g.Activation, head)
	fmt.Fprintf(w, "runs        layers %d of %d: %s of %s parameters\n", len(j.Layers), g.Layers, humanize.Thousands(j.RunParameters), humanize.Thousands(j.Parameters))
	if j.LayersReason != "" {
		fmt.Fprintf(w, "            %s\n", j.LayersReason)
	}
	fmt.Fprintf(w, "memory      weights %s, KV cache %s for %d x %s, logits %s a row\n",
		humanize.Size(j.Memory.Weights), humanize.Size(j.Memory.Cache), j.Prefill.Batch, count(j.Context, "token"), humanize.Size(j.Memory.LogitsRow))
	if j.Tokenizer == nil {
		fmt.Fprintln(w, "tokenizer   none: give token ids")
	} else {
		fmt.Fprintf(w, "tokenizer   %s\n", count(*j.Tokenizer, "token"))
	}
	device := j.Device
	if j.GPU != nil {
		device += fmt.Sprintf(" (%s), mode %s (%s)", j.GPU.Name, j.GPU.Mode, j.GPU.ModeReason)
	}
	held := map[string]string{
		"q8":   "q8 (8-bit integers, a scale for 32; a decode step rounds activations to 8 bits too, a longer prefill widens weights to float32)",
		"bf16": "bfloat16", "f32": "float32", "f64": "float64",
	}
	fmt.Fprintf(w, "device      %s, weights %s\n", device, held[j.DType])
	var prefill, decode []productJSON
	if j.GPU != nil {
		j.GPU.write(w)
		prefill, decode = j.GPU.Prefill, j.GPU.Decode
	}
	fmt.Fprintf(w, "\nprefill, B=%d T=%d, last row of logits\n", j.Prefill.Batch, j.Prefill.Tokens)
	j.Prefill.write(w)
	if j.GPU != nil {
		printProducts(w, "prefill", prefill, j.GPU.PrefillTokens)
	}
	fmt.Fprintf(w, "\ndecode step, B=%d, %s in the cache\n", j.Decode.Batch, count(j.Decode.Past, "token"))
	j.Decode.write(w)
	if j.GPU != nil {
		printProducts(w, "decode step", decode, j.GPU.DecodeTokens)
	}
}

// write writes the table of a plan: for each step the shape of its matrix product or rows, and
// the least FLOPs and bytes.
func (p planJSON) write(w io.Writer) {
	line := func(tag, op, shape string, flops, bytes int64, name string) string {
		intensity := 0.0
		if bytes > 0 {
			intensity = float64(flops) / float64(bytes)
		}
		return fmt.Sprintf("%s\t%s\t%s\t%.3f\t%.1f\t%.2f\t%s", tag, op, shape, float64(flops)/1e6, float64(bytes)/1e3, intensity, name)
	}
	var lines []string
	for _, s := range p.Steps {
		lines = append(lines, line(fmt.Sprint(s.Tag), s.Op, fmt.Sprintf("%d x %d -> %d", s.Rows, s.K, s.N), s.FLOPs, s.Bytes, s.Name))
	}
	lines = append(lines, line("", "", "", p.FLOPs, p.Bytes, "total"))
	printText(w, nameLast, "step\top\trows x K -> N\tMFLOP\tKB\tFLOP/byte\tstages", lines, func(line string) string { return line })
}

// write writes the memory that a run on the GPU takes, and the variants of kernels that were
// asked for.
func (g *gpuJSON) write(w io.Writer) {
	of := ""
	if g.MemoryTotal > 0 {
		of = fmt.Sprintf("; %s of %s are free", humanize.Size(g.MemoryFree), humanize.Size(g.MemoryTotal))
	}
	fmt.Fprintf(w, "GPU memory  %s: weights %s, KV cache %s, activations %s, workspaces %s%s\n", humanize.Size(g.Memory.Total),
		humanize.Size(g.Memory.Weights), humanize.Size(g.Memory.Cache), humanize.Size(g.Memory.Activations), humanize.Size(g.Memory.Work), of)
	var chosen []string
	for _, stage := range slices.Sorted(maps.Keys(g.Variants)) {
		chosen = append(chosen, stage+"="+g.Variants[stage])
	}
	if len(chosen) > 0 {
		fmt.Fprintf(w, "variants    %s\n", strings.Join(chosen, ", "))
	}
}

// printProducts writes the algorithms of a pass's products. Layers that are alike
// share a line.
func printProducts(w io.Writer, pass string, products []productJSON, tokens int) {
	if len(products) == 0 {
		fmt.Fprintf(w, "\nproducts of the %s by cuBLASLt: none, kernels of our own do them\n", pass)
		return
	}
	type line struct {
		productJSON
		more int
	}
	var lines []*line
	for _, p := range products {
		alike := func(l *line) bool {
			q := l.productJSON
			q.Step = p.Step
			return q == p
		}
		if n := slices.IndexFunc(lines, alike); n >= 0 {
			lines[n].more++
		} else {
			lines = append(lines, &line{productJSON: p})
		}
	}
	fmt.Fprintf(w, "\nproducts of the %s by cuBLASLt, which runs as T=%d\n", pass, tokens)
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
