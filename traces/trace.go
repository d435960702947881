package traces

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

// HostOnly reports whether the recording is of a CPU that ran the passes itself: there is no
// device with a clock of its own.
func (t *Trace) HostOnly() bool {
	return t.Header.Recorder == RecorderHost && t.Kernels+t.Copies == 0
}

// Index finds what caused an event of a trace.
type Index struct {
	header *Header
	calls  map[Correlation]*Event
	ranges map[uint64]*Event
}

// Index indexes the API calls, of which the outermost with a correlation id counts, and the host's ranges.
func (t *Trace) Index() *Index {
	x := &Index{t.Header, map[Correlation]*Event{}, map[uint64]*Event{}}
	for i := range t.Events {
		e := &t.Events[i]
		switch key := t.Header.Correlate(e); {
		case e.Kind.IsCall() && e.Correlation != 0 && x.calls[key] == nil:
			x.calls[key] = e
		case e.Kind.IsRange() && e.Lane.Kind == LaneThread && e.ID != 0:
			x.ranges[e.ID] = e
		}
	}
	return x
}

// CallOf returns the API call that caused an event, the outermost one with its correlation
// id; nil if it is not recorded.
func (x *Index) CallOf(e *Event) *Event {
	if e.Correlation == 0 {
		return nil
	}
	return x.calls[x.header.Correlate(e)]
}

// Parent returns the range of the host around an event or its launch, nil for none.
func (x *Index) Parent(e *Event) *Event { return x.ranges[e.Parent] }

// Range returns a range of the host by its ID, nil for none.
func (x *Index) Range(id uint64) *Event { return x.ranges[id] }
