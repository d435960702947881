package traces

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"gpt2scope/internal/lazyregexp"
)

// Attribution counts the events that [Attribute] saw, and those that it could not attribute.
type Attribution struct {
	Kernels int `json:"kernels"` // of the GPU
	Copies  int `json:"copies"`  // with sets
	Graphs  int `json:"graphs"`  // recorded whole
	Calls   int `json:"calls"`   // of an API
	Ranges  int `json:"ranges"`  // on the host, as the next two
	Passes  int `json:"passes"`
	Steps   int `json:"steps"`

	WithoutCorrelation int `json:"without_correlation"` // kernels that have no correlation id
	WithoutCall        int `json:"without_call"`        // kernels whose call was not recorded
	BeforeRecording    int `json:"before_recording"`    // kernels that were launched before the first recorded call
	CopiesWithoutCall  int `json:"copies_without_call"` // the same for copies and sets, with either lack
	WithoutRange       int `json:"without_range"`       // kernels whose call lies in no range
	InSteps            int `json:"in_steps"`            // kernels of a step
	InPassOnly         int `json:"in_pass_only"`        // kernels that lie in a pass, but in no step
	Unattributed       int `json:"unattributed"`        // kernels that wrote stamps, and belong to no step and no pass
	Bounded            int `json:"bounded"`             // kernels that stand for a library product: see Event.Bounded
	Divided            int `json:"divided"`             // kernels with a part of a time: see Event.DividedEvery
	UnknownNodes       int `json:"unknown_nodes"`       // kernels of a graph whose node cannot be followed to a step

	StepsUnknown        int `json:"steps_unknown"`         // steps of the host that are in none of the plans
	StepsWithoutWork    int `json:"steps_without_work"`    // steps of the host that caused no work of the GPU
	LaunchesWithoutWork int `json:"launches_without_work"` // launches of kernels without a recorded kernel
	GraphLaunches       int `json:"graph_launches"`
	OpaqueLaunches      int `json:"opaque_launches"` // launches of graphs without a recorded kernel
	OpenRanges          int `json:"open_ranges"`     // ranges that never ended

	// EarlyStarts counts kernels that began before the call that launched them, which
	// means that clocks disagree; Earliest is the largest such difference in ns.
	EarlyStarts int   `json:"early_starts"`
	Earliest    int64 `json:"earliest"`
}

// Nodes says how the nodes of graphs were made: by a process and a node in it, the range that was open
// when the node was captured, or the node that it was cloned from.
type Nodes map[Correlation]struct{ parent, origin uint64 }

// NodesOf reads how nodes were made. What a clone's origin is counts more than where it was cloned.
func NodesOf(h *Header, events []Event) Nodes {
	nodes := Nodes{}
	for i := range events {
		e := &events[i]
		if e.Kind != KindNode || e.Node == 0 {
			continue
		}
		key := Correlation{h.ProcessOf(e), e.Node}
		if old, ok := nodes[key]; !ok || old.origin == 0 && e.Origin != 0 {
			nodes[key] = struct{ parent, origin uint64 }{e.Parent, e.Origin}
		}
	}
	return nodes
}

// Captured returns the ID of the range that was open when the node of an event, or the one that it is a
// clone of, was captured; 0 if that is not known.
func (n Nodes) Captured(h *Header, e *Event) uint64 {
	key := Correlation{h.ProcessOf(e), e.Node}
	for range 100 { // clones of clones; damage could make a ring of them
		made := n[key]
		if made.origin == 0 || made.origin == key.ID {
			return made.parent
		}
		key.ID = made.origin
	}
	return 0
}

// attributor is the state of Attribute.
type attributor struct {
	h       *Header
	events  []Event
	counts  Attribution
	threads map[ThreadID]*threadState
	index   *Index
	nodes   Nodes
	outer   map[int]int                  // of a call within another call, the outer one
	quiet   map[int]bool                 // calls and steps during stream capture: they cause no work
	busy    []bool                       // calls and ranges that caused work
	ran     map[Run]bool                 // steps whose work names a pass, but no step of the host
	first   map[int64]uint64             // lowest correlation id of a call, by process
	forward map[Correlation]*threadState // that ran the operator with a number in autograd
}

// threadState is what is open on a thread.
type threadState struct {
	ranges  []int
	calls   []int
	capture bool
	of      int64 // its process
	back    bool  // it is a thread of PyTorch's autograd
	ranged  bool  // it had a range
}

