package layers

import (
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/traces"
)

// piece is a step of a pass made for a test: of a layer (-1 outside), and how long it takes and how long nothing runs
// before it, in ns.
type piece struct {
	slot, layer  int
	before, runs int64
}

// traceOf makes a recording of passes, with idle time between them.
func traceOf(passes int, between int64, pieces []piece) *traces.Trace {
	h := &traces.Header{Version: traces.Version, Tool: "test", Recorder: traces.RecorderHost, Process: 7}
	plan := traces.Plan{Phase: "decode step", Batch: 1, Tokens: 1}
	for i, p := range pieces {
		plan.Steps = append(plan.Steps, traces.Step{Tag: i, Name: string(rune('a' + i)), Op: "Linear", Layer: p.layer, Slot: p.slot})
	}
	h.Plans = []traces.Plan{{Phase: "prefill", Batch: 1, Tokens: 4, Steps: plan.Steps}, plan}
	var events []traces.Event
	lane, now := traces.Thread(7, 1), int64(1000)
	for range passes {
		pass := traces.Plain(traces.KindPass, lane, "decode step", now, 0)
		pass.Plan = 1
		at := len(events)
		events = append(events, pass)
		for i, p := range pieces {
			now += p.before
			e := traces.Plain(traces.KindStep, lane, plan.Steps[i].Name, now, p.runs)
			e.Plan, e.Step = 1, int32(i)
			events = append(events, e)
			now += p.runs
		}
		events[at].Duration = now - events[at].Time
		now += between
	}
	return traces.NewTrace(h, events)
}

var decodeOne = gpt2.Pass{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}

// What waits between steps of layers is the layers'; what waits elsewhere, and between passes, is not. With all layers
// alike a + b L is the time of a pass.
func TestLayerTimes(t *testing.T) {
	pieces := []piece{{-1, -1, 0, 500}}
	for n := range 3 {
		pieces = append(pieces, piece{n, n, 30, 1000}, piece{n, n, 70, 2000})
	}
	pieces = append(pieces, piece{-1, -1, 40, 700})
	const passes = 10
	a, b, err := layerTimes(traceOf(passes, 90, pieces), decodeOne, 3)
	if err != nil {
		t.Fatal(err)
	}
	// Of a layer: 3000 of steps, 70 within, 30 to the next; of the last one nothing follows. The pass takes 500 +
	// 3*3100 + 40 + 700 and, but for the last, 90.
	pass := float64(500+3*3100+40+700) + 90*float64(passes-1)/passes
	near(t, "b", b, 3100e-6, 1e-9)
	near(t, "a", a, (pass-3*3100)*1e-6, 1e-9)
}

// The last layer of a prefill does less, and a layer may run several times.
func TestLayerTimesOfUnequalLayers(t *testing.T) {
	pieces := []piece{{-1, -1, 0, 500}}
	for slot, layer := range []int{0, 1, 0, 1, 0} {
		runs := int64(3000)
		if slot == 4 {
			runs = 1000
		}
		pieces = append(pieces, piece{slot, layer, 0, runs})
	}
	a, b, err := layerTimes(traceOf(4, 0, pieces), decodeOne, 5)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "b", b, 3000e-6, 1e-9) // layer 1, since 0 is the last one too
	near(t, "a", a, (500-2000)*1e-6, 1e-9)
}

// The time between the last layer of a pass and the first of the next belongs to no layer; passes that only fill the
// cache, whose plan has fewer steps, are not those measured.
func TestLayerTimesOfPasses(t *testing.T) {
	layersOnly := []piece{{0, 0, 0, 1000}, {0, 0, 20, 1000}, {1, 1, 30, 1000}, {1, 1, 20, 1000}}
	a, b, err := layerTimes(traceOf(5, 400, layersOnly), decodeOne, 2)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "b", b, 2050e-6, 1e-9) // of layer 0: two steps, 20 within, 30 to layer 1
	near(t, "a", a, 400e-6*4/5+4070e-6-2*2050e-6, 1e-9)

	if _, b, err = layerTimes(traceOf(5, 400, layersOnly[:2]), decodeOne, 1); err != nil {
		t.Fatal(err)
	}
	near(t, "b of the only layer", b, 2020e-6, 1e-9)

	h := &traces.Header{Plans: []traces.Plan{
		{Phase: "prefill", Tokens: 1, Batch: 1, Steps: make([]traces.Step, 3)},
		{Phase: "decode step", Tokens: 1, Batch: 1, Steps: make([]traces.Step, 5)},
		{Phase: "decode step at 0", Tokens: 1, Batch: 1, Steps: make([]traces.Step, 5)},
		{Phase: "of two", Tokens: 1, Batch: 2, Steps: make([]traces.Step, 9)},
	}}
	passes := map[string]int{"prefill": 90, "decode step": 20, "decode step at 0": 1, "of two": 3}
	if p := planOf(h, decodeOne, passes); p == nil || p.Phase != "decode step" {
		t.Errorf("the passes are of the plan %+v", p)
	}
}

func TestLayerTimesFails(t *testing.T) {
	whole := traceOf(2, 0, []piece{{-1, -1, 0, 500}, {0, 0, 0, 100}})
	if _, _, err := layerTimes(whole, gpt2.Pass{Batch: 1, Tokens: 9}, 1); err == nil {
		t.Error("passes that are not there have times")
	}
	if _, _, err := layerTimes(whole, gpt2.Pass{Batch: 1, Tokens: 4}, 1); err == nil {
		t.Error("a plan without passes has times")
	}
	if _, _, err := layerTimes(traceOf(2, 0, []piece{{-1, -1, 0, 500}}), decodeOne, 1); err == nil {
		t.Error("no layer has a time")
	}
	whole.Header.Incomplete = []string{"half of it is lost"}
	if _, _, err := layerTimes(whole, decodeOne, 1); err == nil {
		t.Error("what is left of a recording has times")
	}
	if a, b, err := layerTimes(traceOf(2, 0, []piece{{-1, -1, 0, 500}, {0, 0, 0, 100}}), decodeOne, 1); err != nil {
		t.Error(err)
	} else {
		near(t, "b of one layer", b, 100e-6, 1e-12)
		near(t, "a of one layer", a, 500e-6, 1e-12)
	}
}
