package learn

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"gpt2scope/cuda"
	"gpt2scope/internal/chart"
)

//go:embed lesson07.cu
var vectorizedSource string

var lesson07 = Lesson{
	Number: 7,
	Claim:  "vectorized_elementwise_kernel<4, ...> in a timeline: the 4 is the number of blocks",
	GPU:    &Experiment{Run: onGPU(widthOnGPU), Judge: judgeWidth, Picture: drawWidth, Sources: []Source{{"lesson07.cu", vectorizedSource}}},
	Why: `Between the angle brackets of a kernel's name stand template arguments: numbers and types fixed when the
kernel was compiled. The 4 is how many numbers a thread reads with one load: 4 float32 are 16 bytes, the widest load
of a thread up to Hopper. Fewer, wider loads keep more bytes in flight. Grid and block are arguments of the launch,
chosen each time from the size of the data, and have columns of their own in a timeline: gridX and blockX. So the same
kernel runs with as many blocks as the tensor needs; in 4 blocks it would use 4 SMs. PyTorch chooses the width by type
and alignment. Where an address is not aligned for 4, as in a slice that begins at an odd element, it takes 2 or
unrolled_elementwise_kernel, so the name tells you about alignment.`,
	GoOn: "infer trace show traces/samples/eager.sqlite --by kernel",
}

const fourBlocks = "width 4, 4 blocks"

func widthOnGPU(ctx context.Context, e *Env, g *gpu) (d Data, err error) {
	widths := []string{"1", "2", "4"}
	kernels := g.kernels(Source{"lesson07.cu", vectorizedSource}, "vectorized_1", "vectorized_2", "vectorized_4")
	most := g.elements(e.pick(1<<27, 1<<14), 8)
	b := g.buffers(2, 4*int64(most))
	counter := g.buffers(1, 4)
	if g.err != nil {
		return nil, g.err
	}
	for n := most / 512 * 512; n >= max(1<<12, most/4096); n = n / 8 / 512 * 512 {
		for i := range e.pick(11, 7) + 1 {
			for k := range len(widths) + 1 {
				if err := context.Cause(ctx); err != nil {
					return nil, err
				}
				of, blocks := "width "+widths[min(k, 2)], n/512
				if k == len(widths) {
					of, blocks = fourBlocks, 4
				}
				if err := g.Stream.Set(counter[0], 0, 0, 4); err != nil {
					return nil, err
				}
				launch := func(counter cuda.Ptr) error {
					return kernels[min(k, 2)].Launch(g.Stream, line(blocks, 128), b[1], b[0], int32(n), counter)
				}
				t, err := g.timeUs(func() error { return launch(0) }) // not counting, which takes time
				if err = errors.Join(err, launch(counter[0].Ptr()), g.Stream.Synchronize()); err != nil {
					return nil, err
				}
				counted := make([]byte, 4)
				if err := counter[0].Read(0, counted); err != nil {
					return nil, err
				}
				if i > 0 {
					d.add(of, "time_us", float64(n), t)
					d.add(of, "bytes", float64(n), 8*float64(n))
					d.add(of, "blocks", float64(n), float64(binary.LittleEndian.Uint32(counted)))
				}
			}
		}
	}
	return d, nil
}

func judgeWidth(d Data) Finding {
	const of = "width 4"
	sizes := d.xs(of, "blocks")
	if len(sizes) < 2 {
		return undecided("There are no two sizes to compare.")
	}
	small, large := sizes[0], sizes[len(sizes)-1]
	few, many := exact("width 4, "+count(small)+" numbers: blocks", "", median(d.at(of, "blocks", small))), exact("width 4, "+count(large)+" numbers: blocks", "", median(d.at(of, "blocks", large)))
	one, four, only4 := d.rate("width 1, "+count(large)+" numbers", "width 1", large), d.rate("width 4, "+count(large)+" numbers", of, large), d.rate("width 4, the same in 4 blocks", fourBlocks, large)
	f := Finding{Figures: []Figure{few, many, one, four, only4}}
	f.Text = fmt.Sprintf("The kernel compiled for width 4 ran in %s and in %s blocks.", count(few.Value), count(many.Value))
	blocks := d.values(of, "blocks")
	switch {
	case slices.Min(blocks) == 4 && slices.Max(blocks) == 4:
		f.Verdict = Shown
	case few.Value > 0 && many.Value > few.Value:
		f.Verdict = Refuted
		f.Text += " The 4 is how many numbers a load takes; the number of blocks comes from the size of the data."
	default:
		f.Verdict = Unknown
	}
	return f
}

func drawWidth(d Data) chart.Picture {
	return d.drawRates("Bandwidth by width of loads, and with 4 blocks", "numbers")
}