// Attribute gives each event its step and range, unless its source did: the package's documentation says how. Events
// must be in the order of [Compare]; they are changed in place.
func Attribute(h *Header, events []Event) Attribution {
	next := LastID(events)
	for i := range events {
		if e := &events[i]; e.ID == 0 && e.Kind.IsRange() && e.Lane.Kind == LaneThread {
			next++
			e.ID = next
		}
	}
	a := &attributor{h: h, events: events, threads: map[ThreadID]*threadState{}, index: newIndex(h, events),
		outer: map[int]int{}, quiet: map[int]bool{}, busy: make([]bool, len(events)), ran: map[Run]bool{},
		first: map[int64]uint64{}, forward: map[Correlation]*threadState{}}
	for _, l := range h.Lanes {
		if strings.HasPrefix(l.Name, "pt_autograd") {
			a.threads[ThreadID{l.Lane.Process, l.Lane.ID}] = &threadState{of: l.Lane.Process, back: true}
		}
	}
	a.host()
	a.nodes = NodesOf(h, events)
	a.gpu()
	a.rest()
	return a.counts
}

// places are the places of events by their ids. Most sources count their ids, so that a slice holds them.
type places struct {
	few  []int32 // by id: the place and 1, 0 for none
	many map[uint64]int32
}

// set notes where an id is. The place of the id 0 is none.
func (p *places) set(id uint64, at int) {
	switch {
	case id == 0:
	case id < uint64(2*len(p.few)+1<<12):
		p.few = append(p.few, make([]int32, max(0, int(id)+1-len(p.few)))...)
		p.few[id] = int32(at) + 1
	default:
		if p.many == nil {
			p.many = map[uint64]int32{}
		}
		p.many[id] = int32(at) + 1
	}
}

// at returns where an id is, and whether it is anywhere.
func (p *places) at(id uint64) (int, bool) {
	var found int32
	if id < uint64(len(p.few)) {
		found = p.few[id]
	}
	if found == 0 && p.many != nil {
		found = p.many[id]
	}
	return int(found) - 1, found > 0
}

// calls are the places of API calls, by process and correlation id.
type calls map[int64]*places

// note notes a call, of which the first and so the outermost with an id counts.
func (c calls) note(of Correlation, at int) {
	p := c[of.Process]
	if p == nil {
		p = new(places)
		c[of.Process] = p
	}
	if _, ok := p.at(of.ID); !ok {
		p.set(of.ID, at)
	}
}

// at returns where the call of some work is, and whether it is recorded.
func (c calls) at(of Correlation) (int, bool) {
	if p := c[of.Process]; p != nil {
		return p.at(of.ID)
	}
	return -1, false
}

// host goes over the events of threads in order of time: ranges, calls, nodes.
func (a *attributor) host() {
	for i := range a.events {
		e := &a.events[i]
		isRange := e.Kind.IsRange() && e.Lane.Kind == LaneThread
		if !isRange && !e.Kind.IsCall() && e.Kind != KindNode && e.Kind != KindMark || e.Lane.Device >= 0 {
			continue
		}
		key := a.h.ThreadOf(e)
		t := a.threads[key]
		if t == nil {
			t = &threadState{of: key[0]}
			a.threads[key] = t
		}
		// What has ended contains nothing that begins now.
		t.ranges = a.closed(t.ranges, e.Time)
		if isRange {
			// Of ranges that overlap without nesting, the later one counts as the inner.
			for len(t.ranges) > 0 && !a.contains(t.ranges[len(t.ranges)-1], e) {
				t.ranges = t.ranges[:len(t.ranges)-1]
			}
		}
		if e.Kind == KindOp {
			t.back = t.back || ofAutograd().MatchString(e.Name)
			if id := (Correlation{t.of, uint64(e.Value)}); id.ID > 0 && !t.back {
				a.forward[id] = t
			}
		}
		if len(t.ranges) > 0 {
			a.inherit(e, t.ranges[len(t.ranges)-1])
		} else if at := a.waiting(t, e); at >= 0 {
			a.inherit(e, at)
		}
		switch {
		case isRange:
			t.ranged = true
			a.counts.Ranges++
			switch {
			case e.Kind == KindPass:
				a.counts.Passes++
			case e.Kind == KindStep:
				a.counts.Steps++
				if _, ok := a.h.Step(e); !ok && len(a.h.Plans) > 0 {
					a.counts.StepsUnknown++
				}
			}
			if e.Open {
				a.counts.OpenRanges++
			}
			if t.capture {
				a.quiet[i] = true
			}
			t.ranges = append(t.ranges, i)
		case e.Kind.IsCall():
			a.call(t, i)
		}
	}
}

