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
	load    law
	prefill law     // its base is what the first pass loads
	blas    float64 // us, what a pass loads that needs the library of matrix products
	decode  law
}

// The tables, rounded: of bench/auto_cold.py on an H200 with 16 cores of an Intel Xeon, 2026-11-22
// (docs/measurements/2026-11-22-h200-auto-cold.csv); but a GPU opens as it does the first
// time since the machine started, until a run here says otherwise.
var (
	cpuTable = table{
		process: 16e3, open: 800,
		load:    law{base: 5000, mib: 270},
		prefill: law{base: 300, floor: 2, step: 100},
		decode:  law{floor: 1.1, step: 5},
	}
	gpuTable = table{
		process: 165e3, open: 330e3,
		load:    law{base: 130e3, mib: 500},
		prefill: law{base: 47e3, floor: 2, step: 10},
		blas:    230e3,
		decode:  law{floor: 1.25, step: 2.4},
	}
)

func (d *Device) table() table {
	if d.GPU {
		return gpuTable
	}
	return cpuTable
}

func (t table) time(w Work) Times {
	out := Times{
		Process: t.process / 1e3,
		Open:    t.open / 1e3,
		Load:    (t.load.base + t.load.mib*float64(w.Weights)/(1<<20)) / 1e3,
		Prefill: t.prefill.ms(w.Prefill),
		Decode:  t.decode.ms(w.Decode),
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
	for _, k := range []struct {
		kernels      string
		gflops, bf16 float64
	}{{"neon", 30, 1}, {"avx2", 60, 1}, {"avx512", 110, 1}, {"avx512-bf16", 110, 2}, {"amx", 110, 3}} {
		if strings.HasPrefix(kernels, k.kernels) {
			gflops, bf16 = k.gflops, k.bf16
		}
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
