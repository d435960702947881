package judge

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/internal/stats"
	"gpt2scope/traces"
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
	Source       string        `json:"source"` // what recorded what, on which device
	Device       int32         `json:"device"`
	Wall         int64         `json:"wall"`           // ns, of the passes; of all work if none were found
	Before       int64         `json:"before"`         // ns of work before the passes
	Passes       int           `json:"passes"`         // 0 if none were found
	WarmUpPasses int           `json:"warm_up_passes"` // before them
	PassesFrom   window.Source `json:"passes_from"`    // how they were found
	Indicators   []Indicator   `json:"indicators"`
	Checks       []Check       `json:"checks"`
	Notes        []string      `json:"notes"` // which processes and GPU, if there are several; what makes the numbers doubtful
}

// overlapping is how much more than the time in which kernels run their times must sum to, to be said: the kernels of
// a graph begin a little before those before them end.
const overlapping = 1.1

// find returns an indicator by its key, an unknown one for none.
func (r *Report) find(key string) Indicator {
	if i := slices.IndexFunc(r.Indicators, func(x Indicator) bool { return x.Key == key }); i >= 0 {
		return r.Indicators[i]
	}
	return Indicator{}
}

// value returns the value of an indicator, and whether it is known.
func (r *Report) value(key string) (float64, bool) {
	if x := r.find(key); x.Value != nil {
		return *x.Value, true
	}
	return 0, false
}

// Measure measures the work of one GPU, -1 for the first that worked, by the indicators that lectures on GPU
// performance ask for, and answers a checklist with them. They are of the passes that repeat (see
// [window.Window.Steady]); what comes before, loading and warm-up, is measured apart by the same definitions.
func Measure(t *traces.Trace, device int32) (*Report, error) {
	table, err := tables.SummarizeSteady(t, device)
	if err != nil {
		return nil, err
	}
	return reportOn(table, measure(table.Window, table.Time))
}

// reportOn reports on a table of the passes that repeat, in whose time now was measured.
func reportOn(table *tables.Table, now *measured) (*Report, error) {
	if table.Device < 0 {
		return nil, errors.New("the recording has no work of a GPU, and the indicators are of a GPU; " +
			"'infer trace show' has what the CPU did")
	}
	w := table.Window
	steady := w.Steady()
	before := window.Interval{From: w.Whole().From, To: steady.From}
	before.To = max(before.From, before.To)
	r := &Report{Source: table.Source, Device: table.Device, Wall: steady.Length(), Before: before.Length(),
		Passes: len(steady.Passes), WarmUpPasses: len(steady.WarmUp), PassesFrom: steady.Source}
	var early *measured
	if before.Length() > 0 {
		early = measure(w, before)
	}
	for _, d := range definitions {
		x := Indicator{Key: d.key, Group: d.group, Name: d.name, Unit: d.unit, Definition: d.definition}
		if v, ok := d.value(now); ok {
			x.Value = &v
			if d.key == "synchronisations" {
				x.Where = now.waitedIn.rows("call")
			}
			if early != nil {
				if v, ok := d.value(early); ok {
					x.Before = &v
				}
			}
		} else if x.RecordWith = recorder(d.recordWith, w.Header, w.Device); d.recordWith == "" {
			continue // what would have it does not occur
		}
		r.Indicators = append(r.Indicators, x)
	}
	r.Checks = checklist(r, table)
	r.Notes = together(w)
	if all := sum(now.durations); float64(all) > overlapping*float64(now.computing) {
		r.Notes = append(r.Notes, fmt.Sprintf("kernels overlap: their times sum to %s ms, in %s ms of the wall time",
			humanize.InMilliseconds(all), humanize.InMilliseconds(now.computing)))
	}
	for _, f := range table.Findings {
		if f.Misleads {
			r.Notes = append(r.Notes, f.Text)
		}
	}
	return r, nil
}

// together says which processes the numbers sum, and which GPUs they leave out.
func together(w *window.Window) []string {
	notes := []string{}
	processes := map[int64]bool{}
	for _, e := range w.Work {
		processes[w.Header.ProcessOf(e)] = true
	}
	if len(processes) > 1 {
		notes = append(notes, fmt.Sprintf("the work of %d processes counts together; "+
			"'infer trace show --by process' has each", len(processes)))
	}
	notes = append(notes, w.GPUNotes()...)
	if w.Header.Clock.Aligned != "" {
		notes = append(notes, "clocks of "+w.Header.Clock.Aligned)
	}
	return notes
}

