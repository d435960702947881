package exec

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gpt2scope/cuda"
	"gpt2scope/cuda/persistent"
	"gpt2scope/gpt2"
	"gpt2scope/record"
	"gpt2scope/weights"
)

// These tests run the decode kernels on the CPU, whatever GPU there is: csrc/emulator. Copies take as long as they like
// and blocks go on in any order, so each run is another one. GS_EMULATED_SLOW is how many times slower time passes
// there.

// TestEmulated: decode steps and short prompts in the decode kernel have, bit by bit, the logits of its steps launched
// one by one, within rounding those of mode graph, which the stub computes in plain C, and tokens are those that the
// host draws.
func TestEmulated(t *testing.T) {
	for _, kernels := range []string{"384", "q8_384"} {
		t.Run(kernels, func(t *testing.T) {
			emulated(t, 48)
			t.Setenv("GS_EMULATED_SLOW", "200")
			q8 := kernels == "q8_384"
			batches := []int{1, 5}
			if q8 { // prompts have several rows too
				batches = batches[:1]
			}
			for _, batch := range batches {
				t.Run(fmt.Sprint(batch), func(t *testing.T) { emulatedSteps(t, batch, q8) })
			}
			t.Run("prompts", func(t *testing.T) { emulatedPrompts(t, q8) })
		})
	}
}

// emulatedModel is a model of the narrowest kernel.
func emulatedModel(t testing.TB) *gpt2.Model {
	return randomModel(t, "random:L=2,C=384,NH=6,V=257,T=64")
}

func emulatedSteps(t *testing.T, batch int, q8 bool) {
	m := emulatedModel(t)
	V := m.Config.Vocab
	rng := rand.New(rand.NewPCG(1, uint64(batch)))
	o := gpt2.Options{Batch: batch}
	one, other, slow := session(t, m, persistentGPU(t, q8), o), session(t, m, stepsGPU(t, Options{Q8: q8}), o), session(t, m, gpu(t, Options{Mode: Graph, Q8: q8}), o)
	const past, n = 19, 2
	prompt := randomIDs(rng, past*batch, V)
	run := func(s *gpt2.Session, how gpt2.Sampling) ([]gpt2.Token, []float32) {
		s.Runner().SetSampling(how)
		return ran(t, s, prompt, n)
	}
	for _, how := range []gpt2.Sampling{{}, {Temperature: 1, TopK: 40, TopP: 0.95, Seed: 3, LogProbs: true}} {
		what := fmt.Sprintf("temperature %g", how.Temperature)
		tokens, logits := run(one, how)
		inOneKernel(t, one)
		if k := one.Runner().(*Runner).persistent.kernel; k.Epochs >= persistent.MostEpochs {
			t.Errorf("%s: %d epochs", what, k.Epochs)
		} else {
			k.Epochs = persistent.MostEpochs + 1 // so that the next text's begin anew
		}
		for j, got := range tokens[len(tokens)-batch:] {
			want, err := new(gpt2.Sampler).Sample(how, logits[j*V:(j+1)*V], j, one.Runner().(*Runner).Position())
			must(t, err)
			if got.ID != want.ID || got.Seq != j || got.Position != want.Position || how.LogProbs && !(max(got.LogProb-want.LogProb, want.LogProb-got.LogProb) < 1e-4) {
				t.Errorf("%s, sequence %d: token %+v, want %+v", what, j, got, want)
			}
		}
		if how.Temperature > 0 {
			continue // the stub draws no tokens
		}
		twins, row := run(other, how)
		if !slices.Equal(idsOf(twins), idsOf(tokens)) {
			t.Errorf("%s: tokens %v, and %v by single steps", what, idsOf(tokens), idsOf(twins))
		}
		sameBits(t, what, row, logits)
		plain, want := run(slow, how)
		if !slices.Equal(idsOf(plain), idsOf(tokens)) {
			t.Errorf("%s: tokens %v, and %v in mode graph", what, idsOf(tokens), idsOf(plain))
		}
		closeTo(t, what, logits, want, bounds[weights.BF16])
	}
}

func emulatedPrompts(t *testing.T, q8 bool) {
	m := emulatedModel(t)
	V := m.Config.Vocab
	rng := rand.New(rand.NewPCG(3, 4))
	one, other, slow := session(t, m, persistentGPU(t, q8), gpt2.Options{}), session(t, m, stepsGPU(t, Options{Q8: q8}), gpt2.Options{}), session(t, m, gpu(t, Options{Mode: Graph, Q8: q8}), gpt2.Options{})
	for _, f := range []struct{ past, T int }{{17, 8}} {
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
		closeTo(t, what, got, want, bounds[weights.BF16])
		next := idsOf(decoded(t, one.Runner().(*Runner), nil, 2))
		if twins := idsOf(decoded(t, other.Runner().(*Runner), nil, 2)); !slices.Equal(twins, next) {
			t.Errorf("%s: then tokens %v, and %v by single steps", what, next, twins)
		}
	}
}

// TestEmulatedStamps: each step of a recorded launch has the parts of its time, of each block that has a part in it.
func TestEmulatedStamps(t *testing.T) {
	emulated(t, 48)
	t.Setenv("GS_EMULATED_SLOW", "20")
	s := session(t, emulatedModel(t), persistentGPU(t, false), gpt2.Options{})
	r := s.Runner().(*Runner)
	to := record.New("test", "1")
	must(t, r.StartRecording(to))
	decoded(t, r, []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}, 2)
	must(t, r.StopRecording())
	passes, kernels := ofDecode(to.Trace())
	if len(passes) != 2 {
		t.Fatalf("%d decode steps are recorded", len(passes))
	}
	waited, inputs, all := 0, 0, 0
	for n, pass := range passes {
		for i, e := range kernels[pass.ID] {
			in := e.Inside
			if in == nil || in.Parts.Sum() != e.Duration || in.SMs < 24 {
				t.Fatalf("decode step %d, kernel %d of %d ns: %+v", n, i, e.Duration, in)
			}
			if all++; in.Weights > 0 {
				waited++
			}
			if in.Inputs > 0 {
				inputs++
			}
		}
	}
	if waited == 0 || waited == all || inputs < all/2 {
		t.Errorf("blocks waited for weights in %d, for inputs in %d of %d steps", waited, inputs, all)
	}
}

// TestEmulatedStuck: if a block gets no weights, the launch ends, and the error names that block.
func TestEmulatedStuck(t *testing.T) {
	emulated(t, 48)
	t.Setenv("GS_EMULATED_STUCK", "1")
	t.Setenv("GS_EMULATED_SLOW", "1")
	s := session(t, emulatedModel(t), gpu(t, Options{Mode: Persistent}), gpt2.Options{})
	r := s.Runner().(*Runner)
	decoded(t, r, []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}, 0)
	err := r.Decode(t.Context(), cuda.PersistentTokens, func([]gpt2.Token) bool { return true })
	var stage *gpt2.StageError
	if !errors.As(err, &stage) || stage.Step != "h.0.ln_2+h.0.mlp.c_fc+h.0.mlp.gelu" || !strings.Contains(err.Error(), "SM 5 waited longer than 1.75s for its weights") {
		t.Error(err)
	}
}
