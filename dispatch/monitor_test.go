package dispatch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A stream runs to its end while NVML hangs, when it is opened or when it is asked: nothing waits for it.
func TestNothingWaitsForNVML(t *testing.T) {
	for _, hangs := range []string{"open", "read"} {
		t.Run(hangs, func(t *testing.T) {
			m := drawn(60, 20, 2)
			s, all := fakes(t, m, 2)
			hanging, free := make(chan struct{}), make(chan struct{})
			defer close(free)
			ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errors.New("the stream waited for NVML"))
			defer cancel()
			sensors := Background(ctx, 2, func() ([]func() Reading, func()) {
				hang := func() Reading { close(hanging); <-free; return Reading{} }
				if hangs == "open" {
					hang()
				}
				return []func() Reading{nil, hang}, func() {}
			})
			<-hanging
			s.Watch = Watch(sensors)
			r, err := s.Run(ctx)
			if err != nil {
				t.Fatal(err)
			}
			once(t, m, r, all[0].done)
			there := 0
			for _, d := range r.Done {
				there += d.Device
			}
			if there == 0 {
				t.Error("no job ran on the GPU of which nothing is known")
			}
		})
	}
}

// What a sensor said counts until it is old; then nothing is known, and nothing is vetoed.
func TestBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		said := Reading{There: true, Free: 7, Utilisation: 50}
		ended, hang := false, make(chan struct{})
		n := 0
		sensors := Background(ctx, 2, func() ([]func() Reading, func()) {
			return []func() Reading{nil, func() Reading {
				if n++; n > 3 {
					<-hang
				}
				return said
			}}, func() { ended = true }
		})
		if got := sensors[1](); got != unread {
			t.Errorf("before it was read: %+v", got)
		}
		synctest.Wait()
		if got := sensors[1](); got != said {
			t.Errorf("%+v; the sensor said %+v", got, said)
		}
		time.Sleep(stale + 3*sampling)
		if got := sensors[1](); got != unread || ConditionOf(got, true) != (Condition{Slowed: 1}) {
			t.Errorf("%v after the last reading: %+v", stale, got)
		}
		if got := sensors[0](); got != unread {
			t.Errorf("without a sensor: %+v", got)
		}
		close(hang)
		cancel()
		synctest.Wait()
		if !ended {
			t.Error("the sensors were not closed")
		}
	})
}

// Utilisation counts once no job of ours has run for so long that NVML's average is of others alone. Throttled clocks count while
// jobs run. What does not change is not reported again.
func TestWatchUtilisation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		const busyFor = time.Second
		type report struct {
			at     time.Duration
			device int
			Condition
		}
		var reports []report
		read := func() Reading {
			return Reading{There: true, Utilisation: 50, Throttled: true, Clock: 1000, Most: 1500}
		}
		go Watch([]func() Reading{nil, read})(ctx,
			func(int) bool { return time.Since(start) < busyFor },
			func(d int, c Condition) { reports = append(reports, report{time.Since(start), d, c}) })
		time.Sleep(5 * time.Second)
		cancel()
		synctest.Wait()
		if len(reports) != 2 {
			t.Fatalf("reports %+v, expected two", reports)
		}
		ours, others := reports[0], reports[1]
		if ours.at != 0 || ours.device != 1 || ours.Slowed != 1.5 {
			t.Errorf("while jobs run: %+v, expected that clocks of two thirds count", ours)
		}
		if others.Slowed != 2 || others.at < busyFor+time.Second || others.at > busyFor+2*time.Second {
			t.Errorf("after the last job: %+v, expected that half of the GPU is others' from a second on after %v", others, busyFor)
		}
	})
}
