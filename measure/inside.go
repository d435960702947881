package measure

import (
	"context"
	"fmt"

	"gpt2scope/gpt2"
	"gpt2scope/traces"
)

// InsideTime says what the SMs did in a decode kernel during a step or a stage: means in
// microseconds of one decode step. The first four sum to Time.
//
// The time of a step is from when the last SM published the outputs of the step before to
// when the last one published its own.
type InsideTime struct {
	Name      string  `json:"name"` // of a stage: "h.N.attn.sdpa" is every layer's; of an SM: "SM 7"
	Calls     int     `json:"calls"`
	Time      float64 `json:"time_us"`
	Share     float64 `json:"percent_of_step"`
	Weights   float64 `json:"weights_us"`   // waiting for weights, or keys and values
	Inputs    float64 `json:"inputs_us"`    // waiting for what other SMs compute
	Compute   float64 `json:"compute_us"`   // from the inputs to the published outputs
	Imbalance float64 `json:"imbalance_us"` // waiting until the last SM has published
	Idle      float64 `json:"no_part_us"`   // of an SM: in steps in which it has no part
}

// Inside is what a decode kernel did, by [gpt2.InsideDecode].
type Inside struct {
	Step   float64      // microseconds of a decode step
	Steps  int          // of which the means are
	Stages []InsideTime // over all layers, in the order of the plan
	SMs    []InsideTime
}

// InspectDecode runs launches of the kernel that runs whole decode steps, with past tokens in
// the cache, and sums up what its SMs did. The first launch warms up, and the first step of
// each launch is left out: its weights are on their way when it begins. The session must be
// for one sequence; it is empty afterwards.
func InspectDecode(ctx context.Context, s *gpt2.Session, past, launches int) (*Inside, *gpt2.InsideDecode, error) {
	pass := gpt2.Pass{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}
	if err := prepare(ctx, s, pass, past); err != nil {
		return nil, nil, err
	}
	d, err := s.InspectDecode(ctx, IDs(s.Model(), 1), launches+1)
	if err != nil {
		return nil, nil, err
	}
	d.Launches = d.Launches[1:]
	inside, err := SumInside(d)
	if err != nil {
		return nil, nil, err
	}
	return inside, d, s.Reset()
}

// EachStep calls f for each step of each decode step but the first of a launch, with when
// the outputs of the step before and its own were complete.
func EachStep(d *gpt2.InsideDecode, f func(step int, from, to uint64, blocks []gpt2.BlockTimes)) {
	for _, launch := range d.Launches {
		var from uint64
		for i := range d.Tokens * len(d.Steps) {
			blocks := launch[i*d.Blocks : (i+1)*d.Blocks]
			to := from
			for _, b := range blocks {
				to = max(to, b.Published)
			}
			if i >= len(d.Steps) {
				f(i%len(d.Steps), from, to, blocks)
			}
			from = to
		}
	}
}

// SumInside sums up what the SMs did.
func SumInside(d *gpt2.InsideDecode) (*Inside, error) {
	in := &Inside{Steps: len(d.Launches) * (d.Tokens - 1)}
	if in.Steps < 1 {
		return nil, fmt.Errorf("%d launches of %d decode steps: the first step of each is left out, so there is none", len(d.Launches), d.Tokens)
	}
	index := map[string]int{}
	stage := make([]int, len(d.Steps))
	for i, step := range d.Steps {
		name := traces.InAnyLayer(d.Plan.Steps[step].Name())
		if _, known := index[name]; !known {
			index[name] = len(in.Stages)
			in.Stages = append(in.Stages, InsideTime{Name: name})
		}
		stage[i] = index[name]
		in.Stages[stage[i]].Calls++
	}
	for b := range d.Blocks {
		in.SMs = append(in.SMs, InsideTime{Name: fmt.Sprintf("SM %d", b)})
	}
	unit := 1e-3 / float64(in.Steps)
	EachStep(d, func(i int, from, to uint64, blocks []gpt2.BlockTimes) {
		whole := float64(to-from) * unit
		in.Step += whole
		row := &in.Stages[stage[i]]
		row.Time += whole
		active := 0
		for _, b := range blocks {
			if b.Published != 0 {
				active++
			}
		}
		for k, b := range blocks {
			p, ok := b.Parts(from, to)
			sm := &in.SMs[k]
			sm.Time += whole
			if !ok {
				sm.Idle += whole
				continue
			}
			sm.Calls++
			sm.add(p, unit)
			row.add(p, unit/float64(active))
		}
	})
	for _, rows := range [][]InsideTime{in.Stages, in.SMs} {
		for i := range rows {
			rows[i].Share = 100 * rows[i].Time / in.Step
		}
	}
	for i := range in.SMs {
		in.SMs[i].Calls /= in.Steps
	}
	return in, nil
}

func (t *InsideTime) add(p traces.Parts, unit float64) {
	t.Weights += float64(p.Weights) * unit
	t.Inputs += float64(p.Inputs) * unit
	t.Compute += float64(p.Compute) * unit
	t.Imbalance += float64(p.Imbalance) * unit
}
