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

	// Depth is how many kernels, copies and sets of the device were launched earlier and unfinished at At; those of a
	// graph all count. Since is the end of the last work that was finished by then; math.MinInt64 if there was none.
	// Work without a recorded call counts from its start.
	Depth int
	Since int64
}

// Starved returns how many ns of x nothing was queued and nothing ran before this launch was
// made, since earlier work ended; 0 unless Depth is 0.
func (l *Launch) Starved(x Interval) int64 {
	if l.Depth > 0 {
		return 0
	}
	return max(0, min(l.At, x.To)-max(l.Since, x.From))
}

// Delay is the queueing delay of the launch's first work.
func (l *Launch) Delay() int64 { return Delay(l.Call, l.First) }

// Delay is the time from the end of a call to the start of its work, in ns; 0 if the work began
// before the call returned. (Nsight Systems calls it the queue time.)
func Delay(call, work *traces.Event) int64 { return max(0, work.Time-call.End()) }

// Launches returns the launches of the window's device whose work began in x, in order of
// launch, and the work that began in x without a recorded call.
func (w *Window) Launches(x Interval) (found []*Launch, without []*traces.Event) {
	all, without := launches(w.Work, w.CallOf)
	outside := func(e *traces.Event) bool { return e.Time < x.From || e.Time >= x.To }
	return slices.DeleteFunc(all, func(l *Launch) bool { return outside(l.First) }), slices.DeleteFunc(without, outside)
}

// launches pairs the work of a device, which is in order, with its calls.
func launches(work []*traces.Event, callOf func(*traces.Event) *traces.Event) (found []*Launch,
	without []*traces.Event) {
	byCall := map[*traces.Event]*Launch{}
	var ends []int64
	for _, e := range work {
		ends = append(ends, e.End())
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
	}
	slices.SortStableFunc(found, func(a, b *Launch) int { return cmp.Compare(a.At, b.At) })
	slices.Sort(ends)
	launched, others, done := 0, 0, 0
	for _, l := range found {
		for others < len(without) && without[others].Time <= l.At {
			others++
		}
		for done < len(ends) && ends[done] <= l.At {
			done++
		}
		if done > 0 {
			l.Since = ends[done-1]
		}
		l.Depth = max(0, launched+others-done)
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
// launched it, or from its own start if that is earlier or no call is recorded. Each kernel of
// a graph counts. Depths returns nil if no call is paired with work.
func (w *Window) Depths() []Depth { return depths(launches(w.Work, w.CallOf)) }

// DepthOver returns the mean depth over x, weighted by time, and the greatest depth within it.
func (w *Window) DepthOver(x Interval) (mean float64, most int) {
	weighted, at, depth := 0.0, x.From, 0
	for _, d := range append(w.Depths(), Depth{Time: x.To}) {
		if to := min(d.Time, x.To); to > at {
			weighted += float64(depth) * float64(to-at)
			most, at = max(most, depth), to
		}
		depth = d.Work
	}
	return weighted / float64(max(1, x.Length())), most
}

func depths(found []*Launch, without []*traces.Event) []Depth {
	if len(found) == 0 {
		return nil
	}
	var changes []Depth
	for _, e := range without {
		changes = append(changes, Depth{e.Time, 1}, Depth{e.End(), -1})
	}
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
	index := t.Index()
	var counters []traces.Event
	for _, lane := range lanes {
		for _, d := range depths(launches(work[lane], index.CallOf)) {
			e := traces.Plain(traces.KindCounter, lane, queueDepth, d.Time, 0)
			e.Value = float64(d.Work)
			counters = append(counters, e)
		}
	}
	traces.Sort(counters)
	return counters
}
