package learn

import (
	"encoding/binary"
	"fmt"
	"slices"

	"gpt2scope/cuda"
)

var lesson07 = Lesson{
	Number: 7,
	Claim:  "vectorized_elementwise_kernel<4, ...> in a timeline: the 4 is the number of blocks",
	GPU: &Experiment{Run: onGPU(widthOnGPU), Judge: judgeWidth,
		Picture: curves("Bandwidth by width of loads, and with 4 blocks", log("numbers"), log("bandwidth (GB/s)"), bandwidths)},
	Why: `Between the angle brackets of a kernel's name stand template arguments: numbers and types fixed when the
kernel was compiled. The 4 is how many numbers a thread reads with one load: 4 float32 are 16 bytes, the widest load
of a thread up to Hopper. Fewer, wider loads keep more bytes in flight. Grid and block are arguments of the launch,
chosen each time from the size of the data, and have columns of their own in a timeline: gridX and blockX. So the same
kernel runs with as many blocks as the tensor needs; in 4 blocks it would use 4 SMs. PyTorch chooses the width by type
and alignment. Where an address is not aligned for 4, as in a slice that begins at an odd element, it takes 2 or
unrolled_elementwise_kernel, so the name tells you about alignment.`,
	GoOn: "infer trace show sample:bad --by kernel",
}

const fourBlocks = "width 4, 4 blocks"

func widthOnGPU(g *gpu) {
	kernels := g.kernels("lesson07.cu", "vectorized_1", "vectorized_2", "vectorized_4")
	most := g.elements(g.pick(1<<27, 1<<14), 8)
	x, y, counter := g.buffer(4*int64(most)), g.buffer(4*int64(most)), g.buffer(4)
	var ways []way
	for n := most / 512 * 512; n >= max(1<<12, most/4096); n = n / 8 / 512 * 512 {
		for _, c := range []struct {
			of             string
			kernel, blocks int
		}{{"width 1", 0, n / 512}, {"width 2", 1, n / 512}, {"width 4", 2, n / 512}, {fourBlocks, 2, 4}} {
			launch := func(counter cuda.Ptr) { g.launch(kernels[c.kernel], c.blocks, 128, y, x, int32(n), counter) }
			check(g.Stream.Set(counter, 0, 0, 4))
			launch(counter.Ptr())
			g.wait()
			g.add(c.of, "blocks", float64(n), float64(binary.LittleEndian.Uint32(g.read(counter, 4))))
			g.add(c.of, "bytes", float64(n), 8*float64(n))
			ways = append(ways, way{of: c.of, x: float64(n), run: func() float64 {
				return g.timeUs(func() { launch(0) }) // not counting, which takes time
			}})
		}
	}
	g.inTurns(g.pick(11, 7), ways...)
}

func judgeWidth(d Data) Finding {
	const of = "width 4"
	sizes := d.xs(of, "blocks")
	if len(sizes) < 2 {
		return undecided("There are no two sizes to compare.")
	}
	small, large := sizes[0], sizes[len(sizes)-1]
	few, many := median(d.at(of, "blocks", small)), median(d.at(of, "blocks", large))
	f := Finding{Figures: []Figure{
		exact("width 4, "+count(small)+" numbers: blocks", "", few),
		exact("width 4, "+count(large)+" numbers: blocks", "", many),
		d.rate("width 1, "+count(large)+" numbers", "width 1", "bytes", large),
		d.rate("width 4, "+count(large)+" numbers", of, "bytes", large),
		d.rate("width 4, the same in 4 blocks", fourBlocks, "bytes", large),
	}}
	f.Text = fmt.Sprintf("The kernel compiled for width 4 ran in %s and in %s blocks.", count(few), count(many))
	blocks := d.values(of, "blocks")
	return f.decide(
		rule{Shown, slices.Min(blocks) == 4 && slices.Max(blocks) == 4, ""},
		rule{Refuted, few > 0 && many > few,
			"The 4 is how many numbers a load takes; the number of blocks comes from the size of the data."})
}
