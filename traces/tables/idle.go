package tables

import (
	"cmp"
	"slices"

	"gpt2scope/traces"
	"gpt2scope/traces/window"
)

// The causes of idle time. A gap ends when the next work begins. Until the start of the API call that launched this work,
// the host had not launched it: it loaded code, allocated, waited for the GPU, for a copy or for a data loader, or it was
// late. From the start of that call, the gap is launch latency, or the loading of code in it. In tables of a whole
// recording the host is not late before the first pass: the program begins.
//
// The work was queued if its call had returned before the gap began. Then the whole gap is the time from one kernel to
// the next, which depends on it, or waits for an event of another stream. This holds within a graph too: while the call
// that launches the graph still runs, the driver submits its kernels, and a gap between two of them is launch latency. If
// no call is recorded, as with stamps, the host's range of the step stands for the call.
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
	IdleLoading    = "loading code"
	IdleAlloc      = "allocation"
	IdleLoader     = "data loading"
	IdleEvent      = "event of another stream"
	IdleStart      = "start of the program"
	IdleThreads    = "synchronisation between threads"
	IdleNoOp       = "outside all operations"
	IdleUnknown    = "unknown"
)

// heldCauses are the causes of idle time in which something held the host.
var heldCauses = map[window.Held]string{window.HeldByLoading: IdleLoading, window.HeldByAlloc: IdleAlloc,
	window.HeldBySync: IdleSync, window.HeldByCopy: IdleCopy, window.HeldByLoader: IdleLoader}

// waiting gives a cause to each part of a time in which the host of a process had not launched the next work.
func (s *summary) waiting(process int64, x window.Interval) {
	held, left := s.HeldIn(process, x)
	late := window.Length(left)
	for by, ns := range held {
		s.cause(heldCauses[window.Held(by)], ns)
	}
	if s.of == allWork && !s.steady && x.To <= s.Steady().From {
		s.cause(IdleStart, late)
		return
	}
	s.cause(IdleHost, late)
}

// cause adds to the time of a cause of the gap.
func (s *summary) cause(name string, ns int64) {
	if ns <= 0 {
		return
	}
	g := &s.gap
	if i := slices.IndexFunc(g.Causes, func(c Cause) bool { return c.Name == name }); i >= 0 {
		g.Causes[i].Time += ns
		return
	}
	g.Causes = append(g.Causes, Cause{name, ns})
}

func (s *summary) causes() {
	x, before, next := s.gap.Interval, s.gap.Before, s.gap.Next
	switch {
	case next == nil:
		s.waiting(s.Header.ProcessOf(cmp.Or(before, s.Work[0])), x)
		return
	case next == before:
		s.cause(IdleCopy, x.Length())
		return
	case next.Kind.IsRange(): // of the CPU
		cause := IdleHost
		if before != nil && s.severalThreads {
			if p := s.PassOf(next); p != nil && p == s.PassOf(before) {
				cause = IdleThreads
			}
		}
		s.cause(cause, x.Length())
		return
	}
	launch := s.launchOf(next, before, x.From)
	switch {
	case launch == nil:
		s.cause(IdleUnknown, x.Length())
	case launch.End() <= x.From && before != nil && before.Lane != next.Lane && s.AfterEvent(launch):
		s.cause(IdleEvent, x.Length())
	case launch.End() <= x.From:
		s.cause(IdleDependency, x.Length())
	default:
		at, process := min(max(launch.Time, x.From), x.To), s.Header.ProcessOf(launch)
		s.waiting(process, window.Interval{From: x.From, To: at})
		x.From = at
		loading := window.Covered(s.HeldBy(process)[window.HeldByLoading], x)
		s.cause(IdleLoading, loading)
		s.cause(IdleLaunch, x.Length()-loading)
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
