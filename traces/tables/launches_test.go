package tables

import (
	"slices"
	"strings"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
)

// TestByLaunch has a launch that is queued, one that finds nothing queued, one
// whose kernel begins before its call returns, and a graph.
func TestByLaunch(t *testing.T) {
	graphCall := traces.Plain(traces.KindRuntime, traces.API(1, 1), "cudaGraphLaunch", 300, 20)
	graphCall.Correlation = 9
	node := func(start, end int64) traces.Event {
		k := traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "node", start, end-start)
		k.Correlation, k.Node = 9, uint64(start)
		return k
	}
	events := []traces.Event{graphCall, node(330, 340), node(345, 400)}
	events = append(events, fixtures.Launched(1, 0, 10, 15, 100)...)     // first: nothing queued, since the table's begin
	events = append(events, fixtures.Launched(2, 20, 30, 101, 120)...)   // found 1
	events = append(events, fixtures.Launched(3, 40, 50, 121, 130)...)   // found 2
	events = append(events, fixtures.Launched(4, 200, 240, 220, 230)...) // starved from 130 to 220; began before its call returned
	events = append(events, fixtures.Launched(5, 325, 335, 401, 410)...) // finds the graph's two
	lost := traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "lost", 420, 5)
	events = append(events, lost)
	tr := fixtures.Trace(&traces.Header{}, events...)
	table := fixtures.Must(Summarize(tr, ByLaunch, -1))(t)
	if q := *table.Queue; q != (Queue{Launches: 6, Ahead: 3, AheadTime: 71 + 71 + 66, Starved: 3, StarvedTime: 90 + 90, WithoutCall: 1}) {
		t.Errorf("%+v", q)
	}
	// The table begins with the first work, so that the first call lies before it.
	want := []Launch{
		{Call: "cudaLaunchKernel", Work: "k1", Correlation: 1, Time: -15, API: 10, Delay: 5, Busy: 85, Kernels: 1},
		{Call: "cudaLaunchKernel", Work: "k2", Correlation: 2, Time: 5, API: 10, Delay: 71, Busy: 19, Kernels: 1, Depth: 1},
		{Call: "cudaLaunchKernel", Work: "k3", Correlation: 3, Time: 25, API: 10, Delay: 71, Busy: 9, Kernels: 1, Depth: 2},
		{Call: "cudaLaunchKernel", Work: "k4", Correlation: 4, Time: 185, API: 40, Busy: 10, Kernels: 1, Starved: 90},
		{Call: "cudaGraphLaunch", Work: "node", Correlation: 9, Time: 285, API: 20, Delay: 10, Busy: 65, Kernels: 2, Starved: 90},
		{Call: "cudaLaunchKernel", Work: "k5", Correlation: 5, Time: 310, API: 10, Delay: 66, Busy: 9, Kernels: 1, Depth: 2},
	}
	if !slices.Equal(table.Launches, want) {
		t.Errorf("launches\n%+v, not\n%+v", table.Launches, want)
	}
	if r := table.LaunchRows; len(r) != 2 || r[1] != (LaunchRow{"cudaGraphLaunch", 1, 2, 20, 10, 10, 65, 0, 0, 1}) || r[0] != (LaunchRow{"cudaLaunchKernel", 5, 5, 80, 213, 71, 132, 1, 2, 2}) {
		t.Errorf("rows %+v", r)
	}
	if _, err := Summarize(fixtures.Trace(&traces.Header{}, lost), ByLaunch, -1); err == nil || !strings.Contains(err.Error(), "no correlation ids") {
		t.Errorf("without calls: %v", err)
	}
	if _, err := Summarize(fixtures.Trace(&traces.Header{}, traces.Plain(traces.KindStep, traces.Thread(1, 1), "x", 0, 1)), ByLaunch, -1); err == nil {
		t.Error("launches of a trace of the CPU")
	}
}
