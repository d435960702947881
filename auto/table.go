package auto

import (
	"strings"

	"gpt2scope/ceilings"
	"gpt2scope/predict"
)

// tableName names the ceilings of this file. It changes with them.
const tableName = "table 1"

// Table predicts the parts of a run on a kind of device of which nothing was measured on this
// machine.
type Table struct {
	Process float64     // us, the start of the process and its end after the last token
	Open    float64     // us, opening the device, with the driver and the libraries in memory
	First   float64     // us, the same if the device was not used since the machine started
	Load    predict.Law // of the bytes of weights, as BytesIn
	Prefill predict.Law // of floor and steps of all passes; BaseUs once, for what the first pass loads
	BLAS    float64     // us, what a pass loads that needs the library of matrix products
	Decode  predict.Law
}

// The tables, rounded: of bench/auto_cold.py on an H200 with 16 cores of an Intel Xeon, 2026-11-22
// (docs/measurements/2026-11-22-h200-auto-cold.csv). First is what the first start of CUDA after
// that of the machine took more: docs/performance.md.
var (
	cpuTable = Table{
		Process: 16e3, Open: 800, First: 800,
		Load:    predict.Law{BaseUs: 5000, PageableIn: predict.Transfer{UsPerMiB: 270}},
		Prefill: predict.Law{Floor: 2, StepUs: 100, BaseUs: 300},
		Decode:  predict.Law{Floor: 1.1, StepUs: 5},
	}
	gpuTable = Table{
		Process: 165e3, Open: 105e3, First: 330e3,
		Load:    predict.Law{BaseUs: 130e3, PageableIn: predict.Transfer{UsPerMiB: 500}},
		Prefill: predict.Law{Floor: 2, StepUs: 10, BaseUs: 47e3},
		BLAS:    230e3,
		Decode:  predict.Law{Floor: 1.25, StepUs: 2.4},
	}
)

// TableOf returns the table of a kind of device.
func TableOf(gpu bool) *Table {
	if gpu {
		return &gpuTable
	}
	return &cpuTable
}

// What loading the driver, opening cuBLASLt and making a context cost on the machine of the table, in us, as parts of its Open and its
// Load: docs/measurements/2026-11-22-h200-start.txt.
const (
	usualDriver  = 11e3
	usualBLAS    = 46e3
	usualContext = 103e3
)

// table returns the table of the device's kind, with what a start of CUDA costs on this machine if 'infer bench ceilings' measured it.
func (d *Device) table() *Table {
	t := *TableOf(d.GPU)
	us := func(name string) float64 { return float64(d.Ceilings.Latency(name).Nanoseconds()) / 1e3 }
	if !d.GPU {
		return &t
	}
	if driver := us(ceilings.CUDADriver); driver > 0 {
		more := driver + us(ceilings.CUBLASLt) - usualDriver - usualBLAS
		t.Open, t.First = max(0, t.Open+more), max(0, t.First+more)
	}
	if context := us(ceilings.CUDAContext); context > 0 {
		t.Load.BaseUs = max(0, t.Load.BaseUs+context-usualContext)
	}
	return &t
}

// GPUCeilings returns ceilings for a GPU that has not measured its own: those of an H200, or a
// fifth of them for any other GPU.
func GPUCeilings(name string) ceilings.Set {
	share := 0.2
	if strings.Contains(name, "H200") {
		share = 1
	}
	return set(name,
		ceilings.Value{Name: "read", Unit: ceilings.GBs, Value: 4450 * share, Where: "memory"},
		ceilings.Value{Name: "read", Unit: ceilings.GBs, Value: 10200 * share, Where: "L2 cache", Size: 25 << 20},
		ceilings.Value{Name: ceilings.F32, Unit: ceilings.TFLOPs, Value: 50 * share},
		ceilings.Value{Name: ceilings.BF16, Unit: ceilings.TFLOPs, Value: 685 * share})
}

// CPUCeilings returns ceilings for a CPU that has not measured its own: by the threads, and by
// whether its kernels are those of vector extensions.
func CPUCeilings(name string, threads int, kernels string) ceilings.Set {
	n := float64(max(1, threads))
	gflops := 4.0 // a thread
	for _, k := range []struct {
		prefix string
		gflops float64
	}{{"neon", 30}, {"avx2", 60}, {"avx512", 110}, {"amx", 110}} {
		if strings.HasPrefix(kernels, k.prefix) {
			gflops = k.gflops
		}
	}
	bf16 := gflops
	switch {
	case strings.HasPrefix(kernels, "amx"):
		bf16 = 3 * gflops
	case strings.HasPrefix(kernels, "avx512-bf16"):
		bf16 = 2 * gflops
	}
	return set(name,
		ceilings.Value{Name: "read", Unit: ceilings.GBs, Value: min(30*n, 200), Where: "memory"},
		ceilings.Value{Name: "read", Unit: ceilings.GBs, Value: 40 * n, Where: "cache", Size: int64(4<<20) * int64(n)},
		ceilings.Value{Name: ceilings.F32, Unit: ceilings.TFLOPs, Value: gflops * n / 1e3},
		ceilings.Value{Name: ceilings.BF16, Unit: ceilings.TFLOPs, Value: bf16 * n / 1e3})
}

// set makes a set that was not measured on this machine: it has no time.
func set(name string, values ...ceilings.Value) ceilings.Set {
	return ceilings.Set{Device: name, Values: values}
}
