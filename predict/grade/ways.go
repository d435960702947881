package grade

import (
	"cmp"
	"context"
	"math"
	"slices"

	"gpt2scope/predict"
)

// way is a way to choose between CPU and GPU.
type way struct {
	name string
	fit  func(ctx context.Context, rows []predict.Row) (fitted, error) // to the medians of shapes
}

// fitted is a way that has learned.
type fitted struct {
	time  func(*predict.Row) predict.Estimate // of a row's work, not by its measured time; nil: none is predicted
	onGPU func(Pair) bool                     // nil if nothing that was known was measured on both devices
}

// ways are those that [Check] compares: the least time by the ceilings, a threshold of FLOPs for each task, a decision
// tree, and the cost model.
var ways = []way{{"floor", fitFloor}, {"threshold", fitThreshold}, {"tree", fitTree}, {"model", fitModel}}

// lesser chooses the device with the lesser predicted time.
func lesser(time func(*predict.Row) predict.Estimate) fitted {
	return fitted{time, func(p Pair) bool { return time(p.GPU).Us < time(p.CPU).Us }}
}

// fitFloor takes bytes at the highest rate of a copy that was measured.
func fitFloor(_ context.Context, rows []predict.Row) (fitted, error) {
	perByte := map[predict.Memory]float64{}
	for _, r := range rows {
		if moved, us := r.BytesIn+r.BytesOut, r.H2DUs+r.D2HUs; moved > 0 && us > 0 {
			if least, ok := perByte[r.Memory]; !ok || us/moved < least {
				perByte[r.Memory] = us / moved
			}
		}
	}
	return lesser(func(r *predict.Row) predict.Estimate {
		us := r.FloorUs + perByte[r.Memory]*(r.BytesIn+r.BytesOut)
		return predict.Estimate{Us: us, Low: us, High: math.Inf(1)}
	}), nil
}

func fitModel(ctx context.Context, rows []predict.Row) (fitted, error) {
	m, err := predict.Fit(ctx, rows)
	if err != nil {
		return fitted{}, err
	}
	return lesser(func(r *predict.Row) predict.Estimate {
		d, _ := m.Device(r)
		return m.Predict(d, &r.Work)
	}), nil
}

// fitThreshold takes the best number of FLOPs for each task, or for all tasks where nothing is known of one.
func fitThreshold(_ context.Context, rows []predict.Row) (fitted, error) {
	type op struct {
		task, dtype string
		memory      predict.Memory
	}
	of := map[op][]Pair{}
	for _, p := range Pairs(rows) {
		all, own := op{memory: p.GPU.Memory}, op{p.GPU.Task, p.GPU.DType, p.GPU.Memory}
		of[all], of[own] = append(of[all], p), append(of[own], p)
	}
	if len(of) == 0 {
		return fitted{}, nil
	}
	choose := map[op]func(Pair) bool{}
	for o, pairs := range of {
		choose[o] = grow(pairs, 1, func(p Pair) float64 { return p.GPU.FLOPs })
	}
	return fitted{onGPU: func(p Pair) bool {
		for _, o := range []op{{p.GPU.Task, p.GPU.DType, p.GPU.Memory}, {memory: p.GPU.Memory}} {
			if choose[o] != nil {
				return choose[o](p)
			}
		}
		return true
	}}, nil
}

func fitTree(_ context.Context, rows []predict.Row) (fitted, error) {
	pairs := Pairs(rows)
	if len(pairs) == 0 {
		return fitted{}, nil
	}
	return fitted{onGPU: grow(pairs, 4,
		func(p Pair) float64 { return p.CPU.FloorUs },
		func(p Pair) float64 { return p.GPU.FloorUs },
		func(p Pair) float64 { return p.CPU.FloorUs / p.GPU.FloorUs },
		func(p Pair) float64 { return p.GPU.BytesIn + p.GPU.BytesOut },
		func(p Pair) float64 { return p.GPU.Steps },
		func(p Pair) float64 { return p.GPU.Rows },
	)}, nil
}

// grow makes a decision tree (Breiman et al., "Classification and Regression Trees", 1984) that saves the most time: a
// wrong choice weighs as much as it costs, in logarithm.
func grow(pairs []Pair, depth int, features ...func(Pair) float64) (onGPU func(Pair) bool) {
	saves := func(p Pair) float64 { return math.Log(p.CPU.Us / p.GPU.Us) } // if it runs on the GPU
	all := 0.0
	for _, p := range pairs {
		all += saves(p)
	}
	leaf := func(Pair) bool { return all > 0 }
	if depth == 0 {
		return leaf
	}
	best, feature, at := max(all, 0), -1, 0.0
	for i, value := range features {
		pairs = slices.SortedFunc(slices.Values(pairs), func(a, b Pair) int { return cmp.Compare(value(a), value(b)) })
		below := 0.0
		for k := 1; k < len(pairs); k++ {
			below += saves(pairs[k-1])
			low, high := value(pairs[k-1]), value(pairs[k])
			if sum := max(below, 0) + max(all-below, 0); low < high && sum > best+1e-9 {
				best, feature, at = sum, i, (low+high)/2
			}
		}
	}
	if feature < 0 {
		return leaf
	}
	small := func(p Pair) bool { return features[feature](p) < at }
	large := func(p Pair) bool { return !small(p) }
	below := grow(slices.DeleteFunc(slices.Clone(pairs), large), depth-1, features...)
	above := grow(slices.DeleteFunc(slices.Clone(pairs), small), depth-1, features...)
	return func(p Pair) bool {
		if small(p) {
			return below(p)
		}
		return above(p)
	}
}
