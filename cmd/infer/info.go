//go:build cgo

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/traces"
)

func newInfo(m *cli.ModelFlags) *cobra.Command {
	var i infoFlags
	c := &cobra.Command{
		Use:   "info",
		Short: "Show the model, its memory, and what a prefill and a decode step cost",
		Long: `info shows the model, its memory, and the plan of a prefill and of a decode step: for each step, over all
layers, the shape of its matrix product (rows x K -> N), and the FLOPs and bytes that it needs at least.
Nothing is loaded or run. The built-in model runs one of its six layers unless --layers says otherwise.`,
		Example: `  infer info --layers all
  infer info -m random:gpt2-xl --dtype bf16 --prompt-len 512
  infer info -m random:gpt2 --layers 1 --fused=false     every stage by itself
  infer info --device cuda --variant attn.sdpa=naive     with a kernel of a GPU`,
		RunE: func(c *cobra.Command, _ []string) error {
			return i.run(c, m)
		},
	}
	cli.AddFlags(c.Flags(), "Passes shown", func(f *pflag.FlagSet) {
		f.Var(cli.Int(&i.batch, 1, cli.Batches), "batch", "the passes have `N` sequences")
		f.Var(cli.Int(&i.promptLen, 0, cli.AtLeast(1)), "prompt-len",
			"the prefill has `N` tokens (default: half the context)")
		f.Var(cli.Int(&i.past, 0, cli.AtLeast(0)), "past",
			"the cache holds `N` tokens before the decode step (default: as the prefill)")
		f.BoolVar(&i.fused, "fused", true, "show steps as the device fuses them; --fused=false shows every stage")
	})
	cli.AddJSON(c, &i.json)
	return c
}

type infoFlags struct {
	batch, promptLen, past int
	fused, json            bool
}

