package tables

import (
	"cmp"
	"errors"
	"slices"

	"gpt2scope/traces"
)

// MemoryRow is a counter of a process of the memory that is held on a device, in bytes, over the whole recording.
type MemoryRow struct {
	Name    string  `json:"name"` // one of traces.MemoryAllocated, MemoryReserved and MemoryUsed
	Device  int32   `json:"device"`
	Process int64   `json:"process,omitempty"` // 0 if it is not known
	First   int64   `json:"first"`
	Last    int64   `json:"last"`
	Peak    int64   `json:"peak"`
	PeakAt  int64   `json:"peak_at"`           // ns after the first event
	During  string  `json:"during,omitempty"`  // the innermost range, operator or call that was open then and began last
	Percent float64 `json:"percent,omitempty"` // the peak, of the device's memory; 0 if that is not known
	Changes int     `json:"changes"`

	value int64
}

// byMemory fills a table by counter of memory. It has those of all devices.
func (s *summary) byMemory(t *Table) error {
	type key struct {
		device  int32
		process int64
		name    string
	}
	rows := map[key]*MemoryRow{}
	for i := range s.Events {
		e := &s.Events[i]
		if e.Kind != traces.KindCounter || !traces.IsMemory(e.Name) {
			continue
		}
		process, v := s.Header.ProcessOf(e), int64(e.Value)
		r := at(rows, key{e.Lane.Device, process, e.Name})
		if r.Name == "" {
			*r = MemoryRow{Name: e.Name, Device: e.Lane.Device, Process: process, First: v, value: v, Peak: v, PeakAt: e.Time}
		}
		if v != r.value {
			r.Changes++
		}
		if v > r.Peak {
			r.Peak, r.PeakAt = v, e.Time
		}
		r.value, r.Last = v, v
	}
	if len(rows) == 0 {
		return errors.New("the recording has no memory over time; nsys profile --cuda-memory-usage=true records it, and " +
			"PyTorch's profiler with profile_memory=True")
	}
	for _, r := range rows {
		for i := range s.Events {
			e := &s.Events[i]
			if e.Time > r.PeakAt {
				break
			}
			own := r.Process == 0 || r.Process == s.Header.ProcessOf(e)
			if own && (e.Kind.IsRange() || e.Kind.IsCall()) && e.End() > r.PeakAt && e.Lane.Device < 0 {
				r.During = e.Name
			}
		}
		r.PeakAt -= s.Events[0].Time
		if all := s.Header.Device(r.Device).Memory; all > 0 {
			r.Percent = 100 * float64(r.Peak) / float64(all)
		}
		t.Memory = append(t.Memory, *r)
	}
	slices.SortFunc(t.Memory, func(a, b MemoryRow) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(b.Peak, a.Peak), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Process, b.Process))
	})
	return nil
}
