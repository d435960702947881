package tasks

import (
	"fmt"

	"gpt2scope/ceilings"
	"gpt2scope/cpu"
)

// vectorAdd is z = x + y.
func vectorAdd() *Task {
	return &Task{
		Name: "vector.add", Formula: "z[i] = x[i] + y[i]", DTypes: []string{Float32},
		Sizes: lengths(1<<10, 1<<26), Between: lengthsBetween,
		Cost: func(s Shape, _ string) (Cost, error) {
			n, err := length(s)
			return Cost{FLOPs: n, Bytes: 12 * n, In: int64(8 * n), Out: int64(4 * n), Steps: 1, Multiply: ceilings.F32}, err
		},
		Ways: []Way{
			{Device: CPU, Variant: Tuned, About: "all threads, SIMD, results past the caches where they do not fit"},
			{Device: CPU, Variant: "scalar", About: "a loop of Go in one thread", Plain: true, Most: upTo(1 << 24)},
		},
		Arrays: &Arrays{
			Layout: func(s Shape, _ string) ([]Array, Array) {
				a := Array{s.Get("n"), Float32}
				return []Array{a, a}, a
			},
			Reference: func(_ Shape, in []View, i int) (float64, float64) {
				x, y := in[0].At(i), in[1].At(i)
				return x + y, abs(x) + abs(y)
			},
			Error: func(Shape, string) float64 { return 0x1p-24 },
			CPU: map[string]CPUWay{
				Tuned: func(t *cpu.Team, _ Shape, in []View, out View) (func() error, func(), error) {
					z, x, y := out.Float32(), in[0].Float32(), in[1].Float32()
					return func() error { return t.Add(z, x, y) }, nil, nil
				},
				"scalar": func(_ *cpu.Team, _ Shape, in []View, out View) (func() error, func(), error) {
					z, x, y := out.Float32(), in[0].Float32(), in[1].Float32()
					return func() error {
						for i := range z {
							z[i] = x[i] + y[i]
						}
						return nil
					}, nil, nil
				},
			},
		},
	}
}

// lengths returns the shapes n = least, 2 least, ... up to most.
func lengths(least, most int) []Shape {
	var out []Shape
	for n := least; n <= most; n *= 2 {
		out = append(out, Shape{{"n", n}})
	}
	return out
}

// lengthsBetween returns three shapes between n and 2 n, at equal ratios.
func lengthsBetween(s Shape) []Shape {
	var out []Shape
	for _, ratio := range []float64{1.19, 1.41, 1.68} {
		out = append(out, Shape{{"n", int(float64(s.Get("n"))*ratio) / 64 * 64}})
	}
	return out
}

// upTo is of ways that are too slow for more than n values.
func upTo(n int) func(Shape) bool { return func(s Shape) bool { return s.Get("n") <= n } }

// length returns n of a shape that has nothing else.
func length(s Shape) (float64, error) {
	if n := s.Get("n"); len(s) == 1 && n >= 1 && n <= 1<<31 {
		return float64(n), nil
	}
	return 0, fmt.Errorf("shape %s: expected n=N, from 1 to 2^31", s)
}

func abs(x float64) float64 { return max(x, -x) }
