// Package energy measures how much energy a device uses while it works.
//
// A [Counter] counts millijoules: that of a GPU (nvml.Counter), or that of the
// processor ([OpenRAPL]). Counters do not run smoothly: they step, a GPU's perhaps ten
// times a second. A [Meter] reads one all the time and notes each step with its time.
//
//	m := energy.Start(counter)
//	work()
//	log, err := m.Stop()
//	mJ, resolution := log.Total()
//
// [Log.Total] is what the counter says of the whole time, which may be wrong by a step.
// Of work that stays the same for seconds, [Log.Power] says more: from step to step the
// energy is known exactly, and so is the mean power, however long the steps are. A
// piece of the work then takes its time times that power.
package energy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"gpt2scope/traces"
)

// Counter counts energy. It belongs to one goroutine at a time.
type Counter interface {
	Read() (millijoule float64, err error) // since some moment
	Source() string                        // what counts, in words
}

// poll is the time between readings of a counter.
const poll = time.Millisecond

// Step is a change of a counter, as far as readings tell: it happened at most Gap
// before Time.
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

// Start begins to read a counter, on a goroutine of its own, every millisecond or as
// often as the counter can be read.
func Start(c Counter) *Meter {
	m := &Meter{stop: make(chan struct{}), done: make(chan struct{})}
	m.log.Source = c.Source()
	m.log.First, m.err = c.Read()
	m.log.Began = time.Now()
	go m.run(c)
	return m
}

// maxSteps bounds the memory of a meter that runs for hours: of more steps every second
// one is dropped, which [Log.Power] does not mind.
const maxSteps = 1 << 17

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
			m.log.add(Step{now, now.Sub(before), value})
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

// add appends a step; where there are maxSteps, every second one is dropped before.
func (l *Log) add(s Step) {
	if len(l.Steps) == maxSteps {
		for i := range maxSteps / 2 {
			l.Steps[i] = l.Steps[2*i+1]
		}
		l.Steps = l.Steps[:maxSteps/2]
	}
	l.Steps = append(l.Steps, s)
}

// Stop ends reading, and returns what was read. An error of the counter ended it
// earlier.
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
	return median(sizes), median(times)
}

func median[T cmp.Ordered](x []T) (m T) {
	if len(x) > 0 {
		slices.Sort(x)
		m = x[len(x)/2]
	}
	return m
}

// Total returns the energy between start and stop, and by how much it may be wrong:
// the largest step of the counter, of which a part belongs to the time before or after.
// Without any step that is not known, and the resolution is infinite.
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

// Record gives the total to a trace's header: what was done, and the tokens that it
// made or took. It returns false where the counter never stepped, and tells nothing.
func (l *Log) Record(device int, what string, tokens int) (traces.Energy, bool) {
	mJ, resolution := l.Total()
	return traces.Energy{Device: device, What: what, Millijoule: mJ, Tokens: tokens, Resolution: resolution, Source: l.Source}, len(l.Steps) > 0
}

// Power is the mean power over a time in which the work stayed the same.
type Power struct {
	Watts       float64       `json:"watts"`
	Uncertainty float64       `json:"uncertainty_watts"` // by when exactly the counter stepped
	Over        time.Duration `json:"over_ns"`           // from the first step to the last
	Steps       int           `json:"steps"`
}

// Power returns the mean power between two times, from the first step of the counter
// in between to the last. An error says that there are too few.
func (l *Log) Power(from, to time.Time) (Power, error) {
	var in []Step
	for _, s := range l.Steps {
		if !s.Time.Before(from) && !s.Time.After(to) {
			in = append(in, s)
		}
	}
	if len(in) < 3 {
		return Power{}, fmt.Errorf("the %s stepped %d times in %.1f s, which is too few to know a power; measure for longer", l.Source, len(in), to.Sub(from).Seconds())
	}
	first, last := in[0], in[len(in)-1]
	over := last.Time.Sub(first.Time)
	p := Power{Watts: (last.Millijoule - first.Millijoule) / 1000 / over.Seconds(), Over: over, Steps: len(in)}
	p.Uncertainty = p.Watts * (first.Gap + last.Gap).Seconds() / over.Seconds()
	return p, nil
}
