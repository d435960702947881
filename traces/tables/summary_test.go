package tables

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/internal/samples"
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
	for g := range table.Gaps {
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
	tr := fixtures.Trace(&traces.Header{Recorder: traces.RecorderCUPTI}, events...)
	table := require.Value(Summarize(tr, ByKernel, -1))(t)
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
		table := require.Value(Summarize(tr, ByKernel, -1))(t)
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
	table := require.Value(Summarize(tr, ByStage, -1))(t)
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

// TestSummaries: the tables of captures have the same times, and graph or eager, the steps have the same kernels.
func TestSummaries(t *testing.T) {
	var steps []string
	for _, name := range []string{"eager.sqlite", "graph.sqlite"} {
		tr := samples.Load(t, name)
		work, busy, gpu, text := map[By]int64{}, int64(0), int64(0), ""
		for _, by := range []By{ByStage, ByLayer, ByPhase, ByKernel} {
			table := require.Value(Summarize(tr, by, -1))(t)
			checkSum(t, table)
			for _, r := range table.Rows {
				if r.Kind == RowWork {
					work[by] += r.Exclusive
				}
				if by == ByStage {
					busy += r.Busy
					if r.Kind == RowWork {
						text += fmt.Sprintln(r.Phase, r.Name, r.Calls, r.Kernels)
					}
				}
			}
		}
		for _, r := range require.Value(Summarize(tr, ByOp, -1))(t).Ops {
			gpu += r.SelfGPU
		}
		if work[ByLayer] != work[ByStage] || work[ByPhase] != work[ByStage] || work[ByStage] == 0 || gpu != busy {
			t.Errorf("%s: the steps have %d ns, by layer %d, by phase %d; busy %d, by op %d", name, work[ByStage], work[ByLayer], work[ByPhase], busy, gpu)
		}
		steps = append(steps, text)
	}
	if steps[0] != steps[1] || strings.Count(steps[0], "\n") != 16 {
		t.Errorf("the steps are\n%s\nand\n%s", steps[0], steps[1])
	}
}

// checkTimes checks the exclusive times of rows by kind and name; of those not named there is none of the kind.
func checkTimes(t *testing.T, table *Table, kind RowKind, want map[string]int64) {
	t.Helper()
	got := map[string]int64{}
	for _, r := range table.Rows {
		if r.Kind == kind {
			got[r.Name] += r.Exclusive
		}
	}
	for name, ns := range want {
		if got[name] != ns {
			t.Errorf("%s %q has %d ns, not %d", kind, name, got[name], ns)
		}
		delete(got, name)
	}
	for name, ns := range got {
		t.Errorf("%s %q has %d ns, and should not be there", kind, name, ns)
	}
}

// inPass makes an event of a step of the sample's plan, in a pass.
func inPass(kind traces.Kind, lane traces.Lane, parent uint64, tag int32, start, end int64) traces.Event {
	e := traces.Plain(kind, lane, "x", start, end-start)
	e.Plan, e.Step, e.Parent = 0, tag, parent
	return e
}

func passAt(id uint64, start, end int64, position float64) traces.Event {
	e := inPass(traces.KindPass, traces.Thread(700, 701), 0, -1, start, end)
	e.Name, e.ID, e.Value = "decode step", id, position
	return e
}

// TestCPU: steps that several threads run count once, and have the time in which
// any of them runs; between steps the threads meet.
func TestCPU(t *testing.T) {
	h := fixtures.Header()
	h.Dropped, h.Recorder, h.DType = nil, traces.RecorderHost, "f32"
	h.Ceilings = []traces.Ceiling{{Device: -1, Name: "read", Unit: "GB/s", Value: 100}, {Device: -1, Name: "f32", Unit: "TFLOP/s", Value: 1}}
	one, two := traces.Thread(700, 701), traces.Thread(700, 702)
	events := []traces.Event{
		passAt(1, 0, 100, 5), passAt(2, 150, 250, 6),
		inPass(traces.KindStep, one, 1, 0, 10, 40), inPass(traces.KindStep, two, 1, 0, 12, 52),
		inPass(traces.KindStep, one, 1, 1, 60, 90), inPass(traces.KindStep, two, 1, 1, 60, 90),
		inPass(traces.KindStep, one, 2, 0, 160, 180), inPass(traces.KindStep, two, 2, 0, 170, 180),
		inPass(traces.KindStep, one, 2, 1, 180, 240), inPass(traces.KindStep, two, 2, 1, 180, 200),
	}
	tr := fixtures.Trace(h, events...)
	table := require.Value(Summarize(tr, ByStage, -1))(t)
	checkSum(t, table)
	checkTimes(t, table, RowWork, map[string]int64{"wte+wpe": 42 + 20, "h.0.attn.c_attn": 30 + 60})
	checkTimes(t, table, RowIdle, map[string]int64{IdleThreads: 8, IdleHost: 10 + 70 + 10})
	r := find(t, table, RowWork, "wte+wpe")
	if r.Calls != 2 || r.Kernels != 4 || r.Busy != 100 || r.Imbalance != (40+20)/(35+15.) {
		t.Errorf("%+v", r)
	}
	// 1,783,300 bytes at position 5 and 1,536 more at 6, at 100 bytes/ns; the operations take less.
	r = find(t, table, RowWork, "h.0.attn.c_attn")
	if r.Calls != 2 || r.Floor != 35681 || r.FLOPs != 2*889000+7 || r.Imbalance != (30+60)/(30+40.) {
		t.Errorf("%+v", r)
	}
	slow := r
	slow.Exclusive = 4 * r.Floor
	if percent, ok := table.Roofline(&slow); !ok || percent != 25 {
		t.Errorf("%g %% of the roofline, %v", percent, ok)
	}
	// Faster than its floor: a finding about the ceiling.
	if percent, ok := table.Roofline(&r); ok {
		t.Errorf("%g %% of the roofline is shown", percent)
	}
	if finding, ok := table.BelowFloor(); !ok || !slices.Contains(table.Notes, finding) ||
		!strings.HasPrefix(finding, "ceilings: 2 of 2 rows with a floor are faster than it (up to 39645.6 % of the roofline): the ceiling of bandwidth was") {
		t.Errorf("%q of %q, %v", finding, table.Notes, ok)
	}
	if table.Device != -1 || table.Trust != "whole; 8 step events, all of known steps" || strings.Contains(strings.Join(table.Notes, "\n"), "floors:") {
		t.Errorf("device %d, trust %q, notes %q", table.Device, table.Trust, table.Notes)
	}

	for by, want := range map[By]map[string]int64{ByLayer: {"h.0": 90, OutsideLayers: 62}, ByPhase: {"decode step": 152}} {
		table := require.Value(Summarize(tr, by, -1))(t)
		checkSum(t, table)
		checkTimes(t, table, RowWork, want)
		for _, r := range table.Rows {
			if r.Kind == RowWork && (r.Calls != 2 || by == ByPhase && r.FLOPs != 2*889000+7+2*384) {
				t.Errorf("by %s: %+v", by, r)
			}
		}
	}

	ops := require.Value(Summarize(tr, ByOp, -1))(t)
	// Of the thread of the passes alone, whose parts sum to the passes.
	if want := []OpRow{{"Linear", 90, 90, 0, 0, 2, 0}, {"decode step", 60, 200, 0, 0, 2, 0}, {"Embed", 50, 50, 0, 0, 2, 0}}; !slices.Equal(ops.Ops, want) {
		t.Errorf("operations %+v, not %+v", ops.Ops, want)
	}
	if !strings.Contains(strings.Join(ops.Notes, "\n"), "main thread") {
		t.Errorf("notes %q", ops.Notes)
	}

	// One thread meets no other.
	var alone []traces.Event
	for _, e := range events {
		if e.Lane == one {
			alone = append(alone, e)
		}
	}
	table = require.Value(Summarize(fixtures.Trace(h, alone...), ByStage, -1))(t)
	checkTimes(t, table, RowIdle, map[string]int64{IdleHost: 110})

	// A step that no plan has.
	lost := inPass(traces.KindStep, one, 1, 7, 92, 95)
	table, err := Summarize(fixtures.Trace(h, append(events, lost)...), ByStage, -1)
	if err != nil || !traces.Misleads(table.Findings) || table.Trust != "shares mislead, for 1 reason; 9 step events, 1 of unknown steps" {
		t.Errorf("trust %q, %v", table.Trust, err)
	}
	if _, ok := table.Roofline(&slow); ok {
		t.Error("a share of the floor is given for a trace that misleads")
	}
}

// TestIdleCauses: a copy of no step; a graph whose call goes on while its kernels
// run, and one whose call has returned; a host that sits in a copy.
func TestIdleCauses(t *testing.T) {
	h := fixtures.Header()
	h.Dropped = nil
	stream := traces.Stream(700, 0, 1, 7)
	call := func(name string, id uint64, start, end int64) traces.Event {
		c := traces.Plain(traces.KindRuntime, traces.API(700, 701), name, start, end-start)
		c.Correlation = id
		return c
	}
	kernel := func(id uint64, tag int32, start, end int64) traces.Event {
		k := inPass(traces.KindKernel, stream, id, tag, start, end)
		k.Correlation, k.Node = id, uint64(tag+1)
		return k
	}
	copied := traces.Plain(traces.KindMemcpy, stream, "Memcpy", 70, 5)
	copied.Correlation, copied.Bytes = 2, 640
	table := require.Value(Summarize(fixtures.Trace(h, passAt(1, 0, 107, 5), passAt(5, 107, 200, 6),
		call("cudaGraphLaunch", 1, 10, 60), kernel(1, 0, 20, 30), kernel(1, 1, 40, 50), // 10 late, 10 latency, 10 latency in the graph
		call("cudaMemcpyAsync", 2, 62, 66), copied, // 12 late, 8 latency
		call("cudaMemcpy", 3, 80, 100), call("cudaDeviceSynchronize", 4, 90, 105), // 20 copy, 5 synchronising
		call("cudaGraphLaunch", 5, 110, 120), kernel(5, 0, 125, 130), kernel(5, 1, 133, 140), // 5 late, 15 latency, 3 dependency
	), ByStage, -1))(t)
	checkSum(t, table)
	checkTimes(t, table, RowWork, map[string]int64{"wte+wpe": 15, "h.0.attn.c_attn": 17})
	checkTimes(t, table, RowIdle, map[string]int64{IdleDependency: 3, IdleLaunch: 10 + 10 + 8 + 15, IdleHost: 10 + 12 + 5 + 5 + 60, IdleCopy: 5 + 20, IdleSync: 5})
	if r := find(t, table, RowWork, "wte+wpe"); r.Launches != 2 || r.Calls != 2 {
		t.Errorf("%+v", r)
	}
	if r := find(t, table, RowWork, "h.0.attn.c_attn"); r.Launches != 0 || r.Calls != 2 {
		t.Errorf("%+v", r)
	}
}

// TestStamps: kernels that wrote stamps have no call; the host's steps, or the pass,
// stand for it, and nothing misleads.
func TestStamps(t *testing.T) {
	h := fixtures.Header()
	h.Dropped, h.Recorder, h.NotRecorded = nil, traces.RecorderStamps, nil
	thread, stream := traces.Thread(700, 701), traces.Stream(700, 0, 1, 7)
	kernel := func(parent uint64, tag int32, start, end int64) traces.Event {
		return inPass(traces.KindKernel, stream, parent, tag, start, end)
	}
	events := []traces.Event{
		passAt(1, 0, 100, 5), inPass(traces.KindStep, thread, 1, 0, 10, 20), inPass(traces.KindStep, thread, 1, 1, 20, 30),
		kernel(1, 0, 25, 35), kernel(1, 1, 40, 95), // 10 late, 15 latency; queued: 5 dependency
		passAt(2, 100, 200, 6), // a graph: 5 until it is asked for, 20 latency, then 10 that nobody can tell
		kernel(2, 0, 120, 130), kernel(2, 1, 140, 195),
	}
	events[6].Name, events[6].Bounded = "library product", true
	table := require.Value(Summarize(fixtures.Trace(h, slices.Clone(events)...), ByStage, -1))(t)
	checkWall(t, table)
	checkTimes(t, table, RowIdle, map[string]int64{IdleHost: 10 + 5 + 5, IdleLaunch: 15 + 20, IdleDependency: 5, IdleUnknown: 10})
	checkTimes(t, table, RowWork, map[string]int64{"wte+wpe": 20, "h.0.attn.c_attn": 110})
	if len(table.Findings) != 1 || table.Findings[0].Misleads || !strings.HasPrefix(table.Findings[0].Text, "1 kernel stands for a library product") ||
		table.Trust != "whole; 4 kernels (a library product counts as one), all attributed to steps" {
		t.Errorf("findings %+v, trust %q", table.Findings, table.Trust)
	}
	if r := find(t, table, RowWork, "wte+wpe"); r.Calls != 2 || r.Host != 10 || r.Bounded != 1 {
		t.Errorf("%+v", r)
	}

	// Nothing is unknown if the graph's launch is recorded, which still runs at 130.
	launch := inPass(traces.KindRuntime, traces.API(700, 701), 2, -1, 105, 145)
	launch.Name, launch.Correlation = "cudaGraphLaunch", 7
	events[6].Correlation, events[7].Correlation = 7, 7
	table, err := Summarize(fixtures.Trace(h, append(events, launch)...), ByStage, -1)
	if err != nil || len(table.Findings) != 1 {
		t.Fatal(table.Findings, err)
	}
	checkSum(t, table)
	checkTimes(t, table, RowIdle, map[string]int64{IdleHost: 10 + 10 + 5, IdleLaunch: 15 + 15 + 10, IdleDependency: 5})

	// A kernel of nothing, and records that were lost, are reported.
	stray := traces.Plain(traces.KindKernel, stream, "stray", 197, 1)
	h.Drop("stamps", 3)
	table, err = Summarize(fixtures.Trace(h, append(events, stray)...), ByStage, -1)
	if err != nil || len(table.Findings) != 3 || !traces.Misleads(table.Findings) || !strings.Contains(table.Findings[1].Text, "1 kernel belongs to no step") {
		t.Errorf("findings %+v, error %v", table.Findings, err)
	}
	if want := "shares mislead, for 2 reasons; 5 kernels (a library product counts as one), 4 attributed to steps, 1 outside the passes, 3 records dropped"; table.Trust != want {
		t.Errorf("trust %q, not %q", table.Trust, want)
	}
}

// TestNotes: what stands above a table.
func TestNotes(t *testing.T) {
	h := fixtures.Header()
	h.Dropped, h.Recorder = nil, traces.RecorderHost
	h.Plans = append(h.Plans, traces.Plan{Phase: "prefill", Batch: 2, Tokens: 6, Padded: 64, Steps: h.Plans[0].Steps})
	h.Plans[0].Padded = 0
	h.Overhead = append(h.Overhead, traces.Overhead{Phase: "prefill", Baseline: 100, Recorded: 100, Passes: 24}, traces.Overhead{Phase: "prefill", Baseline: 130_000, Recorded: 193_000, Passes: 1})
	warm := traces.Plain(traces.KindRange, traces.Thread(700, 701), "warm-up", -100, 90)
	prefill := passAt(3, 0, 100, 0)
	prefill.Plan, prefill.Name = 1, "prefill"
	step := inPass(traces.KindStep, traces.Thread(700, 701), 3, 0, 0, 100)
	step.Plan = 1
	events := []traces.Event{warm, passAt(9, -90, -50, 0), prefill, step, passAt(1, 100, 200, 6), inPass(traces.KindStep, traces.Thread(700, 701), 1, 0, 100, 200), passAt(2, 200, 300, 7)}
	by := ByStage
	notes := func() string {
		table := require.Value(Summarize(fixtures.Trace(h, events...), by, -1))(t)
		return strings.Join(table.Notes, "\n")
	}
	fixtures.Says(t, "", notes(),
		"passes: 1 prefill of 6 tokens of 2 sequences, padded to 64, 2 decode steps; warm-up is left out: 1 pass, 0.000 ms",
		"recording overhead: recording made a decode step 2.0 % longer: 204.0 us, 200.0 us without recording",
		"recording overhead: recording made a prefill no longer",
		"recording overhead: a prefill took 193.0 us, 130.0 us without recording: too few passes to tell",
		"energy: decode 12.7 ± 0.051 mJ per token, over 64 tokens (total energy counter)",
		"floors: no ceilings of this device are known; 'infer bench ceilings' measures them")
	h.Overhead, h.Energy = nil, nil
	for recorder, want := range map[string]string{traces.RecorderHost: "a run without --no-baseline measures it", traces.RecorderNsys: "recording overhead: what recording cost was not measured"} {
		if h.Recorder = recorder; !strings.Contains(notes(), want) || strings.Contains(notes(), "energy") {
			t.Errorf("%s: %s", recorder, notes())
		}
	}
	for i := range h.Plans {
		h.Plans[i].Steps = []traces.Step{{Tag: 0, Name: "x"}, {Tag: 1, Name: "y"}}
	}
	fixtures.Says(t, "", notes(), "does not say what steps cost")
	events = append(events, traces.Plain(traces.KindRange, traces.Thread(700, 701), "warm-up", 310, 50), passAt(10, 320, 350, 0), passAt(11, 400, 500, 8))
	fixtures.Says(t, "", notes(), "3 decode steps; warm-up is left out: 2 passes, 0.000 ms, but for 1 among the passes that count\n")
	by = ByRange
	fixtures.Says(t, "", notes(), "warm-up is counted in: 2 passes, 0.000 ms\n", "whole recording")
}

// TestCPUTraceOfPyTorch: a trace of PyTorch's profiler without a GPU has neither stages nor kernels, so its table is by
// operation. Rows have the same times as the operations, and sum to the wall time.
func TestCPUTraceOfPyTorch(t *testing.T) {
	trace := require.Value(load.Load("../testdata/kineto-cpu.json.gz"))(t)
	if _, err := Summarize(trace, ByFolded, -1); err == nil || !strings.Contains(err.Error(), "a table by op can be made") {
		t.Errorf("by stage: %v", err)
	}
	table := require.Value(SummarizeAny(trace, -1))(t)
	if table.By != ByOp || table.Instead != "the recording has no pass of a model, so it has no stages: the table is by op" || table.Notes[0] != table.Instead {
		t.Errorf("by %s, %q, notes %q", table.By, table.Instead, table.Notes)
	}
	ops, rows := int64(0), int64(0)
	for _, o := range table.Ops {
		ops += o.SelfCPU
	}
	for _, r := range table.Rows {
		if rows += r.Exclusive; r.Kind == RowIdle {
			ops += r.Exclusive
		}
	}
	if rows != table.Wall || ops != rows {
		t.Errorf("of %d ns the rows sum to %d, operations to %d", table.Wall, rows, ops)
	}
}
