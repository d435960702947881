package workbench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"gpt2scope/ceilings"
	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
	"gpt2scope/internal/stub"
)

// The stub library computes each operation in C, apart from package reference: what it and the workbench agree on is
// what abi.h says.

var must = require.NoError

func openStub(t *testing.T, defines ...string) (*cuda.Library, *cuda.Device, *stub.Control) {
	t.Helper()
	path := stub.Build(t, defines...)
	lib, err := cuda.OpenFile(path)
	must(t, err)
	dev := require.Value(lib.Device(0))(t)
	c := stub.Open(t, path)
	c.Reset()
	return lib, dev, c
}

var (
	f32  = gpt2.Sizes{Weight: 4, Activation: 4, KV: 4, Multiply: ceilings.F32}
	bf16 = gpt2.Sizes{Weight: 2, Activation: 2, KV: 2, Multiply: ceilings.BF16}
)

func options(stage gpt2.Stage, sizes gpt2.Sizes) Options {
	return Options{Stage: stage, Sizes: sizes, B: 2, T: 5, Past: 7, Repeat: 1,
		Config: gpt2.Config{Layers: 1, Channels: 24, Heads: 3, Positions: 24, Vocab: 60, Inner: 40, Epsilon: 1e-5, ScaleWeights: true}}
}

// names lists the trials of a report that ran.
func names(r Report, which func(Result) bool) (names []string) {
	for _, k := range r.Kernels {
		if k.Note == "" && which(k) {
			names = append(names, strings.TrimSpace(k.Variant+" "+k.Parameters))
		}
	}
	return names
}

func TestRightKernels(t *testing.T) {
	t.Setenv("GPT2SCOPE_CUBLASLT", "stub-blas")
	lib, dev, c := openStub(t, "STUB_COMPUTES", "STUB_QUIET")
	for stage := range gpt2.NumStages {
		for _, sizes := range []gpt2.Sizes{f32, bf16} {
			for _, T := range []int{1, 5} {
				for act := range gpt2.ReLU + 1 {
					if act > 0 && stage != gpt2.StageGELU {
						continue
					}
					o := options(stage, sizes)
					o.T, o.Config.Activation = T, act
					r, err := Run(t.Context(), lib, dev, o)
					if err != nil {
						t.Fatalf("%+v: %v", o, err)
					}
					for _, k := range r.Kernels {
						if k.Note != "" || !k.Right || !(k.Error <= r.Tolerance) {
							t.Errorf("%s, T=%d, %+v: %+v", stage.Info().Name, T, sizes, k)
						}
					}
				}
			}
		}
	}
	if n := c.Live(); n != 0 {
		t.Errorf("%d allocations and objects are not freed", n)
	}
}

// One wrong element of the last row, of one variant: it and no other is wrong.
func TestWrongKernel(t *testing.T) {
	t.Setenv("GPT2SCOPE_CUBLASLT", "stub-blas")
	lib, dev, c := openStub(t, "STUB_COMPUTES", "STUB_QUIET")
	defer c.Spoil(-1, 0)
	for stage := range gpt2.NumStages {
		for _, sizes := range []gpt2.Sizes{f32, bf16} {
			op := operations[stage.Info().Op].op
			for variant, name := range lib.Variants(op) {
				if op == cuda.OpEmbed && variant > 0 {
					continue // it has one kernel
				}
				c.Spoil(int(op), variant)
				r := require.Value(Run(t.Context(), lib, dev, options(stage, sizes)))(t)
				for _, k := range r.Kernels {
					wrong := k.Variant == name || op == cuda.OpEmbed
					if k.Parameters == "temperature 1" {
						wrong = false // any token may be drawn
					}
					if k.Note != "" || k.Right == wrong || wrong == (k.Error <= r.Tolerance) {
						t.Errorf("%s with variant %s wrong: %+v", stage.Info().Name, name, k)
					}
				}
			}
		}
	}
}

// A kernel that writes nothing leaves NaN, which is wrong and infinitely so.
func TestNothingWritten(t *testing.T) {
	t.Setenv("GPT2SCOPE_CUBLASLT", "stub-blas")
	lib, dev, _ := openStub(t, "STUB_QUIET")
	for _, stage := range []gpt2.Stage{gpt2.StageEmbed, gpt2.StageLN1, gpt2.StageCFC, gpt2.StageSDPA, gpt2.StageGELU, gpt2.StageResidual1} {
		r := require.Value(Run(t.Context(), lib, dev, options(stage, bf16)))(t)
		for _, k := range r.Kernels {
			if k.Right || stage != gpt2.StageResidual1 && !math.IsInf(k.Error, 1) {
				t.Errorf("%s: %+v", stage.Info().Name, k)
			}
		}
	}
}

func TestParameters(t *testing.T) {
	t.Setenv("GPT2SCOPE_CUBLASLT", "stub-blas")
	lib, dev, _ := openStub(t, "STUB_COMPUTES", "STUB_QUIET")
	any := func(Result) bool { return true }
	for _, c := range []struct {
		stage gpt2.Stage
		T     int
		want  []string
	}{
		{gpt2.StageLN1, 5, []string{"auto", "naive"}},
		{gpt2.StageSDPA, 5, []string{"auto", "naive", "split", "flash"}},
		{gpt2.StageCFC, 1, []string{"auto", "naive", "gemv", "blas heuristic", "blas fastest of 64"}},
		{gpt2.StageCFC, 5, []string{"auto heuristic", "auto fastest of 64", "naive", "gemv", "blas heuristic", "blas fastest of 64"}}, // 10 rows
	} {
		o := options(c.stage, f32)
		o.T = c.T
		r, err := Run(t.Context(), lib, dev, o)
		if got := names(r, any); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s, T=%d: %q (%v), want %q", c.stage.Info().Name, c.T, got, err, c.want)
		}
	}
	o := options(gpt2.StageSDPA, f32)
	o.T = 1
	r, err := Run(t.Context(), lib, dev, o)
	if got := names(r, any); err != nil || !slices.Equal(got, []string{"auto", "naive", "split", "flash"}) {
		t.Errorf("decode attention: %q (%v)", got, err)
	}
}

