package tasks

import (
	"slices"

	"gpt2scope/ceilings"
	"gpt2scope/cpu"
)

// vectorAdd is z = x + y.
func vectorAdd() *Task {
	t := elementwise("vector.add", 2, (*cpu.Team).Add, "add", func(z, x, y []float32) {
		for i := range z {
			z[i] = x[i] + y[i]
		}
	})
	t.Short = []int{1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1_000_000, 1 << 20, 1 << 22, 10_000_000}
	t.Arrays.Reference = func(_ Shape, in []View, i int) (float64, float64) {
		x, y := in[0].At(i), in[1].At(i)
		return x + y, abs(x) + abs(y)
	}
	return t
}

// vectorSquare is z = x x.
func vectorSquare() *Task {
	square := func(t *cpu.Team, z, x, _ []float32) error { return t.Square(z, x) }
	t := elementwise("vector.square", 1, square, "square", func(z, x, _ []float32) {
		for i := range z {
			z[i] = x[i] * x[i]
		}
	})
	t.Arrays.Reference = func(_ Shape, in []View, i int) (float64, float64) {
		x := in[0].At(i)
		return x * x, x * x
	}
	return t
}

// elementwise is a task that makes each element of z from those of x, and of y if it has two inputs: by the team, by a
// kernel of kernels.cu, which has four loads of each array on the way, and by plain loops.
func elementwise(name string, inputs int, team func(t *cpu.Team, z, x, y []float32) error, kernel string,
	loop func(z, x, y []float32)) *Task {
	return &Task{
		Name: name, DTypes: []string{Float32}, Sizes: lengths(1<<10, 1<<26), Of: vector,
		Cost: func(s Shape, _ string) (Cost, error) {
			n, err := length(s)
			in := 4 * n * float64(inputs)
			return Cost{FLOPs: n, Bytes: in + 4*n, In: int64(in), Out: int64(4 * n), Steps: 1, Multiply: ceilings.F32}, err
		},
		Ways: []Way{
			{Device: CPU, Variant: Tuned, // results past the caches where they do not fit
				CPU: func(t *cpu.Team, _ Shape, in []View, out View) (run, end func() error, err error) {
					z, x, y := out.Float32(), in[0].Float32(), in[inputs-1].Float32()
					return func() error { return team(t, z, x, y) }, nil, nil
				}},
			scalar(func(in []View, out View) { loop(out.Float32(), in[0].Float32(), in[inputs-1].Float32()) }),
			{Device: GPU, Variant: Tuned, GPU: tuned(kernel + "_tuned")},
			oneThread(kernel + "_thread"),
		},
		Arrays: &Arrays{
			Layout: func(s Shape, _ string) ([]Array, Array) {
				out := Array{s.Get("n"), Float32}
				return slices.Repeat([]Array{out}, inputs), out
			},
			Error: func(Shape, string) float64 { return 0x1p-24 },
		},
	}
}
