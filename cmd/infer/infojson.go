package main

import "gpt2scope/gpt2"

// infoJSON is what "infer info --json" prints: the plans that a run executes, for
// scripts that compare a trace with them (traces/check_nsys.py).
type infoJSON struct {
	Model   string   `json:"model"`
	Device  string   `json:"device"`
	Layers  []int    `json:"layers"` // run order
	Prefill planJSON `json:"prefill"`
	Decode  planJSON `json:"decode"`
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
	j := planJSON{Batch: p.Phase.Batch, Tokens: p.Phase.Tokens, Past: past, Steps: make([]stepJSON, 0, len(p.Steps))}
	for _, s := range p.Steps {
		c := s.Cost(past)
		j.Steps = append(j.Steps, stepJSON{Tag: s.Tag, Name: s.Name(), Op: s.Op().String(), Slot: s.Slot(), Layer: s.Layer(), FLOPs: c.FLOPs, Bytes: c.Bytes(sizes)})
	}
	return j
}
