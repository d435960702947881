package traces

import (
	"cmp"
	"fmt"
	"slices"
)

// Launch is an API call and the work of the GPU that it caused, which have its
// correlation id. Times are ns.
type Launch struct {
	Call        string `json:"call"`
	Work        string `json:"work"` // the first piece's name
	Phase       string `json:"phase,omitempty"`
	Step        string `json:"step,omitempty"` // of the first piece
	Correlation uint64 `json:"correlation"`
	Time        int64  `json:"time"` // when the call began, after the table's begin
	API         int64  `json:"api"`  // how long the call took

	// Delay is from the end of the call to the beginning of the first piece: how
	// long the work was queued. It is 0 where the piece began before the call
	// returned. (Nsight Systems calls it the queue time.)
	Delay  int64 `json:"delay"`
	Busy   int64 `json:"busy"`   // sum of the durations of the pieces
	Pieces int   `json:"pieces"` // kernels, copies, sets; a graph has many

	// Depth is how many pieces of other launches were launched and not finished when
	// this launch was made: when the call returned, or its first piece began,
	// whichever was earlier.
	Depth int `json:"depth"`

	// Starved is for how long the GPU had nothing to do before this work, where
	// Depth is 0.
	Starved int64 `json:"starved"`
}

// LaunchRow sums the launches by one function of the API.
type LaunchRow struct {
	Name     string  `json:"name"`
	Calls    int     `json:"calls"`
	Pieces   int     `json:"pieces"`
	API      int64   `json:"api"`      // ns
	Delay    int64   `json:"delay"`    // ns
	MaxDelay int64   `json:"maxDelay"` // ns
	Busy     int64   `json:"busy"`     // ns
	Depth    float64 `json:"depth"`    // mean at launch
	MaxDepth int     `json:"maxDepth"`
	Starved  int     `json:"starved"` // launches that found nothing queued
}

// Queue says who waited for whom. The host ran ahead at a launch that found other
// work still to be done: its own then waited for that. The GPU starved before a
// launch that found none.
type Queue struct {
	Launches    int   `json:"launches"`
	Ahead       int   `json:"ahead"`
	AheadTime   int64 `json:"aheadTime"` // ns, sum of the delays of these launches
	Starved     int   `json:"starved"`
	StarvedTime int64 `json:"starvedTime"` // ns, in which the GPU had nothing to do before them
	WithoutCall int   `json:"withoutCall"` // pieces that no recorded call launched
}

// pair is a call and its work.
type pair struct {
	call, first *Event
	at          int64 // when it was launched
	busy        int64
	pieces      int
	ends        []int64
	device      int32
}

// pairs finds them by correlation id, in the order in which they were launched.
// Work on several devices by one call is a pair for each. What no call launched is
// returned apart.
func pairs(events []Event, process func(*Event) int64) (found []*pair, without []*Event) {
	calls := map[correlation]*Event{}
	for i := range events {
		if e := &events[i]; e.Kind.IsCall() && e.Correlation != 0 {
			key := correlation{process(e), e.Correlation}
			if calls[key] == nil {
				calls[key] = e
			}
		}
	}
	type key struct {
		call   *Event
		device int32
	}
	byCall := map[key]*pair{}
	for i := range events {
		e := &events[i]
		if !e.Kind.IsGPU() {
			continue
		}
		call := calls[correlation{process(e), e.Correlation}]
		if call == nil || e.Correlation == 0 {
			without = append(without, e)
			continue
		}
		k := key{call, e.Lane.Device}
		p := byCall[k]
		if p == nil {
			p = &pair{call: call, first: e, at: min(call.End(), e.Time), device: e.Lane.Device}
			byCall[k] = p
			found = append(found, p)
		}
		p.busy += e.Duration
		p.pieces++
		p.ends = append(p.ends, e.End())
	}
	slices.SortStableFunc(found, func(a, b *pair) int { return cmp.Compare(a.at, b.at) })
	return found, without
}

