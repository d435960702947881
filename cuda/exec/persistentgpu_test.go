package exec

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"gpt2scope/gpt2"
	"gpt2scope/weights"
)

// These tests compare mode persistent with mode graph on a GPU.

// persistentGPU makes a backend in mode persistent, with weights of a type. A session that falls back to graphs fails
// the test, on a GPU of compute capability 9.0 or later; on others the test is skipped.
func persistentGPU(t testing.TB, q8 bool) *Backend {
	t.Helper()
	var b *Backend
	b = gpu(t, Options{Mode: Persistent, Q8: q8, Notice: func(text string) {
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
	must(t, err)
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

// TestPersistentBatches: of 1 to 8 sequences in one kernel each has the logits of mode graph within the bound of the
// type of weights, and those of one pass over its text alone, to which its part of the cache belongs; its tokens are
// those of the largest logits, and a run that is repeated has the same.
func TestPersistentBatches(t *testing.T) {
	persistent, graph := persistentGPU(t, false), gpu(t, Options{Mode: Graph})
	for _, f := range []struct {
		spec    string
		batches []int
	}{
		{"random:L=3,C=384,NH=6,V=257,T=512,seed=2", []int{1, 2, 3, 4, 5, 6, 7, 8}},
		{"random:L=2,C=768,NH=12,V=50257,T=512", []int{1, 2, 3, 5, 8}},
		{"random:L=2,C=1024,NH=16,V=1000,T=512,seed=4", []int{1, 2, 4, 8}},
		{"random:L=2,C=1280,NH=20,V=1000,T=512,seed=5", []int{1, 2, 7}},
		{"random:L=3,C=1600,NH=25,V=1000,T=512,seed=6", []int{1}},
	} {
		m := randomModel(t, f.spec)
		V := m.Config.Vocab
		whole := session(t, m, graph, gpt2.Options{})
		for _, batch := range f.batches {
			rng := rand.New(rand.NewPCG(7, uint64(batch)))
			fast, slow := session(t, m, persistent, gpt2.Options{Batch: batch}), session(t, m, graph, gpt2.Options{Batch: batch})
			for _, past := range []int{1, 8, 17, 200, 370, 491} {
				const steps = 19
				prompt := randomIDs(rng, past*batch, V)
				run := func(s *gpt2.Session) ([]int32, []float32) {
					tokens, logits := ran(t, s, prompt, steps)
					for i, token := range tokens {
						if token.Seq != i%batch || token.Position != past+i/batch {
							t.Fatalf("token %d is %+v", i, token)
						}
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
					must(t, whole.Reset())
					alone, err := whole.Logits(t.Context(), slices.Concat(prompt[b*past:(b+1)*past], text[:steps]), gpt2.LogitsLast)
					must(t, err)
					closeTo(t, what+", and in one pass", row, alone, bounds[weights.BF16])
				}
			}
		}
	}
}

// TestPersistentBeside: sessions at the same time, of one backend and of two, and passes of another mode between have
// the tokens that each has alone.
func TestPersistentBeside(t *testing.T) {
	m, b, other := shipped(t), persistentGPU(t, false), gpu(t, Options{Mode: Graph})
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

// TestNoSizeIsSlower: a decode step of some sequences takes no longer than of more, whichever way mode auto takes. Five of
// a width of 1024 take 1.01 to 1.03 of six.
func TestNoSizeIsSlower(t *testing.T) {
	b := gpu(t, Options{})
	for _, spec := range []string{
		"random:L=6,C=384,NH=6,V=65,T=512", "random:L=12,C=768,NH=12,V=50257,T=512", "random:L=12,C=1024,NH=16,V=50257,T=512",
		"random:L=8,C=1280,NH=20,V=50257,T=512", "random:L=8,C=1600,NH=25,V=50257,T=512",
	} {
		m := randomModel(t, spec)
		var took [9]time.Duration
		for n := range took {
			r := session(t, m, b, gpt2.Options{Batch: n + 1}).Runner().(*Runner)
			decoded(t, r, randomIDs(rand.New(rand.NewPCG(1, 2)), 480*(n+1), m.Config.Vocab), 0)
			times, err := r.Measure(t.Context(), make([]int32, n+1), samplingPass(n+1, 1), 5)
			must(t, err)
			took[n] = slices.Min(times)
		}
		t.Logf("%s: %v", spec, took)
		for n := range took {
			if least := slices.Min(took[n:]); took[n] > least*105/100 {
				t.Errorf("%s: %d sequences take %v, and more of them %v", spec, n+1, took[n], least)
			}
		}
	}
}
