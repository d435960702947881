package dispatch

import (
	"fmt"
	"math"
	"strings"
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

// Load that is put on a device in the middle of a stream is found within 20 tasks that begin there after it, though a plan has runs of tasks
// of one kind. A policy that does not learn never finds it.
func TestStreamRecovers(t *testing.T) {
	first := prepared(t, 400, 0, 1)
	for device, name := range []string{"cpu", "cuda:0"} {
		for _, share := range []float64{0.25, 0.5, 1} {
			load := Injected{name, share}
			worst := 0
			for seed := range uint64(8) {
				p := first.again(seed)
				after := func(policy Policy) Recovery {
					m := *p.Simulation
					if err := m.Inject(load); err != nil {
						t.Fatal(err)
					}
					r := m.Run(policy)
					every(t, &m, r)
					return r.Recovery(device, r.since(load.After(len(m.Jobs))), p.Usual)
				}
				worst = max(worst, after(p.Ours()).Tasks)
				if r := after(DMDA("", p.Model)); share == 1 && r.Ever {
					t.Errorf("%s: without refinement predictions hold after %d tasks: this test shows nothing", load, r.Tasks)
				}
			}
			t.Logf("%s: recovered after %d tasks at most", load, worst)
			if worst > 20 {
				t.Errorf("%s: recovered after %d tasks, expected 20 at most", load, worst)
			}
		}
	}
}

// The same where jobs and other programs take turns on the CPU's cores, some milliseconds each: most jobs take no longer, and some many times as long. Nobody can predict which, but
// those that are late do not make the jobs after them be expected late for long, nor the stream much longer than load does that slows all jobs alike.
func TestStreamRecoversSlices(t *testing.T) {
	first := stored(t, 300, 1)
	for _, share := range []float64{0.25, 0.5, 1} {
		var all []Recovery
		worst, longer := 0, 0.0
		for seed := range uint64(16) {
			p := first.again(seed)
			m := *p.Simulation
			m.Loads = []Load{{Device: Host, After: len(m.Jobs) / 3, Factor: 1 + share, SliceUs: 3000}}
			r := m.Run(p.Ours())
			every(t, &m, r)
			all = append(all, r.Recovery(Host, r.since(m.Loads[0].After), p.Usual))
			worst = max(worst, all[seed].Tasks)
			m.Loads[0].SliceUs = 0
			longer = math.Max(longer, r.Makespan/m.Run(p.Ours()).Makespan)
		}
		t.Logf("share %g: recovered after %d tasks, at most %d; at most %.2f times as long as under even load", share, medianRecovery(all).Tasks, worst, longer)
		if worst > 20 || longer > 1.15 {
			t.Errorf("share %g: recovered after %d tasks at most, in %.2f times the time of even load at most; expected 20 and 1.15", share, worst, longer)
		}
	}
}

// Load that policies are compared under is not in the stream afterwards.
func TestCompareLeavesStream(t *testing.T) {
	p := prepared(t, 60, 0, 1)
	c, err := p.Compare(&Injected{"cuda:0", 1})
	if err != nil || len(c.Results) == 0 || len(p.Loads) != 0 {
		t.Errorf("%d results, %v; the stream has loads %+v", len(c.Results), err, p.Loads)
	}
}

// A recovery counts the tasks of the device that began after the load until predictions hold, and what they lost.
func TestRecovery(t *testing.T) {
	usual := truthOf(func(device int, j *Job) Times { return Times{Run: []float64{10, 4}[device]} })
	r := Result{Devices: []Device{{"cpu", 1, 0}, {"cuda:0", 2, 0}}}
	for i := range 40 {
		took, predicted := 10.0, 10.0
		if i >= 10 { // the load
			took = 20
		}
		if i >= 17 { // it was found
			predicted = 19
		}
		at := float64(i)
		r.Done = append(r.Done, Done{Job: &Job{ID: i}, Actual: Span{at, at + 0.5}, Times: Times{Run: took}, Decided: Estimate{Run: predicted}},
			Done{Job: &Job{ID: i}, Device: 1, Actual: Span{at, at + 0.7}, Times: Times{Run: 400}, Decided: Estimate{Run: 4}})
	}
	for _, c := range []struct {
		device int
		since  float64
		want   Recovery
	}{
		{Host, 0, Recovery{0, true, 0}}, // the predictions hold until the load comes
		{Host, 9.6, Recovery{5, true, 5 * (20 - 4)}},
		{Host, 20, Recovery{0, true, 0}},
		{1, 0, Recovery{40, false, 40 * (400 - 10)}},
		{1, 50, Recovery{}},
	} {
		if got := r.Recovery(c.device, c.since, usual); got != c.want {
			t.Errorf("device %d since %g: %+v, expected %+v", c.device, c.since, got, c.want)
		}
	}
	// Jobs that are too long and too short by turns are noise; the device has not changed.
	noisy := Result{Devices: r.Devices}
	for i := range 40 {
		noisy.Done = append(noisy.Done, Done{Job: &Job{ID: i}, Actual: Span{float64(i), float64(i) + 0.5}, Times: Times{Run: []float64{20, 10, 5}[i%3]}, Decided: Estimate{Run: 10}})
	}
	if got := noisy.Recovery(Host, 0, usual); !got.Ever || got.Tasks > 2 {
		t.Errorf("noise: %+v, expected that predictions hold", got)
	}
	if o := r.OverBest(usual); math.Abs(o.Worst-100) > 1e-9 || o.P99 < 99 || o.GeoMean < 5 {
		t.Errorf("over the best device %+v", o)
	}
}

// The recovery of several runs is that in the middle, and runs in which predictions never held count as the latest.
func TestMedianRecovery(t *testing.T) {
	never := Recovery{3, false, 9}
	for _, c := range []struct {
		all  []Recovery
		want Recovery
	}{
		{[]Recovery{{7, true, 1}, never, {4, true, 2}}, Recovery{7, true, 2}},
		{[]Recovery{never, {40, true, 1}, never}, Recovery{3, false, 9}},
		{[]Recovery{{5, true, 4}, {1, true, 8}}, Recovery{1, true, 6}},
	} {
		if got := medianRecovery(c.all); got != c.want {
			t.Errorf("%+v, expected %+v", got, c.want)
		}
	}
}

// truthOf is a truth of a function.
type truthOf func(int, *Job) Times

func (f truthOf) Times(device int, j *Job) Times { return f(device, j) }

func TestParseInjected(t *testing.T) {
	for text, want := range map[string]Injected{"cpu:50": {"cpu", 0.5}, "cuda:1:100": {"cuda:1", 1}} {
		if got, err := ParseInjected(text); err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for jobs, after := range map[int]int{1: 1, 2: 1, 8: 2, 300: 100} {
		if got := (Injected{}).After(jobs); got != after {
			t.Errorf("of %d jobs load begins after %d, expected %d", jobs, got, after)
		}
	}
	for _, bad := range []string{"", "cpu", "cpu:", "cpu:0", "cpu:101", "cpu:-1", "cpu:nan", "50"} {
		if got, err := ParseInjected(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
	if err := (&Simulation{Devices: []Device{{"cpu", 1, 0}}}).Inject(Injected{"cuda:0", 1}); err == nil || !strings.Contains(err.Error(), "no device cuda:0") {
		t.Errorf("a device that is not there: %v", err)
	}
}

// A device whose jobs take some times or some hundred times as long as predicted, in no way that they agree on, is corrected once they have lost 5 ms. Jobs that are late by little are not
// such a drift, nor are those of which some are on time.
func TestRefinementOfLateJobs(t *testing.T) {
	r := NewRefinement(2, 3)
	seen := 0
	observe := func(observed, predicted float64) bool {
		seen++
		return r.Observe(Host, seen%3, float64(seen), observed, predicted)
	}
	for i := range 60 {
		if observe([]float64{100, 40, 900}[i%3], []float64{100, 40, 300}[i%3]) && i > 20 {
			t.Fatalf("job %d is a drift, though every third alone is late", i)
		}
	}
	before := r.Factor(Host, 0)
	if !observe(11_200, 3400) {
		t.Fatal("a job that lost 7.8 ms is no drift")
	}
	if f := r.Factor(Host, 0) / before; f < 2 {
		t.Errorf("jobs are expected to take %.2f times as long after one that took 3.3 times", f)
	}
	for _, ratio := range []float64{500, 580, 290} {
		observe(ratio*14, 14)
	}
	if f := r.Factor(Host, 0) / before; f < 50 {
		t.Errorf("jobs are expected to take %.1f times as long after some that took 290 times and more", f)
	}
}
