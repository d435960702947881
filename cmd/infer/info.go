package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// newInfo makes "infer info".
func newInfo(m *cli.ModelFlags) *cobra.Command {
	var i infoFlags
	c := &cobra.Command{
		Use:   "info",
		Short: "Show the model, its memory, and what a prefill and a decode step cost",
		Long: `info shows the model, its memory, and the plan of a prefill and of a decode step:
for each step, over all layers, the shape of its matrix product (rows x K -> N), and the
FLOPs and bytes that it needs at least, at the sizes in which the device holds weights
and activations. --by stage shows the steps of each layer.
For a GPU it also shows the algorithm that cuBLASLt has for each product, tuned or by its
heuristic, and the memory that a run takes. Nothing is loaded or run.

The built-in model runs one of its six layers unless --layers says otherwise, to profile a
layer; it was trained to write text after any of them. Other models run all of theirs.`,
		Example: `  infer info --layers all
  infer info -m random:gpt2-xl --dtype bf16 --prompt-len 512
  infer info -m random:gpt2 --layers 1 --fused=false     every stage by itself
  infer info --device cuda --variant attn.sdpa=naive     kernels and algorithms of a GPU`,
		Annotations: map[string]string{cli.ArgumentKey: "-m"},
		RunE: func(c *cobra.Command, _ []string) error {
			return i.run(m, c.Flags(), c.OutOrStdout())
		},
	}
	cli.AddFlags(c.Flags(), "Passes shown", func(f *pflag.FlagSet) {
		f.Var(cli.Int(&i.batch, 1, cli.Batches), "batch", "the passes have `N` sequences")
		f.Var(cli.Int(&i.promptLen, 0, cli.AtLeast(1)), "prompt-len", "the prefill has `N` tokens (default: half the context)")
		f.Var(cli.Int(&i.past, 0, cli.AtLeast(0)), "past", "the cache holds `N` tokens before the decode step (default: as\nmany as the prefill has)")
		f.BoolVar(&i.fused, "fused", true, "show steps as the device fuses them; --fused=false shows every\nstage")
		f.Var(cli.OneOf(&i.by, tables.ByFolded, tables.ByFolded, tables.ByStage), "by", "a row of the plan is `WHAT`: folded (a step over all layers) or\nstage (of each layer)")
		f.BoolVar(&i.json, "json", false, "print one JSON object with all of it")
	})
	return c
}

// infoFlags are the flags of "infer info".
type infoFlags struct {
	batch, promptLen, past int
	fused, json            bool
	by                     tables.By
}

func (i *infoFlags) run(m *cli.ModelFlags, flags *pflag.FlagSet, stdout io.Writer) error {
	o, err := m.Open()
	if err != nil {
		return err
	}
	defer o.Leave()
	capacity := o.Options.Context
	promptLen, past := i.promptLen, i.past
	if promptLen == 0 {
		promptLen = max(1, capacity/2)
	}
	if !flags.Changed("past") {
		past = min(promptLen, capacity-1)
	}
	switch {
	case promptLen > capacity:
		return cli.Usagef("--prompt-len %d: the context holds %s; give at most that", promptLen, cli.Count(capacity, "token"))
	case past >= capacity:
		return cli.PastTooLong(past, capacity)
	}
	j, err := newInfoJSON(o, i.batch, promptLen, past, i.fused)
	if err != nil {
		return err
	}
	if i.json {
		return cli.WriteJSON(stdout, j)
	}
	var b bytes.Buffer
	j.write(&b, i.by)
	return cli.WriteOutput(stdout, b.Bytes())
}

// write writes what the JSON has for people.
func (j *infoJSON) write(w io.Writer, by tables.By) {
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
		humanize.Size(j.Memory.Weights), humanize.Size(j.Memory.Cache), j.Prefill.Batch, cli.Count(j.Context, "token"), humanize.Size(j.Memory.LogitsRow))
	if j.Tokenizer == nil {
		fmt.Fprintln(w, "tokenizer   none: give token ids")
	} else {
		fmt.Fprintf(w, "tokenizer   %s\n", cli.Count(*j.Tokenizer, "token"))
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
	var prefill, decode []gpt2.Product
	if j.GPU != nil {
		j.GPU.write(w)
		prefill, decode = j.GPU.Prefill, j.GPU.Decode
	}
	fmt.Fprintf(w, "\nprefill, B=%d T=%d, last row of logits\n", j.Prefill.Batch, j.Prefill.Tokens)
	j.Prefill.write(w, by)
	if j.GPU != nil {
		printProducts(w, "prefill", prefill, j.GPU.PrefillTokens)
	}
	fmt.Fprintf(w, "\ndecode step, B=%d, %s in the cache\n", j.Decode.Batch, cli.Count(j.Decode.Past, "token"))
	j.Decode.write(w, by)
	if j.GPU != nil {
		printProducts(w, "decode step", decode, j.GPU.DecodeTokens)
	}
}

