package window

import (
	"math/rand/v2"
	"slices"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
)

// TestNamesAreNoFacts: warm-up and waits are what the fields say, whatever names are.
func TestNamesAreNoFacts(t *testing.T) {
	thread, api := traces.Thread(1, 1), traces.API(1, 1)
	renamed := traces.Plain(traces.KindRange, thread, "practice", 0, 100)
	renamed.WarmUp = true
	poll := traces.Plain(traces.KindRuntime, api, "poll", 310, 20)
	poll.Wait = traces.WaitSync
	events := []traces.Event{renamed, traces.Plain(traces.KindPass, thread, "prefill", 10, 50), traces.Plain(traces.KindRange, thread, "warm-up", 200, 100),
		traces.Plain(traces.KindPass, thread, "prefill", 210, 50), traces.Plain(traces.KindRuntime, api, "cudaStreamSynchronize", 300, 5), poll}
	w := New(traces.NewTrace(&traces.Header{}, events), -1)
	if len(w.WarmUp) != 1 || w.WarmUp[0].Time != 10 || len(w.Passes) != 1 || w.Passes[0].Event.Time != 210 {
		t.Errorf("%d passes of warm-up and %d others", len(w.WarmUp), len(w.Passes))
	}
	if want := []Wait{{Interval: Interval{From: 310, To: 330}, For: traces.WaitSync}}; !slices.Equal(w.Waits, want) {
		t.Errorf("waits %+v, not %+v", w.Waits, want)
	}
}

// TestQueueDepth compares with counting at each nanosecond.
func TestQueueDepth(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		var events []traces.Event
		type span struct{ from, to int64 }
		var spans []span
		for i := range uint64(1 + r.IntN(15)) {
			call := r.Int64N(100)
			back := call + r.Int64N(20)
			start := call + r.Int64N(60)
			end := start + r.Int64N(60)
			events = append(events, fixtures.Launched(i+1, call, back, start, end)...)
			spans = append(spans, span{min(back, start), end})
		}
		traces.Sort(events)
		counters := QueueDepth(fixtures.Trace(&traces.Header{}, events...))
		if !slices.IsSortedFunc(counters, traces.Compare) {
			t.Fatalf("seed %d: the counters are not in order", seed)
		}
		at, value := 0, 0.0
		for now := int64(-1); now < 300; now++ {
			for ; at < len(counters) && counters[at].Time <= now; at++ {
				c := &counters[at]
				if value = c.Value; c.Kind != traces.KindCounter || c.Name != "queue depth" || c.Lane.Device != 0 || c.Lane.Kind != traces.LaneCounter {
					t.Fatalf("seed %d: %+v", seed, c)
				}
			}
			want := 0
			for _, s := range spans {
				if s.from <= now && now < s.to {
					want++
				}
			}
			if value != float64(want) {
				t.Fatalf("seed %d: at %d the depth is %g, not %d", seed, now, value, want)
			}
		}
		if again := QueueDepth(fixtures.Trace(&traces.Header{}, append(events, counters...)...)); again != nil {
			t.Fatal("counters were made twice")
		}
	}
	if counters := QueueDepth(fixtures.Trace(&traces.Header{}, traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "k", 0, 1))); counters != nil {
		t.Errorf("without calls: %+v", counters)
	}
}
