package traces_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/internal/samples"
)

// TestMerge: of two processes with equal ids, whose recordings began at different times, each
// kernel keeps its call and its range, and lies where it ran.
func TestMerge(t *testing.T) {
	one := func(base int64, name string) *traces.Trace {
		in := traces.Plain(traces.KindRange, traces.Thread(1, 1), "range of "+name, 0, 50)
		events := append(fixtures.Launched(1, 10, 20, 30, 40), in)
		events[1].Name = name
		return traces.NewTrace(&traces.Header{Base: base, Process: 1, Recorder: traces.RecorderKineto,
			Devices: []traces.Device{{ID: 0, Name: "GPU"}}}, events)
	}
	a, b := one(5000, "late"), one(1000, "early")
	m := require.Value(traces.Merge([]*traces.Trace{a, b}, []string{"a", "b"}))(t)
	if m.Header.Base != 1000 || m.Kernels != 2 || m.WithoutCall != 0 || m.WithoutRange != 0 || len(m.Header.Devices) != 1 {
		t.Errorf("base %d, %+v, devices %+v", m.Header.Base, m.Attribution, m.Header.Devices)
	}
	ranges := map[uint64]string{}
	processes := map[int64]bool{}
	for i := range m.Events {
		if e := &m.Events[i]; e.Kind == traces.KindRange {
			ranges[e.ID] = e.Name
		}
	}
	for i := range m.Events {
		e := &m.Events[i]
		if e.Kind != traces.KindKernel {
			continue
		}
		if want := map[string]int64{"early": 30, "late": 4030}[e.Name]; e.Time != want ||
			ranges[e.Parent] != "range of "+e.Name {
			t.Errorf("kernel %s is at %d in %q", e.Name, e.Time, ranges[e.Parent])
		}
		processes[e.Lane.Process] = true
	}
	if len(processes) != 2 {
		t.Errorf("the processes are %v", processes)
	}
	a.Header.Recorder = traces.RecorderNsys
	if _, err := traces.Merge([]*traces.Trace{a, b}, []string{"a", "b"}); err == nil ||
		!strings.Contains(err.Error(), "of one kind") {
		t.Errorf("of two recorders: %v", err)
	}
	b.Header.Base = 0
	if _, err := traces.Merge([]*traces.Trace{b, one(1, "x")}, []string{"b", "x"}); err == nil ||
		!strings.Contains(err.Error(), "b does not say when") {
		t.Errorf("without a time: %v", err)
	}
	other := one(5000, "other")
	other.Header.Devices[0].Name = "another GPU"
	if m, err := traces.Merge([]*traces.Trace{one(1000, "x"), other}, []string{"a", "b"}); err != nil ||
		len(m.Header.Devices) != 2 || m.Header.Devices[1].ID != 1 {
		t.Errorf("of two GPUs: %+v, %v", m, err)
	}
}

