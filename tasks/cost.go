package tasks

import (
	"gpt2scope/cpu"
	"gpt2scope/predict"
)

// Product is a matrix product of (M, K) by (K, N), done so many times.
type Product struct{ M, N, K, Times int }

// work returns what is known of work before it runs on a device.
func (c Cost) work(task, dtype string, memory predict.Memory, cold bool, d *Device) predict.Work {
	w := predict.Work{
		Task: task, DType: dtype, FLOPs: c.FLOPs, Bytes: c.Bytes, Steps: float64(c.Steps), Rows: float64(c.Rows),
		FloorUs: c.FloorUs(d.Ceilings), Memory: memory, Cold: cold,
	}
	if memory == MemoryPageable || memory == MemoryPinned {
		w.BytesIn, w.BytesOut = float64(c.In), float64(c.Out)
	}
	if len(c.Products) == 1 {
		w.Inner = float64(c.Products[0].K)
	}
	if memory != MemoryHost {
		return w
	}
	w.Threads = float64(d.Threads)
	const leastRows = 12 // a product of fewer rows takes about as long: it reads all weights
	var all, idle float64
	for _, p := range c.Products {
		_, parts := cpu.Divide(d.Kernels, d.Threads, p.M, p.N, p.K, dtype == BFloat16)
		size := float64(max(p.M, leastRows)) * float64(p.N) * float64(p.K) * float64(p.Times)
		all, idle = all+size, idle+size*max(1, float64(d.Threads)/float64(parts))
	}
	if all > 0 {
		kernel, _ := cpu.Divide(d.Kernels, d.Threads, c.Rows, 1, 1, dtype == BFloat16)
		w.Kernel, w.Idle = float64(kernel), idle/all
	}
	return w
}
