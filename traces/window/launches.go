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
	Work        int32 // kernels, copies and sets

	// Depth is how many kernels, copies and sets of the device were launched earlier and unfinished at At; those of a
	// graph all count. Since is the end of the last work that was finished by then; math.MinInt64 if there was none.
	// Work without a recorded call counts from its start.
	Depth int32
	Since int64
}

// At is when it was launched: when the call returned, or its first work began, whichever was earlier.
func (l *Launch) At() int64 { return min(l.Call.End(), l.First.Time) }

// Starved returns before how many launches nothing was queued and nothing ran, and for how many ns of x, since earlier
// work ended.
func Starved(launches []Launch, x Interval) (n int, ns int64) {
	for i := range launches {
		if l := &launches[i]; l.Depth == 0 {
			n, ns = n+1, ns+max(0, min(l.At(), x.To)-max(l.Since, x.From))
		}
	}
	return n, ns
}

// Delay is the time from the end of a call to the start of its work, in ns; 0 if the work began
// before the call returned. (Nsight Systems calls it the queue time.)
func Delay(call, work *traces.Event) int64 { return max(0, work.Time-call.End()) }

// Launches returns the launches of the window's device whose work began in x, in order of
// launch, and how much work began in x without a recorded call.
func (w *Window) Launches(x Interval) (found []Launch, without int) {
	q := w.queue()
	outside := func(e *traces.Event) bool { return e.Time < x.From || e.Time >= x.To }
	for _, e := range q.without {
		if !outside(e) {
			without++
		}
	}
	isOutside := func(l Launch) bool { return outside(l.First) }
	if found = q.launches; slices.ContainsFunc(found, isOutside) {
		found = slices.DeleteFunc(slices.Clone(found), isOutside)
	}
	return found, without
}

// queue is what was launched on a device.
type queue struct {
	launches []Launch        // in order of At
	without  []*traces.Event // work whose call is not recorded
	ends     []int64         // of all work, sorted
}

// queue returns that of the window's device, which is found once.
func (w *Window) queue() *queue {
	if w.queued == nil {
		w.queued = newQueue(w.Trace, w.Work, w.Index)
	}
	return w.queued
}

// newQueue pairs the work of a device of a trace, which is in order, with its calls.
func newQueue(t *traces.Trace, work []*traces.Event, index *traces.Index) *queue {
	q := &queue{ends: make([]int64, 0, len(work)), launches: make([]Launch, 0, min(len(work), t.Calls))}
	of := make([]int32, len(t.Events)) // by the place of a call: the number of its launch, from 1
	for _, e := range work {
		q.ends = append(q.ends, e.End())
		at, ok := index.CallAt(e)
		if !ok {
			q.without = append(q.without, e)
			continue
		}
		if of[at] == 0 {
			q.launches = append(q.launches, Launch{Call: &t.Events[at], First: e})
			of[at] = int32(len(q.launches))
		}
		q.launches[of[at]-1].Work++
	}
	slices.SortStableFunc(q.launches, func(a, b Launch) int { return cmp.Compare(a.At(), b.At()) })
	slices.Sort(q.ends)
	q.depths(func(int64, int) {})
	return q
}

// depths notes the depth at each launch, and calls each with the amount of launched and unfinished work from a time on,
// for each time at which it changes.
// Work counts from the end of the call that launched it, or from its own start if that is earlier or no call is
// recorded. Each kernel of a graph counts. Nothing is known if no call is paired with work.
func (q *queue) depths(each func(time int64, work int)) {
	if len(q.launches) == 0 {
		return
	}
	launched, others, done, depth, since := 0, 0, 0, 0, int64(math.MinInt64)
	for done < len(q.ends) { // nothing begins after the last end
		now := q.ends[done]
		if launched < len(q.launches) {
			now = min(now, q.launches[launched].At())
		}
		if others < len(q.without) {
			now = min(now, q.without[others].Time)
		}
		for ; others < len(q.without) && q.without[others].Time == now; others++ {
			depth++
		}
		for ; done < len(q.ends) && q.ends[done] == now; done++ {
			depth--
			since = now
		}
		for ; launched < len(q.launches) && q.launches[launched].At() == now; launched++ {
			l := &q.launches[launched]
			l.Depth, l.Since = int32(max(0, depth)), since
			depth += int(l.Work)
		}
		each(now, depth)
	}
}

// DepthOver returns the mean depth over x, weighted by time, and the greatest depth within it.
func (w *Window) DepthOver(x Interval) (mean float64, most int) {
	weighted, at, depth := 0.0, x.From, 0
	until := func(time int64, next int) {
		if to := min(time, x.To); to > at {
			weighted += float64(depth) * float64(to-at)
			most, at = max(most, depth), to
		}
		depth = next
	}
	w.queue().depths(until)
	until(x.To, 0)
	return weighted / float64(max(1, x.Length())), most
}

// queueDepth is the counter's name.
const queueDepth = "queue depth"

// QueueDepth calls each with the depths as counters, for one device and process of a trace after another, unless the
// trace has such counters already.
func QueueDepth(t *traces.Trace, each func(traces.Event)) {
	work := map[traces.Lane][]*traces.Event{}
	var lanes []traces.Lane
	for i := range t.Events {
		switch e := &t.Events[i]; {
		case e.Kind == traces.KindCounter && e.Name == queueDepth:
			return
		case e.Kind.IsGPU():
			lane := traces.Lane{Kind: traces.LaneCounter, Device: e.Lane.Device, Process: e.Lane.Process}
			if work[lane] == nil {
				lanes = append(lanes, lane)
			}
			work[lane] = append(work[lane], e)
		}
	}
	index := t.Index()
	for _, lane := range lanes {
		e := traces.Plain(traces.KindCounter, lane, queueDepth, 0, 0)
		newQueue(t, work[lane], index).depths(func(time int64, work int) {
			e.Time, e.Value = time, float64(work)
			each(e)
		})
	}
}
