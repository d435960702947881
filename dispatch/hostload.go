package dispatch

import (
	"context"
	"math"
	"sync"
	"time"
)

// hostSampling is how often the load of other programs on the CPU is read.
const hostSampling = 10 * time.Millisecond

// hostWidth returns how many of the threads run the CPU's jobs while others keep so many cores busy: one for each core that is left. A few do not count, since
// the system does something by the way too.
func hostWidth(threads int, others float64) int {
	if !(others > math.Max(0.5, float64(threads)/6)) {
		return threads
	}
	return max(1, threads-int(math.Round(others)))
}

// WatchHost leaves the cores that other programs keep busy to these. Jobs of the CPU then run on fewer threads, which others do not make wait
// for each other, and are expected to take as much longer. others says how many cores these were since it was last asked, false if that is not known; use
// sets how many of the threads run jobs.
func WatchHost(threads int, others func() (float64, bool), use func(int)) Watcher {
	return func(ctx context.Context, _ func(int) bool, report func(int, Condition)) {
		width := threads
		defer use(threads)
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
			if w := hostWidth(threads, cores); w != width {
				width = w
				report(Host, Condition{Slowed: float64(threads) / float64(width)})
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