// TestMergeDevices: which GPUs of two recordings are one.
func TestMergeDevices(t *testing.T) {
	nccl := func(rank int) []traces.Rank {
		return []traces.Rank{{Process: 1, Rank: rank, Source: "distributedInfo", OwnGPU: true}}
	}
	visible := []traces.Device{{ID: 0, Name: "GPU"}, {ID: 1, Name: "GPU"}}
	for _, c := range []struct {
		what     string
		on       [2]int32 // the device that has the work
		devices  [2][]traces.Device
		ranks    [2][]traces.Rank
		want     string // the devices of the kernels
		wantGPUs int
	}{
		{"two processes on one GPU", [2]int32{0, 0}, [2][]traces.Device{visible[:1], visible[:1]}, [2][]traces.Rank{}, "0 0", 1},
		{"two ranks by NCCL that each see one GPU", [2]int32{0, 0}, [2][]traces.Device{visible[:1], visible[:1]}, [2][]traces.Rank{nccl(0), nccl(1)}, "0 1", 2},
		{"two ranks by NCCL that see both", [2]int32{0, 1}, [2][]traces.Device{visible, visible}, [2][]traces.Rank{nccl(0), nccl(1)}, "0 1", 2},
		{"two ranks by NCCL on two machines of two GPUs", [2]int32{1, 1}, [2][]traces.Device{visible, visible}, [2][]traces.Rank{nccl(1), nccl(3)}, "1 2", 3},
		{"two processes on two GPUs, each in its own file", [2]int32{1, 0}, [2][]traces.Device{visible[1:], visible[:1]}, [2][]traces.Rank{}, "1 0", 2},
		{"GPUs with UUIDs", [2]int32{0, 0}, [2][]traces.Device{{{Name: "GPU", UUID: "a"}}, {{Name: "GPU", UUID: "b"}}}, [2][]traces.Rank{}, "0 1", 2},
		{"GPUs in another order", [2]int32{0, 1}, [2][]traces.Device{{{Name: "GPU", UUID: "a"}, {ID: 1, Name: "GPU", UUID: "b"}},
			{{Name: "GPU", UUID: "b"}, {ID: 1, Name: "GPU", UUID: "a"}}}, [2][]traces.Rank{}, "0 0", 2},
		{"one GPU with a UUID", [2]int32{0, 0}, [2][]traces.Device{{{Name: "GPU", UUID: "a"}}, {{Name: "GPU", UUID: "a"}}}, [2][]traces.Rank{}, "0 0", 1},
	} {
		var list []*traces.Trace
		for i := range 2 {
			events := fixtures.Launched(1, 10, 20, 30, 40)
			events[1].Lane.Device = c.on[i]
			list = append(list, traces.NewTrace(&traces.Header{Base: 1000 + int64(i), Process: 1,
				Recorder: traces.RecorderKineto, Devices: c.devices[i], Ranks: c.ranks[i]}, events))
		}
		m := require.Value(traces.Merge(list, []string{"a", "b"}))(t)
		var got []string
		for i := range m.Events {
			if e := &m.Events[i]; e.Kind == traces.KindKernel {
				got = append(got, fmt.Sprint(e.Lane.Device))
			}
		}
		if strings.Join(got, " ") != c.want || len(m.Header.Devices) != c.wantGPUs {
			t.Errorf("%s: kernels on GPUs %v, of %+v", c.what, got, m.Header.Devices)
		}
	}
}

// TestMergeRanks: the files that PyTorch's profiler wrote of two ranks are two processes on one
// GPU, and nothing of them is lost.
func TestMergeRanks(t *testing.T) {
	var list []*traces.Trace
	kernels, calls := 0, 0
	for _, name := range []string{"rank0", "rank1"} {
		tr := samples.Load(t, "pytorch/"+name+".json.gz")
		tr.Header.Energy, tr.Header.Drafts.Accepted = []traces.Energy{{What: name}}, 2
		list = append(list, tr)
		kernels, calls = kernels+tr.Kernels, calls+tr.Calls
	}
	m, err := traces.Merge(list, []string{"rank0", "rank1"})
	if err != nil || m.Kernels != kernels || m.Calls != calls || m.WithoutCall != 0 || len(m.Header.Energy) != 2 ||
		m.Header.Drafts.Accepted != 4 {
		t.Fatalf("%+v, %+v, %v", m.Attribution, m.Header, err)
	}
}

// TestRebase: times that are a day from the base become small, and mean the same.
func TestRebase(t *testing.T) {
	tr := samples.Load(t, "pytorch/kineto.json.gz")
	first, last := tr.Header.Base+tr.Events[0].Time, tr.Header.Base+tr.Events[len(tr.Events)-1].Time
	tr.Rebase()
	if at := tr.Events[0].Time; at != 0 || tr.Header.Base != first ||
		tr.Header.Base+tr.Events[len(tr.Events)-1].Time != last {
		t.Errorf("the first event is at %d after %d, not at %d", at, tr.Header.Base, first)
	}
	before := fixtures.Trace(&traces.Header{Base: 5000}, fixtures.Launched(1, -100, 110, 120, 130)...)
	if before.Rebase(); before.Header.Base != 4900 || before.Events[0].Time != 0 || before.Events[1].Time != 220 {
		t.Errorf("before the base: %d, %+v", before.Header.Base, before.Events)
	}
	unknown := fixtures.Trace(&traces.Header{}, fixtures.Launched(1, -100, 110, 120, 130)...)
	if unknown.Rebase(); unknown.Header.Base != 0 || unknown.Events[0].Time != 0 {
		t.Errorf("a base that is not known becomes %d", unknown.Header.Base)
	}
	own := fixtures.Trace(&traces.Header{Base: 5}, fixtures.Launched(1, 100, 110, 120, 130)...)
	if own.Rebase(); own.Header.Base != 5 || own.Events[0].Time != 100 {
		t.Error("small times are moved")
	}
}

