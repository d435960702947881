package traces

// Trace is a whole trace in memory.
type Trace struct {
	Header *Header
	Events []Event // in the order of Compare
	Attribution
}

// NewTrace makes a trace of events that a recorder has in memory. It sorts them,
// in place, and attributes what their source did not.
func NewTrace(h *Header, events []Event) *Trace {
	t := &Trace{Header: h, Events: events}
	t.nameProcess()
	Sort(t.Events)
	t.Attribution = Attribute(h, t.Events)
	return t
}

// nameProcess gives the header a process, that of the first API call, where its
// source did not; and work of the GPU, where it names none.
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
