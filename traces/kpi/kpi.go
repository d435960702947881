// Package kpi measures a recording by the indicators that lectures on GPU performance ask for,
// each with its definition: time of kernels and copies, overlap, utilisation, occupancy,
// queueing, launch latency, synchronisation. From them it answers a checklist with numbers.
//
// The indicators are those of the passes that repeat (see [window.Window.Steady]). What comes
// before, loading and warm-up, is measured apart by the same definitions.
package kpi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpt2scope/internal/stats"
	"gpt2scope/traces"
	"gpt2scope/traces/judge"
	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

// Indicator is one number about a recording.
type Indicator struct {
	Key        string `json:"key"`
	Group      string `json:"group"`
	Name       string `json:"name"`
	Unit       string `json:"unit"`
	Definition string `json:"definition"`

	// Value is nil if the recording does not have it; RecordWith says what would record it.
	// Before is the same before the passes; nil if nothing ran there.
	Value      *float64 `json:"value"`
	Before     *float64 `json:"before"`
	RecordWith string   `json:"record_with,omitempty"`

	Where []string `json:"where,omitempty"` // where most of it occurs
}

// Report has all indicators of a recording.
type Report struct {
	Device       int32         `json:"device"`
	Wall         int64         `json:"wall"`           // ns, of the passes; of all work if none were found
	Before       int64         `json:"before"`         // ns of work before the passes
	Passes       int           `json:"passes"`         // 0 if none were found
	WarmUpPasses int           `json:"warm_up_passes"` // before them
	PassesFrom   window.Source `json:"passes_from"`    // how they were found
	Indicators   []Indicator   `json:"indicators"`
	Checks       []judge.Check `json:"checks"`
	Notes        []string      `json:"notes"` // of which processes and GPU they are, if there are several; what makes the numbers doubtful
}

// Find returns an indicator by its key, nil for none.
func (r *Report) Find(key string) *Indicator {
	i := slices.IndexFunc(r.Indicators, func(x Indicator) bool { return x.Key == key })
	if i < 0 {
		return nil
	}
	return &r.Indicators[i]
}

// RecordWith says what would record an indicator, "" if it is known or nothing would.
func (r *Report) RecordWith(key string) string {
	if x := r.Find(key); x != nil {
		return x.RecordWith
	}
	return ""
}

// Value returns the value of an indicator, and whether it is known.
func (r *Report) Value(key string) (float64, bool) {
	if x := r.Find(key); x != nil && x.Value != nil {
		return *x.Value, true
	}
	return 0, false
}

// Measure measures the work of one GPU, -1 for the first that worked.
func Measure(t *traces.Trace, device int32) (*Report, error) {
	table, err := tables.SummarizeSteady(t, device)
	if err != nil {
		return nil, err
	}
	if table.Device < 0 {
		return nil, fmt.Errorf("the recording has no work of a GPU, and the indicators are of a GPU; 'infer trace show' has what the CPU did")
	}
	w := table.Window
	steady := w.Steady()
	before := window.Interval{From: w.Whole().From, To: steady.From}
	before.To = max(before.From, before.To)
	r := &Report{Device: table.Device, Wall: steady.Length(), Before: before.Length(), Passes: len(steady.Passes),
		WarmUpPasses: len(steady.WarmUp), PassesFrom: steady.Source}
	now, early := measure(w, steady.Interval), (*measured)(nil)
	if before.Length() > 0 {
		early = measure(w, before)
	}
	for _, d := range definitions {
		x := Indicator{Key: d.key, Group: d.group, Name: d.name, Unit: d.unit, Definition: d.definition}
		if v, ok := d.value(now); ok {
			x.Value = &v
			if d.where != nil {
				x.Where = d.where(now)
			}
			if early != nil {
				if v, ok := d.value(early); ok {
					x.Before = &v
				}
			}
		} else if x.RecordWith = d.recordWith; d.recordWith == "" {
			continue // what would have it does not occur
		}
		r.Indicators = append(r.Indicators, x)
	}
	r.Checks = judge.Checklist(r, r.Wall, table)
	r.Notes = together(w)
	for _, f := range table.Findings {
		if f.Misleads {
			r.Notes = append(r.Notes, f.Text)
		}
	}
	return r, nil
}

// together says which processes the numbers sum, and which GPUs they leave out.
func together(w *window.Window) (notes []string) {
	processes, devices := map[int64]bool{}, map[int32]bool{}
	for _, e := range w.Work {
		processes[w.Header.ProcessOf(e)] = true
	}
	for i := range w.Events {
		if e := &w.Events[i]; e.Kind.IsGPU() {
			devices[e.Lane.Device] = true
		}
	}
	if len(processes) > 1 {
		notes = append(notes, fmt.Sprintf("the work of %d processes counts together; 'infer trace show --by process' has each", len(processes)))
	}
	if len(devices) > 1 {
		notes = append(notes, fmt.Sprintf("this is GPU %d, one of %d that worked; --gpu chooses another", w.Device,
			len(devices)))
	}
	if w.Header.Clock.Aligned != "" {
		notes = append(notes, "clocks of "+w.Header.Clock.Aligned)
	}
	return notes
}

