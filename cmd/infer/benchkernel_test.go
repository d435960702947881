package main

import (
	"strings"
	"testing"
)

func TestBenchKernel(t *testing.T) {
	withStub(t, "STUB_COMPUTES", "STUB_QUIET")
	storeStub(t)
	args := []string{"bench", "kernel", "ln_1", "-m", tiny, "--device", "cuda", "--repeat", "1"}
	out := mustInfer(t, args...).stdout
	contains(t, out, "ln_1 of random:", "B=1 T=1, 32 tokens in the cache, bf16\nStub 0, compute capability 9.0, CUDA 13000", "\ncopies of the data, used in turn: 64\n", "roofline %", "\nauto ", "\nnaive ")
	if strings.Contains(out, "WRONG") {
		t.Error(out)
	}
	var got struct {
		Stage, DType        string
		Batch, Tokens, Past int
		Copies              int
		Kernels             []struct {
			Variant string
			Error   float64
			Right   bool
			Median  float64 `json:"median_us"`
			P10     float64 `json:"p10_us"`
			P90     float64 `json:"p90_us"`
			Floor   float64 `json:"floor_us"`
			GBS     float64 `json:"gb_per_s"`
			TFLOPS  float64 `json:"tflop_per_s"`
			Share   float64 `json:"share_of_floor"`
		}
	}
	unmarshal(t, mustInfer(t, append(args, "--json", "--dtype", "f32", "--past", "9")...).stdout, &got)
	if got.Stage != "ln_1" || got.DType != "f32" || got.Batch != 1 || got.Tokens != 1 || got.Past != 9 || got.Copies != 64 || len(got.Kernels) != 2 {
		t.Errorf("%+v", got)
	}
	for _, k := range got.Kernels {
		median := 1500. / 64 // a replay of the stub takes 1.5 ms
		if !k.Right || k.Error > 3e-5 || k.Median < median-0.01 || k.Median > median+0.01 || k.P10 != k.Median || k.P90 != k.Median ||
			!(k.Floor > 0 && k.GBS > 0 && k.TFLOPS > 0) || k.Share < k.Floor/k.Median*0.99 || k.Share > k.Floor/k.Median*1.01 {
			t.Errorf("%+v", k)
		}
	}
}
