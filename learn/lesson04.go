package learn

// #include "lesson04.h"
import "C"

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sync"
	"time"

	"gpt2scope/cpu"
)

//go:embed lesson04.cu
var chainSource string

var lesson04 = Lesson{
	Number: 4,
	Claim:  "CPUs execute instructions one after another, GPUs in parallel",
	CPU:    &Experiment{Run: parallelOnCPU, Judge: judgeParallelOnCPU, Picture: drawParallel},
	GPU:    &Experiment{Run: parallelOnGPU, Judge: judgeParallelOnGPU, Picture: drawParallel, Sources: []Source{{"lesson04.cu", chainSource}}},
	Why: `Both do both. A chain, in which each step needs the result of the last, goes at about the same pace on either: a step per latency of the unit. A CPU core
overlaps independent instructions on its own, works on 8 or 16 numbers with one vector instruction, and has neighbours: three kinds of parallelism,
whose factors multiply. A GPU has the same ideas in other proportions: 32 lanes are its vector, many warps take turns where a
CPU reorders, and it has ten times as many processors. The difference is what silicon is spent on: CPUs shorten the time of one thread
with caches, prediction and clock; GPUs hide it behind tens of thousands of others. So ask of a task how many independent pieces it has, and
never compare a GPU with one lane of one core.`,
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
		for i := range e.pick(15, 7) + 1 {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			start := time.Now()
			var group sync.WaitGroup
			for range way.threads {
				group.Go(way.run)
			}
			group.Wait()
			if i > 0 {
				d.add(way.name, "time_us", float64(way.threads), us(time.Since(start)))
				d.add(way.name, "flops", float64(way.threads), way.flops*float64(steps)*float64(way.threads))
			}
		}
	}
	return d, nil
}

func parallelOnGPU(ctx context.Context, e *Env) (d Data, err error) {
	g, err := e.gpu()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	kernels, err := g.kernels(Source{"lesson04.cu", chainSource}, "chain")
	if err != nil {
		return nil, err
	}
	out, err := g.buffers(1, 4)
	if err != nil {
		return nil, err
	}
	const steps = 100_000
	processors := g.Device.Info().Processors
	for _, shape := range []struct{ blocks, threads int }{{1, 1}, {1, 8}, {1, 32}, {1, 128}, {1, 1024}, {processors, 1024}, {2 * processors, 1024}} {
		for i := range e.pick(11, 7) + 1 {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			t, err := g.timeUs(func() error {
				return kernels[0].Launch(g.Stream, line(shape.blocks, shape.threads), out[0], int32(steps))
			})
			if err != nil {
				return nil, err
			}
			if i > 0 {
				threads := float64(shape.blocks * shape.threads)
				d.add("GPU threads", "time_us", threads, t)
				d.add("GPU threads", "flops", threads, 2*steps*threads)
			}
		}
	}
	return d, nil
}

// speed is the arithmetic rate of a case with so many threads.
func (d Data) speed(name, of string, threads float64) Figure {
	return figureOf(name, "GFLOP/s", each(d.at(of, "flops", threads), d.at(of, "time_us", threads), func(n, t float64) float64 { return n / t / 1e3 }))
}

// A CPU that does parallelFactor times as much as one chain refutes that it executes one instruction after another; one that does no more than serialFactor shows it.
const parallelFactor, serialFactor = 4, 1.5

func judgeParallelOnCPU(d Data) Finding {
	whole := vectorsOf + ", all threads"
	threads := d.xs(whole, "time_us")
	if len(threads) == 0 {
		return undecided("Nothing was measured on all threads.")
	}
	chain, chains, vectors := d.speed(oneChain, oneChain, 1), d.speed(eightChains, eightChains, 1), d.speed(vectorsOf, vectorsOf, 1)
	all := d.speed(whole, whole, threads[0])
	factor := exact("all over one chain", "x", all.Value/chain.Value)
	f := Finding{Figures: []Figure{chain, chains, vectors, all, factor}}
	f.Text = fmt.Sprintf("One core does a chain of dependent steps at %s. Eight independent chains in the same core reach %s, with vector instructions %s, and %s threads %s: %s what instructions one after another give.",
		chain, chains, vectors, count(threads[0]), all, factor)
	switch {
	case factor.Value >= parallelFactor:
		f.Verdict = Refuted
		f.Text += " The claim misleads: CPUs work in parallel too."
	case factor.Value <= serialFactor:
		f.Verdict = Shown
	default:
		f.Verdict = Unknown
	}
	return f
}

func judgeParallelOnGPU(d Data) Finding {
	const of = "GPU threads"
	lane, warp := figureOf("one lane", "us", d.at(of, "time_us", 1)), figureOf("a warp of 32", "us", d.at(of, "time_us", 32))
	ratio := figureOf("a warp over one lane", "x", ratios(d.at(of, "time_us", 32), d.at(of, "time_us", 1)))
	threads := d.xs(of, "time_us")
	if len(threads) == 0 {
		return undecided("Nothing was measured.")
	}
	most := threads[len(threads)-1]
	one, all := d.speed("one lane", of, 1), d.speed("all", of, most)
	f := Finding{Figures: []Figure{lane, warp, ratio, one, all}}
	f.Text = fmt.Sprintf("One lane does the chain in %s, the 32 lanes of a warp 32 chains in %s. Alone, a lane does %s, %s threads %s.", lane, warp, one, count(most), all)
	switch low, high := ratio.interval(); {
	case high < 1.2:
		f.Verdict = Shown
		f.Text += " So much is true: a GPU's lanes work in parallel. Within a thread, one step follows another."
	case low > 16:
		f.Verdict = Refuted
		f.Text += " The lanes of a warp took turns."
	default:
		f.Verdict = Unknown
	}
	return f
}

func drawParallel(d Data) *Picture {
	p := &Picture{Title: "What parallelism adds", X: Axis{Name: "GFLOP/s", Log: true}}
	for _, of := range d.cases("time_us") {
		for _, x := range d.xs(of, "time_us") {
			name := of
			if x > 1 || of == "GPU threads" {
				name = count(x) + " " + of
			}
			p.Bars = append(p.Bars, barOf(d.speed(name, of, x), 1))
		}
	}
	return p
}
