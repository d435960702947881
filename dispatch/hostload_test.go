package dispatch

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// While other programs keep cores busy, jobs of the CPU run on as many fewer threads and are expected to take longer, and after that, and at the end, on all.
func TestWatchHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		busy := []float64{0, 1.9, 8.2, -1, 7.9, 40, 0.3, 4}
		var used []int
		var slowed []float64
		done := make(chan struct{})
		go func() {
			WatchHost(12, func() (float64, bool) {
				if len(busy) == 0 {
					return 0, false
				}
				n := busy[0]
				busy = busy[1:]
				return n, n >= 0 // below: not known
			}, func(n int) { used = append(used, n) })(ctx, nil, func(device int, c Condition) {
				if device != Host {
					t.Errorf("a report of device %d", device)
				}
				slowed = append(slowed, c.Slowed)
			})
			close(done)
		}()
		time.Sleep(20 * hostSampling)
		cancel()
		<-done
		if want := []int{4, 1, 12, 8, 12}; !slices.Equal(used, want) {
			t.Errorf("jobs ran on %v threads in turns; expected %v", used, want)
		}
		if want := []float64{3, 12, 1, 1.5}; !slices.Equal(slowed, want) {
			t.Errorf("they were expected to take %v times as long; expected %v", slowed, want)
		}
	})
}
