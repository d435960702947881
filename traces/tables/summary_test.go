package tables

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/load"
)

func find(t *testing.T, table *Table, kind RowKind, name string) Row {
	t.Helper()
	i := slices.IndexFunc(table.Rows, func(r Row) bool { return r.Kind == kind && r.Name == name })
	if i < 0 {
		t.Fatalf("there is no row %s %q in %+v", kind, name, table.Rows)
	}
	return table.Rows[i]
}

// checkWall checks that the rows sum to the wall time exactly, and the gaps to the idle rows, cause
// by cause. It returns what of the wall time is residual and unknown.
func checkWall(t *testing.T, table *Table) (residual int64) {
	t.Helper()
	sum, idle := int64(0), map[string]int64{}
	for _, g := range table.Gaps {
		left := g.Length()
		for _, c := range g.Causes {
			idle[c.Name] += c.Time
			left -= c.Time
		}
		if left != 0 || g.Length() <= 0 {
			t.Errorf("the causes of %+v leave %d ns", g, left)
		}
	}
	for _, r := range table.Rows {
		if r.Kind == RowIdle {
			idle[r.Name] -= r.Exclusive
		}
		if r.Exclusive < 0 {
			t.Errorf("row %+v has negative time", r)
		}
		sum += r.Exclusive
		if r.Kind == RowResidual || r.Kind == RowIdle && r.Name == IdleUnknown {
			residual += r.Exclusive
		}
	}
	for cause, ns := range idle {
		if ns != 0 {
			t.Errorf("the gaps have %d ns more of %s than the rows", ns, cause)
		}
	}
	if sum != table.Wall || table.Wall <= 0 {
		t.Errorf("the rows sum to %d ns, the wall time is %d", sum, table.Wall)
	}
	return residual
}

func checkSum(t *testing.T, table *Table) {
	t.Helper()
	residual := checkWall(t, table)
	if float64(residual) > 0.02*float64(table.Wall) {
		t.Errorf("%d of %d ns are residual and unknown", residual, table.Wall)
	}
}

// TestIdle has a gap of every cause, and kernels that overlap.
func TestIdle(t *testing.T) {
	var events []traces.Event
	add := func(more ...traces.Event) { events = append(events, more...) }
	add(fixtures.Launched(1, 0, 10, 15, 100)...)     // from 15
	add(fixtures.Launched(2, 20, 30, 90, 120)...)    // queued early: 10 of its 30 overlap
	add(fixtures.Launched(3, 40, 50, 125, 130)...)   // queued: 5 dependency
	add(fixtures.Launched(4, 200, 210, 220, 230)...) // 70 late, of which 30 synchronising; 20 launch latency
	add(traces.Plain(traces.KindRuntime, traces.API(1, 1), "cudaStreamSynchronize", 140, 30))
	add(fixtures.Launched(5, 225, 260, 250, 255)...) // the call went on when the gap began: 20 launch latency
	lost := traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "lost", 300, 10)
	add(lost)                                        // 45 unknown
	add(fixtures.Launched(6, 301, 302, 303, 308)...) // hidden by another
	copied := traces.Plain(traces.KindMemcpy, traces.Stream(1, 0, 1, 8), "Memcpy", 310, 4)
	add(copied)
	tr := fixtures.Trace(&traces.Header{}, events...)
	table := fixtures.Must(Summarize(tr, ByKernel, -1))(t)
	for name, want := range map[string]int64{"k1": 85, "k2": 20, "k3": 5, "k4": 10, "k5": 5, "lost": 10, "k6": 0} {
		if r := find(t, table, RowWork, name); r.Exclusive != want || r.Kernels != 1 || r.Busy != r.Max {
			t.Errorf("%+v, not %d", r, want)
		}
	}
	for name, want := range map[string]int64{IdleDependency: 5, IdleSync: 30, IdleHost: 40, IdleLaunch: 40, IdleUnknown: 45} {
		if r := find(t, table, RowIdle, name); r.Exclusive != want {
			t.Errorf("%+v, not %d", r, want)
		}
	}
	if r := find(t, table, RowOther, "Memcpy"); r.Exclusive != 4 {
		t.Errorf("copy %+v", r)
	}
	if r := table.Rows[len(table.Rows)-1]; r.Kind != RowResidual || r.Exclusive != 0 || table.Wall != 299 {
		t.Errorf("wall %d, %+v", table.Wall, r)
	}
	if _, ok := table.Share(&table.Rows[0]); ok {
		t.Error("shares are given for a trace that lost calls")
	}
	if _, err := Summarize(tr, ByStage, -1); err == nil || !strings.Contains(err.Error(), "no pass") {
		t.Errorf("by stage without a pass: %v", err)
	}
	if _, err := Summarize(tr, "zebra", -1); err == nil {
		t.Error("a table by zebra")
	}
	if _, err := Summarize(tr, ByKernel, 3); err == nil {
		t.Error("a table of a device that is not there")
	}
}

