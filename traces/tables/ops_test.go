package tables

import (
	"slices"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
)

// TestByOp has operations of a framework in one another, one in another of its
// name, two that overlap without nesting, and work outside.
func TestByOp(t *testing.T) {
	op := func(name string, id, parent uint64, start, end int64) traces.Event {
		e := traces.Plain(traces.KindOp, traces.Thread(1, 1), name, start, end-start)
		e.ID, e.Parent = id, parent
		return e
	}
	events := []traces.Event{
		op("linear", 1, 0, 0, 100), op("addmm", 2, 0, 10, 90), op("addmm", 3, 0, 20, 30),
		op("a", 4, 0, 200, 220), op("b", 5, 0, 210, 230),
	}
	events = append(events, fixtures.Launched(1, 40, 50, 60, 95)...)
	events = append(events, fixtures.Launched(2, 92, 95, 100, 107)...)
	events = append(events, fixtures.Launched(3, 150, 155, 160, 163)...)
	tr := fixtures.Trace(&traces.Header{}, events...)
	table := fixtures.Must(Summarize(tr, ByOp, -1))(t)
	want := []OpRow{
		{"addmm", 70, 80, 35, 35, 2, 1},
		{"linear", 17, 100, 7, 42, 1, 1},
		{OutsideOps, 0, 0, 3, 3, 1, 1},
		{"b", 20, 20, 0, 0, 1, 0},
		{"cudaLaunchKernel", 18, 18, 0, 0, 3, 0},
		{"a", 10, 20, 0, 0, 1, 0},
	}
	slices.SortFunc(want[3:], func(a, b OpRow) int { return int(b.SelfCPU - a.SelfCPU) })
	if !slices.Equal(table.Ops, want) {
		t.Errorf("rows\n%+v, not\n%+v", table.Ops, want)
	}
}

// TestByOpOfSteps: the rows are the operations of the steps; a graph's kernels have
// theirs from the node, and its launch lies in the pass; the capture is left out.
func TestByOpOfSteps(t *testing.T) {
	h := fixtures.Header()
	h.Dropped = nil
	thread := traces.Thread(700, 701)
	var events []traces.Event
	ranged := func(kind traces.Kind, name string, tag int32, start, end int64) {
		e := traces.Plain(kind, thread, name, start, end-start)
		if kind != traces.KindRange {
			e.Plan, e.Step = 0, tag
		}
		events = append(events, e)
	}
	ranged(traces.KindPass, "decode step", -1, 0, 100) // eager
	ranged(traces.KindStep, "h.0.attn.c_attn", 1, 10, 40)
	call := func(name string, id uint64, start, end int64) {
		c := traces.Plain(traces.KindRuntime, traces.API(700, 701), name, start, end-start)
		c.Correlation = id
		events = append(events, c)
	}
	kernel := func(id, node uint64, tag int32, start, end int64) {
		k := traces.Plain(traces.KindKernel, traces.Stream(700, 0, 1, 7), "k", start, end-start)
		k.Correlation, k.Node = id, node
		if k.Step = tag; tag >= 0 {
			k.Plan = 0
		}
		events = append(events, k)
	}
	call("cudaLaunchKernel", 1, 15, 20)
	kernel(1, 0, -1, 50, 70)
	ranged(traces.KindRange, "record graph", -1, 200, 300)
	ranged(traces.KindPass, "decode step", -1, 210, 290)
	ranged(traces.KindStep, "h.0.attn.c_attn", 1, 220, 280)
	ranged(traces.KindPass, "decode step", -1, 400, 500) // replayed
	call("cudaGraphLaunch", 2, 410, 420)
	kernel(2, 11, 0, 430, 435)
	kernel(2, 12, 1, 440, 470)
	table := fixtures.Must(Summarize(fixtures.Trace(h, events...), ByOp, -1))(t)
	want := []OpRow{
		{"Linear", 25, 30, 50, 50, 2, 2},
		{"Embed", 0, 0, 5, 5, 1, 1},
		{"decode step", 160, 200, 0, 55, 2, 0},
		{"cudaGraphLaunch", 10, 10, 0, 0, 1, 0},
		{"cudaLaunchKernel", 5, 5, 0, 0, 1, 0},
	}
	if !slices.Equal(table.Ops, want) {
		t.Errorf("rows\n%+v, not\n%+v", table.Ops, want)
	}
}
