package traces

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// By is what the rows of a table are.
type By string

// The tables there are.
const (
	ByStage  By = "stage"  // steps of the plans, from the first pass to the end of the last
	ByKernel By = "kernel" // kernels by name, from the first to the last work of the GPU
)

// RowKind tells the rows of a table apart.
type RowKind string

// The kinds of rows.
const (
	RowWork     RowKind = "work"     // a step, or a kernel
	RowOther    RowKind = "other"    // kernels of no step; copies and sets of no step
	RowIdle     RowKind = "idle"     // nothing runs
	RowResidual RowKind = "residual" // what is left of the wall time
)

// The causes of idle time. A gap ends where the next piece of work begins. Up to
// the beginning of the API call that launched it the host had not asked for it:
// that part is synchronisation where the host sat in a synchronising call, and
// else the host was late. From there on it is launch latency. Where the call had
// returned before the gap began, the work was queued, and the whole gap is the
// time from one kernel to the next that depends on it.
const (
	IdleLaunch     = "launch latency"
	IdleHost       = "host late"
	IdleDependency = "dependency between kernels"
	IdleSync       = "synchronisation"
	IdleUnknown    = "unknown"
)

// Row is a row of a table. Times are ns.
type Row struct {
	Kind  RowKind `json:"kind"`
	Phase string  `json:"phase,omitempty"`
	Name  string  `json:"name"`
	Op    string  `json:"op,omitempty"`

	Calls  int   `json:"calls"`  // how many times the step ran; of idle time, the gaps
	Pieces int   `json:"pieces"` // kernels, copies, sets; on the CPU, events of threads
	Host   int64 `json:"host"`   // in the step's ranges on the host
	Busy   int64 `json:"busy"`   // sum of the durations, however they overlap

	// Exclusive is the part of the wall time that is this row's: while it runs and
	// nothing that began before it still does. Where a kernel is launched early and
	// waits for the one before (programmatic dependent launch), the wait so counts
	// for the one before. Exclusive times of all rows sum to the wall time.
	Exclusive int64 `json:"exclusive"`

	Min    int64 `json:"min"` // of the durations
	Median int64 `json:"median"`
	Max    int64 `json:"max"`
	FLOPs  int64 `json:"flops,omitempty"` // least work of all calls; 0 where not known
	Bytes  int64 `json:"bytes,omitempty"` // least traffic of all calls

	durations []int64
	tag       int32
	phase     int32
}

// Table is where the wall time of a trace went.
type Table struct {
	By       By        `json:"by"`
	Device   int32     `json:"device"` // -1 for the CPU
	Wall     int64     `json:"wall"`   // ns
	Before   int64     `json:"before"` // ns from the first event of the trace to the table's begin: loading, warm-up
	Rows     []Row     `json:"rows"`
	Findings []Finding `json:"findings,omitempty"`
}

// Share returns the part of the wall time that is a row's, in percent, and whether
// the trace is whole enough to say it.
func (t *Table) Share(r *Row) (percent float64, ok bool) {
	if Misleads(t.Findings) || t.Wall == 0 {
		return 0, false
	}
	return 100 * float64(r.Exclusive) / float64(t.Wall), true
}

// summary is the state of Summarize.
type summary struct {
	*Trace
	by    By
	calls map[correlation]*Event
	syncs [][2]int64 // when the host was in a synchronising call, in order, apart
	rows  map[string]*Row
}

// Summarize makes a table of a device's time, or of the CPU's where no GPU worked.
// A trace of several devices needs a table for each; device -1 takes the first.
func Summarize(t *Trace, by By, device int32) (*Table, error) {
	s := &summary{Trace: t, by: by, calls: map[correlation]*Event{}, rows: map[string]*Row{}}
	if by != ByStage && by != ByKernel {
		return nil, fmt.Errorf("there is no table by %q; there is one by stage and one by kernel", by)
	}
	work, device := s.work(device)
	if len(work) == 0 {
		return nil, fmt.Errorf("the trace has no work to make a table of")
	}
	from, to, err := s.window(work)
	if err != nil {
		return nil, err
	}
	s.host(from, to, device)
	now, last := from, work[0]
	for _, e := range work {
		if e.End() <= from && e.Time < from || e.Time >= to {
			continue
		}
		last = e
		if e.Time > now {
			s.gap(now, e.Time, e)
			now = e.Time
		}
		r := s.row(e)
		r.Pieces++
		r.Busy += e.Duration
		r.durations = append(r.durations, e.Duration)
		if end := min(e.End(), to); end > now {
			r.Exclusive += end - now
			now = end
		}
	}
	if to > now {
		s.waited(now, to, s.phase(last))
	}
	table := &Table{By: by, Device: device, Wall: to - from, Before: from - s.Events[0].Time, Findings: Examine(t.Header, t.Attribution)}
	s.finish(table, from, to)
	return table, nil
}

