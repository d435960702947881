package dispatch

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
	Throttled   bool  // something holds the clocks down
	Utilisation int   // percent of the time in which a kernel of any process ran; -1: not known
}

// ConditionOf says what a reading means for the jobs of a GPU.
//
// A GPU that does not answer is refused, and memory that is not free cannot be used: both are facts. Clocks count only
// if something holds them down while jobs run, since an idle GPU lowers them by itself. Utilisation counts
// only if no job of ours has run for a while, since it cannot tell ours from others'. All else shows in the times of
// jobs.
func ConditionOf(r Reading, busy bool) Condition {
	c := Condition{Refused: !r.There, Free: r.Free, Slowed: 1}
	if !r.There {
		return c
	}
	if busy && r.Throttled && r.Clock > 0 && r.Most > r.Clock {
		c.Slowed = float64(r.Most) / float64(r.Clock)
	}
	if !busy && r.Utilisation > 0 {
		c.Slowed = 1 / (1 - math.Min(0.9, float64(r.Utilisation)/100))
	}
	return c
}

const (
	sampling = 100 * time.Millisecond // how often NVML is asked
	settles  = 12                     // readings without jobs of ours after which utilisation is that of others: NVML averages up to a second
)

// Watch returns what Stream.Watch takes: it reads GPUs, by device, nil for those without a sensor, in the
// background and reports what changes. Decisions never wait for it.
func Watch(read []func() Reading) func(ctx context.Context, busy func(device int) bool, report func(device int, c Condition)) {
	return func(ctx context.Context, busy func(int) bool, report func(int, Condition)) {
		idle := make([]int, len(read)) // readings since a job ran
		last := make([]Condition, len(read))
		tick := time.NewTicker(sampling)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for d, r := range read {
				if r == nil {
					continue
				}
				if idle[d]++; busy(d) {
					idle[d] = 0
				}
				c := ConditionOf(r(), idle[d] < settles)
				if c != last[d] {
					report(d, c)
				}
				last[d] = c
			}
		}
	}
}

// NVML returns what reads a GPU at a PCI address, nil if NVML does not show it: then it cannot tell that the GPU is
// lost either. It samples utilisation until ctx ends.
func NVML(ctx context.Context, n *nvml.NVML, pci string) func() Reading {
	if _, there := n.GPU(pci); !there {
		return nil
	}
	var utilisation atomic.Int64
	utilisation.Store(-1)
	go n.Sample(ctx, pci, sampling, func(s nvml.Sample) { utilisation.Store(int64(s.Utilisation)) })
	return func() Reading {
		g, there := n.GPU(pci)
		return Reading{
			There: there, Free: int64(g.MemoryFree), Clock: g.SMClock, Most: g.SMClockMax,
			Throttled: slices.ContainsFunc(g.Throttle, nvml.Slows), Utilisation: int(utilisation.Load()),
		}
	}
}