// measured is what was counted in an interval. Times are ns within it.
type measured struct {
	*window.Window
	at                 window.Interval
	durations          []int64 // of the kernels, sorted
	busy, computing    int64   // any work runs; a kernel runs
	copying, copyAlone int64   // a copy or set runs; and no kernel
	communicating      int64   // a kernel of NCCL runs
	communicatingAlone int64   // and no other kernel
	messages           int64   // sum of the durations of these kernels
	computed           []window.Interval
	copies             map[direction]*transfer
	waits              transfer // calls that wait for the GPU
	waitedIn           *tally   // the calls, with the range around each
	waitedBusy         int64    // the GPU works and the host waits for it
	calls              int      // of the whole recording: whether there are any
	launches           []window.Launch
	without            int // work without a recorded call
	depth              float64
	deepest            int
	occupancy, fill    mean               // theoretical, and of the SMs that the grids reach, in percent by time
	counters           traces.Counters    // means by time, nil if none were measured
	samples            map[string]float64 // means over the wall time of what the device samples, by name
	peaks              map[string]float64 // the most of the same
}

// mean is weighted by ns.
type mean struct {
	sum float64
	of  int64
}

func (m *mean) add(v float64, ns int64) { m.sum, m.of = m.sum+v*float64(ns), m.of+ns }

// over is the mean over a whole of so many ns, not known if most of it has no value.
func (m *mean) over(ns int64) (float64, bool) {
	return m.sum / float64(max(1, m.of)), m.of > 0 && 2*m.of >= ns
}

// direction is what a copy is between, and the kind of the host's memory.
type direction struct{ ways, memory string }

type transfer struct {
	count       int
	bytes, time int64
}

// clip returns the part of an event that lies in x; false if none does.
func clip(e *traces.Event, x window.Interval) (window.Interval, bool) {
	return window.Interval{From: max(e.Time, x.From), To: min(e.End(), x.To)}, x.Has(e)
}

// measure counts what happens in x.
func measure(w *window.Window, x window.Interval) *measured {
	m := &measured{Window: w, at: x, copies: map[direction]*transfer{}, waitedIn: newTally()}
	var work, kernels, copies, waits, communication, others []window.Interval
	for _, at := range w.Waiting() {
		waits = append(waits, window.Interval{From: max(at.From, x.From), To: min(at.To, x.To)})
	}
	device := w.Header.Device(w.Device)
	m.durations = make([]int64, 0, len(w.Work))
	var counters traces.CounterMean
	communicates := byWhat((*traces.Event).Communicates)
	someDo := slices.ContainsFunc(w.Work, communicates)
	isCopy := func(e *traces.Event) bool { return e.Kind != traces.KindKernel && e.Kind != traces.KindGraph }
	some := slices.ContainsFunc(w.Work, isCopy) // else kernels are all work
	for _, e := range w.Work {
		own, ok := clip(e, x)
		if !ok {
			continue
		}
		if work = window.Join(work, own); !isCopy(e) {
			if some {
				kernels = window.Join(kernels, own)
			}
			if communicates(e) {
				communication = window.Join(communication, own)
			} else if someDo {
				others = window.Join(others, own)
			}
			m.durations = append(m.durations, own.Length())
			shape := tables.ShapeOf(e)
			if o, ok := tables.OccupancyOf(device, &shape); ok {
				m.occupancy.add(o.Percent, own.Length())
			}
			if communicates(e) { // its few blocks are by design
				m.messages += own.Length()
			} else if shape.Known() && device.SMs > 0 {
				m.fill.add(100*min(1, float64(shape.Blocks())/float64(device.SMs)), own.Length())
			}
			counters.Add(e.Counters, own.Length())
			continue
		}
		if copies = window.Join(copies, own); e.Kind != traces.KindMemcpy {
			continue
		}
		d := directionOf(e)
		if m.copies[d] == nil {
			m.copies[d] = &transfer{}
		}
		m.copies[d].add(e.Bytes, own.Length())
		// The driver copies pageable memory itself, while the call lasts.
		if call := w.CallOf(e); call != nil && d.memory == "pageable" {
			waits = append(waits, window.Interval{From: max(call.Time, x.From), To: min(call.End(), x.To)})
		}
	}
	if !some {
		kernels = work
	}
	slices.Sort(m.durations)
	m.busy, m.computing = window.Length(work), window.Length(kernels)
	m.copying, m.communicating = window.Length(copies), window.Length(communication)
	m.copyAlone, m.communicatingAlone = outside(copies, kernels), outside(communication, others)
	waits = slices.DeleteFunc(waits, func(x window.Interval) bool { return x.Length() <= 0 })
	for _, wait := range window.Union(waits) {
		m.waitedBusy += window.Covered(work, wait)
	}
	m.computed, m.counters = kernels, counters.Counters()
	m.host()
	m.launches, m.without = m.Launches(x)
	m.depth, m.deepest = m.DepthOver(x)
	m.sample()
	return m
}

