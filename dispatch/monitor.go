package dispatch

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
	stale    = 2 * time.Second        // after which what was read says nothing of now
)

// unread is what is known of a GPU before it was read: nothing.
var unread = Reading{There: true, Utilisation: -1}

// Watch asks sensors, by device, nil for those without one, and reports what
// changes. The sensors must not wait for anything: see [Background].
func Watch(read []func() Reading) Watcher {
	return func(ctx context.Context, busy func(int) bool, report func(int, Condition)) {
		idle := make([]int, len(read)) // readings since a job ran
		last := make([]Condition, len(read))
		tick := time.NewTicker(sampling)
		defer tick.Stop()
		for {
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
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

// Background returns sensors that wait for nothing: each says what one of those that open returns, of the same place, said last,
// and that nothing is known before it said anything, or if that was long ago. open and what it returns may take as long as they like, or never
// return: they run in goroutines of their own until ctx ends. close is called after the last reading.
func Background(ctx context.Context, n int, open func() (sensors []func() Reading, close func())) []func() Reading {
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
			return unread
		}
	}
	return out
}

// NVML returns sensors of the GPUs at PCI addresses, "" for none, which wait for nothing: see [Background]. Of a GPU that NVML does not
// show nothing is known: it cannot tell that this GPU is lost either.
func NVML(ctx context.Context, pci []string) []func() Reading {
	return Background(ctx, len(pci), func() ([]func() Reading, func()) {
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
}
