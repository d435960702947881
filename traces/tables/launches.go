package tables

import (
	"cmp"
	"fmt"
	"slices"

	"gpt2scope/traces/window"
)

// Launch is an API call and the work of the GPU that it caused, which have its
// correlation id. Times are ns.
type Launch struct {
	Call        string `json:"call"`
	Work        string `json:"work"` // the first kernel's name; it may be a copy or set, as below
	Phase       string `json:"phase,omitempty"`
	Step        string `json:"step,omitempty"` // of the first kernel
	Correlation uint64 `json:"correlation"`
	Time        int64  `json:"time"` // when the call began, after the start of the table; negative if only its work lies in the table
	API         int64  `json:"api"`  // how long the call took

	// Delay is from the end of the call to the start of the first kernel: how long the
	// work was queued. It is 0 if the kernel began before the call returned. (Nsight Systems calls it the queue time.)
	Delay   int64 `json:"delay"`
	Busy    int64 `json:"busy"`    // sum of the durations of the kernels
	Kernels int   `json:"kernels"` // with copies and sets; a graph has many

	// Depth is how many kernels of other launches were launched and not finished when
	// this launch was made: when the call returned, or its first kernel began,
	// whichever was earlier.
	Depth int `json:"depth"`

	// Starved is how long nothing was queued and nothing ran before this launch was made; 0
	// unless Depth is 0.
	Starved int64 `json:"starved"`
}

// LaunchRow sums the launches by one function of the API.
type LaunchRow struct {
	Name     string  `json:"name"`
	Calls    int     `json:"calls"`
	Kernels  int     `json:"kernels"`
	API      int64   `json:"api"`       // ns
	Delay    int64   `json:"delay"`     // ns
	MaxDelay int64   `json:"max_delay"` // ns
	Busy     int64   `json:"busy"`      // ns
	Depth    float64 `json:"depth"`     // mean at launch
	MaxDepth int     `json:"max_depth"`
	Starved  int     `json:"starved"` // launches that found nothing queued
}

// Queue says whether the host or the GPU waited for the other. At a launch that found
// unfinished work the host ran ahead: the new work waited for the earlier one. Before a launch
// that found none the GPU starved.
type Queue struct {
	Launches    int   `json:"launches"`
	Ahead       int   `json:"ahead"`
	AheadTime   int64 `json:"ahead_time"` // ns, sum of the delays of these launches
	Starved     int   `json:"starved"`
	StarvedTime int64 `json:"starved_time"` // ns, in which nothing was queued and nothing ran before them
	WithoutCall int   `json:"without_call"` // kernels, copies and sets that no recorded call launched
}

// QueueOf counts the launches of the table's window whose work began in the table's time.
func (t *Table) QueueOf() (*Queue, []*window.Launch) {
	found, without := t.Window.Launches(t.Time)
	q := &Queue{Launches: len(found), WithoutCall: len(without)}
	for _, l := range found {
		if l.Depth > 0 {
			q.Ahead++
			q.AheadTime += l.Delay()
		} else {
			q.Starved++
			q.StarvedTime += l.Starved(t.Time)
		}
	}
	return q, found
}

// launches fills a table by launch.
func (s *summary) launches(t *Table) error {
	var found []*window.Launch
	t.Queue, found = t.QueueOf()
	if len(found) == 0 {
		return fmt.Errorf("the trace pairs no API call with work of the GPU: it has no calls, or no correlation ids; a table by kernel can be made")
	}
	rows := map[string]*LaunchRow{}
	for _, p := range found {
		l := Launch{Call: p.Call.Name, Work: p.First.Name, Phase: s.Header.PhaseOf(p.First),
			Correlation: p.Call.Correlation, Time: p.Call.Time - s.from,
			API: p.Call.Duration, Delay: p.Delay(), Busy: p.Busy, Kernels: len(p.Ends), Depth: p.Depth,
			Starved: p.Starved(t.Time)}
		if step, ok := s.Header.Step(p.First); ok {
			l.Step = step.Name
		}
		r := rows[l.Call]
		if r == nil {
			r = &LaunchRow{Name: l.Call}
			rows[l.Call] = r
		}
		if l.Depth == 0 {
			r.Starved++
		}
		r.Calls++
		r.Kernels += l.Kernels
		r.API += l.API
		r.Delay += l.Delay
		r.MaxDelay = max(r.MaxDelay, l.Delay)
		r.Busy += l.Busy
		r.Depth += float64(l.Depth) // the sum, until all are known
		r.MaxDepth = max(r.MaxDepth, l.Depth)
		t.Launches = append(t.Launches, l)
	}
	for _, r := range rows {
		r.Depth /= float64(r.Calls)
		t.LaunchRows = append(t.LaunchRows, *r)
	}
	slices.SortFunc(t.LaunchRows, func(a, b LaunchRow) int {
		return cmp.Or(cmp.Compare(b.Busy, a.Busy),
			cmp.Compare(a.Name, b.Name))
	})
	slices.SortStableFunc(t.Launches, func(a, b Launch) int { return cmp.Compare(a.Time, b.Time) })
	return nil
}