func (i *infoFlags) run(c *cobra.Command, m *cli.ModelFlags) error {
	o, err := m.Open()
	if err != nil {
		return err
	}
	defer o.Leave()
	capacity := o.Options.Context
	promptLen, past := cmp.Or(i.promptLen, max(1, capacity/2)), i.past
	if !c.Flags().Changed("past") {
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
	return cli.Print(c, i.json, j, j.write)
}

// infoJSON is what "infer info --json" prints, and what "infer info" writes as text. 'infer trace check --plan'
// compares captures with it.
type infoJSON struct {
	Model         string         `json:"model"`                   // as in Configuration
	Stored        string         `json:"gguf_type,omitempty"`     // of most weights in a GGUF file
	Geometry      geometryJSON   `json:"geometry"`                // of the whole model
	Device        string         `json:"device"`                  // as in Configuration
	DType         string         `json:"dtype"`                   // of the weights on the device
	Layers        []int          `json:"layers"`                  // run order
	LayersReason  string         `json:"layers_reason,omitempty"` // why not all run, if no flag says so
	Parameters    int            `json:"parameters"`              // of the whole model
	RunParameters int            `json:"run_parameters"`          // of the layers that run, with embeddings and head
	Context       int            `json:"context"`                 // tokens that the KV cache holds, of each sequence
	Memory        infoMemoryJSON `json:"memory_bytes"`            // on any device
	Tokenizer     *int           `json:"tokenizer_tokens"`        // null if there is no tokenizer
	TokenizerFrom string         `json:"tokenizer_from"`          // where it comes from, or why there is none
	// of the model; --generation-config uses it
	Generation map[string]json.RawMessage `json:"generation_config,omitempty"`
	Prefill    planJSON                   `json:"prefill"`
	Decode     planJSON                   `json:"decode"`
	GPU        *gpuJSON                   `json:"gpu,omitempty"`
}

type geometryJSON struct {
	gpt2.Config
	Activation string `json:"activation"` // as config.json names it
	HeadSize   int    `json:"head_size"`
}

type infoMemoryJSON struct {
	Weights   int64 `json:"weights"`    // of the layers that run
	Cache     int64 `json:"kv_cache"`   // of all sequences
	LogitsRow int64 `json:"logits_row"` // of a token
}

type memoryJSON struct {
	*gpt2.Survey
	Total int64 `json:"total"`
}

// gpuJSON is what holds for a GPU only.
type gpuJSON struct {
	Name        string            `json:"name"`
	Mode        string            `json:"mode"`
	ModeReason  string            `json:"mode_reason"`
	Fallback    string            `json:"mode_fallback,omitempty"`      // what runs in another mode, and why
	Variants    map[string]string `json:"variants,omitempty"`           // those asked for, by stage
	Memory      memoryJSON        `json:"memory_bytes"`                 // what a run takes
	MemoryFree  int64             `json:"memory_free_bytes,omitempty"`  // of the GPU
	MemoryTotal int64             `json:"memory_total_bytes,omitempty"` // of the GPU
}

// planJSON is a plan, with the least FLOPs and bytes of all steps.
type planJSON struct {
	Batch  int        `json:"batch"`  // sequences
	Tokens int        `json:"tokens"` // new tokens of each
	Past   int        `json:"past"`   // tokens in the cache before them
	FLOPs  int64      `json:"flops"`  // the least that all steps need
	Bytes  int64      `json:"bytes"`  // the least that all steps need
	Steps  []stepJSON `json:"steps"`
}

// stepJSON is a step of a plan: a product (rows, K) x (K, N), or rows of N values. Slot and Layer are -1 outside the
// layers.
type stepJSON struct {
	Tag   int    `json:"tag"`   // place in the plan, by which recordings name the step
	Name  string `json:"name"`  // stages that it covers, joined by +
	Op    string `json:"op"`    // of its main stage: Embed, LayerNorm, Linear, Attention, Activation, Add, Sample
	Slot  int    `json:"slot"`  // place in the run order, and whose weights
	Layer int    `json:"layer"` // -1 outside the layers
	Rows  int    `json:"rows"`  // a product (rows, k) x (k, n), or rows of n values
	K     int    `json:"k"`     // a product (rows, k) x (k, n), or rows of n values
	N     int    `json:"n"`     // a product (rows, k) x (k, n), or rows of n values
	FLOPs int64  `json:"flops"` // the least that it needs
	Bytes int64  `json:"bytes"` // the least that it needs
}

// newInfoJSON describes the model, and a prefill and a decode step of a batch.
func newInfoJSON(o *cli.Opened, batch, promptLen, past int, fused bool) (*infoJSON, error) {
	c, sizes, d := o.Model.Config, o.Backend.Sizes(o.Model), o.Backend.Describe()
	run := c // the part of the model that runs
	run.Layers = len(o.Options.Layers)
	pass := func(tokens int) gpt2.Pass {
		return gpt2.Pass{Batch: batch, Tokens: tokens, Logits: gpt2.LogitsLast, Sample: true}
	}
	plan := func(tokens, past int) planJSON {
		p := gpt2.Forward(c, o.Options.Layers, pass(tokens))
		if fused {
			p = o.Backend.Fuse(p)
		}
		return newPlanJSON(p, past, sizes)
	}
	j := &infoJSON{
		Model: o.Model.Name, Stored: o.Model.Stored, Device: d.Name, DType: d.WeightType,
		Layers: o.Options.Layers, LayersReason: o.Flags.LayersReason(),
		Parameters: c.Parameters(), RunParameters: run.Parameters(), Context: o.Options.Context,
		Prefill: plan(promptLen, 0), Decode: plan(1, past),
	}
	j.Geometry = geometryJSON{c, c.Activation.String(), c.HeadSize()}
	j.Memory.Weights = int64(float64(run.Parameters()) * sizes.Weight)
	j.Memory.LogitsRow = 4 * int64(c.Vocab)
	j.TokenizerFrom, j.Generation = o.Model.TokenizerFrom, o.Model.Generation
	if o.Model.Tokenizer != nil {
		n := o.Model.Tokenizer.VocabSize()
		j.Tokenizer = &n
	} else if o.Model.NoTokenizer != nil {
		j.TokenizerFrom = o.Model.NoTokenizer.Error()
	}
	options := o.Options
	options.Batch = batch
	surveyor, ok := o.Backend.(gpt2.Surveyor)
	if !ok { // a CPU
		rows := 2 * int64(run.Layers) * int64(o.Options.Context) * int64(batch)
		j.Memory.Cache = int64(float64(rows*int64(c.Channels)) * sizes.KV)
		return j, nil
	}
	survey, err := surveyor.Survey(o.Model, options, pass(promptLen), pass(1))
	if err != nil {
		return nil, err
	}
	j.Memory.Cache = survey.Cache
	d = o.Backend.Describe() // of the mode that the survey found
	j.GPU = &gpuJSON{Name: d.Processor, Mode: d.Mode, ModeReason: d.ModeReason, Fallback: d.Fallback,
		Variants: d.Variants, Memory: memoryJSON{survey, survey.Total()},
		MemoryFree: survey.Free, MemoryTotal: survey.InAll}
	return j, nil
}

func newPlanJSON(p *gpt2.Plan, past int, sizes gpt2.Sizes) planJSON {
	total := p.Cost(past)
	j := planJSON{Batch: p.Pass.Batch, Tokens: p.Pass.Tokens, Past: past, FLOPs: total.FLOPs, Bytes: total.Bytes(sizes),
		Steps: make([]stepJSON, 0, len(p.Steps))}
	for _, s := range p.Steps {
		first := s.Ops[0]
		rows := first.Rows
		if first.Op == gpt2.OpAttention { // keys and values of all rows, but work per query
			rows = first.Queries
		}
		c := s.Cost(past)
		j.Steps = append(j.Steps, stepJSON{Tag: s.Tag, Name: s.Name(), Op: s.Op().String(), Slot: s.Slot(), Layer: s.Layer(),
			Rows: p.Pass.Batch * rows, K: first.K, N: s.Last().N, FLOPs: c.FLOPs, Bytes: c.Bytes(sizes)})
	}
	return j
}

func (j *infoJSON) write(w io.Writer) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-11s %s\n", name, fmt.Sprintf(format, args...))
	}
	g, stored, head := j.Geometry, "", "tied to wte"
	if !g.Tied {
		head = "of its own"
	}
	if j.Stored != "" {
		stored = fmt.Sprintf(" (GGUF, mostly %s)", j.Stored)
	}
	line("model", "%s%s", j.Model, stored)
	line("geometry", "L=%d C=%d NH=%d HS=%d V=%d, context %d, MLP %d, %s, lm_head %s",
		g.Layers, g.Channels, g.Heads, g.HeadSize, g.Vocab, g.Positions, g.Inner, g.Activation, head)
	line("runs", "layers %d of %d: %s of %s parameters", len(j.Layers), g.Layers,
		humanize.Thousands(int64(j.RunParameters)), humanize.Thousands(int64(j.Parameters)))
	if j.LayersReason != "" {
		line("", "%s", j.LayersReason)
	}
	line("memory", "weights %s, KV cache %s for %d x %s, logits %s a row", humanize.Size(j.Memory.Weights),
		humanize.Size(j.Memory.Cache),
		j.Prefill.Batch, cli.Count(j.Context, "token"), humanize.Size(j.Memory.LogitsRow))
	if j.Tokenizer == nil {
		line("tokenizer", "none (%s): give token ids, or --tokenizer", j.TokenizerFrom)
	} else {
		line("tokenizer", "%s (%s)", cli.Count(*j.Tokenizer, "token"), j.TokenizerFrom)
	}
	if len(j.Generation) > 0 {
		var fields []string
		for _, name := range slices.Sorted(maps.Keys(j.Generation)) {
			if !gpt2.ChangesNoToken(name) || name == "eos_token_id" {
				fields = append(fields, fmt.Sprintf("%s=%.60s", name, j.Generation[name]))
			}
		}
		line("generation", "%s (generation_config.json; all but eos_token_id only with --generation-config)",
			cmp.Or(strings.Join(fields, " "), "nothing"))
	}
	held := map[string]string{
		"q8": "q8 (8-bit integers, a scale for 32; a decode step rounds activations to 8 bits too, " +
			"a longer prefill widens weights to float32)",
		"bf16": "bfloat16", "f32": "float32", "f64": "float64",
	}
	gpu := j.GPU
	if gpu != nil {
		held["q8"] = "q8 (8-bit integers, a scale for 32)"
	}
	if gpu == nil {
		line("device", "%s, weights %s", j.Device, held[j.DType])
	} else {
		line("device", "%s (%s), mode %s (%s), weights %s", j.Device, gpu.Name, gpu.Mode, gpu.ModeReason, held[j.DType])
		m := gpu.Memory
		line("GPU memory", "%s: weights %s, KV cache %s, activations %s, workspaces %s; %s of %s are free",
			humanize.Size(m.Total), humanize.Size(m.Weights),
			humanize.Size(m.Cache), humanize.Size(m.Activations), humanize.Size(m.Work), humanize.Size(gpu.MemoryFree),
			humanize.Size(gpu.MemoryTotal))
		for _, stage := range slices.Sorted(maps.Keys(gpu.Variants)) {
			line("variant", "%s=%s", stage, gpu.Variants[stage])
		}
	}
	fmt.Fprintf(w, "\nprefill, B=%d T=%d, last row of logits\n", j.Prefill.Batch, j.Prefill.Tokens)
	j.Prefill.write(w)
	fmt.Fprintf(w, "\ndecode step, B=%d, %s in the cache\n", j.Decode.Batch, cli.Count(j.Decode.Past, "token"))
	j.Decode.write(w)
}

