package layers

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// measuredTimes makes times of depths, n of each with a relative noise.
func measuredTimes(random *rand.Rand, n int, noise float64, time func(layers int) float64, depths ...int) []timed {
	var all []timed
	for _, d := range depths {
		t := timed{layers: d}
		for range n {
			t.times = append(t.times, time(d)*(1+noise*random.NormFloat64()))
		}
		slices.Sort(t.times)
		t.median = (t.times[(n-1)/2] + t.times[n/2]) / 2
		all = append(all, t)
	}
	return all
}

// Times on a line with noise are taken for a line, nearly always; those of a cache that more and more layers do not
// fit, never.
func TestFitRejects(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	const rounds = 400
	lineOf := func(l int) float64 { return 0.2 + 0.3*float64(l) }
	small := func(l int) float64 { return 0.002 + 0.3*float64(l) } // the rest is less than the noise
	steeper := func(l int) float64 { return 0.1 + 0.2*float64(l) + 0.05*float64(l*l) }
	kneeAt3 := func(l int) float64 { return 0.1 + 0.2*float64(l) + 0.4*max(0, float64(l)-3) }
	for _, c := range []struct {
		what         string
		phase        string
		time         func(int) float64
		noise        float64
		depths       []int
		none, within int // of the rounds: no line
	}{
		{"a line", TaskDecode, lineOf, 0.01, []int{1, 2, 3, 4, 5, 6}, 0, rounds / 40},
		{"a line at far depths", TaskDecode, lineOf, 0.01, []int{1, 2, 4, 8, 16, 24}, 0, rounds / 40},
		{"a line with no rest", TaskDecode, small, 0.01, []int{1, 2, 3, 4, 5, 6}, 0, rounds / 20},
		{"a cost that rises", TaskDecode, steeper, 0.01, []int{1, 2, 3, 4, 5, 6}, rounds, rounds / 10},
		{"residuals no larger than much noise", TaskDecode, lineOf, 0.1, []int{1, 2, 3, 4, 5, 6}, 0, rounds / 10},
		{"residuals of a few times the noise", TaskDecode, steeper, 0.05, []int{1, 2, 3, 4, 5, 6}, rounds, rounds / 10},
		{"a knee", TaskDecode, kneeAt3, 0.01, []int{1, 2, 3, 4, 5, 6, 7, 8}, rounds, rounds / 10},
		{"a prefill whose last layer is half", TaskPrefill, func(l int) float64 { return 0.3*float64(l) - 0.1 }, 0.01, []int{1, 2, 3, 4, 5, 6}, 0, rounds / 40},
	} {
		none := 0
		for range rounds {
			f, ok := fit(c.phase, measuredTimes(random, 9, c.noise, c.time, c.depths...))
			if !ok {
				t.Fatal("no fit")
			}
			if f.Rejected != "" {
				none++
			}
		}
		if d := max(none-c.none, c.none-none); d > c.within {
			t.Errorf("%s: no line in %d of %d rounds", c.what, none, rounds)
		}
	}
}

// What a rejected line leaves: the cost of a layer from depth to depth.
func TestTrend(t *testing.T) {
	exactly := func(time func(int) float64, depths ...int) []timed {
		all := measuredTimes(rand.New(rand.NewPCG(1, 1)), 5, 0, time, depths...)
		for i := range all { // a noise of 0.001 ms
			all[i].times = []float64{all[i].median - 0.002, all[i].median - 0.001, all[i].median, all[i].median + 0.001, all[i].median + 0.002}
		}
		return all
	}
	square := func(l int) float64 { return 0.1 * float64(l*l) }
	f, ok := fit(TaskDecode, exactly(square, 1, 2, 3, 4, 6))
	if !ok || f.Rejected == "" || len(f.Steps) != 4 || !slices.Equal(f.Depths, []int{1, 2, 3, 4, 6}) {
		t.Fatalf("%+v", f)
	}
	for i, want := range []LayerStep{{1, 2, 0.3, 0}, {2, 3, 0.5, 0}, {3, 4, 0.7, 0}, {4, 6, 1, 0}} {
		s := f.Steps[i]
		if s.From != want.From || s.To != want.To || math.Abs(s.Cost-want.Cost) > 1e-9 || !(s.Error > 1e-4 && s.Error < 2e-3) {
			t.Errorf("%+v, want %+v", s, want)
		}
	}
	if s := f.Trend(); !strings.HasPrefix(s, "no line: a layer costs from 0.3 ms (1 to 2 layers) to 1 ms (4 to 6). The reason: ") {
		t.Error(s)
	}
	falls, _ := fit(TaskDecode, exactly(func(l int) float64 { return 1 - 1/float64(l) }, 1, 2, 3, 4, 5))
	if s := falls.Trend(); !strings.Contains(s, "from 0.05 ms (4 to 5 layers) to 0.5 ms (1 to 2). The reason: the times miss a line by up to 0.1") {
		t.Error(s)
	}
	below := exactly(func(l int) float64 { return 0.5*float64(l) - 0.4 }, 1, 2, 3, 4, 5)
	if f, _ := fit(TaskDecode, below); f.Trend() != "" || f.Impossible() != "the time of everything else is not known: the line gives it a time below 0" {
		t.Errorf("%+v: %s", f, f.Impossible())
	}
	if f, _ := fit(TaskPrefill, below); f.Rejected != "" || math.Abs(f.Rest()-0.1) > 1e-9 || f.Impossible() != "" {
		t.Errorf("%+v", f)
	}
}

// A line whose slope is hardly known is none, and the sentence has both phases and the gain.
func TestSentence(t *testing.T) {
	noisy := measuredTimes(rand.New(rand.NewPCG(3, 1)), 3, 0.9, func(l int) float64 { return 20 + 0.3*float64(l) }, 1, 2, 3, 4, 5, 6)
	if f, _ := fit(TaskDecode, noisy); f.Rejected == "" || f.Trend() == "" {
		t.Errorf("%+v", f)
	}
	of := func(n int, prefill, decode, bits float64) Variant {
		return Variant{Kind: KindDepth, Layers: n, Metrics: map[string]Metric{"prefill time": {Median: prefill}, "decode time": {Median: decode},
			"bits per token": {Median: bits}}}
	}
	r := Result{Variants: []Variant{of(1, 2, 0.1, 0.5), of(6, 52, 2.1, 0)}, Fits: []Fit{{Phase: TaskPrefill, B: 11}}}
	if got, want := r.Sentence(), "Each layer costs 11 ms of a prefill and 0.4 ms of a decode step, and gains 0.1 bits a token against the whole model "+
		"(on average, from the first depth to the last)."; got != want {
		t.Error(got)
	}
	if r.Variants[1] = of(6, 52, 2.1, 0.6); !strings.Contains(r.Sentence(), "and loses 0.02 bits a token") {
		t.Error(r.Sentence())
	}
	r.Variants[1] = of(6, math.Inf(1), math.NaN(), math.Inf(1))
	if r.Fits = nil; r.Sentence() != "" {
		t.Error(r.Sentence())
	}
}
