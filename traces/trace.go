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
	Sort(t.Events)
	t.Attribution = Attribute(h, t.Events)
	return t
}

// nameProcess fills in missing processes: of the header, from the first API call; of work
// on a GPU, from the header.
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
