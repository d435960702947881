package tables

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/load"
)

// manyPasses writes a trace of decode steps: each has a pass, and per step of the
// plan a range, a call and a kernel.
func manyPasses(t testing.TB, n int) string {
	t.Helper()
	h := fixtures.Header()
	h.Dropped = nil
	path := filepath.Join(t.TempDir(), "many.json")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := traces.NewWriter(f, h)
	thread, api, stream := traces.Thread(700, 701), traces.API(700, 701), traces.Stream(700, 0, 1, 7)
	id := uint64(0)
	for pass := 0; int(id) < n; pass++ {
		at := int64(pass) * 30_000
		id++
		p := traces.Plain(traces.KindPass, thread, "decode step", at, 29_000)
		p.ID, p.Plan, p.Value = id, 0, float64(pass%1000)
		w.Write(p)
		for tag := range int32(2) {
			for i := range int64(3) {
				start := at + 10 + int64(tag)*14_000 + i*4_000
				step := traces.Plain(traces.KindStep, thread, "x", start, 3_000)
				step.ID, step.Parent, step.Plan, step.Step = id+1, p.ID, 0, tag
				call := traces.Plain(traces.KindRuntime, api, "cudaLaunchKernelExC", start+100, 1500)
				call.Correlation, call.Parent, call.Plan, call.Step = id+2, step.ID, 0, tag
				k := traces.Plain(traces.KindKernel, stream, "void gs::linear_kernel<__nv_bfloat16>(gs_linear_args)", start+2500, 2900)
				k.Correlation, k.Parent, k.Plan, k.Step = call.Correlation, step.ID, 0, tag
				k.Grid, k.Block, k.Registers, k.DynamicShared = [3]int32{192, 1, 1}, [3]int32{128, 1, 1}, 64, 6144
				w.Write(step)
				w.Write(call)
				w.Write(k)
				id += 3
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func BenchmarkSummarize(b *testing.B) {
	path := manyPasses(b, 1_000_000)
	for _, by := range Bys {
		b.Run(string(by), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tr, err := load.Load(path)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := Summarize(tr, by, -1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	if text, err := os.ReadFile(path); err != nil || !bytes.Contains(text, []byte("gpt2scopeEnd")) {
		b.Fatal("the file is not whole")
	}
}
