package learn

// #include "lesson01.h"
import "C"

import (
	"context"
	_ "embed"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"gpt2scope/cpu"
	"gpt2scope/internal/chart"
)

//go:embed lesson01.cu
var addSource string

var lesson01 = Lesson{
	Number: 1,
	Claim:  "a kernel started with <<<1, 1>>> runs the loop on the GPU, so it is fast",
	CPU:    &Experiment{Run: threadsOnCPU, Judge: judgeThreadsOnCPU, Picture: drawThreadsOnCPU},
	GPU:    &Experiment{Run: onGPU(threadsOnGPU), Judge: judgeThreads, Picture: drawThreads, Sources: []Source{{"lesson01.cu", addSource}}},
	Why: `<<<1, 1>>> starts one block of one thread: one lane of one SM. That lane has a lower clock than a CPU core,
runs in order, without branch prediction or prefetching, and waits hundreds of nanoseconds for each access to memory.
A GPU does not shorten such waits, it hides them. The 32 lanes of a warp read neighbouring addresses in one
transaction; an SM holds up to 64 warps and issues from those whose data have arrived; all SMs work at once. Each of
the three multiplies the speed, and one thread has none of them. On a CPU, one thread already uses a good part of the
memory bandwidth, so the same mistake costs at most about a factor of the number of cores. Choose the grid from the
data, a thread per element or a loop over a few, and leave serial loops to the CPU.`,
	GoOn: "infer bench ceilings",
}

func threadsOnGPU(ctx context.Context, e *Env, g *gpu) (d Data, err error) {
	kernels := g.kernels(Source{"lesson01.cu", addSource}, "add")
	most := g.elements(e.pick(1<<27, 1<<14), 12)
	b := g.buffers(3, 4*int64(most))
	if g.err != nil {
		return nil, g.err
	}
	processors := g.Device.Info().Processors
	for _, shape := range []struct{ blocks, threads int }{{1, 1}, {1, 2}, {1, 8}, {1, 32}, {1, 128}, {1, 1024}, {processors / 8, 1024}, {processors, 1024}, {2 * processors, 1024}} {
		blocks := max(1, shape.blocks)
		threads := blocks * shape.threads
		n := min(most, threads*(1<<12)) // few threads get little work, so that each case takes milliseconds
		times, err := repeated(ctx, e.pick(11, 7), func() (float64, error) {
			return g.timeUs(func() error {
				return kernels[0].Launch(g.Stream, line(blocks, shape.threads), b[0], b[1], b[2], int32(n))
			})
		})
		if err != nil {
			return nil, err
		}
		for _, t := range times {
			d.add("GPU threads", "time_us", float64(threads), t)
			d.add("GPU threads", "bytes", float64(threads), 12*float64(n))
		}
	}
	return d, nil
}

func threadsOnCPU(ctx context.Context, e *Env) (d Data, err error) {
	n := e.pick(1<<24, 1<<12)
	x, y, z := make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range x {
		x[i], y[i], z[i] = float32(i%100), 1, 1
	}
	all := cpu.Threads(0)
	for _, way := range []struct {
		name    string
		threads int
		vectors bool
	}{{"one by one", 1, false}, {"vectors", 1, true}, {"vectors", all, true}} {
		times, err := repeated(ctx, e.pick(11, 7), func() (float64, error) {
			start := time.Now()
			var group sync.WaitGroup
			part := n / way.threads / 16 * 16
			for k := range way.threads {
				from, count := k*part, part
				if k == way.threads-1 {
					count = n - from
				}
				group.Go(func() {
					p, q, r := (*C.float)(unsafe.Pointer(&z[from])), (*C.float)(unsafe.Pointer(&x[from])), (*C.float)(unsafe.Pointer(&y[from]))
					if way.vectors {
						C.learn_add_vectors(p, q, r, C.long(count))
					} else {
						C.learn_add(p, q, r, C.long(count))
					}
				})
			}
			group.Wait()
			return us(time.Since(start)), nil
		})
		if err != nil {
			return nil, err
		}
		for _, t := range times {
			d.add(way.name, "time_us", float64(way.threads), t)
			d.add(way.name, "bytes", float64(way.threads), 12*float64(n))
		}
	}
	return d, nil
}

// rate is the bandwidth of a case with so many threads.
func (d Data) rate(name, of string, threads float64) Figure {
	return figureOf(name, "GB/s", each(d.at(of, "bytes", threads), d.at(of, "time_us", threads), func(b, t float64) float64 { return b / t / 1e3 }))
}

// A thread alone that is threadsSlow times slower than all refutes the claim, one within threadsFast shows it.
const threadsSlow, threadsFast = 100, 2

func judgeThreads(d Data) Finding {
	const of = "GPU threads"
	var best Figure
	bestAt := 0.0
	for _, x := range d.xs(of, "time_us") {
		if r := d.rate("most threads", of, x); r.Value > best.Value {
			best, bestAt = r, x
		}
	}
	one, warp := d.rate("1 thread", of, 1), d.rate("1 warp: 32 threads", of, 32)
	best.Name = count(bestAt) + " threads"
	factor := exact(best.Name+" over 1 thread", "x", best.Value/one.Value)
	f := Finding{Figures: []Figure{one, warp, best, factor}}
	f.Text = fmt.Sprintf("The same loop adds vectors %s faster with %s than with one thread.", factor, best.Name)
	switch {
	case factor.Value >= threadsSlow:
		f.Verdict = Refuted
		f.Text += " So the loop does run on the GPU, and it is slow."
	case factor.Value <= threadsFast:
		f.Verdict = Shown
		f.Text += " So one thread is nearly as fast as all."
	default:
		f.Verdict = Unknown
		f.Text += fmt.Sprintf(" Below %dx, one thread is not clearly slow.", threadsSlow)
	}
	return f
}

func judgeThreadsOnCPU(d Data) Finding {
	threads := d.xs("vectors", "time_us")
	if len(threads) == 0 {
		return undecided("Nothing was measured.")
	}
	all := threads[len(threads)-1]
	one, vectors, most := d.rate("1 thread, scalar instructions", "one by one", 1), d.rate("1 thread, vector instructions", "vectors", 1), d.rate(countOf(int(all), "thread")+", vector instructions", "vectors", all)
	return undecided(fmt.Sprintf("The claim is about a GPU; this is a CPU, for comparison. One thread, one number after another, reaches %.0f %% of the bandwidth of %s.",
		100*one.Value/most.Value, countOf(int(all), "thread")), one, vectors, most)
}

func drawThreads(d Data) chart.Picture {
	return d.drawRates("Vector addition by number of threads", "threads")
}

func drawThreadsOnCPU(d Data) chart.Picture {
	return bars("Vector addition on the CPU", linear("bandwidth (GB/s)"), 1, judgeThreadsOnCPU(d).Figures...)
}

// drawRates draws the bandwidth of each case by what was varied.
func (d Data) drawRates(title, x string) chart.Picture {
	var all []chart.Series
	for _, of := range d.cases("time_us") {
		all = append(all, d.curve(of, "time_us", func(x float64) float64 { return d.rate(of, of, x).Value }))
	}
	return curves(title, log(x), log("bandwidth (GB/s)"), all...)
}