// ofAutograd is the name of an operator of the backward pass.
var ofAutograd = lazyregexp.New(`^autograd::engine::|Backward\d*$`)

// ofBackward is the name of a range around a backward pass.
var ofBackward = lazyregexp.New(`(?i)backward|\bbwd\b`)

// waiting returns the range of another thread that an event outside all ranges belongs to, -1 for none: a thread of
// autograd works for the one that ran the forward pass, and that waits meanwhile in the range around backward().
func (a *attributor) waiting(t *threadState, e *Event) int {
	at, several := -1, false
	consider := func(other *threadState) {
		for _, i := range slices.Backward(other.ranges) {
			r := &a.events[i]
			if isWaiting := t.back && r.Kind != KindOp && !r.IsPython() || ofBackward().MatchString(r.Name); isWaiting &&
				a.contains(i, e) {
				at, several = i, at >= 0
				return
			}
		}
	}
	if t.back && e.Value > 0 {
		if other := a.forward[Correlation{t.of, uint64(e.Value)}]; other != nil {
			consider(other)
		}
	}
	if at >= 0 || !t.back && (t.ranged || !e.Kind.IsCall()) {
		return at
	}
	for _, other := range a.threads {
		if other != t && other.of == t.of && !other.back {
			consider(other)
		}
	}
	if several {
		return -1
	}
	return at
}

// closed removes from a stack the events that ended before a time.
func (a *attributor) closed(stack []int, time int64) []int {
	for len(stack) > 0 {
		top := &a.events[stack[len(stack)-1]]
		if top.Open || top.End() > time || top.Time == time {
			break
		}
		stack = stack[:len(stack)-1]
	}
	return stack
}

// contains reports whether a range that began no later than e also ends no earlier.
func (a *attributor) contains(at int, e *Event) bool {
	r := &a.events[at]
	return r.Open || !e.Open && r.End() >= e.End()
}

// inherit gives an event the parent, plan and step of the range around it.
func (a *attributor) inherit(e *Event, at int) {
	r := &a.events[at]
	e.Parent = cmp.Or(e.Parent, r.ID)
	if e.Plan < 0 {
		e.Plan = r.Plan
	}
	if e.Step < 0 && e.Plan == r.Plan {
		e.Step = r.Step
	}
}

// call notes an API call.
func (a *attributor) call(t *threadState, i int) {
	e := &a.events[i]
	a.counts.Calls++
	t.calls = a.closed(t.calls, e.Time)
	if len(t.calls) > 0 && a.contains(t.calls[len(t.calls)-1], e) {
		a.outer[i] = t.calls[len(t.calls)-1]
	}
	t.calls = append(t.calls, i)
	switch e.Call() {
	case CallBeginCapture:
		t.capture = true
	case CallEndCapture:
		t.capture = false
	}
	if t.capture {
		a.quiet[i] = true
	}
	if e.Correlation == 0 {
		return
	}
	process := a.h.ProcessOf(e)
	if first, ok := a.first[process]; !ok || e.Correlation < first {
		a.first[process] = e.Correlation
	}
}

