package learn

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"gpt2scope/internal/chart"
)

var lesson17 = Lesson{
	Number: 17,
	Claim:  "more occupancy is faster",
	GPU: &Experiment{Run: onGPU(runOccupancy), Judge: judgeOccupancy,
		Picture: curves("Speed by occupancy, against the best", linear("occupancy (%)"), linear("speed (% of the best)"),
			func(d Data) (all []chart.Series) {
				for _, of := range occupancyCases {
					best := d.bestTime(of)
					all = append(all, d.curve(of, "time_us", func(x float64) float64 {
						return 100 * best / median(d.at(of, "time_us", x))
					}))
				}
				return all
			})},
	Why: `Occupancy is the number of warps on an SM as a share of what it can hold. More warps help in one way: while
some wait, others have something to do. By Little's law, what counts is the work in flight: warps times the
independent loads of each. The copy has four loads of 16 bytes in flight in each thread; a few blocks saturate the
memory, and more only queue there. In the pointer chase a warp needs the result of one load for the address of the
next. It has one load in flight, whatever it does, so only more warps help. Before you raise occupancy, ask what the
kernel waits for. At its bandwidth or arithmetic ceiling more is worth nothing, and the registers and shared memory
that lower occupancy may be the better use of the SM.`,
	GoOn: "infer trace show sample:bad --by kernel",
}

// The cases of lesson 17.
var occupancyCases = []string{"copy, limited by bandwidth", "chase, limited by latency"} // in recordings

const occupancyThreads = 256

func runOccupancy(g *gpu) {
	kernels := g.kernels("lesson17.cu", "copy", "chase")
	n := g.elements(g.pick(1<<26, 1<<12), 8) &^ 3 // floats of each buffer: more than caches hold
	from, to := g.buffer(int64(4*n)), g.buffer(int64(4*n))
	info := g.Device.Info()
	// 840 divides by 1 to 8: no block has more to do than another
	chains, steps := 840*(occupancyThreads/32)*info.Processors, g.pick(16, 1)
	indices := g.pick(1<<21, 1<<14) // 8 MiB: in the L2 cache, too much for the others
	if g.Quick {
		chains = min(chains, indices)
	}
	next, end := g.buffer(int64(4*indices)), g.buffer(int64(4*chains))
	check(next.Write(0, permutation(indices)))
	arguments := [][]any{{to, from, int64(n / 4)}, {end, next, int32(chains), int32(steps)}}
	var ways []way
	for i, k := range kernels {
		was := 0
		for blocks := info.BlocksPerProcessor; blocks > 0; blocks-- {
			shared := min(info.SharedPerProcessor/blocks-1024, info.SharedPerBlock) &^ 255 // a block takes 1 KiB besides
			if shared < 0 {
				continue
			}
			o := must(k.Occupancy(occupancyThreads, shared))
			if o.BlocksPerProcessor == was {
				continue
			}
			was = o.BlocksPerProcessor
			l := line(was*info.Processors, occupancyThreads)
			l.Shared = shared
			ways = append(ways, way{of: occupancyCases[i], x: 100 * o.Fraction, run: func() float64 {
				return g.timeUs(func() { check(k.Launch(g.Stream, l, arguments[i]...)) })
			}})
		}
	}
	if len(ways) == 0 {
		check(fmt.Errorf("%w: the GPU does not say how much shared memory an SM has", errNotHere))
	}
	g.inTurns(g.pick(11, 7), ways...)
}

// permutation is a cycle through all indices, of which there is a power of 2, in an order without a pattern that a
// cache knows.
func permutation(n int) []byte {
	out := make([]byte, 0, 4*n)
	for i := range n {
		out = binary.LittleEndian.AppendUint32(out, uint32((i*1664525+1013904223)&(n-1)))
	}
	return out
}

// bestTime is the least median time of a case.
func (d Data) bestTime(of string) float64 {
	best := math.Inf(1)
	for _, x := range d.xs(of, "time_us") {
		best = min(best, median(d.at(of, "time_us", x)))
	}
	return best
}

func judgeOccupancy(d Data) Finding {
	var f Finding
	var texts []string
	refuted, unclear := false, false
	for _, of := range occupancyCases {
		xs := d.xs(of, "time_us")
		best := d.bestTime(of)
		if len(xs) < 3 || !(best > 0) {
			return undecided(fmt.Sprintf("%s ran with fewer than three occupancies.", of))
		}
		from, most := xs[0], xs[len(xs)-1]
		half, least := from, most // the highest occupancy that is at most half of the most; the least with the best time
		for _, x := range xs {
			if x <= most/2 {
				half = x
			}
			if median(d.at(of, "time_us", x)) <= 1.05*best {
				least = min(least, x)
			}
		}
		name, _, _ := strings.Cut(of, ",")
		gain := func(over float64) Figure {
			return figureOf(fmt.Sprintf("%s: speed at %.0f %% over %.0f %%", name, most, over), "x",
				ratios(d.at(of, "time_us", over), d.at(of, "time_us", most)))
		}
		f.Figures = append(f.Figures, gain(from), gain(half), exact(name+": within 5 % of its best from", "%", least))
		texts = append(texts,
			fmt.Sprintf("The %s, is within 5 %% of its best time from an occupancy of %.0f %% on.", of, least))
		low, high := gain(half).interval()
		refuted, unclear = refuted || high < 1.05, unclear || low < 1.05
	}
	f.Text = strings.Join(texts, " ")
	return f.decide(rule{Refuted, refuted, ""}, rule{Shown, !unclear, ""})
}
