package layers

import (
	"cmp"
	"fmt"

	"gpt2scope/gpt2"
	"gpt2scope/internal/journal"
)

// plan is the plan of a phase as the backend runs it.
func (e *Experiment) plan(order []int, phase gpt2.Pass) *gpt2.Plan {
	return e.Backend.Fuse(gpt2.Forward(e.Model.Config, order, phase))
}

// PredictMemory is the memory of weights (each layer's once, however often it runs), KV cache and activations, in
// bytes, without that of the program itself.
func (e *Experiment) PredictMemory(order []int) int64 {
	sizes, c := e.Backend.Sizes(e.Model), e.Model.Config
	capacity := cmp.Or(e.Options.Context, c.Positions)
	sum := int64(float64(e.parameters(order))*sizes.Weight) +
		int64(2*float64(len(order)*c.Channels*capacity*e.batch())*sizes.KV)
	decode, prefill := e.plan(order, e.Decode()), e.plan(order, e.Prefill())
	for b := range gpt2.NumBuffers {
		if b == gpt2.BufTokens {
			continue
		}
		elements := max(decode.Buffers[b].Rows*decode.Buffers[b].Width, prefill.Buffers[b].Rows*prefill.Buffers[b].Width)
		sum += int64(e.batch()) * int64(elements) * int64(sizes.Activation)
	}
	return sum
}

// parameters counts the parameters that a run order needs.
func (e *Experiment) parameters(order []int) int64 {
	var n int64
	for _, p := range e.Model.Config.ParamsOf(order) {
		n += int64(p.Elements())
	}
	return n
}

// Computed is what of a result does not come from measurements: it follows from the model, the experiment and the
// ceilings of the device.
type Computed struct {
	Layers     int            `json:"layers"` // of the model
	Window     int            `json:"window"`
	Seed       uint64         `json:"seed"`
	TextTokens int            `json:"text_tokens"` // 0 if the model writes the text
	PassTokens map[string]int `json:"pass_tokens"` // of a pass of each phase, over all sequences
	Shard      journal.Shard  `json:"-"`

	// Variants are those that were asked for, with the metrics that are computed; Predicted are the depths to predict.
	Variants  []Variant `json:"-"`
	Predicted []Variant `json:"-"`
}

// computedMetrics are the metrics of [Computed].
var computedMetrics = []string{"parameters", "predicted memory", "prefill FLOPs", "decode FLOPs", "prefill bytes",
	"decode bytes", "prefill floor", "decode floor"}

// compute returns the metrics of a run order that are computed.
func (e *Experiment) compute(order []int) (metrics map[string]Metric, err error) {
	metrics = map[string]Metric{}
	exactly := func(name, unit string, value float64) {
		metrics[name] = Metric{Unit: unit, Median: value, Low: value, High: value, N: 1}
	}
	exactly("parameters", "1", float64(e.parameters(order)))
	memory := e.PredictMemory(order)
	if e.Memory != nil {
		if memory, err = e.Memory(order); err != nil {
			return nil, err
		}
	}
	exactly("predicted memory", "bytes", float64(memory))
	for _, p := range []struct {
		name  string
		phase gpt2.Pass
		past  int
	}{{TaskPrefill, e.Prefill(), 0}, {TaskDecode, e.Decode(), e.Past}} {
		plan := e.plan(order, p.phase)
		cost := plan.Cost(p.past)
		exactly(p.name+" FLOPs", "1", float64(cost.FLOPs))
		exactly(p.name+" bytes", "bytes", float64(cost.Bytes(e.Backend.Sizes(e.Model))))
		if e.Floor == nil {
			continue
		}
		if floor := ms(e.Floor(plan, p.past)); floor > 0 {
			exactly(p.name+" floor", "ms", floor)
		}
	}
	return metrics, nil
}

// add adds to measured metrics of a variant those that are computed, and the rates that follow from both. below are the
// phases that are faster than their floors: a ceiling of the device is too low then, so that they have no share of it.
func (c *Computed) add(metrics map[string]Metric, v Variant) (below []string) {
	for _, name := range computedMetrics {
		if m, ok := v.Metrics[name]; ok {
			metrics[name] = m
		}
	}
	for _, phase := range []string{TaskPrefill, TaskDecode} {
		t, ok := metrics[phase+" time"]
		if !ok {
			continue
		}
		metrics[phase+" rate"] = t.over(1e3*float64(c.PassTokens[phase]), "tokens/s")
		switch floor := metrics[phase+" floor"].Median; {
		case floor > t.Median:
			below = append(below, fmt.Sprintf("%s of %s", phase, v.Label))
		case floor > 0:
			metrics[phase+" share of floor"] = t.over(100*floor, "%")
		}
	}
	return below
}

func (m Metric) over(x float64, unit string) Metric {
	of := func(t float64) float64 {
		if t <= 0 {
			return 0
		}
		return x / t
	}
	return Metric{Unit: unit, Median: of(m.Median), Low: of(m.High), High: of(m.Low), N: m.N}
}
