package tables

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpt2scope/traces"
)

// RangeRow sums the ranges of one name, as nvtx_sum and nvtx_gpu_proj_sum of Nsight Systems do.
// A range is projected onto the GPU: its projection is from the start of the first work that was
// launched in it to the end of the last, with the idle time between. Times are ns.
type RangeRow struct {
	Name      string `json:"name"`  // with its domain: "gpt2scope:prefill", ":forward"
	Calls     int    `json:"calls"` // ranges
	Host      int64  `json:"host"`  // sum of their times on the host
	Times     Spread `json:"times"` // of the host's
	Projected int    `json:"projected"`
	GPU       int64  `json:"gpu"` // sum of the projections
	Spans     Spread `json:"spans"`
	Busy      int64  `json:"busy"` // sum of the durations of the work
	Work      int    `json:"work"` // kernels, copies and sets

	host, gpu []int64
}

// byRange fills a table by range, of the whole recording.
func (s *summary) byRange(t *Table) error {
	type projection struct {
		row      *RangeRow
		from, to int64
		n        int
	}
	rows := map[string]*RangeRow{}
	projections := map[uint64]*projection{}
	var order []*projection
	for i := range s.Events {
		e := &s.Events[i]
		if !e.Kind.IsRange() || e.Kind == traces.KindOp || e.Lane.Kind != traces.LaneThread || e.Open || !s.Serves(e) {
			continue
		}
		name := e.Domain + ":" + e.Name
		r := at(rows, name)
		r.Name = name
		r.Calls++
		r.Host += e.Duration
		r.host = append(r.host, e.Duration)
		if e.ID != 0 {
			p := &projection{row: r}
			projections[e.ID] = p
			order = append(order, p)
		}
	}
	if len(rows) == 0 {
		return fmt.Errorf("the recording has no ranges: record NVTX with nsys profile -t cuda,nvtx")
	}
	for i := range s.Events {
		e := &s.Events[i]
		if !e.Kind.IsGPU() || e.Lane.Device != s.Device {
			continue
		}
		for around := range s.Around(e) {
			if p := projections[around.ID]; p != nil {
				if p.n == 0 {
					p.from, p.to = e.Time, e.End()
				}
				p.from, p.to, p.n = min(p.from, e.Time), max(p.to, e.End()), p.n+1
				p.row.Busy += e.Duration
			}
		}
	}
	for _, p := range order {
		if p.n > 0 {
			p.row.Projected++
			p.row.Work += p.n
			p.row.GPU += p.to - p.from
			p.row.gpu = append(p.row.gpu, p.to-p.from)
		}
	}
	for _, r := range rows {
		r.Times, r.Spans = spreadOf(r.host), spreadOf(r.gpu)
		t.Ranges = append(t.Ranges, *r)
	}
	slices.SortFunc(t.Ranges, func(a, b RangeRow) int {
		return cmp.Or(cmp.Compare(b.GPU, a.GPU), cmp.Compare(b.Host, a.Host), strings.Compare(a.Name, b.Name))
	})
	return nil
}