// TestExclusive compares with counting each nanosecond.
func TestExclusive(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var events []traces.Event
		for i := range uint64(1 + r.IntN(20)) {
			call, start := r.Int64N(200), r.Int64N(300)
			events = append(events, fixtures.Launched(i+1, call, call+r.Int64N(50), start, start+r.Int64N(60))...)
		}
		events = append(events, fixtures.Launched(99, 0, 1, 2, 3)...)
		for range r.IntN(3) {
			events = append(events, traces.Plain(traces.KindRuntime, traces.API(1, 1), "cudaEventSynchronize", r.Int64N(300), r.Int64N(100)))
		}
		tr := fixtures.Trace(&traces.Header{}, events...)
		table := fixtures.Must(Summarize(tr, ByKernel, -1))(t)
		checkSum(t, table)
		var kernels []traces.Event
		for _, e := range tr.Events {
			if e.Kind == traces.KindKernel {
				kernels = append(kernels, e)
			}
		}
		want := map[string]int64{}
		for at := kernels[0].Time; at < kernels[0].Time+table.Wall; at++ {
			if i := slices.IndexFunc(kernels, func(k traces.Event) bool { return k.Time <= at && at < k.End() }); i >= 0 { // the first to begin
				want[kernels[i].Name]++
			}
		}
		for _, row := range table.Rows {
			if row.Kind == RowWork && row.Exclusive != want[row.Name] {
				t.Fatalf("seed %d: %s has %d ns, not %d", seed, row.Name, row.Exclusive, want[row.Name])
			}
		}
	}
}

// TestByStage: warm-up apart, costs per call, host time.
func TestByStage(t *testing.T) {
	h := fixtures.Header()
	h.Dropped = nil
	thread := traces.Thread(700, 701)
	var events []traces.Event
	pass := func(at int64) {
		p := traces.Plain(traces.KindPass, thread, "decode step", at, 100)
		p.Plan, p.Value = 0, float64(at/100+3) // 5 and 6 tokens before it
		events = append(events, p)
		for tag := range int32(2) {
			s := traces.Plain(traces.KindStep, thread, h.Plans[0].Steps[tag].Name, at+int64(tag)*50, 50)
			s.Plan, s.Step = 0, tag
			c := traces.Plain(traces.KindRuntime, traces.API(700, 701), "cudaLaunchKernel", s.Time+5, 10)
			c.Correlation = uint64(len(events) + 1)
			k := traces.Plain(traces.KindKernel, traces.Stream(700, 0, 1, 7), "k", s.Time+20, 30)
			k.Correlation = c.Correlation
			events = append(events, s, c, k)
		}
	}
	warm := traces.Plain(traces.KindRange, thread, "warm-up", 0, 150)
	events = append(events, warm)
	pass(10)
	pass(200)
	pass(300)
	tr := fixtures.Trace(h, events...)
	table := fixtures.Must(Summarize(tr, ByStage, -1))(t)
	checkSum(t, table)
	if table.Wall != 200 || table.Before != 200 || table.Device != 0 {
		t.Errorf("wall %d, before %d, device %d", table.Wall, table.Before, table.Device)
	}
	r := find(t, table, RowWork, "h.0.attn.c_attn")
	if r.Calls != 2 || r.Kernels != 2 || r.Host != 100 || r.Busy != 60 || r.Exclusive != 60 || r.FLOPs != 2*889000+7 || r.Bytes != 2*1783300+1536 || r.Op != "Linear" || r.Phase != "decode step" {
		t.Errorf("%+v", r)
	}
	if share, ok := table.Share(&r); !ok || share != 30 {
		t.Errorf("share %v, %v; %v", share, ok, table.Findings)
	}
	if l, w := find(t, table, RowIdle, IdleLaunch), find(t, table, RowIdle, IdleHost); l.Exclusive != 60 || w.Exclusive != 20 {
		t.Errorf("launch latency %d, host late %d", l.Exclusive, w.Exclusive)
	}
}

