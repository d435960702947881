package exec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gpt2scope/gpt2"
)

// stepsGPU makes a backend with decode=steps. A session that cannot have it fails the test, on a GPU of compute
// capability 9.0 or later; on others the test is skipped.
func stepsGPU(t testing.TB, o Options) *Backend {
	t.Helper()
	var b *Backend
	o.Variants, o.Notice = map[string]string{variantDecode: variantSteps}, func(text string) {
		if b != nil && b.dev.Info().Major < 9 {
			t.Skip(text)
		}
		t.Errorf("a notice: %s", text)
	}
	b = gpu(t, o)
	return b
}

// sameBits fails the test where two rows differ in a bit.
func sameBits(t testing.TB, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: logit %d is %g (%#x), and %g (%#x) in mode persistent", what, i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

// TestStepsBitEqualOnGPU: decode steps launched step by step have the tokens and, bit by bit, the logits of mode
// persistent: after texts of any length, of the geometries that the kernel is for, greedy and drawn. A launch of a
// single step has nothing to wait for, so a difference is also what a race would be. With a library built with
// FLAGS=-DGS_PERSISTENT_DELAYS warps wait at random before they publish and poll.
func TestStepsBitEqualOnGPU(t *testing.T) {
	persistent, steps := persistentGPU(t, false), stepsGPU(t, Options{})
	for _, spec := range []string{
		"random:L=1,C=384,NH=6,V=257,T=512", "random:L=6,C=384,NH=6,V=300,T=1024,seed=2", "random:L=3,C=768,NH=12,V=50257,T=1024,seed=3", "random:L=12,C=768,NH=12,V=1000,T=1024,seed=4",
		"random:L=2,C=1024,NH=16,V=1000,T=512,seed=5", "random:L=2,C=1280,NH=20,V=5000,T=512,seed=6", "random:L=3,C=1600,NH=25,V=50257,T=1024,seed=7",
	} {
		m := randomModel(t, spec)
		one, other := session(t, m, persistent, gpt2.Options{}), session(t, m, steps, gpt2.Options{})
		r := rand.New(rand.NewPCG(7, 8))
		V, T := m.Config.Vocab, m.Config.Positions
		text := func(s *gpt2.Session, prompt []int32, n int, how gpt2.Sampling) ([]int32, []float32) {
			must(t, s.Reset())
			return idsOf(generate(t, s, prompt, gpt2.Generation{Tokens: n, IgnoreEOS: true, Sampling: how})), logitsOf(t, s.Runner())
		}
		for _, run := range []struct {
			past, n int
			how     gpt2.Sampling
		}{
			{1, 2, gpt2.Sampling{}}, {5, 3, gpt2.Sampling{}}, {8, 9, gpt2.Sampling{}}, {31, 14, gpt2.Sampling{}}, {100, 40, gpt2.Sampling{}}, {T - 20, 18, gpt2.Sampling{}},
			{9, 400, gpt2.Sampling{}}, {12, 60, gpt2.Sampling{Temperature: 1, TopK: 40, Seed: 9}},
		} {
			prompt := randomIDs(r, run.past, V)
			what := fmt.Sprintf("%s, %d tokens after %d, temperature %g", spec, run.n, run.past, run.how.Temperature)
			want, logits := text(one, prompt, run.n, run.how)
			inOneKernel(t, one)
			got, row := text(other, prompt, run.n, run.how)
			if r := other.Runner().(*Runner); r.compiled[r.decodePass()].single == nil || !r.last.logitsOnly {
				t.Fatalf("%s: the steps did not run by their own kernels: %q", what, r.persistent.refused)
			}
			if !slices.Equal(got, want) {
				n := 0
				for got[n] == want[n] {
					n++
				}
				t.Fatalf("%s: token %d is %d, and %d in mode persistent", what, n, got[n], want[n])
			}
			sameBits(t, what, row, logits)
		}
	}
}

// TestStepsOfSequencesOnGPU: the same of several sequences, greedy and drawn.
func TestStepsOfSequencesOnGPU(t *testing.T) {
	persistent, steps := persistentGPU(t, false), stepsGPU(t, Options{})
	for _, f := range []struct {
		spec    string
		batches []int
	}{
		{"random:L=3,C=384,NH=6,V=257,T=256,seed=2", []int{2, 4, 8}}, {"random:L=2,C=768,NH=12,V=5000,T=512,seed=3", []int{2, 3, 5, 8}},
		{"random:L=2,C=1280,NH=20,V=999,T=256,seed=4", []int{7}},
	} {
		m := randomModel(t, f.spec)
		for _, batch := range f.batches {
			r := rand.New(rand.NewPCG(9, uint64(batch)))
			one, other := session(t, m, persistent, gpt2.Options{Batch: batch}), session(t, m, steps, gpt2.Options{Batch: batch})
			for i, past := range []int{1, 9, 200, 7, 30} {
				prompt, n := randomIDs(r, past*batch, m.Config.Vocab), 45
				run := func(s *gpt2.Session) ([]int32, []float32) {
					if i >= 3 {
						s.Runner().SetSampling(gpt2.Sampling{Temperature: 1, TopK: 40, Seed: uint64(past)})
					}
					tokens, logits := ran(t, s, prompt, n)
					return idsOf(tokens), logits
				}
				what := fmt.Sprintf("%s, %d sequences, %d tokens after %d", f.spec, batch, n, past)
				want, logits := run(one)
				inOneKernel(t, one)
				got, row := run(other)
				if r := other.Runner().(*Runner); r.compiled[r.decodePass()].single == nil || !r.last.logitsOnly {
					t.Fatalf("%s: the steps did not run by their own kernels: %q", what, r.persistent.refused)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: other tokens than in mode persistent", what)
				}
				sameBits(t, what, row, logits)
			}
		}
	}
}

// TestStepsAfterStopsOnGPU: calls of any number of steps, each of which begins a launch of mode persistent anew, leave
// the same logits.
func TestStepsAfterStopsOnGPU(t *testing.T) {
	m := shipped(t)
	var runners [2]*Runner
	for i, b := range []*Backend{persistentGPU(t, false), stepsGPU(t, Options{})} {
		runners[i] = session(t, m, b, gpt2.Options{Layers: gpt2.FirstLayers(3)}).Runner().(*Runner)
		decoded(t, runners[i], []int32{20, 21, 22}, 0)
	}
	for round, n := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 23, 30} {
		var tokens [2][]gpt2.Token
		var rows [2][]float32
		for i, r := range runners {
			tokens[i], rows[i] = decoded(t, r, nil, n), logitsOf(t, r)
			if round%3 == 2 {
				must(t, r.Rewind(r.Position()-2))
			}
		}
		if !slices.Equal(idsOf(tokens[1]), idsOf(tokens[0])) {
			t.Fatalf("%d steps: %v, and %v in mode persistent", n, idsOf(tokens[1]), idsOf(tokens[0]))
		}
		sameBits(t, fmt.Sprintf("%d steps", n), rows[1], rows[0])
	}
}
