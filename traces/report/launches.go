package report

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"slices"

	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// launch is an API call and the work that it caused.
type launch struct {
	call   *traces.Event
	start  int64 // of the first piece of work
	end    int64 // of the last one
	pieces int
}

// delay is the queueing delay: from the return of the call to the start of the work;
// 0 where the work began before the call had returned.
func (l *launch) delay() int64 { return max(0, l.start-l.call.End()) }

// queue is what is known of launches, in the order in which their work began.
type queue struct {
	launches []launch
	deepest  int   // launches that had returned, and whose work had not ended
	starved  int64 // ns of the table's time in which there was none
	delays   []int64
	times    []int64 // of the API calls
}

// newQueue pairs the calls of the table's time with the work of its device.
func newQueue(t *traces.Trace, table *tables.Table, c *calls) *queue {
	from := t.Events[0].Time + table.Before
	to := from + table.Wall
	index := map[*traces.Event]int{}
	q := new(queue)
	for i := range t.Events {
		e := &t.Events[i]
		if !e.Kind.IsGPU() || e.Lane.Device != table.Device || e.Time < from || e.Time >= to {
			continue
		}
		call := c.of(e)
		if call == nil {
			continue
		}
		at, ok := index[call]
		if !ok {
			at = len(q.launches)
			index[call] = at
			q.launches = append(q.launches, launch{call: call, start: e.Time, end: e.End()})
		}
		l := &q.launches[at]
		l.start, l.end = min(l.start, e.Time), max(l.end, e.End())
		l.pieces++
	}
	slices.SortStableFunc(q.launches, func(a, b launch) int { return cmp.Compare(a.start, b.start) })
	for i := range q.launches {
		q.delays = append(q.delays, q.launches[i].delay())
		q.times = append(q.times, q.launches[i].call.Duration)
	}
	slices.Sort(q.delays)
	slices.Sort(q.times)
	now, depth := from, 0
	until := func(time int64) {
		time = min(time, to)
		if time > now {
			if depth == 0 {
				q.starved += time - now
			}
			now = time
		}
	}
	for _, d := range q.depth() {
		until(d.time)
		depth = d.depth
		q.deepest = max(q.deepest, depth)
	}
	until(to)
	return q
}

// change is a time at which the depth of the queue became another.
type change struct {
	time  int64
	depth int
}

// depth returns how many launches are queued or run, over time: one more when a call
// has returned or its work begins, whichever is earlier; one less when its work has
// ended.
func (q *queue) depth() []change {
	var all []change
	for i := range q.launches {
		l := &q.launches[i]
		begin := min(l.call.End(), l.start)
		all = append(all, change{begin, 1}, change{max(l.end, begin), -1})
	}
	slices.SortStableFunc(all, func(a, b change) int { return cmp.Compare(a.time, b.time) })
	out := all[:0]
	depth := 0
	for i, c := range all {
		depth += c.depth
		if i+1 < len(all) && all[i+1].time == c.time {
			continue
		}
		out = append(out, change{c.time, depth})
	}
	return out
}

// quantile returns the value below which a part of sorted ones lies.
func quantile(sorted []int64, part float64) int64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(part*float64(len(sorted)-1)+0.5)]
}

// queueJSON is what the script draws. Numbers are as in columns: of launches the time
// at which the work began, after that of the launch before, the queueing
// delay, and the index of the call's name; of the depth the time after the change
// before, and the depth.
type queueJSON struct {
	N        int    `json:"n"`
	Launches string `json:"launches"`
	Changes  int    `json:"changes"`
	Depth    string `json:"depth"`
}

func (q *queue) json(line *timeline) queueJSON {
	var b, d []byte
	last := line.origin
	for i := range q.launches {
		l := &q.launches[i]
		b = binary.AppendUvarint(b, uint64(l.start-last))
		last = l.start
		b = binary.AppendUvarint(b, uint64(l.delay()))
		b = binary.AppendUvarint(b, uint64(line.Names.of(l.call.Name)))
	}
	depth := q.depth()
	last = line.origin
	for _, c := range depth {
		d = binary.AppendUvarint(d, uint64(c.time-last))
		last = c.time
		d = binary.AppendUvarint(d, uint64(c.depth))
	}
	return queueJSON{len(q.launches), base64.StdEncoding.EncodeToString(b), len(depth), base64.StdEncoding.EncodeToString(d)}
}
