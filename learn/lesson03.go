package learn

import (
	"fmt"
	"math"
	"slices"

	"gpt2scope/internal/humanize"
	"gpt2scope/internal/stats"
)

var lesson03 = Lesson{
	Number: 3,
	Claim:  "using a GPU is like using a second computer over a network",
	GPU:    &Experiment{Run: onGPU(linkOnGPU), Judge: judgeLink, Picture: drawLink},
	Why: `The picture is good because the same law holds: n bytes take a latency and then a time per byte, a + b n.
Below a / b bytes the number of transfers counts: pack small ones together. Above, the bytes count: send fewer. As
over a network, the other side has its own memory, works while you do something else, and answers when asked. The law
has a step where the way of sending changes. Small copies to the GPU travel as data in its command queue, says
NVIDIA's forum (forums.developer.nvidia.com/t/64kb-gotcha/35190); larger ones are fetched by a copy engine. MPI has
such a step too, from eager messages to rendezvous. Pageable memory passes through a pinned buffer of the driver, so
it has steps of its own. The picture ends at the latency: microseconds, not milliseconds. Count the bytes that cross
the link before you count FLOPs.`,
	GoOn: "infer trace kpi sample:bad",
}

var drawLink = curves("Time of a copy by its size", log("bytes"), log("time (us)"), medians("time_us"))

// The ways over the link.
const (
	toDevice   = "pinned, to the GPU"
	toHost     = "pinned, to the host"
	pageable   = "pageable, to the GPU"
	taskKernel = "vector addition, kernel"
)

// linkSizes are the sizes of copies in bytes, two for each factor of four.
func linkSizes(most int) (sizes []int) {
	for n := 1 << 10; n <= most; n *= 4 {
		sizes = append(sizes, n, 2*n)
	}
	return sizes
}

func linkOnGPU(g *gpu) {
	add := g.kernels("lesson01.cu", "add")[0]
	most := g.elements(g.pick(1<<26, 1<<12), 3)
	a, b, sum := g.buffer(int64(most)), g.buffer(int64(most)), g.buffer(int64(most))
	pinned := g.host(int64(most))
	plain := make([]byte, most)
	for i := range plain {
		plain[i] = byte(i)
	}
	copy(pinned.Bytes(), plain)
	var ways []way
	for _, n := range linkSizes(most / 2) {
		copied := func(of string, f func() error) {
			ways = append(ways, way{of: of, x: float64(n), run: func() float64 {
				return timed(func() {
					check(f())
					g.wait()
				})
			}})
		}
		copied(toDevice, func() error { return g.Stream.CopyToDevice(a, 0, pinned, 0, int64(n)) })
		copied(toHost, func() error { return g.Stream.CopyToHost(pinned, 0, a, 0, int64(n)) })
		copied(pageable, func() error { return b.Write(0, plain[:n]) })
		ways = append(ways, way{of: taskKernel, quantity: "kernel_us", x: float64(n), run: func() float64 {
			return g.timeUs(func() { g.launch(add, max(1, n/4/1024), 256, sum, a, b, int32(n/4)) })
		}})
	}
	g.inTurns(g.pick(15, 7), ways...)
}

// law is time = latency + bytes / rate, for copies of a range of sizes.
type law struct{ latency, usPerByte float64 }

func (l law) at(bytes float64) float64 { return l.latency + l.usPerByte*bytes }

// link is what the copies of a case take, by size, with the law that fits best.
type link struct {
	sizes []float64
	law   law
	off   float64 // how far the law is off: the 90th percentile of the deviations, in percent of the times
}

// minSizes is of how many sizes a law is fitted; with fewer than three there is always one that fits.
const minSizes = 8

// linkOf fits the laws to the medians of a case, if there are enough.
func linkOf(d Data, of string) (l link, ok bool) {
	var times []float64
	for _, n := range d.xs(of, "time_us") {
		if t := median(d.at(of, "time_us", n)); t > 0 {
			l.sizes, times = append(l.sizes, n), append(times, t)
		}
	}
	if len(l.sizes) < minSizes {
		return l, false
	}
	l.law, l.off = fitLaw(l.sizes, times)
	return l, l.off < math.Inf(1)
}

