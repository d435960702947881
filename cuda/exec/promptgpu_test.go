package exec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/reference/executor"
	"gpt2scope/weights"
)

// These tests compare short prompts in the decode kernel with other modes on a GPU.

// after empties a session and evaluates a text of which no logits are wanted.
func after(t testing.TB, s *gpt2.Session, text []int32) *Runner {
	t.Helper()
	must(t, s.Reset())
	r := s.Runner().(*Runner)
	if len(text) > 0 {
		prefill(t, r, text, gpt2.Pass{Batch: 1, Tokens: len(text)})
	}
	return r
}

// prompted evaluates a prompt, and returns the token after it and its logits.
func prompted(t testing.TB, r *Runner, prompt []int32) (gpt2.Token, []float32) {
	t.Helper()
	token, logits := decoded(t, r, prompt, 0)[0], logitsOf(t, r)
	if want := r.backend.mode == Persistent || r.backend.singleSteps; r.last.logitsOnly != want || r.last.plan.Pass.Tokens != len(prompt) {
		t.Fatalf("a prompt of %d rows ran in the decode kernel: %v; refused %q", len(prompt), r.last.logitsOnly, r.persistent.refused)
	}
	return token, logits
}

// TestPromptsOnGPU: of a short prompt after a text the decode kernel has, bit by bit, the logits of its steps launched
// one by one; within the bound of the type of weights those of mode graph, and those of as many decode steps; the token
// of the largest logit; and it leaves the cache to which the logits of a later prompt belong.
func TestPromptsOnGPU(t *testing.T) {
	persistent, steps, graph := persistentGPU(t, false), stepsGPU(t, Options{}), gpu(t, Options{Mode: Graph})
	bound := bounds[weights.BF16]
	for _, f := range []struct {
		spec string
		rows int // that the kernel takes at least
	}{
		{"random:L=1,C=384,NH=6,V=257,T=600", 8}, {"random:L=3,C=384,NH=6,V=300,T=600,seed=2", 8}, {"random:L=2,C=768,NH=12,V=50257,T=600,seed=3", 8},
		{"random:L=2,C=1024,NH=16,V=1000,T=600,seed=4", 8}, {"random:L=2,C=1280,NH=20,V=5000,T=600,seed=5", 4}, {"random:L=3,C=1600,NH=25,V=1000,T=600,seed=6", 4},
	} {
		m := randomModel(t, f.spec)
		one, singly, slow, whole := session(t, m, persistent, gpt2.Options{}), session(t, m, steps, gpt2.Options{}), session(t, m, graph, gpt2.Options{}), session(t, m, graph, gpt2.Options{})
		rng := rand.New(rand.NewPCG(3, 4))
		decoded(t, after(t, one, nil), []int32{1, 2}, 1)
		most := one.Runner().(*Runner).persistent.kernel.Rows
		t.Logf("%s: prompts of up to %d rows", f.spec, most)
		if most < f.rows {
			t.Errorf("%s: prompts of up to %d rows, want %d", f.spec, most, f.rows)
		}
		for _, past := range []int{0, 1, 15, 16, 17, 200, 511} {
			for T := 2; T <= most; T++ {
				what := fmt.Sprintf("%s, %d rows after %d", f.spec, T, past)
				text, prompt := randomIDs(rng, past, m.Config.Vocab), randomIDs(rng, T, m.Config.Vocab)
				r := after(t, one, text)
				token, got := prompted(t, r, prompt)
				if best := slices.Index(got, slices.Max(got)); int(token.ID) != best || token.Position != past+T || r.Position() != past+T {
					t.Fatalf("%s: token %+v, and the largest logit that of %d; at %d", what, token, best, r.Position())
				}
				other := after(t, singly, text)
				twin, row := prompted(t, other, prompt)
				if twin.ID != token.ID {
					t.Errorf("%s: token %d, and %d by single steps", what, token.ID, twin.ID)
				}
				sameBits(t, what, row, got)
				_, want := prompted(t, after(t, slow, text), prompt)
				closeTo(t, what+", and in mode graph", got, want, bound)
				r = after(t, one, text)
				for _, id := range prompt {
					_, row = prompted(t, r, []int32{id})
				}
				closeTo(t, what+", and row by row", got, row, bound)
				r = after(t, one, text)
				prompted(t, r, prompt)
				// Some tokens, then another prompt.
				tokens := idsOf(decoded(t, r, nil, 3))
				if twins := idsOf(decoded(t, other, nil, 3)); !slices.Equal(twins, tokens) {
					t.Errorf("%s: then tokens %v, and %v by single steps", what, tokens, twins)
				}
				prompt2 := randomIDs(rng, 2+(T+past)%(most-1), m.Config.Vocab)
				_, got = prompted(t, r, prompt2)
				_, row = prompted(t, other, prompt2)
				sameBits(t, what+", and a second prompt", row, got)
				must(t, whole.Reset())
				want, err := whole.Logits(t.Context(), slices.Concat(text, prompt, []int32{token.ID}, tokens[:2], prompt2), gpt2.LogitsLast)
				must(t, err)
				closeTo(t, what+", a second prompt, and in one pass", got, want, bound)
			}
		}
	}
}