// work returns what ran on the device, or the steps of threads, in order.
func (s *summary) work(device int32) ([]*Event, int32) {
	var gpu, cpu []*Event
	for i := range s.Events {
		switch e := &s.Events[i]; {
		case e.Kind.IsGPU() && (device < 0 || device == e.Lane.Device):
			device = e.Lane.Device
			gpu = append(gpu, e)
		case e.Kind == KindStep && e.Lane.Kind == LaneThread:
			cpu = append(cpu, e)
		}
	}
	if len(gpu) > 0 || device >= 0 || s.by == ByKernel {
		return gpu, device
	}
	return cpu, -1
}

// isWarmUp tells whether a range holds passes that are no part of a run.
func isWarmUp(e *Event) bool { return e.Name == "warm-up" || e.Name == "record graph" }

// window returns what the table is of. By stage it begins with the first pass that
// is no warm-up, and ends with the last pass and its work.
func (s *summary) window(work []*Event) (from, to int64, err error) {
	if s.by == ByKernel {
		from, to = work[0].Time, work[0].End()
		for _, e := range work {
			to = max(to, e.End())
		}
		return from, to, nil
	}
	warm := map[Lane]int64{} // when the warm-up of a thread ends
	found := false
	for i := range s.Events {
		e := &s.Events[i]
		switch {
		case e.Lane.Kind != LaneThread:
		case e.Kind == KindRange && isWarmUp(e):
			warm[e.Lane] = max(warm[e.Lane], e.End())
		case e.Kind == KindPass && !e.Open:
			if end, ok := warm[e.Lane]; ok && e.Time < end {
				continue
			}
			if !found {
				from, to, found = e.Time, e.End(), true
			}
			to = max(to, e.End())
		}
	}
	if !found {
		return 0, 0, fmt.Errorf("the trace has no pass of a model, so that there are no stages; a table by kernel can be made")
	}
	for _, e := range work {
		if e.Phase >= 0 && e.Time >= from {
			to = max(to, e.End())
		}
	}
	return from, to, nil
}

// host notes API calls, waits, and the time of steps on the host.
func (s *summary) host(from, to int64, device int32) {
	warm := map[Lane]int64{}
	for i := range s.Events {
		e := &s.Events[i]
		if e.Kind == KindRange && isWarmUp(e) {
			warm[e.Lane] = max(warm[e.Lane], e.End())
		}
		switch {
		case e.Kind.IsCall():
			key := correlation{s.process(e), e.Correlation}
			if _, ok := s.calls[key]; !ok && e.Correlation != 0 {
				s.calls[key] = e
			}
			if !strings.Contains(e.Name, "Synchronize") || e.Duration == 0 {
				continue
			}
			if n := len(s.syncs); n > 0 && e.Time <= s.syncs[n-1][1] {
				s.syncs[n-1][1] = max(s.syncs[n-1][1], e.End())
			} else {
				s.syncs = append(s.syncs, [2]int64{e.Time, e.End()})
			}
		case e.Kind == KindStep && e.Lane.Kind == LaneThread && s.by == ByStage && device >= 0 && e.Time >= max(from, warm[e.Lane]) && e.Time < to && e.Tag >= 0:
			s.row(e).Host += e.Duration
		}
	}
}

func (s *summary) process(e *Event) int64 {
	if e.Lane.Process == 0 {
		return s.Header.Process
	}
	return e.Lane.Process
}

// phase names the kind of pass that an event belongs to.
func (s *summary) phase(e *Event) string {
	if e.Phase >= 0 && int(e.Phase) < len(s.Header.Plans) {
		return s.Header.Plans[e.Phase].Phase
	}
	return ""
}

// named returns a row, which it makes where there is none.
func (s *summary) named(kind RowKind, phase, name string) *Row {
	key := string(kind) + "\x00" + phase + "\x00" + name
	r := s.rows[key]
	if r == nil {
		r = &Row{Kind: kind, Phase: phase, Name: name, tag: -1, phase: -1}
		s.rows[key] = r
	}
	return r
}

