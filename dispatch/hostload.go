package dispatch

import (
	"context"
	"math"
	"sync"
	"time"
)

// hostSampling is how often the load of other programs on the CPU is read.
const hostSampling = 10 * time.Millisecond

// HostCores is who shares the CPU's cores with its jobs.
type HostCores struct {
	Cores   int // that this program may use
	Threads int // that run jobs at most
	Beside  int // other threads of this program that have work all the time
}

// width returns how many threads run jobs while other programs keep so many cores busy, and the jobs ran on so many threads. A few cores do not count, since the system does
// something by the way too.
//
// Threads that have a core each are never interrupted, so jobs leave cores to the other programs if half of the threads remain. If not, they run on all: each then has its turns on a
// core, and what one that waits for its turn has not begun is done by the others.
func (h HostCores) width(now int, busy float64) int {
	if !(busy > math.Max(0.5, float64(h.Threads)/6)) {
		return h.Threads
	}
	wanted := busy // by other programs, which get as much as this one for each thread where there are not enough cores
	if own, left := float64(now+h.Beside), float64(h.Cores)-busy; own > left {
		wanted *= own / math.Max(left, 0.5)
	}
	if w := h.Cores - h.Beside - int(math.Round(math.Min(wanted, float64(h.Cores)))); 2*w >= h.Threads {
		return min(w, h.Threads)
	}
	return h.Threads
}

// WatchHost leaves cores that other programs keep busy to these. Jobs of the CPU then run on fewer threads, which others do not interrupt,
// and are expected to take as much longer. others says how many cores these were since it was last asked, false if that is not known; use
// sets how many of the threads run jobs.
func WatchHost(h HostCores, others func() (float64, bool), use func(int)) Watcher {
	return func(ctx context.Context, _ func(int) bool, report func(int, Condition)) {
		width := h.Threads
		defer use(h.Threads)
		tick := time.NewTicker(hostSampling)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			cores, ok := others()
			if !ok {
				continue
			}
			if w := h.width(width, cores); w != width {
				width = w
				report(Host, Condition{Slowed: float64(h.Threads) / float64(width)})
				use(width) // it may wait for a pass to end
			}
		}
	}
}

// watchAll does the work of several watchers at once, of which some may be nil.
func watchAll(all ...Watcher) Watcher {
	return func(ctx context.Context, busy func(int) bool, report func(int, Condition)) {
		var running sync.WaitGroup
		for _, w := range all {
			if w != nil {
				running.Go(func() { w(ctx, busy, report) })
			}
		}
		running.Wait()
	}
}
