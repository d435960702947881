package tasks

import (
	"cmp"
	"math"

	"gpt2scope/ceilings"
	"gpt2scope/cpu"
	"gpt2scope/cuda"
)

// reduceSum is the sum of an array. The tuned ways add in an order that depends on n alone, so
// that a result is the same each time.
func reduceSum() *Task {
	return &Task{
		Name: "reduce.sum", DTypes: []string{Float32}, Sizes: lengths(1<<10, 1<<27), Of: vector,
		Short: []int{1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 10_000_000},
		Cost: func(s Shape, _ string) (Cost, error) {
			n, err := length(s)
			return Cost{FLOPs: n, Bytes: 4*n + 4, In: int64(4 * n), Out: 4, Steps: 2, Multiply: ceilings.F32}, err
		},
		Ways: []Way{
			{Device: CPU, Variant: Tuned, // sums of blocks, then of those in float64
				CPU: func(t *cpu.Team, s Shape, in []View, out View) (run, end func() error, err error) {
					partial := make([]float32, (s.Get("n")+cpu.SumBlock-1)/cpu.SumBlock)
					z, x := out.Float32(), in[0].Float32()
					return func() (err error) {
						z[0], err = t.Sum(x, partial)
						return err
					}, nil, nil
				}},
			scalar(func(in []View, out View) {
				sum := float32(0)
				for _, v := range in[0].Float32() {
					sum += v
				}
				out.Float32()[0] = sum
			}),
			{Device: GPU, Variant: Tuned, GPU: twoStages},
			oneThread("sum_thread"),
		},
		Arrays: &Arrays{
			Layout: func(s Shape, _ string) ([]Array, Array) { return []Array{{s.Get("n"), Float32}}, Array{1, Float32} },
			Reference: func(_ Shape, in []View, _ int) (sum, size float64) {
				for _, v := range in[0].Float32() {
					sum += float64(v)
					size += abs(float64(v))
				}
				return sum, size
			},
			// Rounding errors of sums of n/2^20 values in a row, as the tuned kernels have them, are far below; those of a
			// plain loop grow like the square root of n.
			Error: func(s Shape, _ string) float64 { return 0x1p-24 * (8 + 2*math.Sqrt(float64(min(s.Get("n"), 1<<24)))) },
		},
	}
}

// sumBlocks is the most blocks of the first stage: 8 on each of 132 SMs. It is the same on all
// GPUs, so that they give the same sum.
const sumBlocks = 1056

// twoStages sums in two launches: sums of blocks, then of those in float64.
func twoStages(g *GPUDevice, s Shape, in []cuda.Ptr, out cuda.Ptr, _ string) (Launch, func() error, error) {
	first, err := g.Function("sum_partial")
	second, err2 := g.Function("sum_final")
	if err = cmp.Or(err, err2); err != nil {
		return nil, nil, err
	}
	n := s.Get("n")
	blocks := min((n+2*blockValues-1)/(2*blockValues), sumBlocks) // twice as many loads on the way as of vectors
	partial, err := g.Device.Alloc(4 * sumBlocks)
	if err != nil {
		return nil, nil, err
	}
	return func(s *cuda.Stream) error {
		l := cuda.Launch{Grid: cuda.Dim{X: blocks}, Block: cuda.Dim{X: blockThreads}}
		return cmp.Or(first.Launch(s, l, partial, in[0], int64(n)),
			second.Launch(s, cuda.Launch{Block: cuda.Dim{X: 1024}}, out, partial, int64(blocks)))
	}, partial.Free, nil
}
