package grade

import (
	"cmp"
	"context"
	"math"
	"slices"

	"gpt2scope/predict"
)

// Way is a way to choose between CPU and GPU.
type Way struct {
	Name, About string

	// Fit learns from the medians of shapes. Several goroutines may call it at once.
	Fit func(ctx context.Context, rows []predict.Row) (Fitted, error)
}

// Fitted is a way that has learned.
type Fitted struct {
	Time  func(*predict.Row) predict.Estimate // of a row's work, not by its measured time; nil: the way predicts no times
	OnGPU func(Pair) bool                     // nil if nothing that was known was measured on both devices
}

// Ways lists those that [Check] compares.
func Ways() []Way {
	return []Way{
		{"floor", "the least time by the ceilings, and bytes at the highest rate of a copy that was measured", fitFloor},
		{"threshold", "the GPU from so many FLOPs on, the best number for each task", fitThreshold},
		{"tree", "a decision tree of depth 4 on what is known of the work", fitTree},
		{"model", "the cost model of infer tasks fit", fitModel},
	}
}

// lesser chooses the device with the lesser predicted time.
func lesser(time func(*predict.Row) predict.Estimate) Fitted {
	return Fitted{time, func(p Pair) bool { return time(p.GPU).Us < time(p.CPU).Us }}
}

func fitFloor(_ context.Context, rows []predict.Row) (Fitted, error) {
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

func fitModel(ctx context.Context, rows []predict.Row) (Fitted, error) {
	m, err := predict.Fit(ctx, rows)
	if err != nil {
		return Fitted{}, err
	}
	return lesser(func(r *predict.Row) predict.Estimate {
		d, _ := m.Device(r)
		return m.Predict(d, &r.Work)
	}), nil
}

// op names a threshold: without a task it is that of all tasks.
type op struct {
	task, dtype string
	memory      predict.Memory
	cold        bool
}

func fitThreshold(_ context.Context, rows []predict.Row) (Fitted, error) {
	of := map[op][]Pair{}
	names := func(p Pair) [2]op {
		r := p.GPU
		return [2]op{{r.Task, r.DType, r.Memory, r.Cold}, {memory: r.Memory, cold: r.Cold}}
	}
	for _, p := range Pairs(rows) {
		for _, o := range names(p) {
			of[o] = append(of[o], p)
		}
	}
	if len(of) == 0 {
		return Fitted{}, nil
	}
	from := map[op]float64{}
	for o, pairs := range of {
		from[o], _ = bestSplit(pairs, func(p Pair) float64 { return p.GPU.FLOPs }, false)
	}
	return Fitted{OnGPU: func(p Pair) bool {
		for _, o := range names(p) {
			if least, ok := from[o]; ok {
				return p.GPU.FLOPs >= least
			}
		}
		return true
	}}, nil
}

// gain is what the GPU saves of a pair, in logarithm; less than 0 if the CPU is faster.
func gain(p Pair) float64 { return math.Log(p.CPU.Us / p.GPU.Us) }

// bestSplit returns from which value on pairs should run on the GPU, and those below on the CPU, and the sum of gains
// there. With either, it may also be the other way round.
func bestSplit(pairs []Pair, value func(Pair) float64, either bool) (at, most float64) {
	pairs = slices.SortedFunc(slices.Values(pairs), func(a, b Pair) int { return cmp.Compare(value(a), value(b)) })
	above, all := 0.0, 0.0
	for _, p := range pairs {
		all += gain(p)
	}
	above, at, most = all, math.Inf(-1), all
	for i, p := range pairs {
		above -= gain(p)
		next := math.Inf(1)
		if i+1 < len(pairs) {
			next = value(pairs[i+1])
		}
		if next == value(p) {
			continue
		}
		sum := above
		if either {
			sum = max(above, all-above)
		}
		if sum > most+1e-12 {
			most, at = sum, next
			if !math.IsInf(next, 1) {
				at = (value(p) + next) / 2
			}
		}
	}
	return at, most
}

// treeFeatures are what a tree asks for, in logarithms but for the last.
var treeFeatures = []func(Pair) float64{
	func(p Pair) float64 { return math.Log(p.CPU.FloorUs) },
	func(p Pair) float64 { return math.Log(p.GPU.FloorUs) },
	func(p Pair) float64 { return math.Log(p.CPU.FloorUs / p.GPU.FloorUs) },
	func(p Pair) float64 { return math.Log1p(p.GPU.BytesIn + p.GPU.BytesOut) },
	func(p Pair) float64 { return math.Log1p(p.GPU.Steps) },
	func(p Pair) float64 { return math.Log1p(p.GPU.Rows) },
	func(p Pair) float64 { return map[bool]float64{true: 1}[p.GPU.Cold] },
}

// tree is a decision tree (Breiman et al., "Classification and Regression Trees", 1984). A leaf has no branches.
type tree struct {
	feature      func(Pair) float64
	at           float64
	below, above *tree
	gpu          bool
}

// grow makes a tree that saves the most time: a wrong choice weighs as much as it costs.
func grow(pairs []Pair, depth int) *tree {
	t, most := &tree{}, 0.0
	for _, p := range pairs {
		most += gain(p)
	}
	t.gpu, most = most > 0, max(most, 0)
	for _, feature := range treeFeatures {
		if at, sum := bestSplit(pairs, feature, true); depth > 0 && sum > most+1e-9 {
			t.feature, t.at, most = feature, at, sum
		}
	}
	if t.feature == nil {
		return t
	}
	below := slices.DeleteFunc(slices.Clone(pairs), func(p Pair) bool { return t.feature(p) >= t.at })
	above := slices.DeleteFunc(slices.Clone(pairs), func(p Pair) bool { return t.feature(p) < t.at })
	t.below, t.above = grow(below, depth-1), grow(above, depth-1)
	return t
}

func fitTree(_ context.Context, rows []predict.Row) (Fitted, error) {
	const depth = 4
	pairs := Pairs(rows)
	if len(pairs) == 0 {
		return Fitted{}, nil
	}
	root := grow(pairs, depth)
	return Fitted{OnGPU: func(p Pair) bool {
		t := root
		for t.feature != nil {
			if t.feature(p) >= t.at {
				t = t.above
			} else {
				t = t.below
			}
		}
		return t.gpu
	}}, nil
}
