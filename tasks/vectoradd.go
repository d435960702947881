package tasks

import (
	"gpt2scope/ceilings"
	"gpt2scope/cpu"
)

// vectorAdd is z = x + y.
func vectorAdd() *Task {
	return &Task{
		Name: "vector.add", DTypes: []string{Float32}, Sizes: lengths(1<<10, 1<<26), Of: vector,
		Short: []int{1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1_000_000, 1 << 20, 1 << 22, 10_000_000},
		Cost: func(s Shape, _ string) (Cost, error) {
			n, err := length(s)
			return Cost{FLOPs: n, Bytes: 12 * n, In: int64(8 * n), Out: int64(4 * n), Steps: 1, Multiply: ceilings.F32}, err
		},
		Ways: []Way{
			{Device: CPU, Variant: Tuned, // results past the caches where they do not fit
				CPU: func(t *cpu.Team, _ Shape, in []View, out View) (run, end func() error, err error) {
					z, x, y := out.Float32(), in[0].Float32(), in[1].Float32()
					return func() error { return t.Add(z, x, y) }, nil, nil
				}},
			scalar(func(in []View, out View) {
				z, x, y := out.Float32(), in[0].Float32(), in[1].Float32()
				for i := range z {
					z[i] = x[i] + y[i]
				}
			}),
			{Device: GPU, Variant: Tuned, GPU: tuned("add_tuned")}, // four loads of each array on the way
		},
		Arrays: &Arrays{
			Layout: vectors(2),
			Reference: func(_ Shape, in []View, i int) (float64, float64) {
				x, y := in[0].At(i), in[1].At(i)
				return x + y, abs(x) + abs(y)
			},
			Error: func(Shape, string) float64 { return 0x1p-24 },
		},
	}
}
