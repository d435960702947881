package traces

import (
	"cmp"
	"slices"
	"sort"
)

// interval is a time from one ns to another.
type interval struct{ from, to int64 }

// union sorts intervals and joins those that touch.
func union(list []interval) []interval {
	slices.SortFunc(list, func(a, b interval) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	out := list[:0]
	for _, x := range list {
		if n := len(out); n > 0 && x.from <= out[n-1].to {
			out[n-1].to = max(out[n-1].to, x.to)
		} else {
			out = append(out, x)
		}
	}
	return out
}

// covered returns how much of the time of x a union covers.
func covered(u []interval, x interval) int64 {
	i := sort.Search(len(u), func(i int) bool { return u[i].to > x.from })
	sum := int64(0)
	for ; i < len(u) && u[i].from < x.to; i++ {
		sum += min(u[i].to, x.to) - max(u[i].from, x.from)
	}
	return sum
}

// length returns how long the intervals are, which may overlap.
func length(list []interval) int64 {
	sum := int64(0)
	for _, x := range union(list) {
		sum += x.to - x.from
	}
	return sum
}

// pass is one pass of the model that is no warm-up.
type pass struct {
	event *Event

	// time is the part of the wall time that is the pass': from the end of the work
	// of the pass before it (of the first, from its own begin on the host) to the end
	// of its own work. What the device waits before the work of a pass so counts for
	// that pass, as in the stage table.
	time interval
	busy int64 // of it, with work on the device
}

// passList is what a trace has of passes that are no warm-up.
type passList struct {
	*Trace
	device int32 // whose work it is, -1 for the CPU
	list   []pass
	ranges ranges
	index  map[*Event]int // of a pass, in list
	work   []*Event       // on the device, in order: kernels, copies, sets, graphs; on the CPU the steps of threads
}

// passesOf finds the passes of a trace and the work of a device, -1 for the first
// that worked.
func passesOf(t *Trace, device int32) *passList {
	p := &passList{Trace: t, device: device, ranges: rangesOf(t.Events), index: map[*Event]int{}}
	warm := map[Lane]int64{} // when the warm-up of a thread ends
	var cpu []*Event
	for i := range t.Events {
		e := &t.Events[i]
		switch {
		case e.Kind.IsGPU():
			if p.device < 0 {
				p.device = e.Lane.Device
			}
			if e.Lane.Device == p.device {
				p.work = append(p.work, e)
			}
		case e.Lane.Kind != LaneThread:
		case e.Kind == KindRange && isWarmUp(e):
			warm[e.Lane] = max(warm[e.Lane], e.End())
		case e.Kind == KindStep:
			cpu = append(cpu, e)
		case e.Kind == KindPass && !e.Open:
			if end, ok := warm[e.Lane]; ok && e.Time < end {
				continue
			}
			p.index[e] = len(p.list)
			p.list = append(p.list, pass{event: e})
		}
	}
	if len(p.work) == 0 {
		p.device, p.work = -1, cpu
	}
	p.divide()
	return p
}

// divide gives each pass its part of the wall time.
func (p *passList) divide() {
	ends := make([]int64, len(p.list))
	for i, l := range p.list {
		ends[i] = l.event.Time
		if p.device < 0 {
			ends[i] = l.event.End()
		}
	}
	busy := make([]interval, 0, len(p.work))
	for _, e := range p.work {
		busy = append(busy, interval{e.Time, e.End()})
		if owner := p.ranges.pass(e); owner != nil {
			if i, ok := p.index[owner]; ok {
				ends[i] = max(ends[i], e.End())
			}
		}
	}
	busy = union(busy)
	at := int64(0)
	for i := range p.list {
		l := &p.list[i]
		if i == 0 {
			at = l.event.Time
		}
		l.time = interval{at, max(at, ends[i])}
		l.busy = covered(busy, l.time)
		at = l.time.to
	}
}

// during returns the pass in whose part of the wall time another lies.
func (p *passList) during(x interval) *Event {
	i := sort.Search(len(p.list), func(i int) bool { return p.list[i].time.to >= x.to })
	if i == len(p.list) || x.from < p.list[i].time.from {
		return nil
	}
	return p.list[i].event
}

// sweep goes over pieces of work, in order, as [Summarize] does: each has the part of
// the time from one moment to another in which it runs and nothing that began before
// it still does. gap is the idle time just before that part. What runs at neither
// moment nor between is left out; the idle time after the last is returned.
func sweep(work []*Event, from, to int64, visit func(e *Event, gap, part interval)) (rest interval) {
	now := from
	for _, e := range work {
		if e.End() <= from && e.Time < from || e.Time >= to {
			continue
		}
		begin := max(now, e.Time)
		end := max(begin, min(e.End(), to))
		visit(e, interval{now, begin}, interval{begin, end})
		now = end
	}
	return interval{now, max(now, to)}
}

// stepKey names the step of a kind of pass; "" is the work of no step.
type stepKey struct{ phase, name string }

// stepTimes returns, for each step, the times that were its own in each pass that
// ran it, as sweep divides them; and how many pieces of work of a step the source
// gives no pass. Steps come in the order of the plans.
func (p *passList) stepTimes() (order []stepKey, times map[stepKey][]int64, lost int) {
	if len(p.list) == 0 {
		return nil, nil, 0
	}
	type at struct {
		key  stepKey
		pass int
	}
	var found []at
	sums := map[at]int64{}
	sweep(p.work, p.list[0].time.from, maxTime, func(e *Event, _, part interval) {
		step, ok := p.Header.Step(e)
		owner := p.ranges.pass(e)
		if owner == nil && !ok {
			owner = p.during(part) // work of no pass
		}
		switch {
		case owner == nil && ok:
			lost++
		case owner == nil || e.Open:
		default:
			i, measured := p.index[owner]
			if !measured {
				return
			}
			k := at{stepKey{p.phase(owner), step.Name}, i}
			if _, ok := sums[k]; !ok {
				found = append(found, k)
			}
			sums[k] += part.to - part.from
		}
	})
	times = map[stepKey][]int64{}
	for _, k := range found {
		times[k.key] = append(times[k.key], sums[k])
	}
	seen := map[stepKey]bool{}
	add := func(key stepKey) {
		if times[key] != nil && !seen[key] {
			seen[key] = true
			order = append(order, key)
		}
	}
	for _, plan := range p.Header.Plans {
		for _, step := range plan.Steps {
			add(stepKey{plan.Phase, step.Name})
		}
		add(stepKey{plan.Phase, ""})
	}
	for _, k := range found { // of passes that name no plan
		add(k.key)
	}
	return order, times, lost
}
