package tasks

import (
	"gpt2scope/ceilings"
	"gpt2scope/cpu"
)

// vectorSquare is z = x x.
func vectorSquare() *Task {
	return &Task{
		Name: "vector.square", DTypes: []string{Float32}, Sizes: lengths(1<<10, 1<<26), Of: vector,
		Cost: func(s Shape, _ string) (Cost, error) {
			n, err := length(s)
			return Cost{FLOPs: n, Bytes: 8 * n, In: int64(4 * n), Out: int64(4 * n), Steps: 1, Multiply: ceilings.F32}, err
		},
		Ways: []Way{
			{Device: CPU, Variant: Tuned,
				CPU: func(t *cpu.Team, _ Shape, in []View, out View) (run, end func() error, err error) {
					z, x := out.Float32(), in[0].Float32()
					return func() error { return t.Square(z, x) }, nil, nil
				}},
			scalar(func(in []View, out View) {
				z, x := out.Float32(), in[0].Float32()
				for i := range z {
					z[i] = x[i] * x[i]
				}
			}),
			{Device: GPU, Variant: Tuned, GPU: tuned("square_tuned")}, // four loads on the way
		},
		Arrays: &Arrays{
			Layout: vectors(1),
			Reference: func(_ Shape, in []View, i int) (float64, float64) {
				x := in[0].At(i)
				return x * x, x * x
			},
			Error: func(Shape, string) float64 { return 0x1p-24 },
		},
	}
}