// A replay of the stub takes 1.5 ms by its events.
func TestTimes(t *testing.T) {
	lib, dev, _ := openStub(t, "STUB_COMPUTES", "STUB_QUIET")
	o := options(gpt2.StageLN1, bf16)
	o.Ceilings = ceilings.Set{Values: []ceilings.Value{
		{Name: "read", Unit: ceilings.GBs, Value: 1, Where: "memory"}, {Name: "read", Unit: ceilings.GBs, Value: 100, Size: 1 << 20, Where: "cache"},
		{Name: ceilings.F32, Unit: ceilings.TFLOPs, Value: 1},
	}}
	r := require.Value(Run(t.Context(), lib, dev, o))(t)
	cost := gpt2.StageLN1.Cost(o.Config, o.B, o.T, o.Past)
	median := 1500 * time.Microsecond / 64
	for _, k := range r.Kernels {
		gbs, tflops := float64(cost.Bytes(bf16))/median.Seconds()/1e9, float64(cost.FLOPs)/median.Seconds()/1e12
		if r.Copies != 64 || k.Median != median || k.P10 != median || k.P90 != median || math.Abs(k.GBS-gbs) > 1e-9 || math.Abs(k.TFLOPS-tflops) > 1e-9 {
			t.Errorf("%d copies, %+v; want 64, %v, %g GB/s, %g TFLOP/s", r.Copies, k, median, gbs, tflops)
		}
		// From memory, not from the cache that would hold one copy.
		if want := time.Duration(cost.Bytes(bf16)); k.Floor != want || math.Abs(k.Share()-float64(want)/float64(median)) > 1e-9 {
			t.Errorf("floor %v, share %g; want %v", k.Floor, k.Share(), want)
		}
	}
}

func TestFailures(t *testing.T) {
	lib, dev, c := openStub(t, "STUB_COMPUTES")
	// What the workbench itself needs: an error, and nothing is left allocated.
	c.Reset()
	if _, err := Run(t.Context(), lib, dev, options(gpt2.StageSDPA, f32)); err != nil {
		t.Fatal(err)
	}
	allocations := 0
	for _, call := range c.Calls() {
		if strings.HasPrefix(call, "gs_alloc") {
			allocations++
		}
	}
	for n := 1; n < allocations; n += 7 {
		c.Reset()
		c.Fail("alloc", n)
		r, err := Run(t.Context(), lib, dev, options(gpt2.StageSDPA, f32))
		refused := slices.ContainsFunc(r.Kernels, func(k Result) bool { return strings.Contains(k.Note, "out of memory") })
		if (err == nil || !strings.Contains(err.Error(), "out of memory")) && !refused {
			t.Errorf("allocation %d fails: %v, %+v", n, err, r)
		}
		if live := c.Live(); live != 0 {
			t.Errorf("allocation %d fails: %d allocations and objects are not freed", n, live)
		}
	}
	// A launch that is refused is a note; the other kernels go on.
	c.Reset()
	c.Fail("gs_attention", 1)
	r, err := Run(t.Context(), lib, dev, options(gpt2.StageSDPA, f32))
	if err != nil || r.Kernels[0].Note == "" || r.Kernels[0].Median != 0 || !slices.Equal(names(r, func(k Result) bool { return k.Right }), []string{"naive", "split", "flash"}) {
		t.Errorf("the first launch fails: %v, %+v", err, r.Kernels)
	}
	c.Reset()
	c.Fail("lost", 60)
	if _, err := Run(t.Context(), lib, dev, options(gpt2.StageSDPA, f32)); err == nil {
		t.Error("a lost device gives no error")
	}
	c.Reset()
	// Without cuBLASLt its variants are refused, the others run.
	t.Setenv("GPT2SCOPE_CUBLASLT", "/nowhere")
	o := options(gpt2.StageCFC, f32)
	if r, err = Run(t.Context(), lib, dev, o); err != nil || !slices.Equal(names(r, func(k Result) bool { return k.Right && k.Parameters == "" }), []string{"naive", "gemv"}) {
		t.Errorf("without cuBLASLt: %v, %+v", err, r.Kernels)
	}
	gone := fmt.Errorf("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := Run(ctx, lib, dev, o); !errors.Is(err, gone) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestOptions(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"there is no stage":      func(o *Options) { o.Stage = gpt2.NumStages },
		"0 sequences":            func(o *Options) { o.B = 0 },
		"0 new tokens":           func(o *Options) { o.T = 0 },
		"after -1":               func(o *Options) { o.Past = -1 },
		"-2 replays":             func(o *Options) { o.Repeat = -2 },
		"the context of 24":      func(o *Options) { o.Past = 20 },
		"n_head":                 func(o *Options) { o.Config.Heads = 5 },
		"weights take 1.06 byte": func(o *Options) { o.Sizes.Weight = 1.06 },
	} {
		o := options(gpt2.StageLN1, f32)
		change(&o)
		if _, err := Run(t.Context(), nil, nil, o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q is not in the error %v", name, err)
		}
	}
}
