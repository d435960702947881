package report

import (
	"cmp"
	"slices"
	"strings"

	"gpt2scope/traces"
)

// gap is a time in which the device did nothing. Times are those of the trace.
type gap struct {
	From, To   int64
	Parts      []part // why, in order of time
	Prev, Next *traces.Event
}

// part is a part of a gap that has one cause.
type part struct {
	Cause string
	NS    int64
}

// correlation is an id in its process.
type correlation struct {
	process int64
	id      uint64
}

// calls finds API calls by correlation id, the outermost first.
type calls struct {
	h     *traces.Header
	byID  map[correlation]*traces.Event
	syncs [][2]int64 // when the host sat in a synchronising call, apart and in order
}

func newCalls(t *traces.Trace) *calls {
	c := &calls{h: t.Header, byID: map[correlation]*traces.Event{}}
	for i := range t.Events {
		e := &t.Events[i]
		if !e.Kind.IsCall() {
			continue
		}
		if key := c.key(e); e.Correlation != 0 && c.byID[key] == nil {
			c.byID[key] = e
		}
		if !strings.Contains(e.Name, "Synchronize") || e.Duration == 0 {
			continue
		}
		if n := len(c.syncs); n > 0 && e.Time <= c.syncs[n-1][1] {
			c.syncs[n-1][1] = max(c.syncs[n-1][1], e.End())
		} else {
			c.syncs = append(c.syncs, [2]int64{e.Time, e.End()})
		}
	}
	return c
}

func (c *calls) key(e *traces.Event) correlation {
	if e.Lane.Process == 0 {
		return correlation{c.h.Process, e.Correlation}
	}
	return correlation{e.Lane.Process, e.Correlation}
}

// of returns the call that caused work, nil where it is not known.
func (c *calls) of(e *traces.Event) *traces.Event {
	if e.Correlation == 0 {
		return nil
	}
	return c.byID[c.key(e)]
}

// workOf returns what the table is of: the work of its device, or the steps of
// threads, in order.
func workOf(t *traces.Trace, table *traces.Table) []*traces.Event {
	var work []*traces.Event
	for i := range t.Events {
		e := &t.Events[i]
		if table.Device >= 0 && e.Kind.IsGPU() && e.Lane.Device == table.Device ||
			table.Device < 0 && e.Kind == traces.KindStep && e.Lane.Kind == traces.LaneThread {
			work = append(work, e)
		}
	}
	return work
}

// findGaps returns the gaps of the table's time, in order, split as
// [traces.Summarize] splits idle time.
func findGaps(t *traces.Trace, table *traces.Table, c *calls) []gap {
	from := t.Events[0].Time + table.Before
	to := from + table.Wall
	var gaps []gap
	var last *traces.Event
	now := from
	for _, e := range workOf(t, table) {
		if e.End() <= from && e.Time < from || e.Time >= to {
			continue
		}
		if e.Time > now {
			gaps = append(gaps, gap{From: now, To: e.Time, Parts: c.causes(now, e.Time, e), Prev: last, Next: e})
			now = e.Time
		}
		if e.End() > now {
			now, last = min(e.End(), to), e
		}
	}
	if now < to {
		gaps = append(gaps, gap{From: now, To: to, Parts: c.waited(now, to), Prev: last})
	}
	return gaps
}

// causes says why nothing ran before a piece of work.
func (c *calls) causes(from, to int64, next *traces.Event) []part {
	call := c.of(next)
	switch {
	case next.Kind.IsRange(): // of the CPU
		return []part{{traces.IdleHost, to - from}}
	case call == nil:
		return []part{{traces.IdleUnknown, to - from}}
	case call.End() <= from:
		return []part{{traces.IdleDependency, to - from}}
	}
	asked := min(max(call.Time, from), to)
	parts := c.waited(from, asked)
	if to > asked {
		parts = append(parts, part{traces.IdleLaunch, to - asked})
	}
	return parts
}

// waited splits time in which the host had asked for nothing.
func (c *calls) waited(from, to int64) []part {
	var inSync int64
	i, _ := slices.BinarySearchFunc(c.syncs, from, func(s [2]int64, t int64) int { return cmp.Compare(s[1], t) })
	for ; i < len(c.syncs) && c.syncs[i][0] < to; i++ {
		inSync += max(0, min(c.syncs[i][1], to)-max(c.syncs[i][0], from))
	}
	var parts []part
	if inSync > 0 {
		parts = append(parts, part{traces.IdleSync, inSync})
	}
	if late := to - from - inSync; late > 0 {
		parts = append(parts, part{traces.IdleHost, late})
	}
	return parts
}

// largest returns the n longest gaps, longest first.
func largest(gaps []gap, n int) []gap {
	sorted := slices.Clone(gaps)
	slices.SortStableFunc(sorted, func(a, b gap) int { return cmp.Compare(b.To-b.From, a.To-a.From) })
	return sorted[:min(n, len(sorted))]
}