func (t *transfer) add(bytes, time int64) {
	t.count++
	t.bytes += max(0, bytes)
	t.time += time
}

func directionOf(e *traces.Event) direction {
	d := direction{ways: "other"}
	for _, ways := range []string{"HtoD", "DtoH", "DtoD", "PtoP", "HtoH"} {
		if strings.Contains(e.Name, ways) {
			d.ways = ways
		}
	}
	if pageable, known := e.Pageable(); known && (d.ways == "HtoD" || d.ways == "DtoH") {
		if d.memory = "pinned"; pageable {
			d.memory = "pageable"
		}
	}
	return d
}

// host counts the API calls, and finds where the host waited for the GPU.
func (m *measured) host() {
	for i := range m.Events {
		e := &m.Events[i]
		if !e.Kind.IsCall() || !m.Serves(e) {
			continue
		}
		m.calls++
		if own, ok := clip(e, m.at); ok && e.Wait != traces.WaitNone {
			m.waits.add(0, own.Length())
			m.waitedIn.add(inRange(m.Window, e), own.Length(), own.Length(), 1)
		}
	}
}

// inRange names a call with the range around it, by one name for all passes and layers.
func inRange(w *window.Window, call *traces.Event) string {
	in := w.Parent(call)
	switch {
	case in == nil:
		return call.Name
	case in.Kind == traces.KindPass:
		return call.Name + " in " + w.PassName(in)
	}
	return call.Name + " in " + traces.InAnyLayer(in.Name)
}

// sample finds the means over the wall time of the counters that the device samples, such as
// those of nsys --gpu-metrics-devices. A value holds until the next sample. What processes hold each of the memory counts
// together.
func (m *measured) sample() {
	type sample struct {
		time  int64
		value float64
	}
	type holder struct {
		name    string
		process int64
	}
	last, means, held := map[string]*sample{}, map[string]*mean{}, map[holder]float64{}
	m.peaks = map[string]float64{}
	until := func(name string, time int64) {
		e := last[name]
		ns := max(0, min(time, m.at.To)-max(e.time, m.at.From))
		if means[name].add(e.value, ns); ns > 0 {
			m.peaks[name] = max(m.peaks[name], e.value)
		}
	}
	for i := range m.Events {
		e := &m.Events[i]
		if e.Kind != traces.KindCounter || e.Lane.Device != m.Device {
			continue
		}
		if means[e.Name] == nil {
			means[e.Name], last[e.Name] = &mean{}, &sample{e.Time, 0}
		}
		until(e.Name, e.Time)
		value := e.Value
		if traces.IsMemory(e.Name) && e.Name != traces.MemoryUsed {
			of := holder{e.Name, m.Header.ProcessOf(e)}
			value += last[e.Name].value - held[of]
			held[of] = e.Value
		}
		*last[e.Name] = sample{e.Time, value}
	}
	m.samples = map[string]float64{}
	for name, mean := range means {
		end := last[name].time + m.at.Length()
		if traces.IsMemory(name) { // it is held until it is freed
			end = m.at.To
		}
		until(name, end)
		if v, ok := mean.over(m.at.Length()); ok {
			m.samples[name] = v
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

// median returns the middle of sorted values, and whether there are any.
func median(sorted []int64) (float64, bool) { return float64(stats.Median(sorted)), len(sorted) > 0 }
