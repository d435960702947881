package tables

import (
	"math"
	"testing"

	"gpt2scope/ceilings"
	"gpt2scope/traces"
	"gpt2scope/traces/window"
)

// TestFloor works floors out by hand.
func TestFloor(t *testing.T) {
	h := &traces.Header{DType: "bf16", Ceilings: []traces.Ceiling{
		{Device: 0, Name: "read", Unit: "GB/s", Value: 4000},
		{Device: 0, Name: "copy", Unit: "GB/s", Value: 3500},
		{Device: 0, Name: "read", Unit: "GB/s", Value: 8000, Size: 1000},
		{Device: 0, Name: "bf16", Unit: "TFLOP/s", Value: 800},
		{Device: 0, Name: "f32", Unit: "TFLOP/s", Value: 50},
		{Device: -1, Name: "read", Unit: "GB/s", Value: 40},
		{Device: 1, Name: "read", Unit: "GB/s", Value: 1e6},
	}}
	large, small := &traces.Plan{Steps: []traces.Step{{Bytes: 900}, {Bytes: 101}}}, &traces.Plan{Steps: []traces.Step{{Bytes: 900}, {Bytes: 100}}}
	huge := &traces.Plan{Steps: []traces.Step{{Bytes: math.MaxInt64}, {Bytes: math.MaxInt64}, {Bytes: -5}}}
	grows := &traces.Plan{Past: 3, Steps: []traces.Step{{Bytes: 1000, BytesPerPast: 1}}}
	for name, c := range map[string]struct {
		device int32
		plan   *traces.Plan
		step   traces.Step
		past   float64 // of the pass
		want   float64 // 0: not known
	}{
		"bytes":                              {0, large, traces.Step{Bytes: 4000}, 0, 1},
		"bytes are more":                     {0, large, traces.Step{FLOPs: 800_000, Bytes: 8000}, 0, 2},
		"operations are more":                {0, large, traces.Step{FLOPs: 2_400_000, Bytes: 8000}, 0, 3},
		"the whole plan is in a cache":       {0, small, traces.Step{Bytes: 4000}, 0, 0.5},
		"the sum does not fit an int64":      {0, huge, traces.Step{Bytes: 4000}, 0, 1},
		"activations are in a cache":         {0, large, traces.Step{Bytes: 4800, Activations: 800}, 0, 1.1},
		"more activations than bytes":        {0, large, traces.Step{Bytes: 800, Activations: 900}, 0, 0.1},
		"many activations are in memory":     {0, small, traces.Step{Bytes: 4000, Activations: 4000}, 0, 1},
		"a product, in the recording's type": {0, large, traces.Step{Op: "Linear", FLOPs: 1_600_000}, 0, 2},
		"attention, in the recording's type": {0, large, traces.Step{Op: "Attention", FLOPs: 1_600_000}, 0, 2},
		"anything else is float32":           {0, large, traces.Step{Op: "Add", FLOPs: 100_000}, 0, 2},
		"a product in a type of its own":     {0, large, traces.Step{Op: "Linear", FLOPs: 100_000, Multiply: "f32"}, 0, 2},
		"the pass still fits in a cache":     {0, grows, traces.Step{Bytes: 4000}, 3, 0.5},
		"a later pass no longer does":        {0, grows, traces.Step{Bytes: 4000}, 4, 1},
		"the CPU":                            {-1, large, traces.Step{Bytes: 4000}, 0, 100},
		"the CPU's rate is not known":        {-1, large, traces.Step{FLOPs: 1, Bytes: 4000}, 0, 0},
		"another device":                     {2, large, traces.Step{Bytes: 4000}, 0, 0},
		"no cost":                            {0, large, traces.Step{}, 0, 0},
		"a cost that overflowed counts as 0": {0, large, traces.Step{FLOPs: -1, Bytes: 4000}, 0, 1},
	} {
		pass := traces.Plain(traces.KindPass, traces.Thread(1, 1), "decode step", 0, 100)
		pass.Value = c.past
		if _, _, floor := costsOf(h, c.device).of(c.plan, c.step, &pass); math.Abs(floor.Time-c.want) > 1e-9 {
			t.Errorf("%s: %g ns, not %g", name, floor.Time, c.want)
		}
	}
	f32 := *h
	f32.DType = "f32"
	if _, _, floor := costsOf(&f32, 0).of(large, traces.Step{Op: "Linear", FLOPs: 50_000, Bytes: 1}, nil); floor.Time != 1 || floor.Bound != ceilings.BoundFLOPs {
		t.Errorf("in float32 the floor is %g ns", floor.Time)
	}
}

// TestCostAtPosition: a step costs what it does at the position of its pass, which
// is found from what lies in it; where there is none, at that of the plan.
func TestCostAtPosition(t *testing.T) {
	h := &traces.Header{}
	plan := &traces.Plan{Past: 5, Steps: []traces.Step{{FLOPs: 100, Bytes: 1000, FLOPsPerPast: 3, BytesPerPast: 20}}}
	pass := traces.Plain(traces.KindPass, traces.Thread(1, 1), "decode step", 0, 100)
	pass.ID, pass.Value = 1, 9
	layer := traces.Plain(traces.KindRange, traces.Thread(1, 1), "h.0", 0, 50)
	layer.ID, layer.Parent = 2, 1
	step := traces.Plain(traces.KindStep, traces.Thread(1, 2), "x", 0, 40)
	step.ID, step.Parent = 3, 2
	ring := traces.Plain(traces.KindRange, traces.Thread(1, 1), "ring", 0, 50)
	ring.ID, ring.Parent = 4, 4
	events := []traces.Event{pass, layer, step, ring}
	w := window.New(&traces.Trace{Header: h, Events: events}, -1)
	if p := w.PassOf(&events[2]); p != &events[0] {
		t.Fatalf("the step lies in %+v", p)
	}
	if p := w.PassOf(&events[3]); p != nil {
		t.Fatalf("a range that lies in itself lies in %+v", p)
	}
	for value, want := range map[float64][2]int64{9: {112, 1080}, 0: {85, 900}, -1: {100, 1000}, math.NaN(): {100, 1000}, 1e300: {100, 1000}} {
		at := pass
		at.Value = value
		if flops, bytes, _ := costsOf(h, 0).of(plan, plan.Steps[0], &at); flops != want[0] || bytes != want[1] {
			t.Errorf("at %g: %d FLOPs and %d bytes, not %v", value, flops, bytes, want)
		}
	}
}
