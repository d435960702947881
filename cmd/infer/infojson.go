package main

import (
	"errors"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
)

// infoJSON is what "infer info --json" prints, and what "infer info" writes as text: the model,
// its memory, and the plans that a run executes. Scripts compare traces with them
// (traces/check_nsys.py).
type infoJSON struct {
	Model         string         `json:"model"`                   // as in Configuration
	Stored        string         `json:"gguf_type,omitempty"`     // of most weights in a GGUF file
	Geometry      geometryJSON   `json:"geometry"`                // of the whole model
	Device        string         `json:"device"`                  // as in Configuration
	DType         string         `json:"dtype"`                   // of the weights on the device
	Layers        []int          `json:"layers"`                  // run order
	LayersReason  string         `json:"layers_reason,omitempty"` // why not all run, if no flag says so
	Parameters    int64          `json:"parameters"`              // of the whole model
	RunParameters int64          `json:"run_parameters"`          // of the layers that run, with embeddings and head
	Context       int            `json:"context"`                 // tokens that the KV cache holds, of each sequence
	Memory        infoMemoryJSON `json:"memory_bytes"`
	Tokenizer     *int           `json:"tokenizer_tokens"` // null if there is no tokenizer
	Prefill       planJSON       `json:"prefill"`
	Decode        planJSON       `json:"decode"`
	GPU           *gpuJSON       `json:"gpu,omitempty"`
}

// geometryJSON is the geometry of the model.
type geometryJSON struct {
	Layers     int    `json:"layers"`
	Channels   int    `json:"channels"`
	Heads      int    `json:"heads"`
	HeadSize   int    `json:"head_size"`
	Vocab      int    `json:"vocab"`
	Positions  int    `json:"positions"`  // the longest context
	Inner      int    `json:"inner"`      // channels of the MLP
	Activation string `json:"activation"` // as config.json names it
	Tied       bool   `json:"tied"`       // lm_head is wte
}

// infoMemoryJSON is the memory that the model needs on any device.
type infoMemoryJSON struct {
	Weights   int64 `json:"weights"`    // of the layers that run
	Cache     int64 `json:"kv_cache"`   // of all sequences
	LogitsRow int64 `json:"logits_row"` // of a token
}

// gpuJSON is what holds for a GPU only.
type gpuJSON struct {
	Name          string            `json:"name"`
	Mode          string            `json:"mode"`
	ModeReason    string            `json:"mode_reason"`
	Fallback      string            `json:"mode_fallback,omitempty"`      // what runs in another mode, and why
	Variants      map[string]string `json:"variants,omitempty"`           // those asked for, by stage
	Memory        memoryJSON        `json:"memory_bytes"`                 // what a run takes
	MemoryFree    int64             `json:"memory_free_bytes,omitempty"`  // of the GPU
	MemoryTotal   int64             `json:"memory_total_bytes,omitempty"` // of the GPU
	PrefillTokens int               `json:"prefill_tokens"`               // as it is executed: a prompt may be padded
	Prefill       []gpt2.Product    `json:"prefill_products"`             // matrix products that cuBLASLt does
	DecodeTokens  int               `json:"decode_tokens"`                // that are computed: a prompt may be padded
	Decode        []gpt2.Product    `json:"decode_products"`              // matrix products that cuBLASLt does
}

// memoryJSON is the GPU memory that a run takes.
type memoryJSON struct {
	Weights     int64 `json:"weights"`
	Cache       int64 `json:"kv_cache"`
	Activations int64 `json:"activations"`
	Work        int64 `json:"workspaces"`
	Total       int64 `json:"total"`
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

// stepJSON is a step of a plan: a product (rows, K) x (K, N), or rows of N values. Slot and Layer
// are -1 outside the layers.
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
	c, sizes, d := o.Model.Config, o.Backend.Sizes(), o.Backend.Describe()
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
		Model: o.Model.Name, Stored: o.Model.Stored, Device: d.Name, DType: d.WeightType, Layers: o.Options.Layers, LayersReason: o.Flags.LayersReason(),
		Geometry: geometryJSON{Layers: c.Layers, Channels: c.Channels, Heads: c.Heads, HeadSize: c.HeadSize(), Vocab: c.Vocab,
			Positions: c.Positions, Inner: c.Inner, Activation: c.Activation.String(), Tied: c.Tied},
		Parameters: int64(c.Parameters()), RunParameters: int64(run.Parameters()), Context: o.Options.Context,
		Prefill: plan(promptLen, 0), Decode: plan(1, past),
	}
	j.Memory.Weights = int64(float64(run.Parameters()) * sizes.Weight)
	j.Memory.Cache = 2 * int64(run.Layers) * int64(c.Channels) * int64(o.Options.Context) * int64(batch) * int64(sizes.KV)
	j.Memory.LogitsRow = 4 * int64(c.Vocab)
	if o.Model.Tokenizer != nil {
		n := o.Model.Tokenizer.VocabSize()
		j.Tokenizer = &n
	}
	options := o.Options
	options.Batch = batch
	survey, err := gpt2.SurveyOf(o.Backend, o.Model, options, pass(promptLen), pass(1))
	switch {
	case errors.Is(err, errors.ErrUnsupported): // a CPU
		return j, nil
	case err != nil:
		return nil, err
	}
	j.GPU = newGPUJSON(o.Backend.Describe(), survey) // of the mode that the survey found
	if free, total, err := gpt2.MemoryOf(o.Backend); err == nil {
		j.GPU.MemoryFree, j.GPU.MemoryTotal = int64(free), int64(total)
	}
	return j, nil
}

func newGPUJSON(d gpt2.Description, s *gpt2.Survey) *gpuJSON {
	return &gpuJSON{Name: d.Processor, Mode: d.Mode, ModeReason: d.ModeReason, Fallback: d.Fallback, Variants: d.Variants,
		Memory:        memoryJSON{s.Weights, s.Cache, s.Activations, s.Work, s.Total()},
		PrefillTokens: s.Passes[0].Tokens, Prefill: s.Products[0],
		DecodeTokens: s.Passes[1].Tokens, Decode: s.Products[1]}
}

func newPlanJSON(p *gpt2.Plan, past int, sizes gpt2.Sizes) planJSON {
	total := p.Cost(past)
	j := planJSON{Batch: p.Pass.Batch, Tokens: p.Pass.Tokens, Past: past, FLOPs: total.FLOPs, Bytes: total.Bytes(sizes), Steps: make([]stepJSON, 0, len(p.Steps))}
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
