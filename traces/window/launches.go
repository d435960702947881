package window

import (
	"cmp"
	"math"
	"slices"

	"gpt2scope/traces"
)

// Launch is an API call and the work of a device that it caused.
type Launch struct {
	Call, First *traces.Event
	At          int64 // when it was launched: when the call returned, or its first work began, whichever was earlier
	Busy        int64 // ns, sum of the durations of its work
	Ends        []int64

	// Depth is how many kernels, copies and sets of the device were launched earlier and
	// unfinished at At; those of a graph all count. Since is the end of the last work that
	// was finished by then; math.MinInt64 if there was none.
	Depth int
	Since int64
}

// Delay is the time from the end of the call to the start of its first work; 0 if the work
// began before the call returned. (Nsight Systems calls it the queue time.)
func (l *Launch) Delay() int64 { return max(0, l.First.Time-l.Call.End()) }

// Launches returns the launches of the window's device whose work began in x, in order of
// launch, and the work that began in x without a recorded call.
func (w *Window) Launches(x Interval) (found []*Launch, without []*traces.Event) {
	all, without := launches(w.Work, w.CallOf)
	outside := func(e *traces.Event) bool { return e.Time < x.From || e.Time >= x.To }
	return slices.DeleteFunc(all, func(l *Launch) bool { return outside(l.First) }), slices.DeleteFunc(without, outside)
}

// launches pairs the work of a device, which is in order, with its calls.
func launches(work []*traces.Event, callOf func(*traces.Event) *traces.Event) (found []*Launch, without []*traces.Event) {
	byCall := map[*traces.Event]*Launch{}
	var ends []int64
	for _, e := range work {
		call := callOf(e)
		if call == nil {
			without = append(without, e)
			continue
		}
		l := byCall[call]
		if l == nil {
			l = &Launch{Call: call, First: e, At: min(call.End(), e.Time), Since: math.MinInt64}
			byCall[call] = l
			found = append(found, l)
		}
		l.Busy += e.Duration
		l.Ends = append(l.Ends, e.End())
		ends = append(ends, e.End())
	}
	slices.SortStableFunc(found, func(a, b *Launch) int { return cmp.Compare(a.At, b.At) })
	slices.Sort(ends)
	launched, done := 0, 0
	for _, l := range found {
		for done < len(ends) && ends[done] <= l.At {
			done++
		}
		if done > 0 {
			l.Since = ends[done-1]
		}
		l.Depth = launched - min(done, launched)
		launched += len(l.Ends)
	}
	return found, without
}

// Depth is the amount of launched and unfinished work of a device from a time on.
type Depth struct {
	Time int64
	Work int // kernels, copies and sets
}

// Depths returns the depth after each change. Work counts from the end of the call that
// launched it, or from its own start if that is earlier. Each kernel of a graph counts.
func (w *Window) Depths() []Depth {
	found, _ := launches(w.Work, w.CallOf)
	return depths(found)
}

func depths(found []*Launch) []Depth {
	var changes []Depth
	for _, l := range found {
		changes = append(changes, Depth{l.At, len(l.Ends)})
		for _, end := range l.Ends {
			changes = append(changes, Depth{max(end, l.At), -1})
		}
	}
	slices.SortStableFunc(changes, func(a, b Depth) int { return cmp.Compare(a.Time, b.Time) })
	out, sum := changes[:0], 0
	for i, c := range changes {
		sum += c.Work
		if i+1 == len(changes) || changes[i+1].Time > c.Time {
			out = append(out, Depth{c.Time, sum})
		}
	}
	return out
}

// queueDepth is the counter's name.
const queueDepth = "queue depth"

// QueueDepth returns the depths as counters, for each device and process of a trace. It
// returns nil if the trace has such counters already, or pairs no call with work.
func QueueDepth(t *traces.Trace) []traces.Event {
	work := map[traces.Lane][]*traces.Event{}
	var lanes []traces.Lane
	for i := range t.Events {
		switch e := &t.Events[i]; {
		case e.Kind == traces.KindCounter && e.Name == queueDepth:
			return nil
		case e.Kind.IsGPU():
			lane := traces.Lane{Kind: traces.LaneCounter, Device: e.Lane.Device, Process: e.Lane.Process}
			if work[lane] == nil {
				lanes = append(lanes, lane)
			}
			work[lane] = append(work[lane], e)
		}
	}
	calls := callsOf(t)
	var counters []traces.Event
	for _, lane := range lanes {
		found, _ := launches(work[lane], func(e *traces.Event) *traces.Event { return calls.of(t.Header, e) })
		for _, d := range depths(found) {
			e := traces.Plain(traces.KindCounter, lane, queueDepth, d.Time, 0)
			e.Value = float64(d.Work)
			counters = append(counters, e)
		}
	}
	traces.Sort(counters)
	return counters
}

// calls finds API calls by correlation, the outermost first.
type calls map[traces.Correlation]*traces.Event

func callsOf(t *traces.Trace) calls {
	c := calls{}
	for i := range t.Events {
		e := &t.Events[i]
		if key := t.Header.Correlate(e); e.Kind.IsCall() && e.Correlation != 0 && c[key] == nil {
			c[key] = e
		}
	}
	return c
}

// of returns the call that caused an event, nil if it is not recorded.
func (c calls) of(h *traces.Header, e *traces.Event) *traces.Event {
	if e.Correlation == 0 {
		return nil
	}
	return c[h.Correlate(e)]
}
