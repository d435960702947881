package layers

import (
	"fmt"
	"time"

	"gpt2scope/gpt2"
)

// Known is what a plan cannot tell about a device. Both fields may be nil.
type Known struct {
	// Floor returns the least time of a pass.
	Floor func(p *gpt2.Plan, past int) time.Duration

	// Memory returns the bytes that a session of a run order takes; nil is PredictMemory.
	Memory func(order []int) (int64, error)
}

// plan is the plan of a phase as the backend runs it.
func (e *Experiment) plan(order []int, phase gpt2.Pass) *gpt2.Plan {
	return e.Backend.Fuse(gpt2.Forward(e.Model.Config, order, phase))
}

// PredictMemory is the memory of weights (each layer's once, however often it runs), KV
// cache and activations, in bytes, without that of the program itself.
func (e *Experiment) PredictMemory(order []int) int64 {
	sizes, c := e.Backend.Sizes(), e.Model.Config
	capacity := e.Options.Context
	if capacity == 0 {
		capacity = c.Positions
	}
	sum := int64(float64(e.parameters(order))*sizes.Weight) +
		2*int64(len(order))*int64(c.Channels)*int64(capacity)*int64(e.batch())*int64(sizes.KV)
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

// count adds to a variant the metrics that are computed rather than measured, and the rates
// that follow from both. below are the phases that are faster than their floors: a ceiling
// of the device is too low then, so that they have no share of it.
func (e *Experiment) count(v *Variant, k Known) (below []string, err error) {
	exactly := func(name, unit string, value float64) {
		v.Metrics[name] = Metric{Unit: unit, Median: value, Low: value, High: value, N: 1}
	}
	exactly("parameters", "1", float64(e.parameters(v.Order)))
	memory := e.PredictMemory(v.Order)
	if k.Memory != nil {
		if memory, err = k.Memory(v.Order); err != nil {
			return nil, err
		}
	}
	exactly("predicted memory", "bytes", float64(memory))
	for _, p := range []struct {
		name   string
		phase  gpt2.Pass
		past   int
		tokens int
	}{{TaskPrefill, e.Prefill(), 0, e.batch() * e.PromptLen}, {TaskDecode, e.Decode(), e.Past, e.batch()}} {
		plan := e.plan(v.Order, p.phase)
		cost := plan.Cost(p.past)
		exactly(p.name+" FLOPs", "1", float64(cost.FLOPs))
		exactly(p.name+" bytes", "bytes", float64(cost.Bytes(e.Backend.Sizes())))
		t, ok := v.Metrics[p.name+" time"]
		if !ok {
			continue
		}
		v.Metrics[p.name+" rate"] = t.over(1e3*float64(p.tokens), "tokens/s")
		if k.Floor == nil {
			continue
		}
		switch floor := ms(k.Floor(plan, p.past)); {
		case floor > t.Median:
			below = append(below, fmt.Sprintf("%s of %s", p.name, v.Label))
		case floor > 0:
			v.Metrics[p.name+" share of floor"] = t.over(100*floor, "%")
		}
	}
	return below, nil
}

// over returns x divided by the metric.
func (m Metric) over(x float64, unit string) Metric {
	of := func(t float64) float64 {
		if t <= 0 {
			return 0
		}
		return x / t
	}
	return Metric{Unit: unit, Median: of(m.Median), Low: of(m.High), High: of(m.Low), N: m.N}
}
