package main

import (
	"context"
	"sync"
	"time"

	"gpt2scope/cuda/nvml"
	"gpt2scope/energy"
	"gpt2scope/record"
	"gpt2scope/traces"
)

// counterPeriod is how often a GPU is asked for its power, clock and memory: often
// enough for its counters, which step ten times a second, and seldom enough to keep out
// of the way of launches.
const counterPeriod = 50 * time.Millisecond

// leastSteps is how often the energy counter must have stepped for its sum to be
// reported: the error is then at most a third.
const leastSteps = 3

// counters are samples of a GPU while it is recorded.
type counters struct {
	device  int32
	from    time.Time // of the run after the warm-up
	samples []nvml.Sample
	stop    func()
	lack    string // why there are none
}

// startCounters begins to sample the GPU that a session runs on, and returns after the
// first sample: reading NVML holds up launches, so it comes before the warm-up. The CPU
// has no counters.
func startCounters(o *opened) *counters {
	gpu := o.backend.Describe()
	if !gpu.GPU {
		return nil
	}
	c := &counters{device: int32(gpu.Index), stop: func() {}}
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

// begin says that the run begins, to which the energy belongs.
func (c *counters) begin() {
	if c != nil {
		c.from = time.Now()
	}
}

// end ends the sampling.
func (c *counters) end() {
	if c != nil {
		c.stop()
	}
}

// finish ends the sampling, and gives the recorder the counters and the energy that the
// tokens took.
func (c *counters) finish(r *record.Recorder, tokens int) {
	if c == nil {
		return
	}
	c.stop()
	var log energy.Log
	log.Source = nvml.TotalEnergy
	r.Header(func(h *traces.Header) {
		if c.lack != "" {
			h.NotRecorded = append(h.NotRecorded, "power, clock, memory and utilisation of the GPU: "+c.lack)
			return
		}
		for i, s := range c.samples {
			mJ := float64(s.Energy)
			switch {
			case s.Energy == 0:
				continue
			case s.Time.Before(c.from):
				log.Began, log.First, log.Last = s.Time, mJ, mJ // the last reading before
				continue
			case log.Began.IsZero():
				log.Began, log.First, log.Last = s.Time, mJ, mJ
			case mJ != log.Last:
				log.Steps = append(log.Steps, energy.Step{Time: s.Time, Gap: s.Time.Sub(c.samples[i-1].Time), Millijoule: mJ})
			}
			log.Ended, log.Last = s.Time, mJ
		}
		// Of fewer steps of the counter most may belong to the time before or after.
		if e, ok := log.Record(int(c.device), "run", tokens); ok && tokens > 0 && len(log.Steps) >= leastSteps {
			h.Energy = append(h.Energy, e)
		}
	})
	var base, process int64
	r.Header(func(h *traces.Header) { base, process = h.Base, h.Process })
	r.Add(energy.Events(c.samples, c.device, process, base)...)
}
