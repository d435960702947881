package traces

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestByLaunch has a launch that is queued, one that finds nothing queued, one
// whose kernel begins before its call returns, and a graph.
func TestByLaunch(t *testing.T) {
	graphCall := Plain(KindRuntime, API(1, 1), "cudaGraphLaunch", 300, 20)
	graphCall.Correlation = 9
	node := func(start, end int64) Event {
		k := Plain(KindKernel, Stream(1, 0, 1, 7), "node", start, end-start)
		k.Correlation, k.Node = 9, uint64(start)
		return k
	}
	events := []Event{graphCall, node(330, 340), node(345, 400)}
	events = append(events, launched(1, 0, 10, 15, 100)...)     // first: nothing queued, since the table's begin
	events = append(events, launched(2, 20, 30, 101, 120)...)   // found 1
	events = append(events, launched(3, 40, 50, 121, 130)...)   // found 2
	events = append(events, launched(4, 200, 240, 220, 230)...) // starved from 130 to 220; began before its call returned
	events = append(events, launched(5, 325, 335, 401, 410)...) // finds the graph's two
	lost := Plain(KindKernel, Stream(1, 0, 1, 7), "lost", 420, 5)
	events = append(events, lost)
	tr := trace(&Header{}, events...)
	table, err := Summarize(tr, ByLaunch, -1)
	if err != nil {
		t.Fatal(err)
	}
	if q := *table.Queue; q != (Queue{Launches: 5, Ahead: 3, AheadTime: 71 + 71 + 66, Starved: 2, StarvedTime: 90 + 100, WithoutCall: 1}) {
		t.Errorf("%+v", q)
	}
	// The table begins with the first work, so that the first call lies before it.
	want := []Launch{
		{Call: "cudaLaunchKernel", Work: "k2", Correlation: 2, Time: 5, API: 10, Delay: 71, Busy: 19, Pieces: 1, Depth: 1},
		{Call: "cudaLaunchKernel", Work: "k3", Correlation: 3, Time: 25, API: 10, Delay: 71, Busy: 9, Pieces: 1, Depth: 2},
		{Call: "cudaLaunchKernel", Work: "k4", Correlation: 4, Time: 185, API: 40, Busy: 10, Pieces: 1, Starved: 90},
		{Call: "cudaGraphLaunch", Work: "node", Correlation: 9, Time: 285, API: 20, Delay: 10, Busy: 65, Pieces: 2, Starved: 100},
		{Call: "cudaLaunchKernel", Work: "k5", Correlation: 5, Time: 310, API: 10, Delay: 66, Busy: 9, Pieces: 1, Depth: 2},
	}
	if !slices.Equal(table.Launches, want) {
		t.Errorf("launches\n%+v, not\n%+v", table.Launches, want)
	}
	if r := table.LaunchRows; len(r) != 2 || r[0] != (LaunchRow{"cudaGraphLaunch", 1, 2, 20, 10, 10, 65, 0, 0, 1}) || r[1] != (LaunchRow{"cudaLaunchKernel", 4, 4, 70, 208, 71, 47, 1.25, 2, 1}) {
		t.Errorf("rows %+v", r)
	}
	if _, err := Summarize(trace(&Header{}, lost), ByLaunch, -1); err == nil || !strings.Contains(err.Error(), "no correlation ids") {
		t.Errorf("without calls: %v", err)
	}
	if _, err := Summarize(trace(&Header{}, Plain(KindStep, Thread(1, 1), "x", 0, 1)), ByLaunch, -1); err == nil {
		t.Error("launches of a trace of the CPU")
	}
}

// TestQueueDepth compares with counting at each nanosecond.
func TestQueueDepth(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		var events []Event
		type span struct{ from, to int64 }
		var spans []span
		for i := range uint64(1 + r.IntN(15)) {
			call := r.Int64N(100)
			back := call + r.Int64N(20)
			start := call + r.Int64N(60)
			end := start + r.Int64N(60)
			events = append(events, launched(i+1, call, back, start, end)...)
			spans = append(spans, span{min(back, start), end})
		}
		Sort(events)
		counters := QueueDepth(events)
		if !slices.IsSortedFunc(counters, Compare) {
			t.Fatalf("seed %d: the counters are not in order", seed)
		}
		at, value := 0, 0.0
		for now := int64(-1); now < 300; now++ {
			for ; at < len(counters) && counters[at].Time <= now; at++ {
				c := &counters[at]
				if value = c.Value; c.Kind != KindCounter || c.Name != "queue depth" || c.Lane.Device != 0 || c.Lane.Kind != LaneCounter {
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
		if again := QueueDepth(append(events, counters...)); again != nil {
			t.Fatal("counters were made twice")
		}
	}
	if counters := QueueDepth([]Event{Plain(KindKernel, Stream(1, 0, 1, 7), "k", 0, 1)}); counters != nil {
		t.Errorf("without calls: %+v", counters)
	}
}
