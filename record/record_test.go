package record_test

import (
	"reflect"
	"testing"
	"time"

	"gpt2scope/ceilings"
	"gpt2scope/gpt2"
	"gpt2scope/record"
	"gpt2scope/traces"
)

// Costs of a plan at any position are those of the plan itself.
func TestPlanCosts(t *testing.T) {
	c := gpt2.Config{Layers: 2, Channels: 64, Heads: 4, Vocab: 300, Positions: 128, Inner: 256}
	sizes := gpt2.Sizes{Weight: 2, Activation: 4, KV: 2}
	for _, phase := range []gpt2.Phase{{Batch: 3, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}, {Batch: 1, Tokens: 17, Logits: gpt2.LogitsLast}} {
		plan := gpt2.Forward(c, gpt2.FirstLayers(2), phase)
		r := record.New("test", "1")
		index := r.Plan(plan, 5, phase.Tokens, sizes)
		if again := r.Plan(plan, 9, phase.Tokens, sizes); again != index {
			t.Errorf("the plan was registered twice: %d, %d", index, again)
		}
		h := r.Trace().Header
		p := &h.Plans[index]
		grows := false
		for _, past := range []int{0, 1, 50, 100} {
			for i, s := range plan.Steps {
				want := s.Cost(past)
				flops, bytes := p.Steps[i].CostAt(p, past)
				if flops != want.FLOPs || bytes != want.Bytes(sizes) {
					t.Errorf("%s with %d tokens before: %d FLOPs and %d bytes, want %d and %d", s.Name(), past, flops, bytes, want.FLOPs, want.Bytes(sizes))
				}
				grows = grows || p.Steps[i].BytesPerPast > 0
			}
		}
		if !grows {
			t.Error("no step costs more with more tokens in the cache")
		}
	}
}

// Times of both clocks agree.
func TestClocks(t *testing.T) {
	r := record.New("test", "1")
	end := r.Range("work")
	time.Sleep(2 * time.Millisecond)
	end()
	trace := r.Trace()
	if len(trace.Events) != 1 {
		t.Fatalf("%d events", len(trace.Events))
	}
	e := trace.Events[0]
	if e.Kind != traces.KindRange || e.Name != "work" || e.Time < 0 || e.Duration < int64(2*time.Millisecond) || e.End() > r.Now() {
		t.Errorf("the range is %+v", e)
	}
	if wall := time.Now().UnixNano() - trace.Header.Base; wall < e.End() || wall > e.End()+int64(10*time.Second) {
		t.Errorf("by the base the range ended %d ns before now", wall-e.End())
	}
}

// Floors need bandwidths and arithmetic rates, which the header has; latencies they do not.
func TestCeilings(t *testing.T) {
	r := record.New("x", "1")
	r.Ceilings(-1, ceilings.Set{Values: []ceilings.Value{{Name: "read", Unit: "GB/s", Value: 100, P10: 90, P90: 101, Size: 1000, Where: "L2 cache"},
		{Name: "copy", Unit: "GB/s", Value: 0.5}, {Name: "f32", Unit: "TFLOP/s", Value: 1e-3}, {Name: "barrier", Unit: "us", Value: 2}}})
	want := []traces.Ceiling{{Device: -1, Name: "read", Unit: "GB/s", Value: 100, Size: 1000}, {Device: -1, Name: "copy", Unit: "GB/s", Value: 0.5}, {Device: -1, Name: "f32", Unit: "TFLOP/s", Value: 1e-3}}
	if got := r.Trace().Header.Ceilings; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
}
