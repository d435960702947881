package workbench

import (
	"gpt2scope/cuda"
	"gpt2scope/reference"
)

func (b *bench) embed() trials {
	c := b.Config
	wte, wpe := b.numbers(c.Vocab*c.Channels, b.dtype, 1, 1), b.numbers(c.Positions*c.Channels, b.dtype, 1, 1)
	x := b.output(b.rows()*c.Channels, cuda.F32)
	ids := make([]int32, b.rows())
	for i := range ids {
		ids[i] = int32(b.random.IntN(c.Vocab))
	}
	idsAt, pos := b.ints(ids), b.positions()
	return func(int32, string) []trial {
		return []trial{{
			before: func() error { return b.poison(x) },
			launch: func(set int) error {
				return b.Stream.Embed(cuda.EmbedArgs{DType: b.dtype, IDs: idsAt.Ptr(), Pos: pos.Ptr(), WTE: wte.ptr(0),
					WPE: wpe.ptr(0), X: x.ptr(set),
					B: int32(b.B), T: int32(b.T), C: int32(c.Channels), P: int32(c.Positions)})
			},
			check: func() (float64, error) {
				return b.compare(x, b.rows(), c.Channels, func(row int) []float64 {
					return reference.Embed(wte.host, wpe.host, int(ids[row]), b.Past+row%b.T, c.Channels)
				})
			},
		}}
	}
}
