package workbench

import (
	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/reference"
)

// activations are the model's: the kernel's name for each, and its formula.
var activations = map[gpt2.Activation]struct {
	kernel  cuda.Activation
	formula func(float64) float64
}{
	gpt2.GELUNew: {cuda.GELUTanh, reference.GELUTanh},
	gpt2.GELUErf: {cuda.GELUErf, reference.GELUErf},
	gpt2.ReLU:    {cuda.ReLU, reference.ReLU},
}

func (b *bench) activation() trials {
	M, N, act := b.rows(), b.Config.Inner, activations[b.Config.Activation]
	x, y := b.numbers(M*N, b.dtype, b.sets, 4), b.output(M*N, b.dtype)
	return func(variant int32, _ string) []trial {
		return []trial{{
			before: func() error { return b.poison(y) },
			launch: func(set int) error {
				return b.Stream.Activate(cuda.ActivationArgs{Variant: variant, X: x.ptr(set), Y: y.ptr(set), M: int32(M),
					N:   int32(N),
					LDX: int32(N), LDY: int32(N), DType: b.dtype, Act: act.kernel})
			},
			check: func() (float64, error) {
				return b.compare(y, M, N, func(row int) []float64 {
					out := make([]float64, N)
					for i, v := range x.host[row*N:][:N] {
						out[i] = act.formula(float64(v))
					}
					return out
				})
			},
		}}
	}
}
