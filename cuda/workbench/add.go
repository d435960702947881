package workbench

import (
	"gpt2scope/cuda"
	"gpt2scope/reference"
)

func (b *bench) add() trials {
	M, N := b.rows(), b.Config.Channels
	x, z := b.numbers(M*N, cuda.F32, b.sets, 2), b.numbers(M*N, b.dtype, b.sets, 2)
	return func(variant int32, _ string) []trial {
		return []trial{{
			before: x.restore, // the sum is made in place
			launch: func(set int) error {
				return b.Stream.Add(cuda.AddArgs{Variant: variant, X: x.ptr(set), Z: z.ptr(set), M: int32(M), N: int32(N),
					LDX: int32(N), LDZ: int32(N), DType: b.dtype})
			},
			check: func() (float64, error) {
				return b.compare(x, M, N, func(row int) []float64 { return reference.Add(x.host[row*N:][:N], z.host[row*N:][:N]) })
			},
		}}
	}
}