// measured is what was counted in an interval. Times are ns within it.
type measured struct {
	*window.Window
	at                     window.Interval
	kernels                []*traces.Event
	busy, computing        int64 // any work runs; a kernel runs
	kernelTime             int64 // sum of durations
	copying, copyAlone     int64 // a copy or set runs; and no kernel
	communicating          int64 // a kernel of NCCL runs
	communicatingAlone     int64 // and no other kernel
	copies                 map[direction]*transfer
	sets                   transfer
	waits                  transfer // calls that wait for the GPU
	waitedIn               []waitedIn
	waitedBusy             int64 // the GPU works and the host waits for it
	calls                  int
	launches               []*window.Launch
	without                int // work without a recorded call
	depth                  float64
	deepest                int
	occupancy, estimated   float64            // percent, by time; -1 if not known
	fill                   float64            // percent of the SMs that the grids reach, by time; -1 if not known
	theoreticalOf, fillsOf int64              // ns that they are known of
	counters               *traces.Counters   // means by time, nil if none were measured
	samples                map[string]float64 // means over the wall time of what the device samples, by name
}

// direction is what a copy is between, and the kind of the host's memory.
type direction struct{ ways, memory string }

type transfer struct {
	count       int
	bytes, time int64
}

// waitedIn is a range or operation in which the host waited.
type waitedIn struct {
	name  string
	count int
	time  int64
}

// measure counts what happens in x.
func measure(w *window.Window, x window.Interval) *measured {
	m := &measured{Window: w, at: x, copies: map[direction]*transfer{}, occupancy: -1, estimated: -1, fill: -1}
	var work, kernels, copies, waits, communication, others []window.Interval
	wait := func(from, to int64) {
		if from, to = max(from, x.From), min(to, x.To); from < to {
			waits = append(waits, window.Interval{From: from, To: to})
		}
	}
	for _, at := range w.Waits {
		wait(at.From, at.To)
	}
	device := w.Header.Device(w.Device)
	var occupied, estimate, filled float64
	var estimateOf int64
	var counters traces.CounterMean
	for _, e := range w.Work {
		own := window.Interval{From: max(e.Time, x.From), To: min(e.End(), x.To)}
		if own.Length() < 0 || e.End() <= x.From && e.Time < x.From || e.Time >= x.To {
			continue
		}
		work = append(work, own)
		switch e.Kind {
		case traces.KindKernel, traces.KindGraph:
			kernels = append(kernels, own)
			if strings.Contains(strings.ToLower(e.Name), "nccl") {
				communication = append(communication, own)
			} else {
				others = append(others, own)
			}
			m.kernelTime += own.Length()
			m.kernels = append(m.kernels, e)
			shape := tables.ShapeOf(e)
			if o, ok := tables.OccupancyOf(device, &shape); ok {
				occupied += o.Percent * float64(own.Length())
				m.theoreticalOf += own.Length()
			}
			if shape.Known() && device.SMs > 0 {
				filled += 100 * min(1, float64(shape.Blocks())/float64(device.SMs)) * float64(own.Length())
				m.fillsOf += own.Length()
			}
			counters.Add(e.Counters, own.Length())
			if e.Occupancy > 0 {
				estimate += float64(e.Occupancy) * float64(own.Length())
				estimateOf += own.Length()
			}
		case traces.KindMemcpy:
			copies = append(copies, own)
			d := directionOf(e)
			if m.copies[d] == nil {
				m.copies[d] = &transfer{}
			}
			m.copies[d].add(e.Bytes, own.Length())
			// The driver copies pageable memory itself, while the call lasts.
			if call := w.CallOf(e); call != nil && d.memory == "pageable" {
				wait(call.Time, call.End())
			}
		default:
			copies = append(copies, own)
			m.sets.add(e.Bytes, own.Length())
		}
	}
	if m.theoreticalOf > 0 {
		m.occupancy = occupied / float64(m.theoreticalOf)
	}
	if m.fillsOf > 0 {
		m.fill = filled / float64(m.fillsOf)
	}
	if estimateOf > 0 {
		m.estimated = estimate / float64(estimateOf)
	}
	work, kernels, copies = window.Union(work), window.Union(kernels), window.Union(copies)
	m.busy, m.computing, m.copying = window.Length(work), window.Length(kernels), window.Length(copies)
	communication, others = window.Union(communication), window.Union(others)
	m.communicating = window.Length(communication)
	m.communicatingAlone = m.communicating
	for _, c := range communication {
		m.communicatingAlone -= window.Covered(others, c)
	}
	m.copyAlone = m.copying
	for _, c := range copies {
		m.copyAlone -= window.Covered(kernels, c)
	}
	for _, wait := range window.Union(waits) {
		m.waitedBusy += window.Covered(work, wait)
	}
	m.counters = counters.Counters()
	m.host()
	m.queue()
	m.sample()
	return m
}

