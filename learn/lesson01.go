package learn

import "fmt"

var lesson01 = Lesson{
	Number: 1,
	Claim:  "a kernel started with <<<1, 1>>> runs the loop on the GPU, so it is fast",
	GPU: &Experiment{Run: onGPU(threadsOnGPU), Judge: judgeThreads,
		Picture: curves("Vector addition by number of threads", log("threads"), log("bandwidth (GB/s)"), bandwidths)},
	Why: `<<<1, 1>>> starts one block of one thread: one lane of one SM. That lane has a lower clock than a CPU core,
runs in order, without branch prediction or prefetching, and waits hundreds of nanoseconds for each access to memory.
A GPU does not shorten such waits, it hides them. The 32 lanes of a warp read neighbouring addresses in one
transaction; an SM holds up to 64 warps and issues from those whose data have arrived; all SMs work at once. Each of
the three multiplies the speed, and one thread has none of them. On a CPU, one thread already uses a good part of the
memory bandwidth, so the same mistake costs at most about a factor of the number of cores. Choose the grid from the
data, a thread per element or a loop over a few, and leave serial loops to the CPU.`,
	GoOn: "infer bench ceilings",
}

func threadsOnGPU(g *gpu) {
	add := g.kernels("lesson01.cu", "add")[0]
	most := g.elements(g.pick(1<<27, 1<<14), 12)
	x, y, z := g.buffer(4*int64(most)), g.buffer(4*int64(most)), g.buffer(4*int64(most))
	processors := g.Device.Info().Processors
	var ways []way
	for _, shape := range []struct{ blocks, threads int }{
		{1, 1}, {1, 2}, {1, 8}, {1, 32}, {1, 128}, {1, 1024},
		{max(1, processors/8), 1024}, {processors, 1024}, {2 * processors, 1024},
	} {
		threads := shape.blocks * shape.threads
		n := min(most, threads*(1<<12)) // few threads get little work, so that each case takes milliseconds
		g.add(gpuThreads, "bytes", float64(threads), 12*float64(n))
		ways = append(ways, way{of: gpuThreads, x: float64(threads), run: func() float64 {
			return g.timeUs(func() { g.launch(add, shape.blocks, shape.threads, z, x, y, int32(n)) })
		}})
	}
	g.inTurns(g.pick(11, 7), ways...)
}

// gpuThreads is the case of lessons 1 and 4.
const gpuThreads = "GPU threads"

// A thread alone that is threadsSlow times slower than all refutes the claim, one within threadsFast shows it.
const threadsSlow, threadsFast = 100, 2

func judgeThreads(d Data) Finding {
	var best Figure
	for _, x := range d.xs(gpuThreads, "time_us") {
		if r := d.rate(count(x)+" threads", gpuThreads, "bytes", x); r.Value > best.Value {
			best = r
		}
	}
	one, warp := d.rate("1 thread", gpuThreads, "bytes", 1), d.rate("1 warp: 32 threads", gpuThreads, "bytes", 32)
	factor := exact(best.Name+" over 1 thread", "x", best.Value/one.Value)
	f := Finding{Figures: []Figure{one, warp, best, factor}}
	f.Text = fmt.Sprintf("The same loop adds vectors %s faster with %s than with one thread.", factor, best.Name)
	return f.decide(
		rule{Refuted, factor.Value >= threadsSlow, "So the loop does run on the GPU, and it is slow."},
		rule{Shown, factor.Value <= threadsFast, "So one thread is nearly as fast as all."},
		rule{Unknown, true, fmt.Sprintf("Below %dx, one thread is not clearly slow.", threadsSlow)})
}
