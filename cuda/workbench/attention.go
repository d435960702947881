package workbench

import (
	"cmp"
	"slices"

	"gpt2scope/cuda"
	"gpt2scope/reference"
)

func (b *bench) attention() trials {
	c, T, past := b.Config, b.T, b.Past
	NH, HS, P, C := c.Heads, c.HeadSize(), c.Positions, c.Channels
	qkv := b.numbers(b.B*T*3*C, b.dtype, b.sets, 2) // (B, T, 3*C)
	keys, values := b.numbers(b.B*NH*P*HS, b.dtype, b.sets, 2), b.numbers(b.B*NH*P*HS, b.dtype, b.sets, 2)
	y, pos := b.output(b.B*T*C, b.dtype), b.positions()
	args := func(variant int32, set int) cuda.AttentionArgs {
		return cuda.AttentionArgs{Variant: variant, QKV: qkv.ptr(set), KCache: keys.ptr(set), VCache: values.ptr(set),
			Pos: pos.Ptr(), Y: y.ptr(set), B: int32(b.B), T: int32(T), Q: int32(T), NH: int32(NH), HS: int32(HS), P: int32(P),
			LDQKV: int32(3 * C),
			LDY:   int32(C), DType: b.dtype, Scale: float32(c.AttentionScale(0))}
	}
	check := func() (float64, error) {
		return b.compare(y, b.B*T, C, func(row int) []float64 {
			var out []float64
			seq, seen := row/T, past+row%T+1
			for h := range NH {
				// part 0, 1 or 2 of the new rows is the queries, keys or values of the head
				part := func(n int) [][]float32 { return reference.Rows(qkv.host[seq*T*3*C+n*C+h*HS:], T, 3*C, HS) }
				all := func(cache *array, n int) [][]float32 {
					return slices.Concat(reference.Rows(cache.host[(seq*NH+h)*P*HS:], past, HS, HS), part(n))[:seen]
				}
				q := part(0)[row%T:][:1]
				out = append(out, reference.Attention(q, all(keys, 1), all(values, 2), c.AttentionScale(0))[0]...)
			}
			return out
		})
	}
	return func(variant int32, _ string) []trial {
		var work *cuda.Buffer
		return []trial{{
			before: func() error {
				bytes, err := b.Stream.AttentionWork(args(variant, 0))
				if err != nil {
					return err
				}
				work, err = b.zeroed(bytes)
				return cmp.Or(err, b.poison(y))
			},
			launch: func(set int) error {
				a := args(variant, set)
				a.Work = work.Ptr()
				return b.Stream.Attention(a)
			},
			check: check,
		}}
	}
}
