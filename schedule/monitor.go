package schedule

import (
	"context"
	"math"
	"slices"
	"sync"
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
}

// Condition says what a reading means for tasks. An idle GPU lowers its clock by itself, so that the clock counts only
// while tasks run. Utilisation cannot tell our tasks from others' work, so that it counts only while none runs.
func (r Reading) Condition(busy bool) Condition {
	c := Condition{Refused: !r.There, Free: r.Free, Slowed: 1}
	switch {
	case !r.There:
	case busy && r.Throttled && r.Clock > 0 && r.Most > r.Clock:
		c.Slowed = float64(r.Most) / float64(r.Clock)
	case !busy && r.Utilisation > 0:
		c.Slowed = 1 / (1 - math.Min(0.9, float64(r.Utilisation)/100))
	}
	return c
}

// Watcher reports the conditions of devices until ctx ends, and returns then. busy tells whether a device runs tasks.
type Watcher func(ctx context.Context, busy func(device int) bool, report func(device int, c Condition))

const (
	sampling = 100 * time.Millisecond // between two readings
	settled  = 12                     // readings without our tasks before utilisation is others': NVML averages a second
	stale    = 2 * time.Second        // after which a reading says nothing of now
)

// Watch returns what reads sensors, by device, nil for a device without one, and reports changes. tick says when. The
// sensors must not wait: see [NVML].
func Watch(read []func() Reading, tick <-chan time.Time) Watcher {
	return func(ctx context.Context, busy func(int) bool, report func(int, Condition)) {
		idle := make([]int, len(read)) // readings since a task ran
		last := make([]Condition, len(read))
		for {
			for d, r := range read {
				if r == nil {
					continue
				}
				if idle[d]++; busy(d) {
					idle[d] = 0
				}
				if c := r().Condition(idle[d] < settled); c != last[d] {
					report(d, c)
					last[d] = c
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-tick:
			}
		}
	}
}

// NVML returns a watcher of the GPUs at PCI addresses, by device, "" for none, until ctx ends. NVML is opened and read
// in goroutines of its own, so that nothing waits for it. Of a GPU that NVML does not show nothing is known.
func NVML(ctx context.Context, pci []string) Watcher {
	sensors := background(ctx, len(pci), func() ([]func() Reading, func()) {
		n, err := nvml.Open()
		if err != nil {
			return nil, func() {}
		}
		sensors := make([]func() Reading, len(pci))
		for i, at := range pci {
			if _, there := n.GPU(at); !there {
				continue
			}
			var utilisation atomic.Int64
			utilisation.Store(-1)
			go n.Sample(ctx, at, sampling, func(s nvml.Sample) { utilisation.Store(int64(s.Utilisation)) })
			sensors[i] = func() Reading {
				g, there := n.GPU(at)
				r := Reading{
					There: there, Free: int64(g.MemoryFree), Clock: g.SMClock, Most: g.SMClockMax,
					Throttled: slices.ContainsFunc(g.Throttle, nvml.Slows), Utilisation: int(utilisation.Load()),
				}
				if g.MemoryTotal > 0 {
					r.Free = max(1, r.Free)
				}
				return r
			}
		}
		return sensors, n.Close
	})
	return func(ctx context.Context, busy func(int) bool, report func(int, Condition)) {
		tick := time.NewTicker(sampling)
		defer tick.Stop()
		Watch(sensors, tick.C)(ctx, busy, report)
	}
}

// background returns sensors that say what those that open returns said last. What they say before that, or if that is
// long ago, is that nothing is known. open and its sensors may take as long as they like; close is called at the end.
func background(ctx context.Context, n int, open func() (sensors []func() Reading, close func())) []func() Reading {
	type reading struct {
		Reading
		at time.Time
	}
	last := make([]atomic.Pointer[reading], n)
	go func() {
		sensors, end := open()
		defer end()
		var all sync.WaitGroup
		for i, read := range sensors {
			if read == nil {
				continue
			}
			all.Go(func() {
				tick := time.NewTicker(sampling)
				defer tick.Stop()
				for ctx.Err() == nil {
					last[i].Store(&reading{read(), time.Now()})
					select {
					case <-ctx.Done():
					case <-tick.C:
					}
				}
			})
		}
		all.Wait()
	}()
	out := make([]func() Reading, n)
	for i := range out {
		out[i] = func() Reading {
			if r := last[i].Load(); r != nil && time.Since(r.at) < stale {
				return r.Reading
			}
			return Reading{There: true, Utilisation: -1}
		}
	}
	return out
}
