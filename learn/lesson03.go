package learn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"gpt2scope/internal/stats"
)

var lesson03 = Lesson{
	Number: 3,
	Claim:  "using a GPU is like using a second computer over a network",
	CPU:    &Experiment{Run: linkOnCPU, Judge: judgeLinkOnCPU, Picture: drawLink},
	GPU:    &Experiment{Run: linkOnGPU, Judge: judgeLink, Picture: drawLink, Sources: []Source{{"lesson01.cu", addSource}}},
	Why: `A good picture, because the same law holds. Sending n bytes takes a latency and then a time for each byte, a + b n. Below the size at which both are
equal, only the number of transfers counts: pack small ones together. Above it, only the bytes count: send fewer, or none. As with a
network, the other side has memory of its own, works while you do something else, and answers only when asked. Pinned memory is what
the GPU can fetch by itself; from pageable memory the driver first copies into a buffer of its own, so that it has another law. The picture ends where the
link does: a launch costs microseconds, no round trip of milliseconds, and a task whose data stay on
the GPU pays for the link once. Count what crosses it before you count FLOPs.`,
	GoOn: "infer bench ceilings",
}

// The ways over the link.
const (
	toDevice   = "pinned, to the GPU"
	toHost     = "pinned, to the host"
	pageable   = "pageable, to the GPU"
	handOver   = "to another thread"
	taskKernel = "vector addition, kernel"
)

// linkSizes are the sizes of copies in bytes, two for each factor of four.
func linkSizes(most int) (sizes []int) {
	for n := 1 << 10; n <= most; n *= 4 {
		sizes = append(sizes, n, 2*n)
	}
	return sizes
}