// fitLaw returns the law whose deviations have the least 90th percentile, and that percentile. The best line for a
// quantile of deviations is the one that is equally far, on alternate sides, from some three points (Stromberg,
// "Computing the exact least median of squares estimate", 1993), or from two if the latency is 0, below which it cannot
// be; so it tries all of these.
func fitLaw(sizes, times []float64) (best law, off float64) {
	off = math.Inf(1)
	try := func(l law) {
		if l.latency < 0 || l.usPerByte <= 0 {
			return
		}
		if q := percentile90(l.deviations(sizes, times)); q < off {
			best, off = l, q
		}
	}
	for i, x := range sizes {
		for j := i + 1; j < len(sizes); j++ {
			y, t, u := sizes[j], times[i], times[j]
			try(law{0, 2 / (x/t + y/u)})
			for k := j + 1; k < len(sizes); k++ {
				z, v := sizes[k], times[k]
				// the line is at t + e t, u - e u and v + e v
				e := ((u-t)*(z-y) - (v-u)*(y-x)) / ((t+u)*(z-y) + (u+v)*(y-x))
				slope := ((1+e)*v - (1+e)*t) / (z - x)
				try(law{(1+e)*t - slope*x, slope})
			}
		}
	}
	return best, off
}

// deviations are those of times from the law, in percent of the times.
func (l law) deviations(sizes, times []float64) []float64 {
	return each(sizes, times, func(n, t float64) float64 { return 100 * math.Abs(l.at(n)-t) / t })
}

func percentile90(values []float64) float64 {
	return stats.Quantile(slices.Sorted(slices.Values(values)), 0.9)
}

func (l link) figures(of string) []Figure {
	n := len(l.sizes)
	return []Figure{
		{Name: of + ": latency", Value: l.law.latency, Unit: "us", N: n},
		{Name: of + ": rate", Value: 1 / l.law.usPerByte / 1e3, Unit: "GB/s", N: n},
		{Name: of + ": law off by (P90)", Value: l.off, Unit: "%", N: n},
	}
}

// Off by at most linkFits percent, over sizes that differ by a factor of thousands, a law explains the times; off by
// more than linkFails it does not. Both are far from what one kind of machine gives from run to run, 10 to 25. A
// latency below networkUs is not that of a network.
const linkFits, linkFails, networkUs = 50, 75, 100

func judgeLink(d Data) Finding {
	in, okIn := linkOf(d, toDevice)
	out, okOut := linkOf(d, toHost)
	slow, okSlow := linkOf(d, pageable)
	tasks := d.xs(taskKernel, "kernel_us")
	if !okIn || !okOut || !okSlow || len(tasks) == 0 {
		return undecided(fmt.Sprintf("Copies of fewer than %d sizes were measured, or no task.", minSizes))
	}
	share := func(n float64) Figure { // of the link, of a vector addition: two arrays go, one comes back
		link := 2*median(d.at(toDevice, "time_us", n)) + median(d.at(toHost, "time_us", n))
		kernel := median(d.at(taskKernel, "kernel_us", n))
		return exact("link's share of a vector addition, "+sizeText(n), "%", 100*link/(link+kernel))
	}
	f := Finding{Figures: slices.Concat(in.figures(toDevice), out.figures(toHost), slow.figures(pageable),
		[]Figure{share(tasks[0]), share(tasks[len(tasks)-1])})}
	off := max(in.off, out.off, slow.off)
	latency := exact("", "us", max(in.law.latency, out.law.latency, slow.law.latency))
	f.Text = fmt.Sprintf("The law of a network, latency + bytes / rate, is off by %s %% at most for nine in ten sizes "+
		"of pinned memory, and by %s %% of pageable memory, from %s to %s.",
		number(max(in.off, out.off)), number(slow.off), sizeText(in.sizes[0]), sizeText(in.sizes[len(in.sizes)-1]))
	return f.decide(
		rule{HalfTrue, off <= linkFits && latency.Value < networkUs, fmt.Sprintf(
			"Half true: the law is that of a network, and the latency is not, with %s at most.", latency.Short())},
		rule{Shown, off <= linkFits, ""},
		rule{Refuted, off > linkFails, "Latency and rate do not explain these times."},
		rule{Unknown, true, fmt.Sprintf("It should be off by %d %% at most.", linkFits)})
}

func sizeText(bytes float64) string { return humanize.Size(int64(bytes)) }
