package auto

import (
	"strings"

	"gpt2scope/ceilings"
	"gpt2scope/predict"
)

// Table predicts the parts of a run on a kind of device of which nothing was measured on this
// machine.
type Table struct {
	Open    float64     // us, opening the device, with the driver and the libraries in memory
	First   float64     // us, the same if the device was not used since the machine started
	Load    predict.Law // of the bytes of weights, as BytesIn
	Prefill predict.Law // of floor and steps of all passes; BaseUs once, for what the first pass loads
	BLAS    float64     // us, what a pass loads that needs the library of matrix products
	Decode  predict.Law
	End     float64 // us, from the last token to the end of the process
}

// The tables, rounded. The steps of a CPU with one thread need no barrier, those of many a longer
// one. docs/measurements/README.md names the runs.
var (
	cpuTable = Table{
		Open: 500, First: 500,
		Load:    predict.Law{BaseUs: 1000, PageableIn: predict.Transfer{UsPerMiB: 200}},
		Prefill: predict.Law{Floor: 1.7, StepUs: 10, BaseUs: 500},
		Decode:  predict.Law{Floor: 1.2, StepUs: 3},
		End:     1000,
	}
	gpuTable = Table{
		Open: 100e3, First: 330e3,
		Load:    predict.Law{BaseUs: 8000, PageableIn: predict.Transfer{UsPerMiB: 200}},
		Prefill: predict.Law{Floor: 2, StepUs: 10, BaseUs: 15e3},
		BLAS:    150e3,
		Decode:  predict.Law{Floor: 1.25, StepUs: 1.97},
		End:     90e3,
	}
)

// TableOf returns the table of a kind of device.
func TableOf(gpu bool) *Table {
	if gpu {
		return &gpuTable
	}
	return &cpuTable
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
	}{{"neon", 30}, {"avx2", 60}, {"avx512", 110}, {"amx", 220}} {
		if strings.HasPrefix(kernels, k.prefix) {
			gflops = k.gflops
		}
	}
	bf16 := gflops
	switch {
	case strings.HasPrefix(kernels, "amx"):
		bf16 = 4 * gflops
	case strings.HasPrefix(kernels, "avx512-bf16"):
		bf16 = 2 * gflops
	}
	return set(name,
		ceilings.Value{Name: "read", Unit: ceilings.GBs, Value: min(25*n, 200), Where: "memory"},
		ceilings.Value{Name: "read", Unit: ceilings.GBs, Value: 50 * n, Where: "cache", Size: int64(2<<20) * int64(n)},
		ceilings.Value{Name: ceilings.F32, Unit: ceilings.TFLOPs, Value: gflops * n / 1e3},
		ceilings.Value{Name: ceilings.BF16, Unit: ceilings.TFLOPs, Value: bf16 * n / 1e3})
}

// set makes a set that was not measured on this machine: it has no time.
func set(name string, values ...ceilings.Value) ceilings.Set {
	return ceilings.Set{Device: name, Values: values}
}
