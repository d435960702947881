package tables

import (
	"cmp"
	"fmt"
	"slices"

	"gpt2scope/traces/window"
)

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
	for _, l := range found {
		r := at(rows, l.Call.Name)
		r.Name = l.Call.Name
		r.Calls++
		r.Kernels += len(l.Ends)
		r.API += l.Call.Duration
		r.Delay += l.Delay()
		r.MaxDelay = max(r.MaxDelay, l.Delay())
		r.Busy += l.Busy
		r.Depth += float64(l.Depth) // the sum, until all are known
		r.MaxDepth = max(r.MaxDepth, l.Depth)
		if l.Depth == 0 {
			r.Starved++
		}
	}
	for _, r := range rows {
		r.Depth /= float64(r.Calls)
		t.LaunchRows = append(t.LaunchRows, *r)
	}
	slices.SortFunc(t.LaunchRows, func(a, b LaunchRow) int {
		return cmp.Or(cmp.Compare(b.Busy, a.Busy), cmp.Compare(a.Name, b.Name))
	})
	return nil
}
