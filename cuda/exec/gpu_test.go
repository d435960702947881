package exec

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"

	"gpt2scope/cpu"
	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/reference/executor"
	"gpt2scope/weights"
)

// These tests need a GPU and the CUDA library. Without they are skipped, or fail where GPT2SCOPE_REQUIRE_GPU is 1.

// gpu makes a backend on the first GPU.
func gpu(t testing.TB, o Options) *Backend {
	t.Helper()
	b, err := New(o)
	if err != nil {
		var missing *cuda.UnavailableError
		if os.Getenv("GPT2SCOPE_REQUIRE_GPU") != "1" && errors.As(err, &missing) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func session(t testing.TB, m *gpt2.Model, b gpt2.Backend, o gpt2.Options) *gpt2.Session {
	t.Helper()
	s, err := gpt2.NewSession(context.Background(), m, b, o)
	must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func randomModel(t testing.TB, spec string) *gpt2.Model {
	t.Helper()
	m, err := gpt2.Random(spec)
	must(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

func randomIDs(r *rand.Rand, n, vocab int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(r.IntN(vocab))
	}
	return ids
}

// drawModel draws a geometry with odd sizes, every activation and both attention scales, and a run order that may drop
// and repeat layers.
func drawModel(t *testing.T, r *rand.Rand) (*gpt2.Model, []int) {
	head := []int{8, 16, 33, 48, 64, 128, 160, 512}[r.IntN(8)]
	heads := 1 + r.IntN(4)
	vocab := []int{31, 257, 300, 1000}[r.IntN(4)]
	m := randomModel(t, fmt.Sprintf("random:L=%d,C=%d,NH=%d,V=%d,T=%d,F=%d,seed=%d", 1+r.IntN(3), heads*head, heads, vocab, 20+r.IntN(180), 8*(1+r.IntN(50)), r.IntN(1000)))
	m.Config.Activation = gpt2.Activation(r.IntN(3))
	m.Config.ScaleWeights, m.Config.ScaleByInverseLayer = r.IntN(3) > 0, r.IntN(3) == 0
	layers := make([]int, 1+r.IntN(3))
	for i := range layers {
		layers[i] = r.IntN(m.Config.Layers)
	}
	return m, layers
}

// bounds of max |difference| / max |value| against the float64 reference. In bfloat16 every weight and activation is
// rounded to 8 bits, and the errors of a few layers add up; a wrong row, mask or weight makes an error near 1.
var bounds = map[weights.DType]float64{weights.F32: 2e-5, weights.BF16: 4e-2}

func closeTo(t testing.TB, what string, got, want []float32, bound float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	d, largest := 0.0, 0.0
	for i := range got {
		diff := math.Abs(float64(got[i]) - float64(want[i]))
		if math.IsNaN(diff) {
			t.Fatalf("%s: value %d is %g, want %g", what, i, got[i], want[i])
		}
		d, largest = math.Max(d, diff), math.Max(largest, math.Abs(float64(want[i])))
	}
	if !(d <= bound*largest) {
		t.Errorf("%s: differs by %.3g of the largest value %.3g; allowed is %.3g", what, d/largest, largest, bound)
	}
}

// TestPassesAgreeWithReference: on random geometries and run orders every way to evaluate a text gives the reference's
// logits: one pass, a batch, chunks, token by token; in each mode and type, and with the plain kernels.
func TestPassesAgreeWithReference(t *testing.T) {
	naive := map[string]string{"ln_1": "naive", "attn.c_attn": "naive", "attn.sdpa": "naive", "mlp.c_fc": "naive", "sample": "naive"}
	norm := map[string]string{"residual_1": "norm", "residual_2": "norm"}
	for _, o := range []Options{
		{DType: weights.F32, Mode: Eager}, {DType: weights.BF16, Mode: Eager}, {DType: weights.F32, Mode: Graph}, {DType: weights.BF16, Mode: Graph},
		{DType: weights.F32, Mode: Eager, Variants: naive}, {DType: weights.BF16, Mode: Graph, Variants: norm}, {DType: weights.F32, Mode: Graph, Variants: norm},
	} {
		t.Run(fmt.Sprintf("%s/%s/%d", o.DType, o.Mode, len(o.Variants)), func(t *testing.T) {
			r := rand.New(rand.NewPCG(11, 13))
			for range 6 {
				comparePasses(t, r, o)
			}
		})
	}
}

func comparePasses(t *testing.T, r *rand.Rand, o Options) {
	t.Helper()
	m, layers := drawModel(t, r)
	b := gpu(t, o)
	V, T, B := m.Config.Vocab, m.Config.Positions, 2+r.IntN(2)
	ids, ctx, bound := randomIDs(r, B*T, V), t.Context(), bounds[o.DType]
	reference := session(t, m, executor.New(), gpt2.Options{Layers: layers, Batch: B})
	whole, err := reference.Logits(ctx, ids, gpt2.LogitsAll)
	must(t, err)
	name := fmt.Sprintf("%+v layers %v B=%d", m.Config, layers, B)
	check := func(way string, s *gpt2.Session, which gpt2.Logits) {
		t.Helper()
		for again := range 3 { // in graph mode the first is eager, the others are replayed
			must(t, s.Reset())
			got, err := s.Logits(ctx, ids, which)
			if err != nil {
				t.Fatalf("%s: %s: %v", name, way, err)
			}
			want := whole
			if which == gpt2.LogitsLast {
				want = nil
				for b := range B {
					want = append(want, whole[((b+1)*T-1)*V:(b+1)*T*V]...)
				}
			}
			closeTo(t, fmt.Sprintf("%s: %s, time %d", name, way, again), got, want, bound)
		}
	}
	batch := session(t, m, b, gpt2.Options{Layers: layers, Batch: B})
	check("batch", batch, gpt2.LogitsAll)
	check("batch, last row", batch, gpt2.LogitsLast)
	chunks := session(t, m, b, gpt2.Options{Layers: layers, Batch: B, Chunk: 1 + r.IntN(T)})
	check(fmt.Sprintf("chunks of %d", chunks.Options().Chunk), chunks, gpt2.LogitsAll)
	check(fmt.Sprintf("chunks of %d, last row", chunks.Options().Chunk), chunks, gpt2.LogitsLast)

	must(t, batch.Reset())
	step := make([]int32, B)
	for i := range T {
		var want []float32
		for b := range B {
			step[b] = ids[b*T+i]
			want = append(want, whole[(b*T+i)*V:(b*T+i+1)*V]...)
		}
		got, err := batch.Logits(ctx, step, gpt2.LogitsLast)
		must(t, err)
		closeTo(t, fmt.Sprintf("%s: decode step %d", name, i), got, want, bound)
	}
}

// TestStagesAgreeWithReference: the activations of every stage, which a pass that ends there gives.
func TestStagesAgreeWithReference(t *testing.T) {
	for _, held := range []weights.DType{weights.F32, weights.BF16} {
		t.Run(held.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(17, 19))
			for _, T := range []int{1, 5, 23, 130} {
				m := randomModel(t, "random:L=2,C=96,NH=3,V=257,T=200,F=200")
				b := gpu(t, Options{DType: held, Mode: Eager})
				fast := session(t, m, b, gpt2.Options{Batch: 2})
				slow := session(t, m, executor.New(), gpt2.Options{Batch: 2})
				ids := randomIDs(r, 2*T, 257)
				for _, s := range gpt2.Forward(m.Config, gpt2.FirstLayers(2), gpt2.Pass{Batch: 2, Tokens: T, Logits: gpt2.LogitsAll}).Steps {
					got, _, err := fast.Activations(t.Context(), ids, s.Name())
					must(t, err)
					want, _, err := slow.Activations(t.Context(), ids, s.Name())
					must(t, err)
					closeTo(t, fmt.Sprintf("T=%d %s", T, s.Name()), got, want, bounds[held])
				}
			}
		})
	}
}

// generate returns the ids of n tokens.
func generate(t testing.TB, s *gpt2.Session, prompt []int32, g gpt2.Generation) []gpt2.Token {
	t.Helper()
	var tokens []gpt2.Token
	for token, err := range s.Generate(t.Context(), prompt, g) {
		must(t, err)
		tokens = append(tokens, token)
	}
	return tokens
}

func idsOf(tokens []gpt2.Token) []int32 {
	var ids []int32
	for _, t := range tokens {
		ids = append(ids, t.ID)
	}
	return ids
}

// TestTextEqualsCPU: in float32 the GPU samples the CPU's tokens, in both modes, greedy and drawn, beyond the context,
// with log-probabilities.
func TestTextEqualsCPU(t *testing.T) {
	m := randomModel(t, "random:L=2,C=128,NH=2,V=257,T=160")
	fast, err := cpu.New(cpu.Options{})
	must(t, err)
	defer fast.Close()
	for _, sampling := range []gpt2.Sampling{{LogProbs: true}, {Temperature: 0.8, TopK: 40, Seed: 3, LogProbs: true}, {Temperature: 1.2, TopP: 0.9, Seed: 4}, {Temperature: 1, Seed: 5, TopK: 100, TopP: 0.7}} {
		for _, mode := range []Mode{Eager, Graph} {
			b := gpu(t, Options{DType: weights.F32, Mode: mode})
			for _, batch := range []int{1, 3} {
				prompt := randomIDs(rand.New(rand.NewPCG(1, 2)), 11*batch, 257)
				g := gpt2.Generation{Tokens: 250, Sampling: sampling, IgnoreEOS: true}
				want := generate(t, session(t, m, fast, gpt2.Options{Batch: batch}), prompt, g)
				s := session(t, m, b, gpt2.Options{Batch: batch})
				for again := range 2 {
					must(t, s.Reset())
					got := generate(t, s, prompt, g)
					what := fmt.Sprintf("%+v %s B=%d time %d", sampling, mode, batch, again)
					if !slices.Equal(idsOf(got), idsOf(want)) {
						t.Errorf("%s: tokens %v, want %v", what, idsOf(got), idsOf(want))
						continue
					}
					for i := range got {
						if got[i].Position != want[i].Position || got[i].Seq != want[i].Seq {
							t.Fatalf("%s: token %d is %+v, want %+v", what, i, got[i], want[i])
						}
						if d := math.Abs(float64(got[i].LogProb - want[i].LogProb)); sampling.LogProbs != !math.IsNaN(d) || d > 1e-4 {
							t.Fatalf("%s: log-probability %d is %g, want %g", what, i, got[i].LogProb, want[i].LogProb)
						}
					}
				}
			}
		}
	}
}

// resident returns the process's resident memory in bytes.
func resident(t *testing.T) int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(data), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// TestMemoryStaysFlat over 10,000 decode steps, and all of it comes back.
func TestMemoryStaysFlat(t *testing.T) {
	for _, mode := range []Mode{Graph, Persistent} {
		t.Run(mode.String(), func(t *testing.T) { memoryStaysFlat(t, gpu(t, Options{Mode: mode})) })
	}
}

func memoryStaysFlat(t *testing.T, b *Backend) {
	m := randomModel(t, "random:L=2,C=384,NH=6,V=257,T=512")
	free := func() int64 {
		n, _, err := b.Device().Memory()
		must(t, err)
		return int64(n)
	}
	steps := func(s *gpt2.Session, n int) {
		generate(t, s, []int32{1, 2, 3}, gpt2.Generation{Tokens: n, IgnoreEOS: true})
	}
	warm := session(t, m, b, gpt2.Options{}) // loads kernels, which stay
	steps(warm, 1000)
	warm.Close()
	before := free()
	s, err := gpt2.NewSession(t.Context(), m, b, gpt2.Options{})
	must(t, err)
	steps(s, 1000)
	runtime.GC()
	device, host := free(), resident(t)
	must(t, s.Reset())
	steps(s, 10000)
	runtime.GC()
	if d := device - free(); d != 0 {
		t.Errorf("10,000 steps took %d bytes of device memory", d)
	}
	if d := resident(t) - host; d > 8<<20 {
		t.Errorf("10,000 steps took %d bytes of host memory", d)
	}
	must(t, s.Close())
	if d := before - free(); d > 2<<20 {
		t.Errorf("a closed session keeps %d bytes of device memory", d)
	}
}
