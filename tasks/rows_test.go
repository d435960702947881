package tasks

import (
	"math"
	"testing"

	"gpt2scope/cuda"
	"gpt2scope/predict"
)

// The number of threads and the version of the kernels are read from the key of a CPU.
func TestProcessor(t *testing.T) {
	type key struct {
		threads int
		version string
	}
	for text, want := range map[string]key{"AMD EPYC, 2 threads, kernels avx512-bf16": {2, "avx512-bf16"}, "Xeon, 1 thread, kernels amx": {1, "amx"}, "NVIDIA H200, compute capability 9.0": {}, "": {}, "x, -3 threads": {}} {
		if threads, version := processor(text); (key{threads, version}) != want {
			t.Errorf("%q has %d threads and kernels %q, expected %+v", text, threads, version, want)
		}
	}
}

// What is known of work on a CPU before it runs: idle threads of a product with few parts.
func TestHost(t *testing.T) {
	const xeon, zen3 = "Xeon, 16 threads, kernels amx", "AMD EPYC, 2 threads, kernels avx2"
	for _, c := range []struct {
		task, shape, dtype, key string
		rows                    int
		want                    predict.Work
	}{
		{"vector.add", "n=4", Float32, xeon, 0, predict.Work{Threads: 16}},
		{"matmul", "m=128,n=384,k=1536", Float32, xeon, 128, predict.Work{Threads: 16, Kernel: 3, Idle: 16. / 3, Inner: 1536}}, // three tasks of four panels
		{"matmul", "m=64,n=384,k=1536", BFloat16, xeon, 64, predict.Work{Threads: 16, Kernel: 3, Idle: 16. / 7, Inner: 1536}},
		{"matmul", "m=64,n=384,k=1536", BFloat16, zen3, 64, predict.Work{Threads: 2, Kernel: 2, Idle: 1, Inner: 1536}},
		{"matmul", "m=8,n=64,k=64", Float32, zen3, 8, predict.Work{Threads: 2, Kernel: 2, Idle: 2, Inner: 64}},
		{"matmul", "m=8,n=64,k=64", Float32, xeon, 8, predict.Work{Threads: 16, Kernel: 1, Idle: 8, Inner: 64}},
		{"gpt2.prefill", "t=8,b=2,l=1,c=384,v=257", Float32, zen3, 16, predict.Work{Threads: 2, Kernel: 2, Idle: 1}},
		{"gpt2.decode", "past=16,b=1,l=1,c=384,v=257", BFloat16, xeon, 1, predict.Work{Threads: 16, Kernel: 1, Idle: (7*384*384 + 5*384*384*16./12 + 384*257*16./9) / (12*384*384 + 384*257)}},
		{"gpt2.generate", "t=64,n=16,l=1,c=384,v=257", Float32, "Xeon, kernels amx", 64, predict.Work{}}, // without a number of threads
		{"matmul", "m=64,n=64,k=64", Float32, "NVIDIA H200", 64, predict.Work{Inner: 64}},
	} {
		rows, _ := Rows([]Sample{{Task: c.task, Shape: c.shape, DType: c.dtype, Device: CPU, Variant: Tuned, Memory: MemoryHost, Rows: c.rows, FloorUs: 1, WallUs: 2, MachineKey: c.key}})
		if len(rows) != 1 {
			t.Fatal(c.shape)
		}
		got := rows[0].Work
		if got.Threads != c.want.Threads || got.Kernel != c.want.Kernel || math.Abs(got.Idle-c.want.Idle) > 1e-9 || got.Inner != c.want.Inner {
			t.Errorf("%s %s %s on %s: %+v, expected %+v", c.task, c.shape, c.dtype, c.key, got, c.want)
		}
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