func (t *transfer) add(bytes, time int64) {
	t.count++
	t.bytes += max(0, bytes)
	t.time += time
}

// directionOf tells what a copy is between.
func directionOf(e *traces.Event) direction {
	d := direction{ways: "other"}
	for _, ways := range []string{"HtoD", "DtoH", "DtoD", "PtoP", "HtoH"} {
		if strings.Contains(e.Name, ways) {
			d.ways = ways
		}
	}
	if d.ways == "HtoD" || d.ways == "DtoH" {
		switch pageable, known := e.Pageable(); {
		case !known:
		case pageable:
			d.memory = "pageable"
		default:
			d.memory = "pinned"
		}
	}
	return d
}

// host counts the API calls, and finds where the host waited for the GPU.
func (m *measured) host() {
	waits := map[string]*waitedIn{}
	for i := range m.Events {
		e := &m.Events[i]
		if !e.Kind.IsCall() || e.End() <= m.at.From && e.Time < m.at.From || e.Time >= m.at.To {
			continue
		}
		m.calls++
		if e.Wait == traces.WaitNone {
			continue
		}
		ns := min(e.End(), m.at.To) - max(e.Time, m.at.From)
		m.waits.add(0, ns)
		name := e.Name
		if in := m.Parent(e); in != nil {
			name += " in " + in.Name
		}
		p := waits[name]
		if p == nil {
			p = &waitedIn{name: name}
			waits[name] = p
		}
		p.count++
		p.time += ns
	}
	for _, p := range waits {
		m.waitedIn = append(m.waitedIn, *p)
	}
	slices.SortFunc(m.waitedIn, func(a, b waitedIn) int {
		return cmp.Or(cmp.Compare(b.time, a.time),
			cmp.Compare(a.name, b.name))
	})
}

// queue pairs launches with their work.
func (m *measured) queue() {
	launches, without := m.Launches(m.at)
	m.launches, m.without = launches, len(without)
	m.depth, m.deepest = m.DepthOver(m.at)
}

// sample finds the means over the wall time of the counters that the device samples, such as
// those of nsys --gpu-metrics-devices. A value holds until the next sample.
func (m *measured) sample() {
	type series struct {
		at       int64
		value    float64
		sum      float64
		has      bool
		duration int64
	}
	all := map[string]*series{}
	until := func(s *series, time int64) {
		if own := min(time, m.at.To) - max(s.at, m.at.From); s.has && own > 0 {
			s.sum += s.value * float64(own)
			s.duration += own
		}
	}
	for i := range m.Events {
		e := &m.Events[i]
		if e.Kind != traces.KindCounter || e.Lane.Device != m.Device {
			continue
		}
		s := all[e.Name]
		if s == nil {
			s = &series{}
			all[e.Name] = s
		}
		until(s, e.Time)
		s.at, s.value, s.has = e.Time, e.Value, true
	}
	m.samples = map[string]float64{}
	for name, s := range all {
		until(s, s.at+m.at.Length())
		if 2*s.duration >= m.at.Length() && s.duration > 0 {
			m.samples[name] = s.sum / float64(s.duration)
		}
	}
}

// latencies returns, sorted, how long launches took from the begin of the call to the start of
// the work, where nothing else was queued or ran.
func (m *measured) latencies() []int64 {
	var list []int64
	for _, l := range m.launches {
		if l.Depth == 0 && l.First.Kind == traces.KindKernel {
			list = append(list, max(0, l.First.Time-l.Call.Time))
		}
	}
	slices.Sort(list)
	return list
}

// durations returns, sorted, how long the kernels are.
func (m *measured) durations() []int64 {
	var list []int64
	for _, e := range m.kernels {
		list = append(list, e.Duration)
	}
	slices.Sort(list)
	return list
}

// starved sums the time in which nothing was queued and nothing ran before a launch.
func (m *measured) starved() (ns int64, n int) {
	for _, l := range m.launches {
		if l.Depth == 0 {
			ns, n = ns+l.Starved(m.at), n+1
		}
	}
	return ns, n
}

// median returns the middle of sorted values, and whether there are any.
func median(sorted []int64) (float64, bool) { return float64(stats.Median(sorted)), len(sorted) > 0 }