// TestPromptsAreNearReference: logits after short prompts in the decode kernel are about as near to those of the
// float64 reference as those of mode eager.
func TestPromptsAreNearReference(t *testing.T) {
	persistent, eager, reference := persistentGPU(t, false), gpu(t, Options{Mode: Eager}), executor.New()
	for _, spec := range []string{"random:L=6,C=384,NH=6,V=300,T=64", "random:L=4,C=768,NH=12,V=1000,T=64,seed=4", "random:L=2,C=1600,NH=25,V=1000,T=64,seed=7"} {
		m := randomModel(t, spec)
		fast, slow, right := session(t, m, persistent, gpt2.Options{}), session(t, m, eager, gpt2.Options{}), session(t, m, reference, gpt2.Options{})
		var off [2]float64
		n := 0
		for T := 2; T <= 8; T++ {
			prompt := randomIDs(rand.New(rand.NewPCG(7, uint64(T))), T, m.Config.Vocab)
			must(t, right.Reset())
			want, err := right.Logits(t.Context(), prompt, gpt2.LogitsLast)
			must(t, err)
			if T == 2 {
				decoded(t, after(t, fast, nil), prompt, 0)
			}
			if T > fast.Runner().(*Runner).persistent.kernel.Rows {
				break
			}
			_, got := prompted(t, after(t, fast, nil), prompt)
			_, other := prompted(t, after(t, slow, nil), prompt)
			closeTo(t, fmt.Sprintf("%s, %d rows", spec, T), got, want, bounds[weights.BF16])
			for i, v := range want {
				off[0] += math.Pow(float64(got[i]-v), 2)
				off[1] += math.Pow(float64(other[i]-v), 2)
				n++
			}
		}
		one, each := math.Sqrt(off[0]/float64(n)), math.Sqrt(off[1]/float64(n))
		t.Logf("%s: root mean square differences of %.3g in one kernel, of %.3g in mode eager", spec, one, each)
		if one > 1.5*each+1e-7 {
			t.Errorf("%s: logits differ from the reference by %.3g (root mean square), those of mode eager by %.3g", spec, one, each)
		}
	}
}

// TestPromptsGrids: with fewer blocks than SMs the logits after prompts, and after a decode step (one row), are those
// of mode graph.
func TestPromptsGrids(t *testing.T) {
	m := shipped(t)
	o := gpt2.Options{Layers: gpt2.FirstLayers(3)}
	slow := session(t, m, gpu(t, Options{Mode: Graph}), o)
	for _, blocks := range []int{66, 80, 132} {
		b := gpu(t, Options{Mode: Persistent, decodeBlocks: blocks})
		if b.dev.Info().Major < 9 || b.dev.Info().Processors < blocks {
			t.Skip("too few SMs")
		}
		fast := session(t, m, b, o)
		for T := 1; T <= cuda.PersistentRows; T++ {
			for _, past := range []int{0, 40} {
				rng := rand.New(rand.NewPCG(uint64(T), uint64(past)))
				text, prompt := randomIDs(rng, past, m.Config.Vocab), randomIDs(rng, T, m.Config.Vocab)
				_, got := prompted(t, after(t, fast, text), prompt)
				_, want := prompted(t, after(t, slow, text), prompt)
				closeTo(t, fmt.Sprintf("%d blocks, %d rows after %d", blocks, T, past), got, want, bounds[weights.BF16])
			}
		}
	}
}