// TestAttribute has what is easily got wrong.
func TestAttribute(t *testing.T) {
	call := func(process int64, name string, id uint64, start, end int64) traces.Event {
		e := traces.Plain(traces.KindRuntime, traces.API(process, 1), name, start, end-start)
		e.Correlation = id
		return e
	}
	kernel := func(process int64, id, node uint64, start int64) traces.Event {
		e := traces.Plain(traces.KindKernel, traces.Stream(process, 0, 1, 7), "k", start, 5)
		e.Correlation, e.Node = id, node
		return e
	}
	divided := func(process int64, id uint64, start int64) traces.Event {
		e := kernel(process, id, 0, start)
		e.Bounded, e.DividedEvery = true, 16
		return e
	}
	copied := func(process int64, id uint64, start int64) traces.Event {
		e := traces.Plain(traces.KindMemcpy, traces.Stream(process, 0, 1, 7), "c", start, 5)
		e.Correlation = id
		return e
	}
	named := func(name string, process, start, end int64) traces.Event {
		return traces.Plain(traces.KindRange, traces.Thread(process, 1), name, start, end-start)
	}
	made := func(time int64, node, origin uint64) traces.Event {
		e := traces.Plain(traces.KindNode, traces.Thread(1, 1), "node", time, 0)
		e.Node, e.Origin = node, origin
		return e
	}
	inside := func(tr *traces.Trace) string { // of the last kernel
		last := uint64(0)
		for _, e := range tr.Events {
			if e.Kind == traces.KindKernel {
				last = e.Parent
			}
		}
		for _, e := range tr.Events {
			if e.ID == last && last != 0 {
				return e.Name
			}
		}
		return ""
	}
	for name, c := range map[string]struct {
		events []traces.Event
		in     string
		want   traces.Attribution
	}{
		"after its range has closed, during another": {
			[]traces.Event{named("a", 1, 0, 20), call(1, "cudaLaunchKernel", 1, 5, 10), named("b", 1, 100, 200),
				kernel(1, 1, 0, 150)}, "a",
			traces.Attribution{Kernels: 1, Calls: 1, Ranges: 2},
		},
		"a time that was divided, of a kernel bounded by its neighbours": {
			[]traces.Event{named("a", 1, 0, 20), call(1, "cudaLaunchKernel", 1, 5, 10), divided(1, 1, 150)}, "a",
			traces.Attribution{Kernels: 1, Calls: 1, Ranges: 1, Bounded: 1, Divided: 1},
		},
		"the call goes on when its range has closed": {
			[]traces.Event{named("a", 1, 0, 20), call(1, "cudaLaunchKernel", 1, 5, 30), kernel(1, 1, 0, 6)}, "a",
			traces.Attribution{Kernels: 1, Calls: 1, Ranges: 1},
		},
		"ranges that overlap: the later one": {
			[]traces.Event{named("a", 1, 0, 20), named("b", 1, 10, 30), call(1, "cudaLaunchKernel", 1, 15, 16),
				kernel(1, 1, 0, 50)}, "b",
			traces.Attribution{Kernels: 1, Calls: 1, Ranges: 2},
		},
		"a range on another thread does not count": {
			[]traces.Event{traces.Plain(traces.KindRange, traces.Thread(1, 2), "a", 0, 20),
				call(1, "cudaLaunchKernel", 1, 5, 10), kernel(1, 1, 0, 50)}, "",
			traces.Attribution{Kernels: 1, Calls: 1, Ranges: 1, WithoutRange: 1},
		},
		"two processes use the same ids": {
			[]traces.Event{named("a", 1, 0, 20), named("b", 2, 0, 20), call(1, "cudaLaunchKernel", 1, 5, 10),
				call(2, "cudaLaunchKernel", 1, 6, 10), kernel(1, 1, 0, 40), kernel(2, 1, 0, 50)}, "b",
			traces.Attribution{Kernels: 2, Calls: 2, Ranges: 2},
		},
		"a call in a call works for it": {
			[]traces.Event{call(1, "cudaLaunchKernel", 1, 5, 20), call(1, "cuLaunchKernel", 2, 6, 10), kernel(1, 2, 0, 40)}, "",
			traces.Attribution{Kernels: 1, Calls: 2, WithoutRange: 1},
		},
		"a call that begins when a range ends": {
			[]traces.Event{named("a", 1, 0, 20), call(1, "cudaLaunchKernel", 1, 20, 25), kernel(1, 1, 0, 40)}, "",
			traces.Attribution{Kernels: 1, Calls: 1, Ranges: 1, WithoutRange: 1},
		},
		"calls of both APIs with one id: the outer one launched": {
			[]traces.Event{call(1, "cudaLaunchKernel", 1, 5, 20), call(1, "cuLaunchKernel", 1, 9, 18), kernel(1, 1, 0, 7)}, "",
			traces.Attribution{Kernels: 1, Calls: 2, WithoutRange: 1},
		},
		"a kernel that begins before its call": {
			[]traces.Event{call(1, "cudaLaunchKernel", 1, 5, 20), kernel(1, 1, 0, 2)}, "",
			traces.Attribution{Kernels: 1, Calls: 1, WithoutRange: 1, EarlyStarts: 1, Earliest: 3},
		},
		"a copy that begins before its call does not count": {
			[]traces.Event{call(1, "cudaMemcpyAsync", 1, 5, 20), copied(1, 1, 2)}, "",
			traces.Attribution{Copies: 1, Calls: 1},
		},
		"captured launches run nothing": {
			[]traces.Event{call(1, "cudaStreamBeginCapture", 1, 0, 1), call(1, "cudaLaunchKernel", 2, 2, 3),
				call(1, "cudaStreamEndCapture", 3, 4, 5), call(1, "cudaLaunchKernel", 4, 6, 7)}, "",
			traces.Attribution{Calls: 4, LaunchesWithoutWork: 1},
		},
		"nodes that are clones of each other": {
			[]traces.Event{made(1, 10, 11), made(2, 11, 10), call(1, "cudaGraphLaunch", 1, 5, 6), kernel(1, 1, 10, 8)}, "",
			traces.Attribution{Kernels: 1, Calls: 1, UnknownNodes: 1, WithoutRange: 1, GraphLaunches: 1},
		},
	} {
		tr := fixtures.Trace(&traces.Header{}, c.events...)
		if tr.Attribution != c.want {
			t.Errorf("%s: counts\n%+v, not\n%+v", name, tr.Attribution, c.want)
		}
		if got := inside(tr); got != c.in {
			t.Errorf("%s: the kernel lies in %q, not %q", name, got, c.in)
		}
	}
}

