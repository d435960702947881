package inject

import (
	"context"
	"sync"
	"time"

	"gpt2scope/cuda/nvml"
	"gpt2scope/energy"
	"gpt2scope/traces"
)

// counters samples all GPUs by NVML beside the command.
type counters struct {
	mu      sync.Mutex
	samples map[string][]nvml.Sample // by the GPU's UUID
	lack    error
	stop    func()
}

// period is how often a GPU updates what NVML reads of it.
const period = 100 * time.Millisecond

func startCounters(forget bool) *counters {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	c := &counters{samples: map[string][]nvml.Sample{}, stop: func() { cancel(); done.Wait() }}
	done.Go(func() { // opening NVML takes a while
		n, err := nvml.Open()
		if c.lack = err; err != nil {
			return
		}
		defer n.Close()
		var each sync.WaitGroup
		for _, g := range n.GPUs() {
			each.Go(func() {
				n.Sample(ctx, g.PCI, period, func(s nvml.Sample) {
					c.mu.Lock()
					defer c.mu.Unlock()
					list := c.samples[g.UUID]
					if forget {
						list = list[:0]
					}
					c.samples[g.UUID] = append(list, s)
				})
			})
		}
		each.Wait()
	})
	return c
}

// last returns the newest sample of each GPU.
func (c *counters) last() map[string]nvml.Sample {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]nvml.Sample{}
	for uuid, list := range c.samples {
		out[uuid] = list[len(list)-1]
	}
	return out
}

// events returns the counters of the GPUs that were recorded.
func (c *counters) events(h *traces.Header) (events []traces.Event) {
	for _, d := range h.Devices {
		events = append(events, energy.Events(c.samples[d.UUID], int32(d.ID), h.Process, h.Base)...)
	}
	if c.lack != nil && len(h.Devices) > 0 {
		h.NotRecorded = append(h.NotRecorded, "power, clock, memory and utilisation of the GPU: "+c.lack.Error())
	}
	return events
}