// shuffled puts sizes in another order for each round: what a copy comes after has an effect on it.
func shuffled(sizes []int, round int) []int {
	random := rand.New(rand.NewPCG(3, uint64(round)))
	random.Shuffle(len(sizes), func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
	return sizes
}

func linkOnGPU(ctx context.Context, e *Env) (d Data, err error) {
	g, err := e.gpu()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	kernels, err := g.kernels(Source{"lesson01.cu", addSource}, "add")
	if err != nil {
		return nil, err
	}
	most, err := g.elements(e.pick(1<<26, 1<<12), 3)
	if err != nil {
		return nil, err
	}
	b, err := g.buffers(3, int64(most))
	if err != nil {
		return nil, err
	}
	pinned, err := g.AllocHost(int64(most))
	if err != nil {
		return nil, err
	}
	plain := make([]byte, most)
	for i := range plain {
		plain[i] = byte(i)
	}
	copy(pinned.Bytes(), plain)
	for i := range e.pick(15, 7) + 1 {
		for _, n := range shuffled(linkSizes(most/2), i) {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			size := int64(n)
			for _, way := range []struct {
				name string
				f    func() error
			}{
				{toDevice, func() error {
					return errors.Join(g.Stream.CopyToDevice(b[0], 0, pinned, 0, size), g.Stream.Synchronize())
				}},
				{toHost, func() error {
					return errors.Join(g.Stream.CopyToHost(pinned, 0, b[0], 0, size), g.Stream.Synchronize())
				}},
				{pageable, func() error { return b[1].Write(0, plain[:n]) }},
			} {
				start := time.Now()
				err := way.f()
				if took := time.Since(start); i > 0 { // the first warms up
					d.add(way.name, "time_us", float64(n), us(took))
				}
				if err != nil {
					return nil, err
				}
			}
			kernel, err := g.timeUs(func() error {
				return kernels[0].Launch(g.Stream, line(max(1, n/4/1024), 256), b[2], b[0], b[1], int32(n/4))
			})
			if err != nil {
				return nil, err
			}
			if i > 0 {
				d.add(taskKernel, "kernel_us", float64(n), kernel)
			}
		}
	}
	return d, nil
}

// linkOnCPU hands bytes to another thread, which copies them and answers.
func linkOnCPU(ctx context.Context, e *Env) (d Data, err error) {
	most := e.pick(1<<26, 1<<12)
	from, to := make([]byte, most), make([]byte, most)
	for i := range from {
		from[i], to[i] = byte(i), 1
	}
	requests, answers := make(chan int), make(chan int)
	defer close(requests)
	go func() {
		for n := range requests {
			answers <- copy(to[:n], from[:n])
		}
	}()
	for i := range e.pick(15, 7) + 1 {
		for _, n := range shuffled(linkSizes(most/2), i) {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			start := time.Now()
			requests <- n
			<-answers
			if took := time.Since(start); i > 0 {
				d.add(handOver, "time_us", float64(n), us(took))
			}
		}
	}
	return d, nil
}

// law is time = latency + bytes / rate.
type law struct {
	latency float64 // us
	rate    float64 // GB/s
	off     float64 // the 90th percentile of the deviations of the medians, in percent of them
	sizes   int
	worst   float64 // bytes: the size whose median is furthest off
}

// fitLaw fits the law to the medians of a case so that relative deviations are small.
func fitLaw(d Data, of string) law {
	var sizes, times, weights []float64
	for _, n := range d.xs(of, "time_us") {
		if t := median(d.at(of, "time_us", n)); t > 0 {
			sizes, times, weights = append(sizes, n), append(times, t), append(weights, 1/(t*t))
		}
	}
	if len(sizes) < 5 {
		return law{off: math.NaN()}
	}
	a, b := stat.LinearRegression(sizes, times, weights, false)
	off := make([]float64, len(sizes))
	for i := range off {
		off[i] = 100 * math.Abs(a+b*sizes[i]-times[i]) / times[i]
	}
	worst := sizes[slices.Index(off, slices.Max(off))]
	slices.Sort(off)
	return law{latency: a, rate: 1 / b / 1e3, off: stats.Quantile(off, 0.9), sizes: len(sizes), worst: worst}
}

func (l law) figures(of string) []Figure {
	f := []Figure{exact(of+", latency", "us", l.latency), exact(of+", rate", "GB/s", l.rate), exact(of+", deviation from a + b n, P90", "%", l.off)}
	for i := range f {
		f[i].N = l.sizes
	}
	return f
}

func (l law) String() string {
	return fmt.Sprintf("%s + n / (%s GB/s), off by %s %% (P90 of %d sizes, most at %s bytes)", exact("", "us", l.latency).Short(), number(l.rate), number(l.off), l.sizes, count(l.worst))
}

// linkFits is how far the law may be off, in percent.
const linkFits = 10

func judgeLink(d Data) Finding {
	in, out, slow := fitLaw(d, toDevice), fitLaw(d, toHost), fitLaw(d, pageable)
	f := Finding{Figures: slices.Concat(in.figures(toDevice), out.figures(toHost), slow.figures(pageable))}
	sizes := d.xs(taskKernel, "kernel_us")
	if len(sizes) == 0 {
		return undecided("No task was measured.")
	}
	share := func(n float64) Figure { // of the link, of a vector addition: two arrays go, one comes back
		link := 2*median(d.at(toDevice, "time_us", n)) + median(d.at(toHost, "time_us", n))
		return exact("share of the link", "%", 100*link/(link+median(d.at(taskKernel, "kernel_us", n))))
	}
	small, large := share(sizes[0]), share(sizes[len(sizes)-1])
	f.Figures = append(f.Figures, small, large)
	f.Text = fmt.Sprintf("To the GPU, n bytes of pinned memory take %s; to the host %s; of pageable memory %s. Of a vector addition whose data come and go, the link takes %s for arrays of %s bytes and %s for %s.",
		in, out, slow, small.Short(), count(sizes[0]), large.Short(), count(sizes[len(sizes)-1]))
	if in.latency > 0 && in.rate > 0 {
		f.Text += fmt.Sprintf(" Latency and bytes cost the same at %s bytes.", count(in.latency*in.rate*1e3))
	}
	switch off := max(in.off, out.off); {
	case off <= linkFits:
		f.Verdict = Shown
	case off > 2*linkFits:
		f.Verdict = Refuted
		f.Text += " Latency and rate do not explain these times."
	default:
		f.Verdict = Unknown
		f.Text += fmt.Sprintf(" The law should be off by %d %% at most.", linkFits)
	}
	return f
}

func judgeLinkOnCPU(d Data) Finding {
	l := fitLaw(d, handOver)
	return undecided(fmt.Sprintf("The claim is about a GPU. To hand n bytes to another thread of this CPU takes %s: caches make small sizes faster than the law, memory large ones slower.", l), l.figures(handOver)...)
}

func drawLink(d Data) *Picture {
	p := &Picture{Title: "Time of a copy by its size", X: Axis{"bytes", true}, Y: Axis{"time (us)", true}}
	for _, of := range d.cases("time_us") {
		p.Lines = append(p.Lines, lineOf(d, of, "time_us"))
	}
	return p
}
