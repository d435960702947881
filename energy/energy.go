// Package energy measures how much energy a device uses while it works.
//
// A [Counter] counts millijoules: that of a GPU (nvml.Counter), or that of the processor ([OpenRAPL]). A counter is
// updated in steps, a GPU's about ten times a second. A [Meter] polls a counter and keeps each step with its time.
//
//	m := energy.Start(counter)
//	work()
//	log, err := m.Stop()
//	mJ, resolution := log.Total()
//
// [Log.Total] is the energy of the whole time, which may be wrong by a step. For work that stays the same for seconds,
// [Log.Power] is more exact: from one step to another the energy is known exactly, and so is the mean power. A part of
// the work then takes its time multiplied by that power.
package energy

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"gpt2scope/cuda/nvml"
	"gpt2scope/internal/stats"
	"gpt2scope/traces"
)

// Counter counts energy. It belongs to one goroutine at a time.
type Counter interface {
	Read() (millijoule float64, err error) // since some moment
	Source() string                        // what counts, in words
}

// poll is the time between readings of a counter.
const poll = time.Millisecond

// Step is an update of a counter. It happened at most Gap before Time, when it was first read.
type Step struct {
	Time       time.Time
	Gap        time.Duration // since the reading before
	Millijoule float64       // the counter from then on
}

// Log is what was read of a counter.
type Log struct {
	Source       string
	Began, Ended time.Time
	First, Last  float64 // mJ, at these times
	Steps        []Step
}

// Meter reads a counter until it is stopped.
type Meter struct {
	stop, done chan struct{}
	once       sync.Once
	log        Log
	err        error
}

// Start begins to read a counter, on a goroutine of its own, every millisecond or as often as the counter can be read.
func Start(c Counter) *Meter {
	m := &Meter{stop: make(chan struct{}), done: make(chan struct{})}
	m.log.Source = c.Source()
	m.log.First, m.err = c.Read()
	m.log.Began = time.Now()
	go m.run(c)
	return m
}

func (m *Meter) run(c Counter) {
	defer close(m.done)
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	last, before := m.log.First, m.log.Began
	read := func() {
		if m.err != nil {
			return
		}
		var value float64
		value, m.err = c.Read()
		now := time.Now()
		if m.err == nil && value != last {
			m.log.Steps = append(m.log.Steps, Step{now, now.Sub(before), value})
		}
		last, before = value, now
		m.log.Last, m.log.Ended = value, now
	}
	for m.err == nil {
		select {
		case <-m.stop:
			read()
			return
		case <-ticker.C:
			read()
		}
	}
}

// Stop ends reading, and returns the log, or the error of the counter that ended reading before.
func (m *Meter) Stop() (*Log, error) {
	m.once.Do(func() { close(m.stop) })
	<-m.done
	if m.err != nil {
		return nil, m.err
	}
	return &m.log, nil
}

// Resolution returns the median step of the counter, and the median time between
// steps. Both are 0 where there were fewer than two steps.
func (l *Log) Resolution() (millijoule float64, period time.Duration) {
	var sizes []float64
	var times []time.Duration
	for i := 1; i < len(l.Steps); i++ {
		sizes = append(sizes, l.Steps[i].Millijoule-l.Steps[i-1].Millijoule)
		times = append(times, l.Steps[i].Time.Sub(l.Steps[i-1].Time))
	}
	slices.Sort(sizes)
	slices.Sort(times)
	return stats.Median(sizes), stats.Median(times)
}

// Total returns the energy between start and stop, and by how much it may be wrong: the largest step of the counter,
// since a part of it may belong to the time before or after. Without any step the resolution is infinite.
func (l *Log) Total() (millijoule, resolution float64) {
	before := l.First
	for _, s := range l.Steps {
		resolution = max(resolution, s.Millijoule-before)
		before = s.Millijoule
	}
	if len(l.Steps) == 0 {
		resolution = math.Inf(1)
	}
	return l.Last - l.First, resolution
}

// leastSteps is how many steps a mean power needs.
const leastSteps = 3

// Power is the mean power over a time in which the work stayed the same.
type Power struct {
	Watts       float64       `json:"watts"`
	Uncertainty float64       `json:"uncertainty_watts"` // from not knowing exactly when the counter was updated
	Over        time.Duration `json:"over_ns"`           // from the first step to the last
	Steps       int           `json:"steps"`             // how many there were
}

// Power returns the mean power from the first step of the counter between two times to
// the last. Fewer than three steps are an error.
func (l *Log) Power(from, to time.Time) (Power, error) {
	var in []Step
	for _, s := range l.Steps {
		if !s.Time.Before(from) && !s.Time.After(to) {
			in = append(in, s)
		}
	}
	if len(in) < leastSteps {
		return Power{}, fmt.Errorf("%s: only %d counter updates in %.1f s, at least %d are needed: measure longer", l.Source,
			len(in), to.Sub(from).Seconds(), leastSteps)
	}
	first, last := in[0], in[len(in)-1]
	over := last.Time.Sub(first.Time)
	p := Power{Watts: (last.Millijoule - first.Millijoule) / 1000 / over.Seconds(), Over: over, Steps: len(in)}
	p.Uncertainty = p.Watts * (first.Gap + last.Gap).Seconds() / over.Seconds()
	return p, nil
}

// Events returns samples of a GPU as counters of a trace whose base is a time in ns since 1970: "power" in W, "SM
// clock" in MHz, "memory used" in bytes, "GPU utilisation" in percent. A value that a sample lacks makes no event. The
// process is the header's, since the file has no process of a device's counters.
func Events(samples []nvml.Sample, device int32, process, base int64) []traces.Event {
	var out []traces.Event
	lane := traces.Lane{Kind: traces.LaneCounter, Device: device, Process: process}
	add := func(at time.Time, name string, value float64, known bool) {
		if known {
			e := traces.Plain(traces.KindCounter, lane, name, at.UnixNano()-base, 0)
			e.Value = value
			out = append(out, e)
		}
	}
	for _, s := range samples {
		add(s.Time, "power", s.Power, s.Power > 0)
		add(s.Time, "SM clock", float64(s.SMClock), s.SMClock > 0)
		add(s.Time, traces.MemoryUsed, float64(s.MemoryUsed), s.MemoryUsed > 0)
		add(s.Time, "GPU utilisation", float64(s.Utilisation), s.Utilisation >= 0)
	}
	return out
}
