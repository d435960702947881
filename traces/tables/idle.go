package tables

import (
	"cmp"
	"slices"

	"gpt2scope/traces"
	"gpt2scope/traces/window"
)

// The causes of idle time. A gap ends when the next work begins. Until the start of the API
// call that launched this work, the host had not launched it: the host waited for the GPU or
// for a copy, or it was late. From the start of that call, the gap is launch latency.
//
// The work was queued if its call had returned before the gap began. Then the whole gap is the time from one kernel to
// the next, which depends on it. This holds within a graph too: while the call that launches the graph still runs, the
// driver submits its kernels, and a gap between two of them is launch latency. If no call is recorded, as with stamps,
// the host's range of the step stands for the call.
//
// By stage, the time in which only a copy or set of no step runs is idle too: no stage computes.
//
// On the CPU the threads synchronise after each step. A gap between two steps of a pass is
// the time that this takes; the host causes the other gaps.
const (
	IdleLaunch     = "launch latency"
	IdleHost       = "host late"
	IdleDependency = "dependency between kernels"
	IdleSync       = "synchronisation"
	IdleCopy       = "copy"
	IdleThreads    = "synchronisation between threads"
	IdleNoOp       = "outside all operations"
	IdleUnknown    = "unknown"
)

// waiting gives a cause to each part of a time in which the host had not launched the next work.
func (s *summary) waiting(phase string, x window.Interval) {
	late := x.Length()
	i, _ := slices.BinarySearchFunc(s.Waits, x.From, func(w window.Wait, t int64) int { return cmp.Compare(w.To, t) })
	for ; i < len(s.Waits) && s.Waits[i].From < x.To; i++ {
		w := s.Waits[i]
		cause := IdleSync
		if w.For == traces.WaitCopy {
			cause = IdleCopy
		}
		ns := max(0, min(w.To, x.To)-max(w.From, x.From))
		s.idle(phase, cause, ns)
		late -= ns
	}
	s.idle(phase, IdleHost, late)
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

// gap finds the causes of a gap between two events of the work; before is nil at the start of the table.
func (s *summary) gap(x window.Interval, before, next *traces.Event) {
	phase := s.Header.PhaseOf(next)
	if next.Kind.IsRange() { // of the CPU
		cause := IdleHost
		if before != nil && s.severalThreads {
			if p := s.PassOf(next); p != nil && p == s.PassOf(before) {
				cause = IdleThreads
			}
		}
		s.idle(phase, cause, x.Length())
		return
	}
	launch := s.launchOf(next, before, x.From)
	switch {
	case launch == nil:
		s.idle(phase, IdleUnknown, x.Length())
	case launch.End() <= x.From:
		s.idle(phase, IdleDependency, x.Length())
	default:
		at := min(max(launch.Time, x.From), x.To)
		s.waiting(phase, window.Interval{From: x.From, To: at})
		s.idle(phase, IdleLaunch, x.To-at)
	}
}

// launchOf returns the call that launched an event, or the range of the host that stands for
// the call; nil if neither is known. from is the start of the gap before the event.
func (s *summary) launchOf(e, before *traces.Event, from int64) *traces.Event {
	if call := s.CallOf(e); call != nil {
		return call
	}
	if s.Header.Recorder != traces.RecorderStamps {
		return nil
	}
	r := s.Parent(e)
	if r == nil {
		return nil
	}
	if r.Kind == traces.KindStep {
		return r
	}
	if step := s.hostSteps[e.Run(r.ID)]; step != nil {
		return step
	}
	// A pass launches the first of its work; for the others some time before it ends.
	if r.Kind == traces.KindPass && (before == nil || before.Parent != e.Parent || r.End() <= from) {
		return r
	}
	return nil
}
