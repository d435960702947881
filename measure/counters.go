package measure

import (
	"context"
	"sync"
	"time"

	"gpt2scope/cuda/nvml"
	"gpt2scope/energy"
	"gpt2scope/gpt2"
	"gpt2scope/record"
	"gpt2scope/traces"
)

// counterPeriod is the time between readings of a GPU's power, clock and memory. The GPU
// updates its counters ten times a second; more readings would delay launches.
const counterPeriod = 50 * time.Millisecond

// leastUpdates is how many updates of the energy counter a reported energy needs. Each end
// of the run may be off by one update, so that of fewer most could belong to other work.
const leastUpdates = 3

// Counters samples the power, clock, memory, utilisation and energy of a GPU while a run is recorded. Those of a CPU,
// which has none of them, stay empty.
type Counters struct {
	device  int32
	from    time.Time // start of the run, after the warm-up
	samples []nvml.Sample
	stop    func()
	lack    string // why there are no samples, "" if there are
}

// StartCounters starts to sample the GPU that a backend runs on, and returns after the first sample: a reading delays
// launches, so the first one must come before the warm-up. If NVML is missing, [Counters.Finish] says so in the
// recording.
func StartCounters(gpu gpt2.Description) *Counters {
	c := &Counters{device: int32(gpu.Index), stop: func() {}}
	if !gpu.GPU {
		return c
	}
	n, err := nvml.Open()
	if err != nil {
		c.lack = err.Error()
		return c
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	first := make(chan struct{})
	begun := sync.OnceFunc(func() { close(first) })
	done.Go(func() {
		defer begun()
		if err := n.Sample(ctx, gpu.PCI, counterPeriod, func(s nvml.Sample) {
			c.samples = append(c.samples, s)
			begun()
		}); err != nil {
			c.lack = err.Error()
		}
	})
	<-first
	c.stop = sync.OnceFunc(func() {
		cancel()
		done.Wait()
		n.Close()
	})
	return c
}

// Begin marks the start of the run whose energy is reported.
func (c *Counters) Begin() { c.from = time.Now() }

// Stop ends the sampling. It may be called again.
func (c *Counters) Stop() { c.stop() }

// Finish ends the sampling, and adds the samples and the energy of the run, in which so many
// tokens were evaluated, to a recording.
func (c *Counters) Finish(r *record.Recorder, tokens int) {
	c.stop()
	var base, process int64
	r.Header(func(h *traces.Header) {
		base, process = h.Base, h.Process
		if c.lack != "" {
			h.NotRecorded = append(h.NotRecorded, "power, clock, memory and utilisation of the GPU: "+c.lack)
		} else if e, ok := runEnergy(c.samples, c.from, c.device, tokens); ok {
			h.Energy = append(h.Energy, e)
		}
	})
	r.Add(energy.Events(c.samples, c.device, process, base)...)
}

// runEnergy returns the energy from a moment on, which is that of the samples from the last one
// before it. It returns false if the counter was updated too seldom for a sum to be of this run.
func runEnergy(samples []nvml.Sample, from time.Time, device int32, tokens int) (traces.Energy, bool) {
	log := energy.Log{Source: nvml.TotalEnergy}
	for i, s := range samples {
		mJ := float64(s.Energy)
		switch {
		case s.Energy == 0: // not reported
			continue
		case s.Time.Before(from) || log.Began.IsZero():
			log.Began, log.First, log.Last = s.Time, mJ, mJ
		case mJ != log.Last:
			log.Steps = append(log.Steps, energy.Step{Time: s.Time, Gap: s.Time.Sub(samples[i-1].Time), Millijoule: mJ})
		}
		if log.Last = mJ; !s.Time.Before(from) {
			log.Ended = s.Time
		}
	}
	mJ, resolution := log.Total()
	return traces.Energy{Device: int(device), What: "run", Millijoule: mJ, Tokens: tokens, Resolution: resolution,
		Source: log.Source}, tokens > 0 && len(log.Steps) >= leastUpdates
}