// byName joins the rows of kernels of one name, those that took the most time first.
func byName(t *Table) []Row {
	var rows []Row
	for _, r := range t.Rows {
		i := slices.IndexFunc(rows, func(o Row) bool { return o.Kind == r.Kind && o.Name == r.Name })
		if i < 0 {
			rows = append(rows, Row{Kind: r.Kind, Name: r.Name})
			i = len(rows) - 1
		}
		o := &rows[i]
		o.Queued += r.Queued
		o.Kernels, o.Busy, o.durations = o.Kernels+r.Kernels, o.Busy+r.Busy, append(o.durations, r.durations...)
	}
	for i := range rows {
		rows[i].Spread = spreadOf(rows[i].durations)
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(b.Busy, a.Busy) })
	return rows
}

// TestSummaries makes tables of all captures.
func TestSummaries(t *testing.T) {
	samples, err := filepath.Glob("../samples/*.sqlite")
	if err != nil || len(samples) == 0 {
		t.Fatal(samples, err)
	}
	steps := map[string]string{}
	for _, path := range samples {
		tr := fixtures.Must(load.Load(path))(t)
		if a := tr.Attribution; a.InSteps == 0 || traces.Misleads(traces.Examine(tr.Header, a)) {
			t.Errorf("%s: %+v", path, a)
		}
		work := map[By]int64{}
		for _, by := range []By{ByStage, ByLayer, ByPhase, ByKernel} {
			table := fixtures.Must(Summarize(tr, by, -1))(t)
			checkSum(t, table)
			for _, r := range table.Rows {
				if r.Kind == RowWork {
					work[by] += r.Exclusive
				}
				if by == ByStage && r.Kind == RowWork {
					steps[path] += fmt.Sprintln(r.Phase, r.Name, r.Calls, r.Kernels)
				}
			}
		}
		if work[ByLayer] != work[ByStage] || work[ByPhase] != work[ByStage] || work[ByStage] == 0 {
			t.Errorf("%s: the steps have %d ns, by layer %d, by phase %d", path, work[ByStage], work[ByLayer], work[ByPhase])
		}
		// Each API call that the table by launch has is one of a kernel or copy of the passes.
		table, err := Summarize(tr, ByLaunch, -1)
		if err != nil || table.Queue.WithoutCall != 0 || table.Queue.Ahead+table.Queue.Starved != len(table.Launches) || len(table.Launches) == 0 {
			t.Errorf("%s: %+v, error %v", path, table.Queue, err)
		}
		ops := fixtures.Must(Summarize(tr, ByOp, -1))(t)
		var gpu, busy int64
		for _, r := range ops.Ops {
			gpu += r.SelfGPU
			if r.SelfCPU < 0 || r.SelfCPU > r.CPU || r.SelfGPU > r.GPU {
				t.Errorf("%s: %+v", path, r)
			}
		}
		stages := fixtures.Must(Summarize(tr, ByStage, -1))(t)
		for _, r := range stages.Rows {
			busy += r.Busy
		}
		if gpu != busy || gpu == 0 {
			t.Errorf("%s: the operations have %d ns of the GPU, the stages %d", path, gpu, busy)
		}
	}
	// Graph or eager, the steps have the same kernels.
	for path, got := range steps {
		if want := steps[samples[0]]; got != want || strings.Count(got, "\n") != 16 {
			t.Errorf("%s has the steps\n%s\nand %s\n%s", path, got, samples[0], want)
		}
	}
}
