package measure

import (
	"context"
	"fmt"
	"time"

	"gpt2scope/cuda/nvml"
	"gpt2scope/energy"
	"gpt2scope/gpt2"
)

// Power is a mean power with its uncertainty.
type Power = energy.Power

// Meter is the energy counter of a device.
type Meter struct {
	energy.Counter
	Covers string // what its energy is of, in words
	Close  func()
}

// OpenMeter opens the energy counter of a backend's device: of a GPU NVML's, of the CPU
// RAPL's. The error says what is missing.
func OpenMeter(b gpt2.Backend) (*Meter, error) {
	switch d := b.Describe(); {
	case d.GPU:
		n, err := nvml.Open()
		if err != nil {
			return nil, fmt.Errorf("the GPU's energy cannot be measured: %w", err)
		}
		c, err := n.Counter(d.PCI)
		if err != nil {
			n.Close()
			return nil, err
		}
		return &Meter{c, "the whole GPU with its memory, whoever uses it", n.Close}, nil
	case d.Name == "cpu":
		r, err := energy.OpenRAPL()
		if err != nil {
			return nil, fmt.Errorf("the CPU's energy cannot be measured: %w; a GPU has a counter of its own: --device cuda", err)
		}
		return &Meter{r, r.Covers(), func() {}}, nil
	}
	return nil, fmt.Errorf("energy is measured of the fast executors; use --device cuda or --device cpu")
}

// settle is how long to run before power counts in a measurement of d: it may take a
// second to settle, and samples of it another to forget.
func (m *Meter) settle(d time.Duration) time.Duration {
	if m.Source() == nvml.AveragedPower {
		return min(2*time.Second, d)
	}
	return min(time.Second, d)
}

// Idle measures the power while nothing runs, for d and at most two seconds.
func (m *Meter) Idle(ctx context.Context, d time.Duration) (energy.Power, error) {
	wait := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	wait(m.settle(d))
	reading := energy.Start(m)
	from := time.Now()
	wait(min(2*time.Second, d))
	log, err := reading.Stop()
	if err != nil {
		return energy.Power{}, err
	}
	return log.Power(from, log.Ended)
}

// Energy is what work took.
type Energy struct {
	Rounds     int
	Elapsed    time.Duration
	Power      energy.Power
	Resolution float64       // mJ by which the counter stepped, median
	Period     time.Duration // from step to step, median
}

// Energy repeats work for d, after a warm-up, and measures its power. An error of the
// counter, not of the work, is a [CounterError].
func (m *Meter) Energy(ctx context.Context, w Work, d time.Duration) (e Energy, err error) {
	if _, _, err := w.Run(ctx, m.settle(d)); err != nil {
		return e, err
	}
	reading := energy.Start(m)
	e.Rounds, e.Elapsed, err = w.Run(ctx, d)
	to := time.Now()
	log, failed := reading.Stop()
	if err != nil {
		return e, err
	}
	if failed == nil {
		e.Power, failed = log.Power(to.Add(-e.Elapsed), to)
	}
	if failed != nil {
		return e, &CounterError{failed}
	}
	e.Resolution, e.Period = log.Resolution()
	return e, nil
}

// OfToken returns the energy of a token of the work in mJ at a power in W.
func (e Energy) OfToken(w Work, watts float64) float64 {
	return watts * e.Elapsed.Seconds() / float64(e.Rounds*w.Tokens) * 1e3
}

// CounterError says why an energy counter gave no power.
type CounterError struct{ error }
