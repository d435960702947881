package schedule

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"gpt2scope/cuda/nvml"
)

// Reading is what NVML says of a GPU.
type Reading struct {
	There       bool  // it answers
	Free        int64 // bytes of memory; 0: not known
	Clock, Most int   // MHz of the SMs, now and at most; 0: not known
	Throttled   bool  // something holds the clock down
	Utilisation int   // percent of the time in which a kernel of any process ran; -1: not known

	at time.Time
}

const (
	sampling = 100 * time.Millisecond // between two readings
	settled  = 12                     // readings without our tasks before utilisation is others': NVML averages a second
	stale    = 2 * time.Second        // after which a reading says nothing of now
)

// condition says what a reading means for tasks. An idle GPU lowers its clock by itself, so that the clock counts only
// while tasks run. Utilisation cannot tell our tasks from others' work, so that it counts only while none runs.
func (r *Reading) condition(busy bool) Condition {
	if r == nil {
		return Condition{}
	}
	c := Condition{Refused: !r.There, Free: r.Free}
	switch {
	case !r.There:
	case busy && r.Throttled && r.Clock > 0 && r.Most > r.Clock:
		c.Slowed = float64(r.Most) / float64(r.Clock)
	case !busy && r.Utilisation > 0:
		c.Slowed = 1 / (1 - math.Min(0.9, float64(r.Utilisation)/100))
	}
	return c
}

// NVML returns a function that says what NVML said last of the GPUs at PCI addresses, by device, "" for none; nil if it
// said nothing lately. NVML is opened and read in a goroutine of its own until ctx ends, so that nothing waits for it.
func NVML(ctx context.Context, pci []string) func(device int) *Reading {
	last := make([]atomic.Pointer[Reading], len(pci))
	go func() {
		n, err := nvml.Open()
		if err != nil {
			return
		}
		defer n.Close()
		utilisation := make([]atomic.Int64, len(pci))
		var shown []int
		for i, at := range pci {
			if _, there := n.GPU(at); there {
				shown = append(shown, i)
				utilisation[i].Store(-1)
				go n.Sample(ctx, at, sampling, func(s nvml.Sample) { utilisation[i].Store(int64(s.Utilisation)) })
			}
		}
		tick := time.NewTicker(sampling)
		defer tick.Stop()
		for ctx.Err() == nil {
			for _, i := range shown {
				g, there := n.GPU(pci[i])
				r := &Reading{There: there, Free: int64(g.MemoryFree), Clock: g.SMClock, Most: g.SMClockMax,
					Throttled:   slices.ContainsFunc(g.Throttle, nvml.Slows),
					Utilisation: int(utilisation[i].Load()), at: time.Now()}
				if g.MemoryTotal > 0 {
					r.Free = max(1, r.Free)
				}
				last[i].Store(r)
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	return func(device int) *Reading {
		if r := last[device].Load(); r != nil && time.Since(r.at) < stale {
			return r
		}
		return nil
	}
}