// TestAttributeSteps: a kernel of a graph belongs to the step that was open when the
// first of its nodes was captured, however often it was cloned since; a step is inherited
// within its plan only; and ranges that overlap do not contain each other.
func TestAttributeSteps(t *testing.T) {
	thread := traces.Thread(1, 1)
	h := &traces.Header{Plans: []traces.Plan{{Steps: make([]traces.Step, 5)}, {Steps: make([]traces.Step, 5)}}}
	step := traces.Plain(traces.KindStep, thread, "step", 0, 10)
	step.Plan, step.Step = 0, 3
	node := func(time int64, id, origin uint64) traces.Event {
		e := traces.Plain(traces.KindNode, thread, "node", time, 0)
		e.Node, e.Origin = id, origin
		return e
	}
	otherPlan := traces.Plain(traces.KindRange, thread, "other plan", 6, 1)
	otherPlan.Plan = 1
	samePlan := traces.Plain(traces.KindRange, thread, "same plan", 8, 1)
	kernel := traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "k", 50, 5)
	kernel.Node = 23
	tr := fixtures.Trace(h, step, node(5, 20, 0), otherPlan, samePlan, node(30, 21, 20), node(31, 22, 21),
		node(32, 23, 22), kernel,
		traces.Plain(traces.KindRange, thread, "first", 100, 20), traces.Plain(traces.KindRange, thread, "overlaps", 110, 20))
	byName := map[string]*traces.Event{}
	for i := range tr.Events {
		byName[tr.Events[i].Name] = &tr.Events[i]
	}
	for name, want := range map[string][2]int32{"k": {0, 3}, "same plan": {0, 3}, "other plan": {1, -1}} {
		if e := byName[name]; e.Plan != want[0] || e.Step != want[1] {
			t.Errorf("%q is of step %d of plan %d, want %v", name, e.Step, e.Plan, want)
		}
	}
	if e := byName["overlaps"]; e.Parent != 0 {
		t.Errorf("a range that ends after another lies in it: parent %d", e.Parent)
	}
	if n := tr.Attribution.UnknownNodes; n != 0 {
		t.Errorf("%d nodes are unknown", n)
	}
}