// planRow is a row of the table of a plan: a step, or the sum of one over layers.
type planRow struct {
	stepJSON
	layers int // how many it sums; 0 of a step
}

// rows returns the rows of the table of a plan.
func (p planJSON) rows(by tables.By) []planRow {
	type key struct {
		name       string
		rows, k, n int
	}
	var rows []planRow
	places := map[key]int{}
	for _, s := range p.Steps {
		at := key{traces.InAnyLayer(s.Name), s.Rows, s.K, s.N}
		i, ok := places[at]
		if !ok || by != tables.ByFolded {
			places[at] = len(rows)
			rows = append(rows, planRow{stepJSON: s})
			continue
		}
		r := &rows[i]
		r.Name, r.layers = at.name, max(1, r.layers)+1
		r.FLOPs, r.Bytes = r.FLOPs+s.FLOPs, r.Bytes+s.Bytes
	}
	return rows
}

// planColumns are the columns of the table of a plan.
func planColumns(rows []planRow) []table.Column[planRow] {
	thousandths := func(n int64, unit float64, format string) table.Cell {
		return table.Cell{Number: float64(n), CSV: strconv.FormatInt(n, 10), Text: fmt.Sprintf(format, float64(n)/unit)}
	}
	columns := []table.Column[planRow]{
		{Key: "step", Title: "step", Cell: func(r *planRow) table.Cell {
			return table.When(r.layers == 0 && r.Tag >= 0, table.Cell{Number: -float64(r.Tag), CSV: strconv.Itoa(r.Tag), Text: strconv.Itoa(r.Tag)})
		}},
		{Key: "layers", Title: "layers", Cell: func(r *planRow) table.Cell { return table.Int(int64(r.layers)) }},
		{Key: "op", Title: "op", Cell: func(r *planRow) table.Cell { return table.String(r.Op) }},
		{Title: "rows x K -> N", Cell: func(r *planRow) table.Cell {
			return table.When(r.Op != "", table.String(fmt.Sprintf("%d x %d -> %d", r.Rows, r.K, r.N)))
		}},
		{Key: "flops", Title: "MFLOP", Cell: func(r *planRow) table.Cell { return thousandths(r.FLOPs, 1e6, "%.3f") }},
		{Key: "bytes", Title: "KB", Cell: func(r *planRow) table.Cell { return thousandths(r.Bytes, 1e3, "%.1f") }},
		{Key: "intensity", Title: "FLOP/byte", Cell: func(r *planRow) table.Cell { return table.Float(float64(r.FLOPs)/float64(max(1, r.Bytes)), 2) }},
		{Key: "name", Title: "stages", Left: true, Cell: func(r *planRow) table.Cell { return table.String(r.Name) }},
	}
	if !slices.ContainsFunc(rows, func(r planRow) bool { return r.layers > 0 }) {
		columns = slices.DeleteFunc(columns, func(c table.Column[planRow]) bool { return c.Key == "layers" })
	}
	return columns
}

// write writes the table of a plan: for each row the shape of its matrix product or rows, and
// the least FLOPs and bytes.
func (p planJSON) write(w io.Writer, by tables.By) {
	rows := p.rows(by)
	rows = append(rows, planRow{stepJSON: stepJSON{Tag: -1, Name: "total", FLOPs: p.FLOPs, Bytes: p.Bytes}})
	table.Print(w, planColumns(rows), rows)
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
func printProducts(w io.Writer, pass string, products []gpt2.Product, tokens int) {
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
	fmt.Fprintf(w, "\nproducts of the %s by cuBLASLt, which runs as T=%d\n", pass, tokens)
	table.Lines(w, table.Left, "M x N x K\talgorithm\tstep", lines, func(l *line) string {
		name := l.Step
		if l.more > 0 {
			name += fmt.Sprintf(" and %d more", l.more)
		}
		return fmt.Sprintf("%d x %d x %d\t%s\t%s", l.M, l.N, l.K, l.Algorithm, name)
	})
}
