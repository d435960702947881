package traces

import "slices"

// Trace is a whole trace in memory.
type Trace struct {
	Header *Header
	Events []Event // in the order of Compare
	Attribution
}

// NewTrace makes a trace of events in memory. It sorts them in place and attributes those
// that their source did not attribute.
func NewTrace(h *Header, events []Event) *Trace {
	t := &Trace{Header: h, Events: events}
	t.nameProcess()
	t.nameRanks()
	Sort(t.Events)
	t.mendTimes()
	t.markedRanges()
	t.Attribution = Attribute(h, t.Events)
	return t
}

// nameProcess fills in missing processes: of the header, from the first API call; of work on a GPU, from the header.
func (t *Trace) nameProcess() {
	for i := range t.Events {
		if e := &t.Events[i]; t.Header.Process == 0 && e.Kind.IsCall() {
			t.Header.Process = e.Lane.Process
			break
		}
	}
	for i := range t.Events {
		if l := &t.Events[i].Lane; l.Process == 0 && l.Device >= 0 {
			l.Process = t.Header.Process
		}
	}
}

// Rebase makes the times of a trace small and positive: if its first event lies before the header's base, or more than
// a day after it as in the files of PyTorch's profiler, the base becomes the time of that event. Viewers read times as
// floating-point numbers of microseconds, in which large ones are off by a nanosecond, so that kernels that follow each
// other at once would overlap; and Perfetto leaves out events before the base.
func (t *Trace) Rebase() {
	const day = 86400e9
	if len(t.Events) == 0 || t.Events[0].Time >= 0 && t.Events[0].Time < day {
		return
	}
	shift := t.Events[0].Time
	if t.Header.Base != 0 || shift > 0 { // else it is not known when the base was
		t.Header.Base += shift
	}
	for i := range t.Events {
		t.Events[i].Time -= shift
	}
}

// year2000 is its begin in ns since 1970: times after it are of a clock that counts from there.
const year2000 = 946684800e9

// mendTimes deals with times that cannot be. Work of a GPU that is at 0, long before everything else, has lost its
// times and is left out. Work of a stream runs in order: a duration that reaches beyond the end of later work of its
// stream is wrong and is cut off at the start of the next, or, if that is shorter, at the longest time of the same kernel.
// (Programmatic dependent launch lets a kernel begin before the one before it has ended, but not end before it.) Kineto
// until PyTorch 2.3 writes times since 1970 and names no base.
func (t *Trace) mendTimes() {
	h := t.Header
	if h.Recorder == RecorderStamps || h.Recorder == RecorderHost {
		return
	}
	first := slices.IndexFunc(t.Events, func(e Event) bool { return e.Time != 0 || !e.Kind.IsGPU() })
	if first > 0 {
		next := t.Events[first].Time
		before := len(t.Events)
		t.Events = slices.DeleteFunc(t.Events, func(e Event) bool {
			return e.Time == 0 && e.Kind.IsGPU() && (e.Duration == 0 && next > 1e6 || next-e.End() > 1e9)
		})
		h.Drop("work of a GPU with the impossible time 0: its times were lost", int64(before-len(t.Events)))
	}
	if h.Recorder == RecorderKineto && h.Base == 0 && len(t.Events) > 0 && t.Events[0].Time > year2000 {
		t.Rebase()
	}
	type later struct{ start, end int64 } // of the next work, and the first end of all later work
	next := map[Lane]later{}
	over := map[*Event]int64{} // the start of the next
	for i := range slices.Backward(t.Events) {
		e := &t.Events[i]
		if !e.Kind.IsGPU() || e.Lane.ID < 0 || e.Node != 0 || e.Kind == KindGraph || e.Duration == 0 {
			continue
		}
		l, ok := next[e.Lane]
		if !ok {
			l.end = e.End()
		}
		if e.End() > l.end && l.start > e.Time {
			over[e] = l.start
		}
		next[e.Lane] = later{e.Time, min(l.end, e.End())}
	}
	if len(over) == 0 {
		return
	}
	longest := map[string]int64{}
	for i := range t.Events {
		if e := &t.Events[i]; e.Kind.IsGPU() && over[e] == 0 {
			longest[e.Name] = max(longest[e.Name], e.Duration)
		}
	}
	for e, start := range over {
		e.Duration = start - e.Time
		if most := longest[e.Name]; most > 0 {
			e.Duration = min(e.Duration, most)
		}
	}
	h.mend("durations that reached over later work of their stream, which cannot be, are cut off at its start",
		int64(len(over)))
	Sort(t.Events)
}

