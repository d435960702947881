package workbench

import (
	"gpt2scope/cuda"
	"gpt2scope/reference"
)

func (b *bench) layerNorm() trials {
	M, C, eps := b.rows(), b.Config.Channels, b.Config.Epsilon
	x := b.numbers(M*C, cuda.F32, b.sets, 2)
	gain, bias := b.numbers(C, cuda.F32, 1, 1), b.numbers(C, cuda.F32, 1, 1)
	y := b.output(M*C, b.dtype)
	return func(variant int32, _ string) []trial {
		return []trial{{
			before: func() error { return b.poison(y) },
			launch: func(set int) error {
				return b.Stream.LayerNorm(cuda.LayerNormArgs{Variant: variant, X: x.ptr(set), Gain: gain.ptr(0), Bias: bias.ptr(0),
					Y: y.ptr(set),
					M: int32(M), C: int32(C), LDX: int32(C), LDY: int32(C), YType: b.dtype, Eps: float32(eps)})
			},
			check: func() (float64, error) {
				return b.compare(y, M, C, func(row int) []float64 {
					return reference.LayerNorm(x.host[row*C:][:C], gain.host,
						bias.host, eps)
				})
			},
		}}
	}
}
