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
	time  func(*predict.Row) float64 // us of a row's work, not by its measured time; nil: none is predicted
	onGPU func(Pair) bool            // nil if nothing that was known was measured on both devices
}

// ways are those that [Check] compares: the least time by the ceilings, a threshold of FLOPs for each task, and the cost
// model.
var ways = []way{{"floor", fitFloor}, {"threshold", fitThreshold}, {"model", fitModel}}

// lesser chooses the device with the lesser predicted time.
func lesser(time func(*predict.Row) float64) fitted {
	return fitted{time, func(p Pair) bool { return time(p.GPU) < time(p.CPU) }}
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
	return lesser(func(r *predict.Row) float64 {
		return r.FloorUs + perByte[r.Memory]*(r.BytesIn+r.BytesOut)
	}), nil
}

func fitModel(ctx context.Context, rows []predict.Row) (fitted, error) {
	m, err := predict.Fit(ctx, rows)
	if err != nil {
		return fitted{}, err
	}
	return lesser(func(r *predict.Row) float64 {
		d, _ := m.Device(r)
		return m.Predict(d, &r.Work).Us
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
		choose[o] = threshold(pairs)
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

// threshold returns the choice by a number of FLOPs that saves the most time: a wrong choice weighs as much as it costs, in
// logarithm.
func threshold(pairs []Pair) (onGPU func(Pair) bool) {
	saves := func(p Pair) float64 { return math.Log(p.CPU.Us / p.GPU.Us) } // if it runs on the GPU
	pairs = slices.SortedFunc(slices.Values(pairs), func(a, b Pair) int { return cmp.Compare(a.GPU.FLOPs, b.GPU.FLOPs) })
	sum, best, from := 0.0, 0.0, math.Inf(1) // of pairs from a number on
	for i, p := range slices.Backward(pairs) {
		if sum += saves(p); sum > best+1e-9 && (i == 0 || pairs[i-1].GPU.FLOPs < p.GPU.FLOPs) {
			best, from = sum, p.GPU.FLOPs
			if i > 0 {
				from = (from + pairs[i-1].GPU.FLOPs) / 2
			}
		}
	}
	return func(p Pair) bool { return p.GPU.FLOPs >= from }
}