// marked is the domain of the ranges that PyTorch 2.12 and later put around the kernels of a CUDA graph while it was
// captured (torch.cuda.graph_annotations.mark_kernels).
const marked = "mark_kernels"

// markedRanges gives the nodes of graphs the ranges around their capture, of which a file of PyTorch has only the names,
// at each kernel that ran: they wait in its Domain.
func (t *Trace) markedRanges() {
	type key struct {
		process int64
		name    string
	}
	next, whats := LastID(t.Events), new(Interner)
	ranges, nodes := map[key]uint64{}, map[Correlation]bool{}
	var made []Event
	for i := range t.Events {
		e := &t.Events[i]
		if !e.Kind.IsGPU() || e.Domain == "" {
			continue
		}
		process := t.Header.ProcessOf(e)
		at, node := key{process, e.Domain}, Correlation{process, e.Node}
		lane := Thread(process, -1)
		if ranges[at] == 0 {
			next++
			ranges[at] = next
			r := Plain(KindRange, lane, e.Domain, e.Time, 0)
			r.ID, r.Domain = next, marked
			made = append(made, r)
		}
		if !nodes[node] {
			nodes[node] = true
			n := Plain(KindNode, lane, e.Name, e.Time, 0)
			n.Node, n.Parent = e.Node, ranges[at]
			made = append(made, n)
		}
		whats.Change(e, func(w *What) { w.Domain = "" })
	}
	if len(made) > 0 {
		t.Header.Lanes = append(t.Header.Lanes, LaneName{made[0].Lane, "ranges around the capture of graphs"})
		t.Events = append(t.Events, made...)
		Sort(t.Events)
	}
}

// HostOnly reports whether the recording is of a CPU that ran the passes itself: there is no
// device with a clock of its own.
func (t *Trace) HostOnly() bool {
	return t.Header.Recorder == RecorderHost && t.Kernels+t.Copies == 0
}

// Index finds what caused an event of a trace.
type Index struct {
	header *Header
	events []Event
	calls  calls
	ranges places
}

// Index indexes the API calls, of which the outermost with a correlation id counts, and the host's ranges.
func (t *Trace) Index() *Index { return newIndex(t.Header, t.Events) }

func newIndex(h *Header, events []Event) *Index {
	x := &Index{header: h, events: events, calls: calls{}}
	for i := range events {
		switch e := &events[i]; {
		case e.Kind.IsCall():
			x.calls.note(h.Correlate(e), i)
		case e.Kind.IsRange() && e.Lane.Kind == LaneThread:
			x.ranges.set(e.ID, i)
		}
	}
	return x
}

// CallAt returns the place in Events of the API call that caused an event, the outermost one with its correlation id,
// and whether it is recorded.
func (x *Index) CallAt(e *Event) (int, bool) { return x.calls.at(x.header.Correlate(e)) }

// CallOf returns that API call; nil if it is not recorded.
func (x *Index) CallOf(e *Event) *Event {
	if at, ok := x.CallAt(e); ok {
		return &x.events[at]
	}
	return nil
}

// Parent returns the range of the host around an event or its launch, nil for none.
func (x *Index) Parent(e *Event) *Event { return x.Range(e.Parent) }

// Range returns a range of the host by its ID, nil for none.
func (x *Index) Range(id uint64) *Event {
	if at, ok := x.ranges.at(id); ok {
		return &x.events[at]
	}
	return nil
}
