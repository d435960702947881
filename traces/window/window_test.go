package window

import (
	"math/rand/v2"
	"slices"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
)

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
