package workbench

import (
	"cmp"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/reference"
)

// linear runs a product alone, with its bias: cuBLASLt's with the algorithm of its heuristic and with the fastest of
// 64.
func (b *bench) linear() trials {
	c, M := b.Config, b.rows()
	K, N := c.Channels, c.Channels
	switch b.Stage {
	case gpt2.StageCAttn:
		N = 3 * K
	case gpt2.StageCFC:
		N = c.Inner
	case gpt2.StageMLPCProj:
		K = c.Inner
	case gpt2.StageLMHead:
		N = (c.Vocab + 127) / 128 * 128 // as the executor pads it
	}
	x, w := b.numbers(M*K, b.dtype, b.sets, 1), b.numbers(N*K, b.dtype, b.sets, 1)
	yType := b.dtype
	if b.Stage == gpt2.StageLMHead && b.T == 1 {
		yType = cuda.F32 // a row that is sampled from
	}
	y := b.output(M*N, yType)
	a := cuda.LinearArgs{M: int32(M), N: int32(N), K: int32(K), LDX: int32(K), LDY: int32(N), DType: b.dtype, YType: yType}
	var bias []float32
	if b.Stage != gpt2.StageLMHead {
		// Both kinds of kernel read the same bias: some take it as float32, cuBLASLt as bfloat16.
		half, wide := b.numbers(N, b.dtype, 1, 1), b.numbers(N, cuda.F32, 1, 1)
		if b.err == nil {
			wide.host = half.host
			b.err = wide.restore()
		}
		if b.err == nil {
			a.Bias, bias = wide.ptr(0), wide.host
			if b.dtype == cuda.BF16 {
				a.BiasBF16 = half.ptr(0)
			}
		}
	}
	args := func(variant int32, set int) cuda.LinearArgs {
		a := a
		a.Variant, a.X, a.W, a.Y = variant, x.ptr(set), w.ptr(set), y.ptr(set)
		return a
	}
	return func(variant int32, name string) []trial {
		t := trial{
			before: func() error { return b.poison(y) },
			launch: func(set int) error { return b.Stream.Linear(args(variant, set)) },
			check: func() (float64, error) {
				return b.compare(y, M, N, func(row int) []float64 {
					return reference.LinearTransposed(x.host[row*K:][:K], w.host, bias)
				})
			},
		}
		if blas, err := b.Stream.NeedsBLAS(args(variant, 0)); err != nil || !blas {
			return []trial{t}
		}
		tuned := t
		t.parameters, tuned.parameters = "heuristic", "fastest of 64"
		t.before = func() error { return cmp.Or(b.lib.OpenBLAS(), b.poison(y)) }
		tuned.before = func() error { return cmp.Or(b.Stream.TuneLinear(args(variant, 0), 64), b.poison(y)) }
		return []trial{t, tuned}
	}
}
