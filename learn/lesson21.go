package learn

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/traces/tables"
)

var lesson21 = Lesson{
	Number: 21,
	Claim:  "the GPU runs all threads of a grid at once",
	CPU:    &Experiment{Of: "Computed for a launch on an NVIDIA H200, which --size and --block choose", Run: layOutLaunch, Judge: judgeLaunch},
	Why: `A launch names blocks and threads per block: <<<blocks, threads>>>. Each thread finds its element by the index
formula, and those of the last block that find none return. Hardware cuts a block into warps of 32 threads that execute
together. A block goes to one SM, whole, and stays until its end; there its threads share memory. An SM holds as many
blocks as its threads, registers, shared memory and block slots allow. What all SMs hold at once is a wave; when a block
ends, the next one takes its place. The last wave is rarely full, which is the tail: it matters if waves are few. So
choose a multiple of 32, 128 to 256 to begin with, and enough blocks for several waves; then measure. More threads in a
block help only if they must share.`,
	GoOn: "infer learn 21 --size 1000 --block 256",
}

// The launch that lesson 21 lays out if the reader gives none, and the registers of a simple kernel.
const (
	launchSize, launchBlock = 10_000_000, 256
	launchRegisters         = 16
	warp                    = 32
)

// ofLaunch is the case of lesson 21.
const ofLaunch = "the launch"

func layOutLaunch(l *lab) {
	size, block := cmp.Or(l.Size, launchSize), cmp.Or(l.Block, launchBlock)
	gpu := l.sample("steady").Header.Devices[0]
	blocks := (size + block - 1) / block
	o, ok := tables.OccupancyOf(&gpu, &tables.Shape{Grid: [3]int32{int32(blocks), 1, 1}, Block: [3]int32{int32(block), 1, 1}, Registers: launchRegisters})
	if !ok || blocks > math.MaxInt32 {
		check(fmt.Errorf("%w: --size %d --block %d is no launch: a block has 1 to 1024 threads, a grid at most %d blocks", errNotHere, size, block, math.MaxInt32))
	}
	for i, v := range []float64{float64(size), float64(block), float64(blocks), float64(o.Warps), float64(o.Blocks), float64(gpu.SMs), o.Waves, o.Tail} {
		l.add(ofLaunch, strings.Split("size,block,blocks,warps,per SM,SMs,waves,tail", ",")[i], 0, v)
	}
	l.say(ofLaunch, "limit", o.Limit)
}

func judgeLaunch(d Data) Finding {
	v := func(name string) float64 { return median(d.values(ofLaunch, name)) }
	n, block, blocks, perSM, sms := v("size"), v("block"), v("blocks"), v("per SM"), v("SMs")
	at := perSM * sms
	if !(at > 0) {
		return undecided("There is no launch.")
	}
	idle := blocks*block - n
	f := Finding{Figures: []Figure{exact("elements", "", n), exact("threads of a block", "", block), exact("blocks", "", blocks),
		exact("warps of a block", "", v("warps")), exact("threads without an element", "", idle),
		exact("blocks that an SM holds", "", perSM), exact("blocks that the GPU holds: a wave", "", at),
		exact("waves", "", v("waves")), exact("empty part of the last wave: the tail", "%", v("tail"))}}
	together := min(at, blocks)
	f.Text = fmt.Sprintf("%s launched, and %s at once: %s on %s; an SM holds at most %s, limited by %s.",
		humanize.Count(int(blocks*block), "thread is", "threads are"), humanize.Count(int(together*block), "runs", "run"),
		countOf(int(together), "block"), countOf(int(min(sms, together)), "SM"), count(perSM), d.text(ofLaunch, "limit"))
	f.Lines = drawLaunch(n, block, blocks, at, sms)
	return f.decide(rule{Refuted, blocks > at, "The others wait until a block ends."},
		rule{Shown, true, "This grid is small enough. One that is larger waits."})
}

// drawLaunch draws which elements blocks have, and how they fill the GPU, in letters.
func drawLaunch(n, block, blocks, wave, sms float64) []string {
	lines := []string{"i = blockIdx.x * blockDim.x + threadIdx.x;  if (i < n) ...", ""}
	for _, b := range ends(blocks) {
		line := fmt.Sprintf("block %s: elements %s to %s", count(b), count(b*block), count(min(n, (b+1)*block)-1))
		if b == 0 && n > 2*warp && block > 2*warp {
			line += "; its warps have 0 to 31, 32 to 63, ..."
		}
		if end := (b + 1) * block; end > n {
			line += fmt.Sprintf(", and %s without one", countOf(int(end-n), "thread"))
		}
		lines = append(lines, line)
	}
	lines = append(lines, "")
	for _, w := range ends(math.Ceil(blocks / wave)) {
		running := min(wave, blocks-w*wave)
		filled := int(math.Ceil(40 * running / wave))
		lines = append(lines, fmt.Sprintf("wave %s [%s%s] %s, on %s", count(w+1), strings.Repeat("#", filled),
			strings.Repeat(".", 40-filled), countOf(int(running), "block"), countOf(int(min(sms, running)), "SM")))
	}
	return lines
}

// ends are the first two and the last of the numbers from 0 to n - 1.
func ends(n float64) []float64 {
	list := []float64{0, 1, n - 1}
	return slices.Compact(slices.DeleteFunc(list[:min(3, int(n)+1)], func(x float64) bool { return x >= n }))
}
