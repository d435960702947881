package tables

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gpt2scope/traces"
	"gpt2scope/traces/window"
)

// ProcessRow is the work of a process on a device. Times are ns. From and To tell how processes
// lie to each other: where one begins late, the others wait for it.
type ProcessRow struct {
	Process int64 `json:"process"`
	Rank    *int  `json:"rank"` // of a distributed program; nil if the recording does not say it
	Device  int32 `json:"device"`
	Passes  int   `json:"passes"`
	From    int64 `json:"from"` // its first work, after the first of all
	To      int64 `json:"to"`   // the end of its last work
	Kernels int   `json:"kernels"`
	Busy    int64 `json:"busy"`   // time in which a kernel, copy or set of it runs
	Kernel  int64 `json:"kernel"` // sum of the durations of its kernels
	Copies  int64 `json:"copies"` // sum of the durations of its copies and sets
	Shared  int64 `json:"shared"` // time in which work of another process runs on the device too
	Calls   int   `json:"calls"`  // of the API
	Waited  int64 `json:"waited"` // in calls that wait for the GPU

	work []window.Interval
}

// byProcess fills a table by process. It has the work of all devices.
func (s *summary) byProcess(t *Table) error {
	type key struct {
		process int64
		device  int32
	}
	rows := map[key]*ProcessRow{}
	hosts := map[int64]*ProcessRow{} // what the host of a process did
	first := int64(0)
	for i := range s.Events {
		e := &s.Events[i]
		p := s.Header.ProcessOf(e)
		h := at(hosts, p)
		switch {
		case e.Kind.IsCall():
			h.Calls++
			if e.Wait != traces.WaitNone {
				h.Waited += e.Duration
			}
		case e.Kind == traces.KindPass && e.Lane.Kind == traces.LaneThread:
			h.Passes++
		case e.Kind.IsGPU():
			if len(rows) == 0 {
				first = e.Time
			}
			r := at(rows, key{p, e.Lane.Device})
			if len(r.work) == 0 {
				r.Process, r.Device, r.From = p, e.Lane.Device, e.Time
			}
			r.To = max(r.To, e.End())
			r.work = window.Join(r.work, window.Interval{From: e.Time, To: e.End()})
			if e.Kind == traces.KindKernel || e.Kind == traces.KindGraph {
				r.Kernels++
				r.Kernel += e.Duration
			} else {
				r.Copies += e.Duration
			}
		}
	}
	if len(rows) == 0 {
		return fmt.Errorf("the recording has no work of a GPU")
	}
	for _, r := range rows {
		r.Busy = window.Length(r.work)
		var others []window.Interval
		for _, o := range rows {
			if o != r && o.Device == r.Device {
				others = append(others, o.work...)
			}
		}
		others = window.Union(others)
		for _, x := range r.work {
			r.Shared += window.Covered(others, x)
		}
	}
	for _, r := range rows {
		h := hosts[r.Process]
		r.Passes, r.Calls, r.Waited = h.Passes, h.Calls, h.Waited
		r.From, r.To = r.From-first, r.To-first
		if rank, ok := s.Header.RankOf(r.Process); ok {
			r.Rank = &rank
		}
		t.Processes = append(t.Processes, *r)
	}
	rank := func(r ProcessRow) int { // those without one come last
		if r.Rank == nil {
			return math.MaxInt
		}
		return *r.Rank
	}
	slices.SortFunc(t.Processes, func(a, b ProcessRow) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Process, b.Process), cmp.Compare(a.Device, b.Device))
	})
	return nil
}
