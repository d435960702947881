package traces

import (
	"cmp"
	"slices"
	"strings"
)

// The causes of idle time. A gap ends where the next piece of work begins. Up to
// the beginning of the API call that launched it the host had not asked for it:
// that part is synchronisation or a copy where the host sat in a call that waits
// for one, and else the host was late. From there on it is launch latency. Where
// the call had returned before the gap began, or launched the piece before as well
// (a graph), the work was queued, and the whole gap is the time from one kernel to
// the next that depends on it. Where no call is recorded, as with stamps, the
// host's range of the step stands for it.
//
// By stage, the time in which nothing but a copy or set of no step runs is idle as
// well: no stage computes.
//
// On the CPU the threads meet after each step. A gap between two steps of a pass
// is the time that this takes; other gaps are the host's.
const (
	IdleLaunch     = "launch latency"
	IdleHost       = "host late"
	IdleDependency = "dependency between kernels"
	IdleSync       = "synchronisation"
	IdleCopy       = "copy"
	IdleThreads    = "synchronisation between threads"
	IdleUnknown    = "unknown"
)

// wait is a time in which the host waited for the GPU.
type wait struct {
	from, to int64
	cause    string
}

// waits are in order, and apart.
type waits []wait

// add notes an API call, in order of time.
func (w *waits) add(e *Event) {
	var cause string
	switch {
	case e.Duration == 0:
		return
	case strings.Contains(e.Name, "Synchronize"):
		cause = IdleSync
	case (strings.Contains(e.Name, "Memcpy") || strings.Contains(e.Name, "Memset")) && !strings.Contains(e.Name, "Async"):
		cause = IdleCopy
	default:
		return
	}
	from, to := e.Time, e.End()
	if n := len(*w); n > 0 {
		last := &(*w)[n-1]
		if from <= last.to && last.cause == cause {
			last.to = max(last.to, to)
			return
		}
		from = max(from, last.to)
	}
	if from < to {
		*w = append(*w, wait{from, to, cause})
	}
}

// split gives each part of a time in which the host had asked for nothing its cause.
func (w waits) split(from, to int64, idle func(cause string, ns int64)) {
	late := to - from
	i, _ := slices.BinarySearchFunc(w, from, func(x wait, t int64) int { return cmp.Compare(x.to, t) })
	for ; i < len(w) && w[i].from < to; i++ {
		ns := max(0, min(w[i].to, to)-max(w[i].from, from))
		idle(w[i].cause, ns)
		late -= ns
	}
	idle(IdleHost, late)
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
	g := &s.gaps[len(s.gaps)-1]
	g.Causes = append(g.Causes, Cause{cause, ns})
}

// gap says why nothing ran between two pieces of work; before is nil at the
// beginning of the table.
func (s *summary) gap(from, to int64, before, next *Event) {
	phase := s.phase(next)
	if next.Kind.IsRange() { // of the CPU
		cause := IdleHost
		if before != nil && s.severalThreads {
			if p := s.ranges.pass(next); p != nil && p == s.ranges.pass(before) {
				cause = IdleThreads
			}
		}
		s.idle(phase, cause, to-from)
		return
	}
	asked, queued, ok := s.asked(next, before, from)
	switch {
	case !ok:
		s.idle(phase, IdleUnknown, to-from)
	case queued || asked.End() <= from:
		s.idle(phase, IdleDependency, to-from)
	default:
		at := min(max(asked.Time, from), to)
		s.waits.split(from, at, func(cause string, ns int64) { s.idle(phase, cause, ns) })
		s.idle(phase, IdleLaunch, to-at)
	}
}

// asked returns the call that launched a piece of work before which there is a gap,
// or the range of the host that stands for it; or that the launch was that of the
// piece before.
func (s *summary) asked(e, before *Event, from int64) (by *Event, queued, ok bool) {
	if e.Correlation != 0 {
		if before != nil && before.Correlation == e.Correlation && s.process(before) == s.process(e) {
			return nil, true, true
		}
		if call := s.calls[correlation{s.process(e), e.Correlation}]; call != nil {
			return call.event, false, true
		}
	}
	if s.Header.Recorder != RecorderStamps {
		return nil, false, false
	}
	r := s.ranges.byID[e.Parent]
	if r == nil || e.Parent == 0 {
		return nil, false, false
	}
	if r.Kind == KindStep {
		return r, false, true
	}
	if step := s.hostSteps[runKey{r.ID, e.Phase, e.Tag}]; step != nil {
		return step, false, true
	}
	// A pass asks for the first piece of its work; for the others some time before it ends.
	if r.Kind == KindPass && (before == nil || before.Parent != e.Parent || r.End() <= from) {
		return r, false, true
	}
	return nil, false, false
}