// row returns the row of a piece of work.
func (s *summary) row(e *Event) *Row {
	isCopy := e.Kind == KindMemcpy || e.Kind == KindMemset
	if s.by == ByKernel {
		if isCopy {
			return s.named(RowOther, "", e.Name)
		}
		return s.named(RowWork, "", e.Name)
	}
	if step, ok := s.Header.Step(e); ok {
		r := s.named(RowWork, s.phase(e), step.Name)
		r.Op, r.tag, r.phase = step.Op, e.Tag, e.Phase
		return r
	}
	if isCopy {
		return s.named(RowOther, s.phase(e), "copies and sets of no step")
	}
	return s.named(RowOther, s.phase(e), "kernels of no step")
}

// idle adds to the idle time of a cause.
func (s *summary) idle(phase, cause string, ns int64) {
	if ns <= 0 {
		return
	}
	if s.by == ByKernel {
		phase = ""
	}
	r := s.named(RowIdle, phase, cause)
	r.Calls++
	r.Exclusive += ns
}

// gap says why nothing ran before a piece of work.
func (s *summary) gap(from, to int64, next *Event) {
	phase := s.phase(next)
	call := s.calls[correlation{s.process(next), next.Correlation}]
	switch {
	case next.Kind.IsRange(): // of the CPU
		s.idle(phase, IdleHost, to-from)
	case call == nil || next.Correlation == 0:
		s.idle(phase, IdleUnknown, to-from)
	case call.End() <= from:
		s.idle(phase, IdleDependency, to-from)
	default:
		asked := min(max(call.Time, from), to)
		s.waited(from, asked, phase)
		s.idle(phase, IdleLaunch, to-asked)
	}
}

// waited splits time in which the host had asked for nothing.
func (s *summary) waited(from, to int64, phase string) {
	var inSync int64
	i, _ := slices.BinarySearchFunc(s.syncs, from, func(c [2]int64, t int64) int { return cmp.Compare(c[1], t) })
	for ; i < len(s.syncs) && s.syncs[i][0] < to; i++ {
		inSync += max(0, min(s.syncs[i][1], to)-max(s.syncs[i][0], from))
	}
	s.idle(phase, IdleSync, inSync)
	s.idle(phase, IdleHost, to-from-inSync)
}

// finish puts the rows into the table: work by phase and step, or by time, then the
// rest.
func (s *summary) finish(t *Table, from, to int64) {
	if s.by == ByStage {
		runs := s.Events
		if t.Device >= 0 {
			runs = Project(s.Header, s.Events)
			if runs == nil { // they are there
				runs = s.Events
			}
		}
		for i := range runs {
			e := &runs[i]
			isRun := e.Kind == KindStep && (e.Lane.Kind == LaneStream && e.Lane.Device == t.Device || t.Device < 0 && e.Lane.Kind == LaneThread)
			if step, ok := s.Header.Step(e); ok && isRun && e.Time >= from && e.Time < to {
				r := s.row(e)
				r.Calls++
				r.FLOPs += step.FLOPs
				r.Bytes += step.Bytes
			}
		}
	}
	sum := int64(0)
	for _, r := range s.rows {
		if n := len(r.durations); n > 0 {
			slices.Sort(r.durations)
			r.Min, r.Max = r.durations[0], r.durations[n-1]
			r.Median = (r.durations[(n-1)/2] + r.durations[n/2]) / 2
		}
		if s.by == ByKernel && r.Kind != RowIdle {
			r.Calls = r.Pieces
		}
		sum += r.Exclusive
		t.Rows = append(t.Rows, *r)
	}
	t.Rows = append(t.Rows, Row{Kind: RowResidual, Name: "residual", Exclusive: t.Wall - sum, tag: -1, phase: -1})
	order := map[RowKind]int{RowWork: 0, RowOther: 1, RowIdle: 2, RowResidual: 3}
	slices.SortFunc(t.Rows, func(a, b Row) int {
		byTime := cmp.Compare(b.Exclusive, a.Exclusive)
		if s.by == ByKernel {
			byTime = cmp.Compare(b.Busy, a.Busy)
		}
		return cmp.Or(cmp.Compare(order[a.Kind], order[b.Kind]), cmp.Compare(a.phase, b.phase), cmp.Compare(a.tag, b.tag),
			byTime, cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Name, b.Name))
	})
}