// planRow is a row of the table of a plan: a step, or the sum of one over layers.
type planRow struct {
	stepJSON
	layers int // how many it sums; 0 of a step
}

// write writes the table of a plan: for each row the shape of its matrix product or rows, and the least FLOPs and
// bytes.
func (p planJSON) write(w io.Writer) {
	var rows []planRow
	folded := false
	for _, s := range p.Steps {
		name := traces.InAnyLayer(s.Name)
		i := slices.IndexFunc(rows, func(r planRow) bool {
			return traces.InAnyLayer(r.Name) == name && r.Rows == s.Rows && r.K == s.K && r.N == s.N
		})
		if i < 0 {
			rows = append(rows, planRow{stepJSON: s})
			continue
		}
		r := &rows[i]
		r.Name, r.layers, folded = name, max(1, r.layers)+1, true
		r.FLOPs, r.Bytes = r.FLOPs+s.FLOPs, r.Bytes+s.Bytes
	}
	rows = append(rows, planRow{stepJSON: stepJSON{Tag: -1, Name: "total", FLOPs: p.FLOPs, Bytes: p.Bytes}})
	ofStep := func(r *planRow, format string, args ...any) string {
		if r.Tag < 0 {
			return ""
		}
		return fmt.Sprintf(format, args...)
	}
	columns := []table.Column[planRow]{
		{Title: "step", Cell: func(r *planRow) table.Cell {
			return table.When(r.layers == 0, table.String(ofStep(r, "%d", r.Tag)))
		}},
		table.Count("layers", "layers", func(r *planRow) int { return r.layers }),
		table.Word("op", func(r *planRow) string { return r.Op }),
		table.Word("rows x K -> N", func(r *planRow) string { return ofStep(r, "%d x %d -> %d", r.Rows, r.K, r.N) }),
		table.Word("MFLOP", func(r *planRow) string { return fmt.Sprintf("%.3f", float64(r.FLOPs)/1e6) }),
		table.Word("KB", func(r *planRow) string { return fmt.Sprintf("%.1f", float64(r.Bytes)/1e3) }),
		table.Word("FLOP/byte", func(r *planRow) string { return fmt.Sprintf("%.2f", float64(r.FLOPs)/float64(max(1, r.Bytes))) }),
		table.Text("name", "stages", func(r *planRow) string { return r.Name }),
	}
	if !folded {
		columns = slices.Delete(columns, 1, 2)
	}
	table.Print(w, columns, rows)
}
