package workbench

import (
	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/reference"
)

// byRows are the trials of an operation that computes b.rows() rows of y, of which want gives one by the formula. If y
// holds numbers, the operation adds to them.
func (b *bench) byRows(y *array, width int, launch func(variant int32, set int) error,
	want func(row int) []float64) trials {
	return func(variant int32, _ string) []trial {
		return []trial{{
			before: func() error {
				if y.host != nil {
					return y.restore()
				}
				return b.poison(y)
			},
			launch: func(set int) error { return launch(variant, set) },
			check:  func() (float64, error) { return b.compare(y, b.rows(), width, want) },
		}}
	}
}

func (b *bench) embed() trials {
	c := b.Config
	wte, wpe := b.numbers(c.Vocab*c.Channels, b.dtype, 1, 1), b.numbers(c.Positions*c.Channels, b.dtype, 1, 1)
	x := b.output(b.rows()*c.Channels, cuda.F32)
	ids := make([]int32, b.rows())
	for i := range ids {
		ids[i] = int32(b.random.IntN(c.Vocab))
	}
	idsAt, pos := b.ints(ids), b.positions()
	return b.byRows(x, c.Channels, func(_ int32, set int) error {
		return b.Stream.Embed(cuda.EmbedArgs{DType: b.dtype, IDs: idsAt.Ptr(), Pos: pos.Ptr(), WTE: wte.ptr(0),
			WPE: wpe.ptr(0), X: x.ptr(set), B: int32(b.B), T: int32(b.T), C: int32(c.Channels), P: int32(c.Positions)})
	}, func(row int) []float64 {
		return reference.Embed(wte.host, wpe.host, int(ids[row]), b.Past+row%b.T, c.Channels)
	})
}

func (b *bench) layerNorm() trials {
	M, C, eps := b.rows(), b.Config.Channels, b.Config.Epsilon
	x, y := b.numbers(M*C, cuda.F32, b.sets, 2), b.output(M*C, b.dtype)
	gain, bias := b.numbers(C, cuda.F32, 1, 1), b.numbers(C, cuda.F32, 1, 1)
	return b.byRows(y, C, func(variant int32, set int) error {
		return b.Stream.LayerNorm(cuda.LayerNormArgs{Variant: variant, X: x.ptr(set), Gain: gain.ptr(0), Bias: bias.ptr(0),
			Y: y.ptr(set), M: int32(M), C: int32(C), LDX: int32(C), LDY: int32(C), YType: b.dtype, Eps: float32(eps)})
	}, func(row int) []float64 { return reference.LayerNorm(x.host[row*C:][:C], gain.host, bias.host, eps) })
}

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
	return b.byRows(y, N, func(variant int32, set int) error {
		return b.Stream.Activate(cuda.ActivationArgs{Variant: variant, X: x.ptr(set), Y: y.ptr(set), M: int32(M), N: int32(N),
			LDX: int32(N), LDY: int32(N), DType: b.dtype, Act: act.kernel})
	}, func(row int) []float64 {
		out := make([]float64, N)
		for i, v := range x.host[row*N:][:N] {
			out[i] = act.formula(float64(v))
		}
		return out
	})
}

func (b *bench) add() trials {
	M, N := b.rows(), b.Config.Channels
	x, z := b.numbers(M*N, cuda.F32, b.sets, 2), b.numbers(M*N, b.dtype, b.sets, 2)
	return b.byRows(x, N, func(variant int32, set int) error {
		return b.Stream.Add(cuda.AddArgs{Variant: variant, X: x.ptr(set), Z: z.ptr(set), M: int32(M), N: int32(N),
			LDX: int32(N), LDZ: int32(N), DType: b.dtype})
	}, func(row int) []float64 { return reference.Add(x.host[row*N:][:N], z.host[row*N:][:N]) })
}
