package dispatch

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// While other programs keep some cores busy, jobs of the CPU run on as many fewer threads and are expected to take longer, and after that, and at the end, on all.
func TestWatchHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		busy := []float64{0, 1.9, 3.2, -1, 4, 8.2, 16, 0.3, 4, 40}
		var used []int
		var slowed []float64
		done := make(chan struct{})
		go func() {
			WatchHost(HostCores{Cores: 16, Threads: 12, Beside: 3}, func() (float64, bool) {
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
		if want := []int{9, 12, 8, 12, 12}; !slices.Equal(used, want) {
			t.Errorf("jobs ran on %v threads in turns; expected %v", used, want)
		}
		if want := []float64{12.0 / 9, 1, 1.5, 1}; !slices.Equal(slowed, want) {
			t.Errorf("they were expected to take %v times as long; expected %v", slowed, want)
		}
	})
}

// How many threads jobs run on settles, whatever part of the cores other programs get while more threads want cores than there are: it does not change from one reading to the next.
func TestHostWidthSettles(t *testing.T) {
	h := HostCores{Cores: 16, Threads: 8, Beside: 8}
	for wanted, want := range map[float64]int{0: 8, 1: 8, 2: 6, 3: 5, 4: 4, 5: 8, 6: 8, 8: 8, 12: 8, 16: 8} {
		width := h.Threads
		for reading := range 10 {
			busy := wanted
			if all := wanted + float64(width+h.Beside); all > float64(h.Cores) { // each thread gets as much
				busy *= float64(h.Cores) / all
			}
			width = h.width(width, busy)
			if reading > 0 && width != want {
				t.Errorf("others want %g cores: %d threads at reading %d, expected %d", wanted, width, reading, want)
			}
		}
	}
}
