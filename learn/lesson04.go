package learn

// #include "lessons.h"
import "C"

import (
	"fmt"
	"sync"

	"gpt2scope/cpu"
)

var lesson04 = Lesson{
	Number: 4,
	Claim:  "CPUs execute instructions one after another, GPUs in parallel",
	CPU: &Experiment{Run: parallelOnCPU, Judge: judgeParallelOnCPU,
		Picture: bars("What parallelism adds on a CPU", log("GFLOP/s"), 1, found(judgeParallelOnCPU, "GFLOP/s"))},
	GPU: &Experiment{Run: onGPU(parallelOnGPU), Judge: judgeParallelOnGPU,
		Picture: bars("What threads add on a GPU", log("GFLOP/s"), 1, func(d Data) (rates []Figure) {
			for _, x := range d.xs(gpuThreads, "time_us") {
				rates = append(rates, d.rate(countOf(int(x), "thread"), gpuThreads, "flops", x))
			}
			return rates
		})},
	Why: `Both do both. A chain in which each step needs the result of the last runs at about the same pace on either:
one step per latency of the arithmetic unit. A CPU core finds independent instructions by itself and runs several at
once, works on 4 to 16 numbers with one vector instruction, and has neighbours: three kinds of parallelism, whose
factors multiply. A GPU has the same three in other proportions: the 32 lanes of a warp are its vector, warps that
take turns stand in for out-of-order execution, and it has more and simpler processors. The difference is what the
silicon is spent on: a CPU shortens the time of one thread with caches, prediction and clock; a GPU hides it behind
hundreds of thousands of others. Ask of a task how many independent pieces it has. Never compare a GPU with one scalar CPU
thread.`,
	GoOn: "infer bench -m random:gpt2 --device cpu --threads 1,2 --repeat 5",
}

const (
	oneChain    = "one chain"
	eightChains = "8 chains"
	vectorsOf   = "vectors"
	vectorsAll  = "vectors, all threads"
)

func parallelOnCPU(l *lab) {
	steps := l.pick(4_000_000, 4000)
	for _, w := range []struct {
		name    string
		threads int
		flops   int // of a step
		run     func()
	}{
		{oneChain, 1, 2, func() { C.learn_chain(C.long(steps)) }},
		{eightChains, 1, 16, func() { C.learn_chains(C.long(steps)) }},
		{vectorsOf, 1, 128, func() { C.learn_vectors(C.long(steps)) }},
		{vectorsAll, cpu.Threads(0), 128, func() { C.learn_vectors(C.long(steps)) }},
	} {
		l.add(w.name, "flops", float64(w.threads), float64(w.flops*steps*w.threads))
		l.inTurns(l.pick(15, 7), way{of: w.name, x: float64(w.threads), run: func() float64 {
			return timed(func() {
				var group sync.WaitGroup
				for range w.threads {
					group.Go(w.run)
				}
				group.Wait()
			})
		}})
	}
}

func parallelOnGPU(g *gpu) {
	chain := g.kernels("lesson04.cu", "chain")[0]
	out := g.buffer(4)
	const steps = 100_000
	processors := g.Device.Info().Processors
	var ways []way
	for _, shape := range []struct{ blocks, threads int }{
		{1, 1}, {1, 8}, {1, 32}, {1, 128}, {1, 1024}, {processors, 1024}, {2 * processors, 1024},
	} {
		threads := float64(shape.blocks * shape.threads)
		g.add(gpuThreads, "flops", threads, 2*steps*threads)
		ways = append(ways, way{of: gpuThreads, x: threads, run: func() float64 {
			return g.timeUs(func() { g.launch(chain, shape.blocks, shape.threads, out, int32(steps)) })
		}})
	}
	g.inTurns(g.pick(11, 7), ways...)
}

// A CPU that does parallelFactor times as much as one chain refutes that it executes one instruction after another; one
// that does no more than serialFactor shows it.
const parallelFactor, serialFactor = 4, 1.5

func judgeParallelOnCPU(d Data) Finding {
	threads := d.xs(vectorsAll, "time_us")
	if len(threads) == 0 {
		return undecided("Nothing was measured on all threads.")
	}
	chain := d.rate("1 chain of dependent steps, 1 thread", oneChain, "flops", 1)
	all := d.rate("vector instructions, "+countOf(int(threads[0]), "thread"), vectorsAll, "flops", threads[0])
	factor := exact("the last over the first", "x", all.Value/chain.Value)
	f := Finding{Figures: []Figure{
		chain,
		d.rate("8 independent chains, 1 thread", eightChains, "flops", 1),
		d.rate("vector instructions, 1 thread", vectorsOf, "flops", 1),
		all, factor,
	}}
	f.Text = fmt.Sprintf("This CPU does %s the arithmetic of instructions that wait for one another.", factor)
	return f.decide(
		rule{Refuted, factor.Value >= parallelFactor,
			"The claim misleads: a CPU works in parallel too, within a core and with several."},
		rule{Shown, factor.Value <= serialFactor, "It executes one instruction after another."})
}

func judgeParallelOnGPU(d Data) Finding {
	threads := d.xs(gpuThreads, "time_us")
	if len(threads) == 0 {
		return undecided("Nothing was measured.")
	}
	most := threads[len(threads)-1]
	lane, warp := d.at(gpuThreads, "time_us", 1), d.at(gpuThreads, "time_us", 32)
	ratio := figureOf("time of the warp over that of 1 thread", "x", ratios(warp, lane))
	f := Finding{Figures: []Figure{
		figureOf("1 chain of steps, 1 thread", "us", lane),
		figureOf("32 chains, the 32 threads of a warp", "us", warp),
		ratio,
		d.rate("1 thread", gpuThreads, "flops", 1),
		d.rate(count(most)+" threads", gpuThreads, "flops", most),
	}}
	f.Lines = []string{
		"CPU   [ predicts, reorders, caches | 4 to 16 lanes ]   few cores, each made to end one thread soon",
		"      [ predicts, reorders, caches | 4 to 16 lanes ]",
		"",
		"GPU   [ of up to 64 warps that wait, 4 issue at a time | 4 x 32 lanes ]   132 such SMs, made to end many",
		"      [ of up to 64 warps that wait, 4 issue at a time | 4 x 32 lanes ]   threads, however long each waits",
		"      ...",
	}
	f.Text = fmt.Sprintf("A warp does 32 times the work of one thread in %s the time.", ratio.Short())
	low, high := ratio.interval()
	return f.decide(
		rule{Shown, high < 1.2, "So much is true: the lanes of a GPU work in parallel. Within a thread, each step waits " +
			"for the one before."},
		rule{Refuted, low > 16, "The lanes of a warp took turns."})
}
