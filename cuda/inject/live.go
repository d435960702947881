package inject

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"gpt2scope/cuda/nvml"
	"gpt2scope/traces"
	"gpt2scope/traces/judge"
	"gpt2scope/traces/stages"
	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

// Second is what GPUs did in a second, which ended a second before it is told: processes deliver late.
type Second struct {
	Since     time.Duration // from the command's start to the second's end
	Processes int           // that started CUDA
	Stages    bool          // rows are of stages, that is of NVTX ranges, else of kernels
	Rows      []tables.Row  // those that took the most time first
	Kernels   int
	Busy      float64       // share of the second in which any GPU worked
	Copies    time.Duration // in sum
	Copied    int64         // bytes
	Queue     float64       // kernels, copies and sets that were launched and had not ended, in the mean; NaN: not known
	GPUs      map[string]nvml.Sample
}

// live keeps the events of the last seconds.
type live struct {
	told   int64 // until when
	events []traces.Event
}

const second = int64(time.Second)

// add keeps what of a process's events may be told.
func (l *live) add(p *process, events []traces.Event) {
	for _, e := range events {
		if e.Kind.IsGPU() || e.Kind.IsCall() || e.Kind == traces.KindRange {
			e.Lane.Process = cmp.Or(e.Lane.Process, int64(p.Process))
			l.events = append(l.events, e)
		}
	}
}

// tick tells of the next second, a second after its end.
func (l *live) tick(r *Run) {
	from, to := l.told, l.told+second
	if r.clock.Now() < to+second {
		return
	}
	l.told = to
	s := &Second{Since: time.Duration(to), GPUs: r.counters.last(), Queue: math.NaN()}
	for _, p := range r.processes {
		if p.CUDA {
			s.Processes++
		}
	}
	var in []traces.Event
	for _, e := range l.events {
		if e.Time < to && (e.Time >= from || e.Kind == traces.KindRange && e.End() > from) {
			in = append(in, e)
		}
	}
	l.events = slices.DeleteFunc(l.events, func(e traces.Event) bool { return e.End() < to-second })
	s.measure(in, from, to)
	r.o.Live(s)
}

// measure fills in what the events of a second say.
func (s *Second) measure(events []traces.Event, from, to int64) {
	traces.Sort(events)
	var work []window.Interval
	for i := range events {
		e := &events[i]
		if e.Kind.IsGPU() {
			work = append(work, window.Interval{From: e.Time, To: min(e.End(), to)})
		}
		if e.Kind == traces.KindMemcpy {
			s.Copies, s.Copied = s.Copies+time.Duration(e.Duration), s.Copied+e.Bytes
		}
	}
	if s.Busy = float64(window.Length(work)) / float64(to-from); s.Busy == 0 {
		return
	}
	t := traces.NewTrace(&traces.Header{Version: traces.Version, Tool: "gpt2scope", Recorder: traces.RecorderCUPTI}, events)
	s.Kernels = t.Kernels
	s.Stages = stages.OfRanges(t, nil)
	by := tables.ByKernel
	if s.Stages {
		by = tables.ByFolded
	}
	if table, err := tables.Summarize(t, by, -1); err == nil {
		s.Rows = slices.DeleteFunc(table.Shown(), func(r tables.Row) bool { return r.Kind != tables.RowWork })
	}
	slices.SortStableFunc(s.Rows, func(a, b tables.Row) int { return cmp.Compare(b.Exclusive, a.Exclusive) })
	if report, err := judge.Measure(t, -1); err == nil {
		for _, x := range report.Indicators {
			if x.Key == "queue_depth" && x.Value != nil {
				s.Queue = *x.Value
			}
		}
	}
}

// Metrics sums seconds, and writes them in the text format of Prometheus.
type Metrics struct {
	mu   sync.Mutex
	time map[string]time.Duration // by stage or kernel
	sum  Second                   // copies are summed, all else is of the last one
}

// mostNames bounds the memory of Metrics; the time of others is summed.
const mostNames = 1000

// Add adds a second.
func (m *Metrics) Add(s *Second) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.time == nil {
		m.time = map[string]time.Duration{}
	}
	before := m.sum
	m.sum = *s
	m.sum.Copies, m.sum.Copied = s.Copies+before.Copies, s.Copied+before.Copied
	for _, row := range s.Rows {
		name := row.Name
		if _, known := m.time[name]; !known && len(m.time) >= mostNames {
			name = "others"
		}
		m.time[name] += time.Duration(row.Exclusive)
	}
}

// Write writes the sums.
func (m *Metrics) Write(w io.Writer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	metric := func(name, kind, help string, values map[string]float64) {
		fmt.Fprintf(w, "# HELP gpt2scope_%s %s\n# TYPE gpt2scope_%[1]s %[3]s\n", name, help, kind)
		for _, label := range slices.Sorted(maps.Keys(values)) {
			fmt.Fprintf(w, "gpt2scope_%s%s %g\n", name, label, values[label])
		}
	}
	one := func(v float64) map[string]float64 { return map[string]float64{"": v} }
	stages, power, clock := map[string]float64{}, map[string]float64{}, map[string]float64{}
	for name, d := range m.time {
		stages[fmt.Sprintf("{stage=%q}", name)] = d.Seconds()
	}
	for uuid, g := range m.sum.GPUs {
		label := fmt.Sprintf("{gpu=%q}", uuid)
		power[label], clock[label] = g.Power, float64(g.SMClock)
	}
	metric("kernel_seconds_total", "counter", "Time of kernels by stage (NVTX range), or by kernel where there are none.", stages)
	metric("copy_seconds_total", "counter", "Time of copies.", one(m.sum.Copies.Seconds()))
	metric("copy_bytes_total", "counter", "Bytes that were copied.", one(float64(m.sum.Copied)))
	metric("gpu_busy_ratio", "gauge", "Share of the last second in which any GPU worked.", one(m.sum.Busy))
	metric("queue_depth", "gauge", "Launched work that had not ended, in the mean.", one(m.sum.Queue))
	metric("gpu_power_watts", "gauge", "Power of a GPU.", power)
	metric("gpu_sm_clock_mhz", "gauge", "Clock of a GPU's multiprocessors.", clock)
}