func (a *attributor) gpu() {
	for i := range a.events {
		e := &a.events[i]
		if !e.Kind.IsGPU() && e.Kind != KindSync {
			continue
		}
		isKernel := e.Kind == KindKernel
		switch e.Kind {
		case KindKernel:
			a.counts.Kernels++
			if e.Bounded {
				a.counts.Bounded++
			}
			if e.DividedEvery > 0 {
				a.counts.Divided++
			}
		case KindGraph:
			a.counts.Graphs++
		case KindMemcpy, KindMemset:
			a.counts.Copies++
		}
		given := e.Step >= 0
		at, called := a.index.CallAt(e)
		if e.Node != 0 && !given {
			if tag, phase, ok := a.captured(e); ok {
				e.Step, e.Plan, given = tag, phase, true
			} else if isKernel {
				a.counts.UnknownNodes++
			}
		}
		if called {
			call := &a.events[at]
			if e.Kind.IsGPU() {
				a.busy[at] = true
			}
			if early := call.Time - e.Time; early > 0 && isKernel {
				a.counts.EarlyStarts++
				a.counts.Earliest = max(a.counts.Earliest, early)
			}
			e.Parent = cmp.Or(e.Parent, call.Parent)
			if e.Plan < 0 {
				e.Plan = call.Plan
			}
			if !given && e.Plan == call.Plan {
				e.Step = call.Step
			}
		}
		parent, inRange := a.index.ranges.at(e.Parent)
		if inRange && e.Kind.IsGPU() {
			a.busy[parent] = true
			if e.Step >= 0 && a.events[parent].Kind == KindPass {
				a.ran[e.Run(e.Parent)] = true
			}
		}
		switch {
		case !isKernel && !called && (e.Kind == KindMemcpy || e.Kind == KindMemset):
			a.counts.CopiesWithoutCall++
		case !isKernel:
		case e.Step >= 0:
			a.counts.InSteps++
		case e.Plan >= 0:
			a.counts.InPassOnly++
		case a.h.Recorder == RecorderStamps:
			a.counts.Unattributed++
		}
		if isKernel {
			switch {
			case e.Correlation == 0:
				a.counts.WithoutCorrelation++
			case !called && e.Correlation < a.first[a.h.ProcessOf(e)]: // ids grow with each call
				a.counts.BeforeRecording++
			case !called:
				a.counts.WithoutCall++
			case !inRange:
				a.counts.WithoutRange++
			}
		}
	}
}

// captured follows the graph node of a kernel to the range that was open when the node was captured.
func (a *attributor) captured(e *Event) (tag, phase int32, ok bool) {
	at, known := a.index.ranges.at(a.nodes.Captured(a.h, e))
	if !known {
		return 0, 0, false
	}
	a.busy[at] = true
	r := &a.events[at]
	return r.Step, r.Plan, r.Step >= 0
}

// rest counts steps and launches that caused no work.
func (a *attributor) rest() {
	// Work of an inner call counts for the outer one, and work of a range for those around it.
	for _, i := range slices.Backward(slices.Sorted(maps.Keys(a.outer))) {
		if a.busy[i] {
			a.busy[a.outer[i]] = true
		}
	}
	hasWork := a.counts.Kernels+a.counts.Copies+a.counts.Graphs > 0
	for i := range slices.Backward(a.events) {
		e := &a.events[i]
		_, isInner := a.outer[i]
		switch {
		case e.Kind.IsRange() && e.Lane.Kind == LaneThread:
			if parent, ok := a.index.ranges.at(e.Parent); ok && a.busy[i] {
				a.busy[parent] = true
			}
			if e.Kind == KindStep && hasWork && !a.busy[i] && !a.quiet[i] && !a.ran[e.Run(e.Parent)] {
				a.counts.StepsWithoutWork++
			}
		case !e.Kind.IsCall() || isInner || a.quiet[i]:
		case e.Call() == CallGraphLaunch:
			a.counts.GraphLaunches++
			if !a.busy[i] {
				a.counts.OpaqueLaunches++
			}
		case e.Call() == CallLaunch && !a.busy[i]:
			a.counts.LaunchesWithoutWork++
		}
	}
}

// Project returns an event for each step and stream, from the start of the step's first
// kernel there to the end of its last: viewers show it above the kernels. It returns nil if
// the trace has such events already. Events must be attributed and in order.
func Project(h *Header, events []Event) []Event {
	type key struct {
		lane       Lane
		parent     uint64
		launch     uint64 // of a graph
		phase, tag int32
	}
	var steps []Event
	var whats Interner
	places := map[key]int32{}
	for i := range events {
		e := &events[i]
		if e.Kind == KindStep && e.Lane.Kind == LaneStream {
			return nil
		}
		if !e.Kind.IsGPU() || e.Step < 0 {
			continue
		}
		k := key{e.Lane, e.Parent, 0, e.Plan, e.Step}
		if e.Node != 0 {
			k.launch = e.Correlation
		}
		at, known := places[k]
		if !known {
			step, _ := h.Step(e)
			at = int32(len(steps))
			places[k] = at
			steps = append(steps, Event{What: whats.Of(&What{Name: step.Name, Domain: Domain}), Kind: KindStep, Lane: e.Lane,
				Time: e.Time, Plan: e.Plan, Step: e.Step, Parent: e.Parent})
		}
		steps[at].Duration = max(steps[at].Duration, e.End()-steps[at].Time)
	}
	return steps
}
