package tasks

import (
	"testing"

	"gpt2scope/cuda"
	"gpt2scope/predict"
)

// The number of threads is read from the key of a CPU.
func TestThreads(t *testing.T) {
	for key, want := range map[string]float64{"AMD EPYC, 2 threads, kernels avx512-bf16": 2, "Xeon, 1 thread, kernels amx": 1, "NVIDIA H200, compute capability 9.0": 0, "": 0, "x, -3 threads": 0} {
		if n := threads(key); n != want {
			t.Errorf("%q has %g threads, expected %g", key, n, want)
		}
	}
	rows, _ := Rows([]Sample{{Task: "vector.add", Shape: "n=4", Device: CPU, Variant: Tuned, Memory: MemoryHost, FloorUs: 1, WallUs: 2, MachineKey: "Xeon, 8 threads, kernels amx"}})
	if len(rows) != 1 || rows[0].Threads != 8 || rows[0].Processor() != "Xeon, kernels amx" {
		t.Errorf("%+v", rows)
	}
}

// Processors of one name that run other kernels are others; the number of threads tells none apart.
func TestRowProcessor(t *testing.T) {
	a, b, c := predict.Row{Key: "AMD EPYC, 2 threads, kernels avx2"}, predict.Row{Key: "AMD EPYC, 1 thread, kernels avx2"}, predict.Row{Key: "AMD EPYC, 2 threads, kernels avx512-bf16"}
	if a.Processor() != "AMD EPYC, kernels avx2" || a.Processor() != b.Processor() || a.Processor() == c.Processor() {
		t.Errorf("%q, %q, %q", a.Processor(), b.Processor(), c.Processor())
	}
}

// A start loads the library of products from the rows on that the cost model takes it to.
func TestLibraryRows(t *testing.T) {
	if predict.LibraryRows != cuda.GEMVRows {
		t.Errorf("products of up to %d rows are the engine's own, the cost model takes up to %d", cuda.GEMVRows, predict.LibraryRows)
	}
}
