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
		if !e.Kind.IsRange() || e.Kind == traces.KindOp || e.Lane.Kind != traces.LaneThread || e.Open {
			continue
		}
		name := e.Domain + ":" + e.Name
		r := rows[name]
		if r == nil {
			r = &RangeRow{Name: name}
			rows[name] = r
		}
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
		at := s.Parent(e)
		for range 100 { // damage could make a ring of parents
			if at == nil {
				break
			}
			if p := projections[at.ID]; p != nil {
				if p.n == 0 {
					p.from, p.to = e.Time, e.End()
				}
				p.from, p.to, p.n = min(p.from, e.Time), max(p.to, e.End()), p.n+1
				p.row.Busy += e.Duration
			}
			at = s.Parent(at)
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

// ExecRow sums the kernels of one name that one API function of a thread launched, as
// cuda_kern_exec_sum of Nsight Systems does. Times are ns.
type ExecRow struct {
	Process int64  `json:"process"`
	Thread  int64  `json:"thread"`
	Call    string `json:"call"`
	Name    string `json:"name"`
	Calls   int    `json:"calls"`
	API     Spread `json:"api"` // durations of the calls; of a graph, its call counts for each kernel

	// Queued is from the end of a call to the start of its kernel. Kernels that began before their
	// call returned were not queued: they are not in Waited.
	Queued Spread `json:"queued"`
	Waited int    `json:"waited"`
	Kernel Spread `json:"kernel"`
	Total  Spread `json:"total"` // from the begin of a call to the end of its kernel, or of the call if that is later

	total                      int64
	api, queued, kernel, whole []int64
}

// byExec fills a table by execution: call, queue and kernel.
func (s *summary) byExec(t *Table) error {
	type key struct {
		process, thread int64
		call, name      string
	}
	rows := map[key]*ExecRow{}
	for _, e := range s.Work {
		call := s.CallOf(e)
		if e.Kind != traces.KindKernel || call == nil {
			continue
		}
		k := key{s.Header.ProcessOf(call), call.Lane.ID, call.Name, e.Name}
		r := rows[k]
		if r == nil {
			r = &ExecRow{Process: k.process, Thread: k.thread, Call: k.call, Name: k.name}
			rows[k] = r
		}
		r.Calls++
		r.api, r.kernel = append(r.api, call.Duration), append(r.kernel, e.Duration)
		if wait := e.Time - call.End(); wait >= 0 {
			r.queued = append(r.queued, wait)
			r.Waited++
		}
		whole := max(e.End(), call.End()) - call.Time
		r.whole, r.total = append(r.whole, whole), r.total+whole
	}
	if len(rows) == 0 {
		return fmt.Errorf("the trace pairs no API call with a kernel: it has no calls, or no correlation ids; a table by kernel can be made")
	}
	for _, r := range rows {
		r.API, r.Queued, r.Kernel, r.Total = spreadOf(r.api), spreadOf(r.queued), spreadOf(r.kernel), spreadOf(r.whole)
		t.Executions = append(t.Executions, *r)
	}
	slices.SortFunc(t.Executions, func(a, b ExecRow) int {
		return cmp.Or(cmp.Compare(b.total, a.total), strings.Compare(a.Name, b.Name), strings.Compare(a.Call, b.Call), cmp.Compare(a.Process, b.Process), cmp.Compare(a.Thread, b.Thread))
	})
	return nil
}

// SequenceRow is a sequence of kernels that recurs on a stream. Times are ns.
type SequenceRow struct {
	Kernels []string `json:"kernels"`
	Count   int      `json:"count"` // without overlap
	Busy    int64    `json:"busy"`  // sum of the durations of the kernels
	Span    int64    `json:"span"`  // from the start of the first kernel to the end of the last, summed
}

// The lengths of sequences that are looked for, and how often one must occur. A sequence that
// only occurs within a longer one as often is left out.
const (
	shortestSequence = 2
	longestSequence  = 8
	fewestSequences  = 2
	mostSequences    = 100
)

// bySequence fills a table by sequence.
func (s *summary) bySequence(t *Table) error {
	ids := map[string]int32{}
	var names []string
	lanes := map[traces.Lane][]*traces.Event{}
	var order []traces.Lane
	for _, e := range s.Work {
		if e.Kind != traces.KindKernel {
			continue
		}
		if lanes[e.Lane] == nil {
			order = append(order, e.Lane)
		}
		lanes[e.Lane] = append(lanes[e.Lane], e)
		if _, ok := ids[e.Name]; !ok {
			ids[e.Name] = int32(len(names))
			names = append(names, e.Name)
		}
	}
	type found struct {
		SequenceRow
		key   string
		after map[traces.Lane]int // where on a lane the last one ended
	}
	counts := map[string]int{}
	var all []*found
	for length := longestSequence; length >= shortestSequence; length-- {
		byKey := map[string]*found{}
		var list []*found
		for _, lane := range order {
			events := lanes[lane]
			key := make([]byte, 4*length)
			for i := 0; i+length <= len(events); i++ {
				for j := range length {
					id := ids[events[i+j].Name]
					key[4*j], key[4*j+1], key[4*j+2], key[4*j+3] = byte(id), byte(id>>8), byte(id>>16), byte(id>>24)
				}
				f := byKey[string(key)]
				if f == nil {
					f = &found{key: string(key), after: map[traces.Lane]int{}}
					for j := range length {
						f.Kernels = append(f.Kernels, names[ids[events[i+j].Name]])
					}
					byKey[f.key] = f
					list = append(list, f)
				}
				if i < f.after[lane] {
					continue
				}
				f.after[lane] = i + length
				f.Count++
				f.Span += events[i+length-1].End() - events[i].Time
				for _, e := range events[i : i+length] {
					f.Busy += e.Duration
				}
			}
		}
		for _, f := range list {
			if f.Count < fewestSequences || counts[f.key] >= f.Count {
				continue
			}
			all = append(all, f)
		}
		for _, f := range list { // the parts of a sequence of the next length
			for at := 0; at+4*(length-1) <= len(f.key); at += 4 {
				part := f.key[at : at+4*(length-1)]
				counts[part] = max(counts[part], f.Count, counts[f.key])
			}
		}
	}
	if len(all) == 0 {
		return fmt.Errorf("no sequence of %d to %d kernels recurs in the recording", shortestSequence, longestSequence)
	}
	slices.SortStableFunc(all, func(a, b *found) int {
		return cmp.Or(cmp.Compare(b.Busy, a.Busy), cmp.Compare(len(b.Kernels), len(a.Kernels)), strings.Compare(a.key, b.key))
	})
	for _, f := range all[:min(len(all), mostSequences)] {
		t.Sequences = append(t.Sequences, f.SequenceRow)
	}
	return nil
}