// QueueDepth returns counters that say how much work of each device was launched
// and not finished, from each time at which that changed. Work counts from the end
// of the call that launched it, or its own beginning where that is earlier; each
// kernel of a graph counts. It returns none where the events have such counters,
// or pair no call with work. Events must be in the order of [Compare].
func QueueDepth(events []Event) []Event {
	for i := range events {
		if events[i].Kind == KindCounter && events[i].Name == queueDepth {
			return nil
		}
	}
	found, _ := pairs(events, func(e *Event) int64 { return e.Lane.Process })
	type change struct {
		time, by int64
		lane     Lane
	}
	var changes []change
	for _, p := range found {
		lane := Lane{Kind: LaneCounter, Device: p.device, Process: p.first.Lane.Process}
		changes = append(changes, change{p.at, int64(p.pieces), lane})
		for _, end := range p.ends {
			changes = append(changes, change{end, -1, lane})
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.time, b.time) })
	depth := map[Lane]int64{}
	last := map[Lane]int{} // index of a lane's latest counter
	var counters []Event
	for _, c := range changes {
		depth[c.lane] += c.by
		if i, ok := last[c.lane]; ok && counters[i].Time == c.time {
			counters[i].Value = float64(depth[c.lane])
			continue
		}
		e := Plain(KindCounter, c.lane, queueDepth, c.time, 0)
		e.Value = float64(depth[c.lane])
		last[c.lane] = len(counters)
		counters = append(counters, e)
	}
	return counters
}

// queueDepth is the counter's name.
const queueDepth = "queue depth"

// launches fills a table by launch.
func (s *summary) launches(t *Table) error {
	found, without := pairs(s.Events, s.process)
	found = slices.DeleteFunc(found, func(p *pair) bool { return p.device != s.device })
	if len(found) == 0 {
		return fmt.Errorf("the trace pairs no API call with work of the GPU: it has no calls, or no correlation ids; a table by kernel can be made")
	}
	var ends []int64
	for _, p := range found {
		ends = append(ends, p.ends...)
	}
	slices.Sort(ends)
	rows := map[string]*LaunchRow{}
	launched, done := 0, 0 // pieces
	t.Queue = &Queue{}
	for _, e := range without {
		if e.Lane.Device == s.device && e.Time >= s.from && e.Time < s.to {
			t.Queue.WithoutCall++
		}
	}
	for _, p := range found {
		for done < len(ends) && ends[done] <= p.at {
			done++
		}
		depth := launched - min(done, launched)
		launched += p.pieces
		if p.call.Time < s.from || p.call.Time >= s.to {
			continue
		}
		l := Launch{Call: p.call.Name, Work: p.first.Name, Phase: s.phase(p.first), Correlation: p.call.Correlation, Time: p.call.Time - s.from,
			API: p.call.Duration, Delay: max(0, p.first.Time-p.call.End()), Busy: p.busy, Pieces: p.pieces, Depth: depth}
		if step, ok := s.Header.Step(p.first); ok {
			l.Step = step.Name
		}
		r := rows[l.Call]
		if r == nil {
			r = &LaunchRow{Name: l.Call}
			rows[l.Call] = r
		}
		if depth == 0 {
			since := s.from
			if done > 0 {
				since = max(since, ends[done-1])
			}
			l.Starved = max(0, p.first.Time-since)
			r.Starved++
			t.Queue.Starved++
			t.Queue.StarvedTime += l.Starved
		} else {
			t.Queue.Ahead++
			t.Queue.AheadTime += l.Delay
		}
		t.Queue.Launches++
		r.Calls++
		r.Pieces += l.Pieces
		r.API += l.API
		r.Delay += l.Delay
		r.MaxDelay = max(r.MaxDelay, l.Delay)
		r.Busy += l.Busy
		r.Depth += float64(depth) // the sum, until all are known
		r.MaxDepth = max(r.MaxDepth, depth)
		t.Launches = append(t.Launches, l)
	}
	for _, r := range rows {
		r.Depth /= float64(r.Calls)
		t.LaunchRows = append(t.LaunchRows, *r)
	}
	slices.SortFunc(t.LaunchRows, func(a, b LaunchRow) int { return cmp.Or(cmp.Compare(b.Busy, a.Busy), cmp.Compare(a.Name, b.Name)) })
	slices.SortStableFunc(t.Launches, func(a, b Launch) int { return cmp.Compare(a.Time, b.Time) })
	return nil
}
