package grade

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/predict"
)

// rows are of two machines with a GPU: its launch costs 20 us, the CPU takes 10 times as long for each FLOP.
func rows() (all []predict.Row) {
	for _, machine := range []string{"m1", "m2"} {
		for _, task := range []string{"a", "b"} {
			for i := range 16 {
				n := math.Exp2(10 + float64(i))
				for _, device := range []string{"cpu", "cuda:0"} {
					w := predict.Work{Task: task, DType: "float32", FLOPs: n, Bytes: 4 * n, Steps: 1, Rows: 1, FloorUs: n / 1e4, Memory: predict.Host}
					r := predict.Row{Machine: machine, Processor: device + " of " + machine, Device: device,
						Shape: fmt.Sprintf("n=%.0f", n), Work: w, Us: 1 + n/1e4}
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
	result := require.Value(Check(t.Context(), rows()))(t)
	if len(result.Scores) != 12 || result.Rows != 256 || result.Shapes != 128 || result.Noise != 0 {
		t.Errorf("%d scores of %+v", len(result.Scores), result)
	}
	for _, s := range result.Scores {
		choices := map[string]int{"sizes": 28, "task": 64, "CPU": 64}[s.Split]
		if s.Choices != choices {
			t.Errorf("%s, %s: %d choices; expected %d", s.Split, s.Way, s.Choices, choices)
			continue
		}
		switch mean := s.OverOracle; {
		case s.Way == "floor" && !(mean > 1.1 && s.Worst > 5 && s.Wrong > 0.1 && strings.HasPrefix(s.WorstOf, "a n=")),
			s.Way != "floor" && s.Split == "sizes" && mean > 1.1,
			s.Way == "model" && (mean > 1.02 || s.Median > 0.2 || s.Within < 0.8 || s.Times == 0):
			t.Errorf("%+v", s)
		}
		if (s.Way == "floor" || s.Way == "model") != (s.Times > 0) {
			t.Errorf("%s predicts %d times", s.Way, s.Times)
		}
	}
}

// What is held out of a fit is graded, and nothing else.
func TestHoldOut(t *testing.T) {
	all := require.Value(predict.Medians(rows()))(t)
	for _, s := range Splits(all) {
		held := map[string]int{}
		for i := range all {
			held[s.group(&all[i])]++
		}
		for name, n := range held {
			if name == "" {
				continue
			}
			fit := func(_ context.Context, known []predict.Row) (fitted, error) {
				has := slices.ContainsFunc(known, func(r predict.Row) bool { return s.group(&r) == name })
				if has || len(known) != len(all)-n {
					t.Errorf("%s: %d of %d rows are fitted without %d of %q", s.Name, len(known), len(all), n, name)
				}
				return fitted{}, nil
			}
			_, err := holdOut(t.Context(), all, func(r *predict.Row) bool { return s.group(r) == name }, way{fit: fit})
			require.NoError(t, err)
		}
	}
	if _, err := Check(t.Context(), nil); err == nil {
		t.Error("a check of nothing: no error")
	}
}

// A tree splits where the faster device changes, and needs two questions for a band.
func TestTree(t *testing.T) {
	var pairs []Pair
	add := func(flops, bytes, gpu float64) {
		w := predict.Work{FLOPs: flops, BytesIn: bytes}
		pairs = append(pairs, Pair{CPU: &predict.Row{Work: w, Us: 100}, GPU: &predict.Row{Work: w, Us: gpu}})
	}
	for i := range 20 {
		add(float64(1+i), 0, []float64{300, 30}[min(i/7, 1)]) // the GPU is faster from 8 FLOPs on
	}
	flops := func(p Pair) float64 { return p.GPU.FLOPs }
	stump := grow(pairs, 1, flops)
	for i := range 20 { // large copies are slow whatever the size
		add(float64(1+i), 1e6, 500)
	}
	tree := grow(pairs, 2, flops, func(p Pair) float64 { return p.GPU.BytesIn })
	for i, p := range pairs {
		if fast := p.GPU.Us < 100; tree(p) != fast || i < 20 && stump(p) != fast {
			t.Errorf("%g FLOPs with %g bytes: the tree says %v", p.GPU.FLOPs, p.GPU.BytesIn, tree(p))
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
		same := p.CPU.Shape == p.GPU.Shape && p.CPU.Machine == p.GPU.Machine && p.CPU.Task == p.GPU.Task
		if !same || p.GPU.Task == "a" && p.GPU.Memory != predict.Pinned {
			t.Fatalf("%+v and %+v", p.CPU, p.GPU)
		}
	}
}
