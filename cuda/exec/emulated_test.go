package exec

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/weights"
)

// These tests run the decode kernels on the CPU: csrc/emulator.

// TestEmulated: in the decode kernel, run on the CPU, decode steps and short prompts have bit by bit the
// logits of its steps launched one by one, within rounding those of mode graph, computed in plain C, and
// tokens are those that the host draws.
func TestEmulated(t *testing.T) {
	if os.Getenv("GPT2SCOPE_CUDA_LIB") == "" {
		t.Skip("no library")
	}
	for _, held := range []weights.DType{weights.BF16, weights.F32} {
		t.Run(held.String(), func(t *testing.T) { emulated(t, held) })
	}
}

func emulated(t *testing.T, held weights.DType) {
	persistent, steps, graph := persistentGPU(t, held), stepsGPU(t, Options{DType: held}), gpu(t, Options{Mode: Graph, DType: held})
	m := randomModel(t, "random:L=2,C=384,NH=6,V=257,T=64")
	V := m.Config.Vocab
	for _, batch := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(batch, " sequences"), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(batch)))
			one, other, slow := session(t, m, persistent, gpt2.Options{Batch: batch}), session(t, m, steps, gpt2.Options{Batch: batch}), session(t, m, graph, gpt2.Options{Batch: batch})
			for _, how := range []gpt2.Sampling{{}, {Temperature: 1, TopK: 40, TopP: 0.95, Seed: 3, LogProbs: true}} {
				const past, n = 19, 3
				prompt := randomIDs(rng, past*batch, V)
				run := func(s *gpt2.Session) ([]gpt2.Token, []float32) {
					if err := s.Reset(); err != nil {
						t.Fatal(err)
					}
					r := s.Runner().(*Runner)
					r.SetSampling(how)
					tokens := decoded(t, r, prompt, n)
					logits := make([]float32, batch*V)
					if err := r.Read(gpt2.BufLogits, 0, logits); err != nil {
						t.Fatal(err)
					}
					return tokens, logits
				}
				what := fmt.Sprintf("temperature %g", how.Temperature)
				tokens, logits := run(one)
				inOneKernel(t, one)
				if how.Temperature == 0 {
					twins, row := run(other)
					if !slices.Equal(idsOf(twins), idsOf(tokens)) {
						t.Errorf("%s: tokens %v, and %v by single steps", what, idsOf(tokens), idsOf(twins))
					}
					sameBits(t, what, row, logits)
					plain, want := run(slow)
					t.Log(idsOf(plain), idsOf(tokens))
					if slices.Equal(idsOf(plain)[:n*batch], idsOf(tokens)[:n*batch]) {
						closeTo(t, what, logits, want, bounds[held])
					}
				}
				sampler := gpt2.Sampler{}
				for j, got := range tokens[len(tokens)-batch:] {
					want, err := sampler.Sample(how, logits[j*V:(j+1)*V], j, one.Runner().(*Runner).Position())
					if err != nil {
						t.Fatal(err)
					}
					if got.ID != want.ID || got.Seq != j || got.Position != want.Position || how.LogProbs && !(max(got.LogProb-want.LogProb, want.LogProb-got.LogProb) < 1e-4) {
						t.Errorf("%s, sequence %d: token %+v, want %+v", what, j, got, want)
					}
				}
			}
		})
	}
	t.Run("prompts", func(t *testing.T) {
		rng := rand.New(rand.NewPCG(3, 4))
		one, other, slow := session(t, m, persistent, gpt2.Options{}), session(t, m, steps, gpt2.Options{}), session(t, m, graph, gpt2.Options{})
		decoded(t, after(t, one, nil), []int32{1, 2}, 1)
		for _, f := range []struct{ past, T int }{{0, 8}, {17, 3}, {33, 6}} {
			if f.T > one.Runner().(*Runner).together.rows {
				continue
			}
			what := fmt.Sprintf("%d rows after %d", f.T, f.past)
			text, prompt := randomIDs(rng, f.past, V), randomIDs(rng, f.T, V)
			token, got := prompted(t, after(t, one, text), prompt)
			if best := slices.Index(got, slices.Max(got)); int(token.ID) != best || token.Position != f.past+f.T {
				t.Errorf("%s: token %+v, and the largest logit that of %d", what, token, best)
			}
			twin, row := prompted(t, after(t, other, text), prompt)
			if twin.ID != token.ID {
				t.Errorf("%s: token %d, and %d by single steps", what, token.ID, twin.ID)
			}
			sameBits(t, what, row, got)
			_, want := prompted(t, after(t, slow, text), prompt)
			closeTo(t, what, got, want, bounds[held])
			next := idsOf(decoded(t, one.Runner().(*Runner), nil, 2))
			if twins := idsOf(decoded(t, other.Runner().(*Runner), nil, 2)); !slices.Equal(twins, next) {
				t.Errorf("%s: then tokens %v, and %v by single steps", what, next, twins)
			}
		}
	})
}
