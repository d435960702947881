package learn

// #include "lesson04.h"
import "C"

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"sync"
	"time"

	"gpt2scope/cpu"
	"gpt2scope/internal/chart"
)

//go:embed lesson04.cu
var chainSource string

var lesson04 = Lesson{
	Number: 4,
	Claim:  "CPUs execute instructions one after another, GPUs in parallel",
	CPU:    &Experiment{Run: parallelOnCPU, Judge: judgeParallelOnCPU, Picture: drawParallelOnCPU},
	GPU:    &Experiment{Run: onGPU(parallelOnGPU), Judge: judgeParallelOnGPU, Picture: drawParallelOnGPU, Sources: []Source{{"lesson04.cu", chainSource}}},
	Why: `Both do both. A chain in which each step needs the result of the last runs at about the same pace on either:
one step per latency of the arithmetic unit. A CPU core finds independent instructions by itself and runs several at
once, works on 8 or 16 numbers with one vector instruction, and has neighbours: three kinds of parallelism, whose
factors multiply. A GPU has the same three in other proportions: the 32 lanes of a warp are its vector, warps that
take turns stand in for out-of-order execution, and it has more and simpler processors. The difference is what the
silicon is spent on: a CPU shortens the time of one thread with caches, prediction and clock; a GPU hides it behind
tens of thousands of others. Ask of a task how many independent pieces it has. Never compare a GPU with one scalar CPU
thread.`,
	GoOn: "infer bench -m random:gpt2 --device cpu --threads 1,2 --repeat 5",
}

const (
	oneChain    = "one chain"
	eightChains = "8 chains"
	vectorsOf   = "vectors"
)

func parallelOnCPU(ctx context.Context, e *Env) (d Data, err error) {
	steps := e.pick(4_000_000, 4000)
	all := cpu.Threads(0)
	for _, way := range []struct {
		name    string
		threads int
		flops   float64 // of a step
		run     func()
	}{
		{oneChain, 1, 2, func() { C.learn_chain(C.long(steps)) }},
		{eightChains, 1, 16, func() { C.learn_chains(C.long(steps)) }},
		{vectorsOf, 1, 128, func() { C.learn_vectors(C.long(steps)) }},
		{vectorsOf + ", all threads", all, 128, func() { C.learn_vectors(C.long(steps)) }},
	} {
		times, err := repeated(ctx, e.pick(15, 7), func() (float64, error) {
			start := time.Now()
			var group sync.WaitGroup
			for range way.threads {
				group.Go(way.run)
			}
			group.Wait()
			return us(time.Since(start)), nil
		})
		if err != nil {
			return nil, err
		}
		for _, t := range times {
			d.add(way.name, "time_us", float64(way.threads), t)
			d.add(way.name, "flops", float64(way.threads), way.flops*float64(steps)*float64(way.threads))
		}
	}
	return d, nil
}

func parallelOnGPU(ctx context.Context, e *Env, g *gpu) (d Data, err error) {
	kernels := g.kernels(Source{"lesson04.cu", chainSource}, "chain")
	out := g.buffers(1, 4)
	if g.err != nil {
		return nil, g.err
	}
	const steps = 100_000
	processors := g.Device.Info().Processors
	for _, shape := range []struct{ blocks, threads int }{{1, 1}, {1, 8}, {1, 32}, {1, 128}, {1, 1024}, {processors, 1024}, {2 * processors, 1024}} {
		times, err := repeated(ctx, e.pick(11, 7), func() (float64, error) {
			return g.timeUs(func() error {
				return kernels[0].Launch(g.Stream, line(shape.blocks, shape.threads), out[0], int32(steps))
			})
		})
		if err != nil {
			return nil, err
		}
		threads := float64(shape.blocks * shape.threads)
		for _, t := range times {
			d.add("GPU threads", "time_us", threads, t)
			d.add("GPU threads", "flops", threads, 2*steps*threads)
		}
	}
	return d, nil
}

// speed is the arithmetic rate of a case with so many threads.
func (d Data) speed(name, of string, threads float64) Figure {
	return figureOf(name, "GFLOP/s", each(d.at(of, "flops", threads), d.at(of, "time_us", threads), func(n, t float64) float64 { return n / t / 1e3 }))
}

// A CPU that does parallelFactor times as much as one chain refutes that it executes one instruction after another; one
// that does no more than serialFactor shows it.
const parallelFactor, serialFactor = 4, 1.5

func judgeParallelOnCPU(d Data) Finding {
	whole := vectorsOf + ", all threads"
	threads := d.xs(whole, "time_us")
	if len(threads) == 0 {
		return undecided("Nothing was measured on all threads.")
	}
	chain, chains, vectors := d.speed("1 chain of dependent steps, 1 thread", oneChain, 1), d.speed("8 independent chains, 1 thread", eightChains, 1), d.speed("vector instructions, 1 thread", vectorsOf, 1)
	all := d.speed("vector instructions, "+countOf(int(threads[0]), "thread"), whole, threads[0])
	factor := exact("the last over the first", "x", all.Value/chain.Value)
	f := Finding{Figures: []Figure{chain, chains, vectors, all, factor}}
	f.Text = fmt.Sprintf("This CPU does %s the arithmetic of instructions that wait for one another.", factor)
	switch {
	case factor.Value >= parallelFactor:
		f.Verdict = Refuted
		f.Text += " The claim misleads: a CPU works in parallel too, within a core and with several."
	case factor.Value <= serialFactor:
		f.Verdict = Shown
		f.Text += " It executes one instruction after another."
	default:
		f.Verdict = Unknown
	}
	return f
}

func judgeParallelOnGPU(d Data) Finding {
	const of = "GPU threads"
	lane, warp := figureOf("1 chain of steps, 1 thread", "us", d.at(of, "time_us", 1)), figureOf("32 chains, the 32 threads of a warp", "us", d.at(of, "time_us", 32))
	ratio := figureOf("time of the warp over that of 1 thread", "x", ratios(d.at(of, "time_us", 32), d.at(of, "time_us", 1)))
	threads := d.xs(of, "time_us")
	if len(threads) == 0 {
		return undecided("Nothing was measured.")
	}
	most := threads[len(threads)-1]
	one, all := d.speed("1 thread", of, 1), d.speed(count(most)+" threads", of, most)
	f := Finding{Figures: []Figure{lane, warp, ratio, one, all}}
	f.Text = fmt.Sprintf("A warp does 32 times the work of one thread in %s the time.", ratio.Short())
	switch low, high := ratio.interval(); {
	case high < 1.2:
		f.Verdict = Shown
		f.Text += " So much is true: the lanes of a GPU work in parallel. Within a thread, each step waits for the one before."
	case low > 16:
		f.Verdict = Refuted
		f.Text += " The lanes of a warp took turns."
	default:
		f.Verdict = Unknown
	}
	return f
}

func drawParallelOnCPU(d Data) chart.Picture {
	figures := slices.DeleteFunc(judgeParallelOnCPU(d).Figures, func(f Figure) bool { return f.Unit != "GFLOP/s" })
	return bars("What parallelism adds on a CPU", log("GFLOP/s"), 1, figures...)
}

func drawParallelOnGPU(d Data) chart.Picture {
	const of = "GPU threads"
	var figures []Figure
	for _, x := range d.xs(of, "time_us") {
		figures = append(figures, d.speed(countOf(int(x), "thread"), of, x))
	}
	return bars("What threads add on a GPU", log("GFLOP/s"), 1, figures...)
}
