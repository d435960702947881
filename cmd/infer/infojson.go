package main

import (
	"gpt2scope/gpt2"
)

// infoJSON is what "infer info --json" prints: the plans that a run executes, for
// scripts that compare a trace with them (traces/check_nsys.py).
type infoJSON struct {
	Model   string   `json:"model"`
	Device  string   `json:"device"`
	Layers  []int    `json:"layers"` // run order
	Prefill planJSON `json:"prefill"`
	Decode  planJSON `json:"decode"`
	GPU     *gpuJSON `json:"gpu,omitempty"`
}

// gpuJSON is what holds for a GPU only.
type gpuJSON struct {
	Name     string            `json:"name"`
	Mode     string            `json:"mode"`
	Variants map[string]string `json:"variants,omitempty"` // those asked for, by stage
	Memory   memoryJSON        `json:"memory_bytes"`
	Prefill  []productJSON     `json:"prefill_products"` // by cuBLASLt
	Decode   []productJSON     `json:"decode_products"`
}

// memoryJSON is the GPU memory that a run takes.
type memoryJSON struct {
	Weights     int64 `json:"weights"`
	Cache       int64 `json:"kv_cache"`
	Activations int64 `json:"activations"`
	Work        int64 `json:"workspaces"`
	Total       int64 `json:"total"`
}

// productJSON is a matrix product and the algorithm that cuBLASLt has for it.
type productJSON struct {
	Step      string `json:"step"`
	M         int    `json:"m"`
	N         int    `json:"n"`
	K         int    `json:"k"`
	Tuned     bool   `json:"tuned"`
	Algorithm string `json:"algorithm"`
}

func newGPUJSON(d gpt2.Description, s *gpt2.Survey) *gpuJSON {
	products := func(list []gpt2.Product) []productJSON {
		out := make([]productJSON, len(list))
		for i, p := range list {
			out[i] = productJSON{p.Step, p.M, p.N, p.K, p.Tuned, p.Algorithm}
		}
		return out
	}
	return &gpuJSON{Name: d.Processor, Mode: d.Mode, Variants: d.Variants,
		Memory:  memoryJSON{s.Weights, s.Cache, s.Activations, s.Work, s.Total()},
		Prefill: products(s.Products[0]), Decode: products(s.Products[1])}
}

// planJSON is a plan.
type planJSON struct {
	Batch  int        `json:"batch"`
	Tokens int        `json:"tokens"`
	Past   int        `json:"past"`
	Steps  []stepJSON `json:"steps"`
}

// stepJSON is a step of a plan: Slot and Layer are -1 outside the layers.
type stepJSON struct {
	Tag   int    `json:"tag"`
	Name  string `json:"name"`
	Op    string `json:"op"`
	Slot  int    `json:"slot"`
	Layer int    `json:"layer"`
	FLOPs int64  `json:"flops"`
	Bytes int64  `json:"bytes"`
}

func newPlanJSON(p *gpt2.Plan, past int, sizes gpt2.Sizes) planJSON {
	j := planJSON{Batch: p.Pass.Batch, Tokens: p.Pass.Tokens, Past: past, Steps: make([]stepJSON, 0, len(p.Steps))}
	for _, s := range p.Steps {
		c := s.Cost(past)
		j.Steps = append(j.Steps, stepJSON{Tag: s.Tag, Name: s.Name(), Op: s.Op().String(), Slot: s.Slot(), Layer: s.Layer(), FLOPs: c.FLOPs, Bytes: c.Bytes(sizes)})
	}
	return j
}
