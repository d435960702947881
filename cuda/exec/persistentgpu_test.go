package exec

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/weights"
)

// These tests compare mode persistent with mode graph on a GPU.

// persistentGPU makes a backend in mode persistent, with weights of a type. A session that falls back to graphs fails
// the test, on a GPU of compute capability 9.0 or later; on others the test is skipped.
func persistentGPU(t testing.TB) *Backend {
	t.Helper()
	var b *Backend
	b = gpu(t, Options{Mode: Persistent, Notice: func(text string) {
		if b != nil && b.dev.Info().Major < 9 {
			t.Skip(text)
		}
		t.Errorf("a notice: %s", text)
	}})
	return b
}

func shipped(t testing.TB) *gpt2.Model {
	t.Helper()
	m, err := gpt2.Open("../../weights/shakespeare")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// inOneKernel fails the test unless the last decode step of a session ran in the decode kernel.
func inOneKernel(t testing.TB, s *gpt2.Session) {
	t.Helper()
	if r := s.Runner().(*Runner); !r.persistent.on || !r.last.logitsOnly {
		t.Errorf("decode steps did not run in the decode kernel: refused %q", r.persistent.refused)
	}
}

// firstDifference returns the first token in which two greedy texts after a prompt differ, the length of the shorter if
// there is none. Sums in another order move logits a little, so that two nearly equal ones may change places. Whether
// that explains the difference is decided by the logits in float32 of the text until there: bfloat16 moves each by at
// most noise, the largest difference to those of mode graph, so that only tokens within 2 noise of each other may
// change places. Else the test fails.
func firstDifference(t testing.TB, what string, m *gpt2.Model, layers []int, prompt, want, got []int32) int {
	t.Helper()
	n := 0
	for n < min(len(want), len(got)) && want[n] == got[n] {
		n++
	}
	if n == min(len(want), len(got)) {
		return n
	}
	logits := func(held weights.DType) []float32 {
		s := session(t, m, gpu(t, Options{Mode: Graph, DType: held}), gpt2.Options{Layers: layers})
		row, err := s.Logits(t.Context(), slices.Concat(prompt, want[:n]), gpt2.LogitsLast)
		if err != nil {
			t.Fatal(err)
		}
		return row
	}
	rounded, real := logits(weights.BF16), logits(weights.F32)
	noise := 0.0
	for i := range real {
		noise = max(noise, math.Abs(float64(rounded[i]-real[i])))
	}
	a, b := want[n], got[n]
	text := fmt.Sprintf("%s, layers %v: token %d is %d (logit %.4f in float32, %.4f in mode graph), and should be %d (%.4f, %.4f); bfloat16 moves logits by up to %.4f",
		what, layers, n, b, real[b], rounded[b], a, real[a], rounded[a], noise)
	if math.Abs(float64(real[a]-real[b])) > 2*noise {
		t.Fatal(text)
	}
	t.Log("explained by rounding: " + text)
	return n
}

// TestPersistentLogitsAreGraphs: logits after decode steps in one kernel are those of mode graph within the bound of
// the type of weights: of the geometries that the kernel is for, at any position from the first to the end of the
// context, after launches of 1 to 8 steps; and those of one pass over the same text, to which the cache belongs that
// the kernel wrote.
func TestPersistentLogitsAreGraphs(t *testing.T) {
	persistent, graph := persistentGPU(t), gpu(t, Options{Mode: Graph})
	for _, spec := range []string{
		"random:L=1,C=384,NH=6,V=257,T=256", "random:L=3,C=384,NH=6,V=257,T=256,seed=2", "random:L=6,C=384,NH=6,V=300,T=1024",
		"random:L=2,C=768,NH=12,V=50257,T=1024", "random:L=12,C=768,NH=12,V=1000,T=1024,seed=3",
		"random:L=2,C=1024,NH=16,V=1000,T=1024,seed=4", "random:L=2,C=1280,NH=20,V=50257,T=512,seed=5", "random:L=3,C=1600,NH=25,V=1000,T=1024,seed=6",
	} {
		m := randomModel(t, spec)
		V, T := m.Config.Vocab, m.Config.Positions
		r := rand.New(rand.NewPCG(3, 4))
		fast, slow, whole := session(t, m, persistent, gpt2.Options{}), session(t, m, graph, gpt2.Options{}), session(t, m, graph, gpt2.Options{})
		for _, past := range []int{1, 2, 7, 8, 9, 31, 64, 100, T/2 - 3, T - 20} {
			for _, steps := range []int{1, 3, 8, 19} {
				prompt := randomIDs(r, past, V)
				what := fmt.Sprintf("%s, %d steps after %d tokens", spec, steps, past)
				last := func(s *gpt2.Session) ([]int32, []float32) {
					if err := s.Reset(); err != nil {
						t.Fatal(err)
					}
					ids := idsOf(generate(t, s, prompt, gpt2.Generation{Tokens: steps + 1, IgnoreEOS: true}))
					logits := make([]float32, V)
					if err := s.Runner().Read(gpt2.BufLogits, 0, logits); err != nil {
						t.Fatal(err)
					}
					return ids, logits
				}
				ids, got := last(fast)
				inOneKernel(t, fast)
				best := 0
				for i, v := range got {
					if v > got[best] {
						best = i
					}
				}
				if int(ids[steps]) != best {
					t.Errorf("%s: the token is %d, and the largest logit that of %d", what, ids[steps], best)
				}
				if other, want := last(slow); slices.Equal(other[:steps], ids[:steps]) {
					closeTo(t, what+", and in mode graph", got, want, bounds[weights.BF16])
				}
				if err := whole.Reset(); err != nil {
					t.Fatal(err)
				}
				want, err := whole.Logits(t.Context(), append(prompt, ids[:steps]...), gpt2.LogitsLast)
				if err != nil {
					t.Fatal(err)
				}
				closeTo(t, what+", and in one pass", got, want, bounds[weights.BF16])
			}
		}
	}
}

// TestPersistentBatches: of 2 to 8 sequences in one kernel each has the logits of mode graph within the bound of the
// type of weights, and those of one pass over its text alone, to which its part of the cache belongs; its tokens are
// those of the largest logits, and a run that is repeated has the same.
func TestPersistentBatches(t *testing.T) {
	persistent, graph := persistentGPU(t), gpu(t, Options{Mode: Graph})
	for _, f := range []struct {
		spec    string
		batches []int
	}{
		{"random:L=3,C=384,NH=6,V=257,T=512,seed=2", []int{2, 3, 4, 5, 6, 7, 8}},
		{"random:L=2,C=768,NH=12,V=50257,T=512", []int{2, 3, 5, 8}},
		{"random:L=2,C=1024,NH=16,V=1000,T=512,seed=4", []int{2, 4, 8}},
		{"random:L=2,C=1280,NH=20,V=1000,T=512,seed=5", []int{2, 7}},
		{"random:L=3,C=1600,NH=25,V=1000,T=512,seed=6", []int{2, 4}},
	} {
		m := randomModel(t, f.spec)
		V := m.Config.Vocab
		whole := session(t, m, graph, gpt2.Options{})
		for _, batch := range f.batches {
			rng := rand.New(rand.NewPCG(7, uint64(batch)))
			fast, slow := session(t, m, persistent, gpt2.Options{Batch: batch}), session(t, m, graph, gpt2.Options{Batch: batch})
			for _, past := range []int{1, 17, 200, 370} {
				const steps = 19
				prompt := randomIDs(rng, past*batch, V)
				run := func(s *gpt2.Session) (ids []int32, logits []float32) {
					if err := s.Reset(); err != nil {
						t.Fatal(err)
					}
					r := s.Runner().(*Runner)
					tokens := decoded(t, r, prompt, steps)
					for i, token := range tokens {
						if token.Seq != i%batch || token.Position != past+i/batch {
							t.Fatalf("token %d is %+v", i, token)
						}
					}
					logits = make([]float32, batch*V)
					if err := r.Read(gpt2.BufLogits, 0, logits); err != nil {
						t.Fatal(err)
					}
					return idsOf(tokens), logits
				}
				ids, got := run(fast)
				inOneKernel(t, fast)
				again, same := run(fast)
				if what := fmt.Sprintf("%s, %d sequences after %d tokens", f.spec, batch, past); !slices.Equal(again, ids) || !slices.Equal(same, got) {
					t.Errorf("%s: two runs differ", what)
				}
				other, want := run(slow)
				for b := range batch {
					what := fmt.Sprintf("%s, sequence %d of %d after %d tokens", f.spec, b, batch, past)
					row, text, equal := got[b*V:(b+1)*V], []int32{}, true
					for n := range steps + 1 {
						text = append(text, ids[n*batch+b])
						equal = equal && (n == steps || ids[n*batch+b] == other[n*batch+b])
					}
					if best := slices.Index(row, slices.Max(row)); int(text[steps]) != best {
						t.Errorf("%s: the token is %d, and the largest logit that of %d", what, text[steps], best)
					}
					if equal {
						closeTo(t, what+", and in mode graph", row, want[b*V:(b+1)*V], bounds[weights.BF16])
					}
					if err := whole.Reset(); err != nil {
						t.Fatal(err)
					}
					alone, err := whole.Logits(t.Context(), slices.Concat(prompt[b*past:(b+1)*past], text[:steps]), gpt2.LogitsLast)
					if err != nil {
						t.Fatal(err)
					}
					closeTo(t, what+", and in one pass", row, alone, bounds[weights.BF16])
				}
			}
		}
	}
}

// TestPersistentStops: callers that stop early or are cancelled have the tokens of one run without that, a run that is
// repeated has the same ones, and a text beyond the context those of a larger context until it is full; all but for
// near ties.
func TestPersistentStops(t *testing.T) {
	m, b := shipped(t), persistentGPU(t)
	prompt := []int32{20, 21, 22}
	o := gpt2.Options{Layers: gpt2.FirstLayers(2)}
	g := gpt2.Generation{Tokens: 200, IgnoreEOS: true}
	whole := session(t, m, b, o)
	want := idsOf(generate(t, whole, prompt, g))
	if err := whole.Reset(); err != nil {
		t.Fatal(err)
	}
	if again := idsOf(generate(t, whole, prompt, g)); !slices.Equal(again, want) {
		t.Fatalf("two runs differ: %v and %v", again, want)
	}
	inOneKernel(t, whole)
	r := session(t, m, b, o).Runner().(*Runner)
	tokens, err := r.Prefill(t.Context(), prompt, samplingPass(1, 3))
	if err != nil {
		t.Fatal(err)
	}
	got := idsOf(tokens)
	for n := 1; len(got) < len(want); n = n%29 + 1 {
		ctx, cancel := context.WithCancel(t.Context())
		left := min(n, len(want)-len(got))
		err := r.Decode(ctx, len(want)-len(got), func(tokens []gpt2.Token) bool {
			got = append(got, tokens[0].ID)
			left--
			if left == 0 && n%2 == 0 {
				cancel()
			}
			return left > 0 || n%2 == 0
		})
		cancel()
		if err != nil && n%2 == 1 {
			t.Fatal(err)
		}
	}
	firstDifference(t, "with stops", m, o.Layers, prompt, want, got) // sums may depend on where launches begin

	short := o
	short.Context = 48
	s := session(t, m, b, short)
	for range 3 {
		if err := s.Reset(); err != nil {
			t.Fatal(err)
		}
		text := generate(t, s, prompt, gpt2.Generation{Tokens: 300, IgnoreEOS: true})
		for i, token := range text {
			if token.Position != len(prompt)+i || int(token.ID) >= m.Config.Vocab {
				t.Fatalf("beyond the context token %d is %+v", i, token)
			}
		}
		firstDifference(t, "within the context", m, o.Layers, prompt, want[:45], idsOf(text))
		if s.Stats().Shifts < 10 {
			t.Errorf("%d shifts", s.Stats().Shifts)
		}
	}
}

// TestPersistentBeside: sessions at the same time, of one backend and of two, and passes of another mode between have
// the tokens that each has alone.
func TestPersistentBeside(t *testing.T) {
	m, b, other := shipped(t), persistentGPU(t), gpu(t, Options{Mode: Graph})
	o := gpt2.Options{Layers: gpt2.FirstLayers(3)}
	prompts := [][]int32{{1, 2, 3}, {30, 31}, {40, 41, 42, 43}}
	backends := []*Backend{b, b, other}
	g := gpt2.Generation{Tokens: 240, IgnoreEOS: true}
	var want [3][]int32
	for i, p := range prompts {
		want[i] = idsOf(generate(t, session(t, m, backends[i], o), p, g))
	}
	var wait sync.WaitGroup
	for i, p := range prompts {
		s := session(t, m, backends[i], o)
		wait.Go(func() {
			for round := range 5 {
				var got []int32
				for token, err := range s.Generate(t.Context(), p, g) {
					if err != nil {
						t.Errorf("session %d, round %d: %v", i, round, err)
						return
					}
					got = append(got, token.ID)
				}
				if !slices.Equal(got, want[i]) {
					t.Errorf("session %d, round %d, beside others: %v, alone %v", i, round, got, want[i])
				}
				if err := s.Reset(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
}
