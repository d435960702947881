package grade

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gpt2scope/predict"
)

// rows are of two machines with a GPU: its launch costs 20 us, the CPU takes 10 times as long for each FLOP.
func rows() (all []predict.Row) {
	for _, machine := range []string{"m1", "m2"} {
		for _, task := range []string{"a", "b"} {
			for i := range 16 {
				n := math.Exp2(10 + float64(i))
				for _, device := range []string{"cpu", "cuda:0"} {
					w := predict.Work{Task: task, DType: "float32", FLOPs: n, Bytes: 4 * n, Steps: 1, Rows: 1, FloorUs: n / 1e4}
					r := predict.Row{Machine: machine, Processor: device + " of " + machine, Device: device, Shape: fmt.Sprintf("n=%.0f", n), Work: w, Us: 1 + n/1e4}
					if device != "cpu" {
						r.FloorUs, r.Us, r.Memory = n/1e5, 20+n/1e5, predict.Resident
					}
					all = append(all, r, r) // two repeats
				}
			}
		}
	}
	return all
}

// All ways are graded on all splits; on times that follow its law the model is right, and floors are wrong where
// launches decide.
func TestCheck(t *testing.T) {
	result, err := Check(t.Context(), rows())
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Scores) != 12 || result.Rows != 256 || result.Shapes != 128 || result.Noise != 0 {
		t.Errorf("%d scores of %d rows and %d shapes with noise %g", len(result.Scores), result.Rows, result.Shapes, result.Noise)
	}
	for _, s := range result.Scores {
		choices := map[string]int{"sizes": 28, "task": 64, "CPU": 64}[s.Split]
		if s.Choices != choices {
			t.Errorf("%s, %s: %d choices; expected %d", s.Split, s.Way, s.Choices, choices)
			continue
		}
		switch mean := s.OverOracle.Value; {
		case s.Way == "floor" && !(mean > 1.1 && s.Worst > 5 && s.Wrong > 0.1 && strings.HasPrefix(s.WorstOf, "a n=")),
			s.Way != "floor" && s.Split == "sizes" && mean > 1.1,
			s.Way == "model" && (mean > 1.02 || s.Median.Value > 0.2 || *s.Within < 0.8 || s.Times == 0):
			t.Errorf("%+v, over the oracle %+v", s, s.OverOracle)
		}
		if (s.Way == "floor" || s.Way == "model") != (s.Times > 0) {
			t.Errorf("%s predicts %d times", s.Way, s.Times)
		}
		if !(s.OverOracle.Low <= s.OverOracle.Value && s.OverOracle.Value <= s.OverOracle.High) {
			t.Errorf("%s: %+v", s.Way, s.OverOracle)
		}
	}
}

// What is held out of a fit is graded, and nothing else.
func TestHoldOut(t *testing.T) {
	all, err := predict.Medians(rows())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range Splits(all) {
		held := map[string]int{}
		for i := range all {
			held[s.group(&all[i])]++
		}
		for name, n := range held {
			if name == "" {
				continue
			}
			_, err := holdOut(t.Context(), all, func(r *predict.Row) bool { return s.group(r) == name }, Way{Fit: func(_ context.Context, known []predict.Row) (Fitted, error) {
				if len(known) != len(all)-n || slices.ContainsFunc(known, func(r predict.Row) bool { return s.group(&r) == name }) {
					t.Errorf("%s: %d of %d rows are fitted without %d of %q", s.Name, len(known), len(all), n, name)
				}
				return Fitted{}, nil
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := Check(t.Context(), nil); err == nil {
		t.Error("a check of nothing: no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Check(ctx, rows()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A threshold and a tree lie where the faster device changes, and a tree needs two questions for a band.
func TestSplits(t *testing.T) {
	pair := func(flops, gpu, bytes float64) Pair {
		w := predict.Work{FLOPs: flops, FloorUs: flops, BytesIn: bytes}
		return Pair{CPU: &predict.Row{Work: w, Us: 100}, GPU: &predict.Row{Work: w, Us: gpu}}
	}
	var pairs []Pair
	for i := range 20 {
		gpu := 300.0
		if i >= 7 {
			gpu = 30
		}
		pairs = append(pairs, pair(float64(1+i), gpu, 0))
	}
	if at, saved := bestSplit(pairs, func(p Pair) float64 { return p.GPU.FLOPs }, false); at != 7.5 || math.Abs(saved-13*math.Log(100./30)) > 1e-9 {
		t.Errorf("the GPU from %g on saves %g", at, saved)
	}
	for i := range 20 { // large copies are slow whatever the size
		pairs = append(pairs, pair(float64(1+i), 500, 1e6))
	}
	root := grow(pairs, 4)
	for _, p := range pairs {
		at := root
		for at.feature != nil {
			if at.feature(p) >= at.at {
				at = at.above
			} else {
				at = at.below
			}
		}
		if at.gpu != (p.GPU.Us < 100) {
			t.Errorf("%g FLOPs with %g bytes: %v", p.GPU.FLOPs, p.GPU.BytesIn, at.gpu)
		}
	}
}

// Times on data in the GPU's memory are choices only of tasks that have no others.
func TestPairs(t *testing.T) {
	all := rows()
	for i := range all {
		if r := &all[i]; r.Task == "a" && r.Device != "cpu" && i%4 == 2 {
			r.Memory, r.BytesIn = predict.Pinned, 8
		}
	}
	for _, p := range Pairs(all) {
		if p.GPU.Task == "a" && p.GPU.Memory != predict.Pinned || p.CPU.Shape != p.GPU.Shape || p.CPU.Machine != p.GPU.Machine || p.CPU.Task != p.GPU.Task {
			t.Fatalf("%+v and %+v", p.CPU, p.GPU)
		}
	}
}
