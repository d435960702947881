package measure_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"gpt2scope/gpt2"
	"gpt2scope/measure"
	"gpt2scope/reference/executor"
)

// watts200 is a counter of 200 W that steps every 4 ms.
type watts200 struct{ start time.Time }

func (c watts200) Source() string { return "a test's counter" }
func (c watts200) Read() (float64, error) {
	return 800 * float64(time.Since(c.start)/(4*time.Millisecond)), nil
}

// still is a counter that does not count.
type still struct{}

func (still) Source() string         { return "a stopped counter" }
func (still) Read() (float64, error) { return 5, nil }

// Energy of a token is power by time, of each kind of work; the session is empty afterwards.
func TestEnergy(t *testing.T) {
	s := session(t, fast(t), gpt2.Options{Batch: 2})
	prefill := gpt2.Pass{Batch: 2, Tokens: 20, Logits: gpt2.LogitsLast}
	m := measure.Meter{Counter: watts200{time.Now()}}
	for name, c := range map[string]struct {
		work   measure.Work
		tokens int
	}{"prefill": {measure.Prefilling(s, prefill, 0), 40}, "decode": {measure.Decoding(s, 30),
		2}, "last step": {measure.Decoding(s, 79), 2}} {
		d := 50 * time.Millisecond
		e, err := m.Energy(t.Context(), c.work, d)
		for errors.As(err, new(*measure.CounterError)) { // on a busy machine the counter is read too seldom
			d *= 2
			e, err = m.Energy(t.Context(), c.work, d)
		}
		if err != nil || math.Abs(e.Power.Watts-200) > e.Power.Uncertainty+1e-6 || e.Rounds < 1 || e.Elapsed < d ||
			s.Position() != 0 {
			t.Errorf("%s: %+v at %d, %v", name, e, s.Position(), err)
		}
		if want := e.Elapsed.Seconds() * 1e5 / float64(e.Rounds*c.tokens); math.Abs(e.OfToken(c.work, 100)/want-1) > 1e-9 {
			t.Errorf("%s: a token takes %g mJ, want %g", name, e.OfToken(c.work, 100), want)
		}
	}
	if p, err := m.Idle(t.Context(), 50*time.Millisecond); err == nil && math.Abs(p.Watts-200) > p.Uncertainty+1e-6 {
		t.Errorf("idle %+v", p)
	}
}

func TestEnergyFails(t *testing.T) {
	s := session(t, fast(t), gpt2.Options{})
	m := measure.Meter{Counter: still{}}
	if _, err := m.Energy(t.Context(), measure.Decoding(s, 3), 10*time.Millisecond); !errors.As(err,
		new(*measure.CounterError)) {
		t.Errorf("a counter that stands still: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	cancel(why)
	if _, err := m.Energy(ctx, measure.Decoding(s, 3), time.Hour); !errors.Is(err, why) ||
		errors.As(err, new(*measure.CounterError)) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := measure.OpenMeter(executor.New()); err == nil {
		t.Error("the reference backend has an energy counter")
	}
}