// TestProject: a step over the kernels on a stream goes from the first to the end of the
// last; each launch of a graph has its own.
func TestProject(t *testing.T) {
	h := &traces.Header{Plans: []traces.Plan{{Steps: []traces.Step{{Name: "a"}, {Name: "b"}}}}}
	kernel := func(step int32, launch, start, end int64) traces.Event {
		e := traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "k", start, end-start)
		e.Plan, e.Step, e.Correlation, e.Node = 0, step, uint64(launch), uint64(100+step)
		return e
	}
	type span struct {
		name     string
		from, to int64
	}
	var got []span
	for _, e := range traces.Project(h, []traces.Event{kernel(0, 1, 0, 10), kernel(0, 1, 12, 15), kernel(1, 1, 20, 30),
		kernel(0, 2, 40, 55), kernel(1, 2, 60, 61)}) {
		got = append(got, span{e.Name, e.Time, e.End()})
	}
	if want := []span{{"a", 0, 15}, {"b", 20, 30}, {"a", 40, 55}, {"b", 60, 61}}; !slices.Equal(got, want) {
		t.Errorf("steps over kernels are %v, want %v", got, want)
	}
}

// TestExamine: each count that is not zero is reported, and a whole trace is trusted.
func TestExamine(t *testing.T) {
	whole := traces.Attribution{Kernels: 9, Copies: 1, Calls: 10, Ranges: 3, Passes: 1, Steps: 2, InSteps: 9,
		GraphLaunches: 1}
	if found := traces.Examine(&traces.Header{Clock: traces.Clock{Uncertainty: 30}}, whole); len(found) != 0 {
		t.Errorf("a whole trace has the findings %+v", found)
	}
	// What calls say is no matter for kernels that wrote stamps, nor GPUs for a record of the CPU.
	stamps := whole
	stamps.WithoutCorrelation, stamps.WithoutCall, stamps.LaunchesWithoutWork, stamps.OpaqueLaunches = 9, 9, 1, 1
	if found := traces.Examine(&traces.Header{Recorder: traces.RecorderStamps}, stamps); len(found) != 0 {
		t.Errorf("a whole trace of stamps has the findings %+v", found)
	}
	if found := traces.Examine(&traces.Header{Recorder: traces.RecorderHost},
		traces.Attribution{Ranges: 3, Steps: 2, Passes: 1}); len(found) != 0 {
		t.Errorf("a whole trace of the CPU has the findings %+v", found)
	}
	for fact, change := range map[string]func(*traces.Header, *traces.Attribution){
		"!4 records were dropped: kernels": func(h *traces.Header, a *traces.Attribution) { h.Drop("kernels", 4) },
		"!the buffer was full":             func(h *traces.Header, a *traces.Attribution) { h.Incomplete = []string{"the buffer was full"} },
		"!1 kernel has no correlation id": func(h *traces.Header, a *traces.Attribution) {
			a.WithoutCorrelation, h.Plans = 1, make([]traces.Plan, 1)
		},
		"?3 kernels have no correlation id":    func(h *traces.Header, a *traces.Attribution) { a.WithoutCorrelation = 3 }, // whose times are exact
		"?4 kernels were launched before":      func(h *traces.Header, a *traces.Attribution) { a.BeforeRecording = 4 },
		"!25,814 events of category x are not": func(h *traces.Header, a *traces.Attribution) { h.Unknown = map[string]int64{"category x": 25814} },
		"?1 record mended: cut off":            func(h *traces.Header, a *traces.Attribution) { h.Mended = map[string]int64{"cut off": 1} },
		"!3 kernels began before": func(h *traces.Header, a *traces.Attribution) {
			h.Clock.Uncertainty, a.EarlyStarts, a.Earliest = -1, 3, 3e6
		},
		"?4 kernels began before": func(h *traces.Header, a *traces.Attribution) {
			h.Clock.Uncertainty, a.EarlyStarts, a.Earliest = -1, 4, 3e3
		},
		"!2 kernels have correlation ids that": func(h *traces.Header, a *traces.Attribution) { a.WithoutCall = 2 },
		"?3 kernels have their parts of":       func(h *traces.Header, a *traces.Attribution) { a.Divided = 3 },
		"?2 kernels stand for library":         func(h *traces.Header, a *traces.Attribution) { h.Recorder, a.Bounded = traces.RecorderStamps, 2 },
		"?1 copy or set has no API call":       func(h *traces.Header, a *traces.Attribution) { a.CopiesWithoutCall = 1 },
		"!3 kernels ran as graph nodes":        func(h *traces.Header, a *traces.Attribution) { a.UnknownNodes, h.Plans = 3, make([]traces.Plan, 1) },
		"?4 kernels ran as graph nodes":        func(h *traces.Header, a *traces.Attribution) { a.UnknownNodes = 4 }, // of a program without stages
		"!1 graph launch has no kernels":       func(h *traces.Header, a *traces.Attribution) { a.OpaqueLaunches = 1 },
		"!1 launch has no kernel":              func(h *traces.Header, a *traces.Attribution) { a.LaunchesWithoutWork = 1 },
		"!1 kernel lies in a pass":             func(h *traces.Header, a *traces.Attribution) { a.InPassOnly = 1 },
		"!1 range never ended":                 func(h *traces.Header, a *traces.Attribution) { a.OpenRanges = 1 },
		"!1 step has no kernel":                func(h *traces.Header, a *traces.Attribution) { a.StepsWithoutWork = 1 },
		"?1 kernel was launched outside":       func(h *traces.Header, a *traces.Attribution) { a.WithoutRange = 1 },
		"?1 kernel began before":               func(h *traces.Header, a *traces.Attribution) { a.EarlyStarts, a.Earliest = 1, 20 },
		"!2 kernels began before":              func(h *traces.Header, a *traces.Attribution) { a.EarlyStarts, a.Earliest = 2, 40 },
		"!2 steps are in none of the plans":    func(h *traces.Header, a *traces.Attribution) { a.StepsUnknown = 2 },
		"!3 kernels belong to no step and":     func(h *traces.Header, a *traces.Attribution) { h.Recorder, a.Unattributed = traces.RecorderStamps, 3 },
		"?there are no ranges":                 func(h *traces.Header, a *traces.Attribution) { a.Ranges = 0 },
		"?there is no work of a GPU":           func(h *traces.Header, a *traces.Attribution) { *a = traces.Attribution{Ranges: 1} },
		"!the recording has nothing to make":   func(h *traces.Header, a *traces.Attribution) { *a = traces.Attribution{} },
		"?not recorded: counters":              func(h *traces.Header, a *traces.Attribution) { h.NotRecorded = []string{"counters"} },
	} {
		h, a := traces.Header{Clock: traces.Clock{Uncertainty: 30}}, whole
		change(&h, &a)
		found := traces.Examine(&h, a)
		if len(found) != 1 || !strings.HasPrefix(found[0].Text, fact[1:]) || found[0].Misleads != (fact[0] == '!') ||
			traces.Misleads(found) != found[0].Misleads {
			t.Errorf("instead of %q there is %+v", fact, found)
		}
	}
}
