package tasks

import (
	"gpt2scope/ceilings"
	"gpt2scope/cpu"
)

// vectorSquare is z = x x, as a product and by the functions powf and pow.
func vectorSquare() *Task {
	square := func(by cpu.Power) CPUWay {
		return func(t *cpu.Team, _ Shape, in []View, out View) (func() error, func(), error) {
			z, x := out.Float32(), in[0].Float32()
			return func() error { return t.Square(z, x, by) }, nil, nil
		}
	}
	return &Task{
		Name: "vector.square", Formula: "z[i] = x[i]^2", DTypes: []string{Float32},
		Sizes: lengths(1<<10, 1<<26),
		Cost: func(s Shape, _ string) (Cost, error) {
			n, err := length(s)
			return Cost{FLOPs: n, Bytes: 8 * n, In: int64(4 * n), Out: int64(4 * n), Steps: 1, Multiply: ceilings.F32}, err
		},
		Ways: []Way{
			{Device: CPU, Variant: Tuned, About: "a*a: all threads, SIMD"},
			{Device: CPU, Variant: "powf", About: "powf(a, 2) of the C library: all threads", Plain: true, Most: upTo(1 << 24)},
			{Device: CPU, Variant: "pow", About: "pow(a, 2) of the C library, in float64: all threads", Plain: true, Most: upTo(1 << 24)},
			{Device: CPU, Variant: "scalar", About: "a*a: a loop in Go", Plain: true, Most: upTo(1 << 24)},
			{Device: GPU, Variant: Tuned, About: "a*a: float4, four loads on the way"},
			{Device: GPU, Variant: "powf", About: "powf(a, 2): else as tuned", Plain: true},
			{Device: GPU, Variant: "pow", About: "pow(a, 2) in float64: else as tuned", Plain: true},
			{Device: GPU, Variant: "one-block", About: "a*a: <<<1, 256>>>", Plain: true, Most: upTo(mostOfBlock)},
			{Device: GPU, Variant: "one-thread", About: "a*a: <<<1, 1>>>", Plain: true, Most: upTo(mostOfThread)},
		},
		Arrays: &Arrays{
			Layout: vectors(1),
			Reference: func(_ Shape, in []View, i int) (float64, float64) {
				x := in[0].At(i)
				return x * x, x * x
			},
			Error: func(Shape, string) float64 { return 0x1p-21 }, // powf of CUDA: 4 ulp
			CPU: map[string]CPUWay{
				Tuned: square(cpu.Multiply), "powf": square(cpu.Powf), "pow": square(cpu.Pow),
				"scalar": func(_ *cpu.Team, _ Shape, in []View, out View) (func() error, func(), error) {
					z, x := out.Float32(), in[0].Float32()
					return func() error {
						for i := range z {
							z[i] = x[i] * x[i]
						}
						return nil
					}, nil, nil
				},
			},
			GPU: map[string]GPUWay{
				Tuned:        launchOf("square_tuned", blockThreads, blockValues),
				"powf":       launchOf("square_powf", blockThreads, blockValues, float32(2)),
				"pow":        launchOf("square_pow", blockThreads, blockValues, float64(2)),
				"one-block":  launchOf("square_block", blockThreads, 0),
				"one-thread": launchOf("square_thread", 1, 0),
			},
		},
	}
}
