package learn

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"gpt2scope/cuda"
	"gpt2scope/internal/chart"
)

//go:embed lesson17.cu
var occupancySource string

var lesson17 = Lesson{
	Number: 17,
	Claim:  "more occupancy is faster",
	GPU: &Experiment{Run: onGPU(runOccupancy), Judge: judgeOccupancy, Picture: drawOccupancy,
		Sources: []Source{{"lesson17.cu", occupancySource}}},
	Why: `Occupancy is the number of warps on an SM as a share of what it can hold. More warps help in one way: while
some wait, others have something to do. By Little's law, what counts is the work in flight: warps times the
independent loads of each. The copy has four loads of 16 bytes in flight in each thread; a few blocks saturate the
memory, and more only queue there. In the pointer chase a warp needs the result of one load for the address of the
next. It has one load in flight, whatever it does, so only more warps help. Before you raise occupancy, ask what the
kernel waits for. At its bandwidth or arithmetic ceiling more is worth nothing, and the registers and shared memory
that lower occupancy may be the better use of the SM.`,
	GoOn: "infer bench kernel attn.sdpa -m random:gpt2 --device cuda",
}

// The cases of lesson 17.
var occupancyCases = []string{"copy, limited by bandwidth", "chase, limited by latency"} // in recordings

const occupancyThreads = 256

func runOccupancy(ctx context.Context, e *Env, g *gpu) (d Data, err error) {
	kernels := g.kernels(Source{"lesson17.cu", occupancySource}, "copy", "chase")
	n := g.elements(e.pick(1<<26, 1<<12), 8) // floats of each buffer: more than caches hold
	n &^= 3
	copied := g.buffers(2, int64(4*n))
	info := g.Device.Info()
	const warps = occupancyThreads / 32
	chains, steps := 840*warps*info.Processors, e.pick(16, 1) // 840 divides by 1 to 8: no block has more to do than another
	indices := e.pick(1<<21, 1<<14)                           // 8 MiB: in the L2 cache, too much for the others
	if e.Quick {
		chains = min(chains, indices)
	}
	next := g.buffers(1, int64(4*indices))
	end := g.buffers(1, int64(4*chains))
	if g.err != nil {
		return nil, g.err
	}
	if err := next[0].Write(0, permutation(indices)); err != nil {
		return nil, err
	}
	type point struct {
		of      int
		percent float64
		launch  cuda.Launch
	}
	var points []point
	var ways []string
	for of, k := range kernels {
		was := -1
		for blocks := info.BlocksPerProcessor; blocks > 0; blocks-- {
			shared := min(info.SharedPerProcessor/blocks-1024, info.SharedPerBlock) &^ 255 // a block takes 1 KiB besides
			if shared < 0 {
				continue
			}
			o, err := k.Occupancy(occupancyThreads, shared)
			if err != nil {
				return nil, err
			}
			if o.BlocksPerProcessor == was || o.BlocksPerProcessor == 0 {
				continue
			}
			was = o.BlocksPerProcessor
			l := line(was*info.Processors, occupancyThreads)
			l.Shared = shared
			points = append(points, point{of, 100 * o.Fraction(), l})
			ways = append(ways, fmt.Sprint(len(points)))
		}
	}
	if len(points) == 0 {
		return nil, fmt.Errorf("%w: the GPU does not say how much shared memory an SM has", errNotHere)
	}
	var measured Data
	err = inTurns(ctx, &measured, ways, e.pick(11, 7), func(i int) (float64, error) {
		p := points[i]
		return g.timeUs(func() error {
			if p.of == 0 {
				return kernels[0].Launch(g.Stream, p.launch, copied[0], copied[1], int64(n/4))
			}
			return kernels[1].Launch(g.Stream, p.launch, end[0], next[0], int32(chains), int32(steps))
		})
	})
	for i, p := range points {
		for _, t := range measured.values(ways[i], "time_us") {
			d.add(occupancyCases[p.of], "time_us", p.percent, t)
		}
	}
	return d, err
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

// saturation returns the least occupancy at which a case is within 5 % of its best time, and the least occupancy of
// all.
func saturation(d Data, of string) (least, from float64, ok bool) {
	xs := d.xs(of, "time_us")
	if len(xs) < 3 {
		return 0, 0, false
	}
	best := median(d.at(of, "time_us", xs[0]))
	for _, x := range xs {
		best = min(best, median(d.at(of, "time_us", x)))
	}
	for _, x := range xs {
		if median(d.at(of, "time_us", x)) <= 1.05*best {
			return x, xs[0], best > 0
		}
	}
	return 0, 0, false
}

func judgeOccupancy(d Data) Finding {
	f := Finding{Verdict: Shown}
	var texts []string
	for _, of := range occupancyCases {
		least, from, ok := saturation(d, of)
		if !ok {
			return undecided(fmt.Sprintf("%s ran with fewer than three occupancies.", of))
		}
		xs := d.xs(of, "time_us")
		most := xs[len(xs)-1]
		half := xs[0] // the highest occupancy that is at most half of the most
		for _, x := range xs {
			if x <= most/2 {
				half = x
			}
		}
		name, _, _ := strings.Cut(of, ",")
		gain := figureOf(fmt.Sprintf("%s: speed at %.0f %% over %.0f %%", name, most, half), "x", ratios(d.at(of, "time_us", half), d.at(of, "time_us", most)))
		all := figureOf(fmt.Sprintf("%s: speed at %.0f %% over %.0f %%", name, most, from), "x", ratios(d.at(of, "time_us", from), d.at(of, "time_us", most)))
		f.Figures = append(f.Figures, all, gain, exact(name+": within 5 % of its best from", "%", least))
		texts = append(texts, fmt.Sprintf("The %s, is within 5 %% of its best time from an occupancy of %.0f %% on.", of, least))
		switch low, high := gain.interval(); {
		case high < 1.05:
			f.Verdict = Refuted
		case low < 1.05 && f.Verdict == Shown:
			f.Verdict = Unknown
		}
	}
	f.Text = strings.Join(texts, " ")
	return f
}

func drawOccupancy(d Data) chart.Picture {
	var all []chart.Series
	for _, of := range occupancyCases {
		best := math.Inf(1)
		for _, x := range d.xs(of, "time_us") {
			best = min(best, median(d.at(of, "time_us", x)))
		}
		all = append(all, d.curve(of, "time_us", func(x float64) float64 { return 100 * best / median(d.at(of, "time_us", x)) }))
	}
	return curves("Speed by occupancy, against the best", linear("occupancy (%)"), linear("speed (% of the best)"), all...)
}
