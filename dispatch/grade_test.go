package dispatch

import (
	"fmt"
	"math"
	"testing"
)

func (t Times) scaled(f float64) Times { return Times{t.In * f, t.Run * f, t.Out * f} }

// loaded is a truth in which a device takes longer from a job on.
type loaded struct {
	Truth
	device, from int
	factor       float64
}

func (l loaded) Times(device int, j *Job) Times {
	t := l.Truth.Times(device, j)
	if device == l.device && j.ID >= l.from {
		return t.scaled(l.factor)
	}
	return t
}

// wrong is an estimator with devices swapped or a device's times multiplied.
type wrong struct {
	Estimator
	swap   bool
	device int
	factor float64
}

func (w wrong) Estimate(device int, j *Job, in int64) Estimate {
	if w.swap {
		device = 1 - device
	}
	e := w.Estimator.Estimate(device, j, in)
	if device == w.device && w.factor != 0 {
		return e.times(w.factor)
	}
	return e
}

// geomean is that of choices over the oracle.
func geomean(c []Choice) float64 {
	sum := 0.0
	for _, x := range c {
		sum += math.Log(x.Us / x.BestUs)
	}
	return math.Exp(sum / float64(len(c)))
}

// Load on a device is found from the times of the jobs that run there: within 20 of these its
// predictions hold again. Without refinement they do not.
func TestLoadIsFound(t *testing.T) {
	first := prepared(t, 400, 0, 1)
	for device, name := range []string{"cpu", "gpu"} {
		for _, load := range []float64{0.25, 0.5, 1} {
			worst, blind, sum := 0, math.MaxInt, 0
			for seed := range uint64(8) {
				p := first.again(seed)
				m := *p.Simulation
				m.Truth, m.Usual = loaded{p.Truth, device, 200, 1 + load}, loaded{p.Usual, device, 200, 1 + load}
				n := m.Alone(p.Ours()).Recovered(device, 200, 5, 0.15)
				worst, sum = max(worst, n), sum+n
				blind = min(blind, m.Alone(DMDA("", p.Model)).Recovered(device, 200, 5, 0.15))
			}
			t.Logf("%s with %.0f %% load: recovered after %.1f jobs, at most %d; without refinement after %d at least", name, 100*load, float64(sum)/8, worst, blind)
			if worst > 20 {
				t.Errorf("%s with %.0f %% load: recovered after %d jobs, expected 20 at most", name, 100*load, worst)
			}
			if load > 0.25 && blind < 40 { // a load of 25 % hides in errors of the model
				t.Errorf("%s with %.0f %% load: without refinement it recovers after %d jobs: this test shows nothing", name, 100*load, blind)
			}
		}
	}
}

// A model that is wrong by a factor of ten, or has devices swapped, is not trusted for long.
func TestCorruptedModelIsFound(t *testing.T) {
	first := prepared(t, 200, 0, 1)
	for _, w := range []wrong{{swap: true, device: -1}, {device: 0, factor: 10}, {device: 1, factor: 10}, {device: 0, factor: 0.1}, {device: 1, factor: 0.1}} {
		for seed := range uint64(8) {
			p := first.again(seed)
			w.Estimator = p.Model
			g := p.Alone(Ours(w, Constants{p.Floors()}))
			after := geomean(g.Choices[20:120])
			blind := geomean(p.Alone(DMDA("", w)).Choices[20:120])
			name := fmt.Sprintf("swap %v, device %d x %g, seed %d", w.swap, w.device, w.factor, seed)
			if w.factor != 0.1 && w.device != 1 && blind < 1.5 {
				t.Errorf("%s: without refinement %.3f of the oracle: this test shows nothing", name, blind)
			}
			t.Logf("%s: after 20 jobs %.3f of the oracle, after 120 %.3f; without refinement %.3f", name, after, geomean(g.Choices[120:]), blind)
			if after > 2 {
				t.Errorf("%s: after 20 jobs %.3f of the oracle, expected 2 at most", name, after)
			}
		}
	}
}
