package auto

import (
	"strings"

	"gpt2scope/ceilings"
)

// tableName names the ceilings of this file. It changes with them.
const tableName = "table 1"

// law is a time in us: once, as a multiple of the floor, for each step, for each MiB of weights.
type law struct{ base, floor, step, mib float64 }

// ms returns the time of a part in ms; 0 if it has no passes.
func (l law) ms(p Part) float64 {
	if p.Passes == 0 {
		return 0
	}
	return (l.base + l.floor*p.FloorUs + l.step*float64(p.Steps)) / 1e3
}

// table predicts the parts of a run on a kind of device of which nothing was measured on this machine.
type table struct {
	process float64 // us, the start of the process and its end after the last token
	open    float64 // us, opening the device, with the driver and the libraries in memory
	first   float64 // us, the same if the device was not used since the machine started
	load    law
	prefill law     // its base is what the first pass loads
	blas    float64 // us, what a pass loads that needs the library of matrix products
	decode  law
}

// The tables, rounded: of bench/auto_cold.py on an H200 with 16 cores of an Intel Xeon, 2026-11-22
// (docs/measurements/2026-11-22-h200-auto-cold.csv). first is what the first start of CUDA after that of the machine
// took more: docs/performance.md.
var (
	cpuTable = table{
		process: 16e3, open: 800, first: 800,
		load:    law{base: 5000, mib: 270},
		prefill: law{base: 300, floor: 2, step: 100},
		decode:  law{floor: 1.1, step: 5},
	}
	gpuTable = table{
		process: 165e3, open: 105e3, first: 330e3,
		load:    law{base: 130e3, mib: 500},
		prefill: law{base: 47e3, floor: 2, step: 10},
		blas:    230e3,
		decode:  law{floor: 1.25, step: 2.4},
	}
)

// What loading the driver, opening cuBLASLt and making a context cost on the machine of the table, in us, as parts of
// open and of load: docs/measurements/2026-11-22-h200-start.txt.
const (
	usualDriver  = 11e3
	usualBLAS    = 46e3
	usualContext = 103e3
)

// table returns the table of the device's kind, with what a start of CUDA costs on this machine if 'infer bench
// ceilings' measured it.
func (d *Device) table() table {
	if !d.GPU {
		return cpuTable
	}
	t := gpuTable
	us := func(name string) float64 { return float64(d.Ceilings.Latency(name).Nanoseconds()) / 1e3 }
	if driver := us(ceilings.CUDADriver); driver > 0 {
		more := driver + us(ceilings.CUBLASLt) - usualDriver - usualBLAS
		t.open, t.first = max(0, t.open+more), max(0, t.first+more)
	}
	if context := us(ceilings.CUDAContext); context > 0 {
		t.load.base = max(0, t.load.base+context-usualContext)
	}
	return t
}

// time predicts the parts by the table alone. first says that the device was not used since the machine started.
func (t table) time(w Work, first bool) Times {
	out := Times{
		Process: t.process / 1e3,
		Open:    t.open / 1e3,
		Load:    (t.load.base + t.load.mib*float64(w.Weights)/(1<<20)) / 1e3,
		Prefill: t.prefill.ms(w.Prefill),
		Decode:  t.decode.ms(w.Decode),
	}
	if first {
		out.Open = t.first / 1e3
	}
	if w.BLAS && w.Prefill.Passes > 0 {
		out.Prefill += t.blas / 1e3
	}
	return out
}

// GPUCeilings returns ceilings for a GPU that has not measured its own: those of an H200, or a fifth for any other GPU.
func GPUCeilings(name string) ceilings.Set {
	share := 0.2
	if strings.Contains(name, "H200") {
		share = 1
	}
	return set(name, 4450*share, 10200*share, 25<<20, "L2 cache", 50*share, 685*share)
}

// CPUCeilings returns ceilings for a CPU that has not measured its own, by its threads and the kernels of its vector
// extensions.
func CPUCeilings(name string, threads int, kernels string) ceilings.Set {
	n, gflops, bf16 := float64(max(1, threads)), 4.0, 1.0 // of a thread; times as many in bfloat16
	switch {
	case strings.HasPrefix(kernels, "neon"):
		gflops = 30
	case strings.HasPrefix(kernels, "avx2"):
		gflops = 60
	case strings.HasPrefix(kernels, "avx512-bf16"):
		gflops, bf16 = 110, 2
	case strings.HasPrefix(kernels, "avx512"):
		gflops = 110
	case strings.HasPrefix(kernels, "amx"):
		gflops, bf16 = 110, 3
	}
	return set(name, min(30*n, 200), 40*n, int64(4<<20)*int64(n), "cache", gflops*n/1e3, bf16*gflops*n/1e3)
}

// set makes ceilings that were not measured on this machine, which have no time: GB/s of memory and of a cache of a
// size, TFLOP/s in both types.
func set(name string, memory, cached float64, size int64, cache string, f32, bf16 float64) ceilings.Set {
	return ceilings.Set{Device: name, Values: []ceilings.Value{
		{Name: "read", Unit: ceilings.GBs, Value: memory, Where: "memory"},
		{Name: "read", Unit: ceilings.GBs, Value: cached, Where: cache, Size: size},
		{Name: ceilings.F32, Unit: ceilings.TFLOPs, Value: f32},
		{Name: ceilings.BF16, Unit: ceilings.TFLOPs, Value: bf16},
	}}
}
