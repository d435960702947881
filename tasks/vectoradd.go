package tasks

import (
	"gpt2scope/ceilings"
	"gpt2scope/cpu"
)

// vectorAdd is z = x + y.
func vectorAdd() *Task {
	return &Task{
		Name: "vector.add", Formula: "z[i] = x[i] + y[i]", DTypes: []string{Float32},
		Sizes: lengths(1<<10, 1<<26),
		Cost: func(s Shape, _ string) (Cost, error) {
			n, err := length(s)
			return Cost{FLOPs: n, Bytes: 12 * n, In: int64(8 * n), Out: int64(4 * n), Steps: 1, Multiply: ceilings.F32}, err
		},
		Ways: []Way{
			{Device: CPU, Variant: Tuned, About: "all threads, SIMD; results past the caches where they do not fit"},
			{Device: CPU, Variant: "scalar", About: "a loop in Go", Plain: true, Most: upTo(1 << 24)},
			{Device: GPU, Variant: Tuned, About: "float4, four loads of each array on the way"},
			{Device: GPU, Variant: "one-block", About: "<<<1, 256>>>", Plain: true, Most: upTo(mostOfBlock)},
			{Device: GPU, Variant: "one-thread", About: "<<<1, 1>>>", Plain: true, Most: upTo(mostOfThread)},
		},
		Arrays: &Arrays{
			Layout: vectors(2),
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
			GPU: map[string]GPUWay{
				Tuned:        launchOf("add_tuned", blockThreads, blockValues),
				"one-block":  launchOf("add_block", blockThreads, 0),
				"one-thread": launchOf("add_thread", 1, 0),
			},
		},
	}
}
