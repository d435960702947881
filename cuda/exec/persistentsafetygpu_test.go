package exec

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/weights"
)

// TestPersistentSamples: a token that is drawn after a decode step in one kernel is that which
// [gpt2.Sampler] draws from the step's logits, with its log-probability.
func TestPersistentSamples(t *testing.T) {
	b := persistentGPU(t, weights.BF16)
	for _, spec := range []string{"random:L=2,C=384,NH=6,V=257,T=256", "random:L=2,C=768,NH=12,V=50257,T=256", "random:L=1,C=1600,NH=25,V=1000,T=256"} {
		m := randomModel(t, spec)
		s := session(t, m, b, gpt2.Options{})
		r := s.Runner().(*Runner)
		for _, how := range []gpt2.Sampling{{Temperature: 0.8, Seed: 3}, {Temperature: 1, TopK: 40, Seed: 4}, {Temperature: 1.2, TopP: 0.9, Seed: 5, LogProbs: true}, {LogProbs: true}} {
			if err := s.Reset(); err != nil {
				t.Fatal(err)
			}
			r.SetSampling(how)
			decoded(t, r, []int32{1, 2, 3}, 0)
			var sampler gpt2.Sampler
			row := make([]float32, m.Config.Vocab)
			for range 30 {
				got := decoded(t, r, nil, 1)[0]
				if err := r.Read(gpt2.BufLogits, 0, row); err != nil {
					t.Fatal(err)
				}
				want, err := sampler.Sample(how, row, 0, r.Position())
				if err != nil {
					t.Fatal(err)
				}
				if got.ID != want.ID || got.Position != want.Position || how.LogProbs && !(max(got.LogProb-want.LogProb, want.LogProb-got.LogProb) < 1e-4) {
					t.Fatalf("%s, %+v: token %+v, want %+v", spec, how, got, want)
				}
			}
			inOneKernel(t, s)
			// Launched ahead of the tokens that are read, it is the same text.
			if err := s.Reset(); err != nil {
				t.Fatal(err)
			}
			one := decoded(t, r, []int32{1, 2, 3}, 0)
			for range 40 {
				one = append(one, decoded(t, r, nil, 1)...)
			}
			if err := s.Reset(); err != nil {
				t.Fatal(err)
			}
			if all := decoded(t, r, []int32{1, 2, 3}, 40); !slices.Equal(idsOf(all), idsOf(one)) {
				t.Errorf("%s, %+v: 40 steps at once have the tokens %v, one by one %v", spec, how, idsOf(all), idsOf(one))
			}
		}
	}
}

// TestPersistentRepeats: a text is the same each time, and its last logits bit by bit.
// GPT2SCOPE_PERSISTENT_RUNS makes more runs. A library that was built with
// FLAGS=-DGS_DECODE_DELAYS lets blocks wait at random before they publish and poll.
func TestPersistentRepeats(t *testing.T) {
	runs := 20
	if n, err := strconv.Atoi(os.Getenv("GPT2SCOPE_PERSISTENT_RUNS")); err == nil {
		runs = n
	}
	b := persistentGPU(t, weights.BF16)
	for _, f := range []struct {
		spec    string
		batches []int
	}{
		{"random:L=3,C=384,NH=6,V=257,T=128", []int{1, 2, 8}},
		{"random:L=2,C=768,NH=12,V=5000,T=128,seed=2", []int{1, 4, 7}},
		{"random:L=1,C=1024,NH=16,V=999,T=128,seed=3", []int{1, 3}},
		{"random:L=2,C=1600,NH=25,V=1000,T=128,seed=4", []int{1, 3}},
	} {
		m := randomModel(t, f.spec)
		for _, batch := range f.batches {
			s := session(t, m, b, gpt2.Options{Batch: batch})
			r := s.Runner().(*Runner)
			prompt := randomIDs(rand.New(rand.NewPCG(5, 6)), 9*batch, m.Config.Vocab)
			var tokens []int32
			want, row := make([]float32, batch*m.Config.Vocab), make([]float32, batch*m.Config.Vocab)
			for i := range runs {
				if err := s.Reset(); err != nil {
					t.Fatal(err)
				}
				got := idsOf(decoded(t, r, prompt, 50))
				if err := r.Read(gpt2.BufLogits, 0, row); err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					tokens = got
					copy(want, row)
				}
				if !slices.Equal(got, tokens) || !slices.Equal(row, want) {
					t.Fatalf("%s, %d sequences: run %d: %v, run 0 %v", f.spec, batch, i, got, tokens)
				}
			}
			inOneKernel(t, s)
		}
	}
}

// TestPersistentGrids: with fewer blocks than SMs the text is that of mode graph; a grid among
// which a width does not divide is refused with the reason, and steps run as graphs.
func TestPersistentGrids(t *testing.T) {
	m := shipped(t)
	graph := gpu(t, Options{Mode: Graph})
	layers := gpt2.FirstLayers(3)
	prompt := []int32{20, 21, 22, 23}
	g := gpt2.Generation{Tokens: 120, IgnoreEOS: true}
	want := idsOf(generate(t, session(t, m, graph, gpt2.Options{Layers: layers}), prompt, g))
	for _, blocks := range []int{7, 31, 66, 100, 132} {
		var notices []string
		b := gpu(t, Options{Mode: Persistent, Notice: func(text string) { notices = append(notices, text) }, decodeBlocks: blocks})
		if b.dev.Info().Major < 9 || b.dev.Info().Processors < blocks {
			t.Skip("too few SMs")
		}
		s := session(t, m, b, gpt2.Options{Layers: layers})
		got := idsOf(generate(t, s, prompt, g))
		if blocks < 60 {
			if len(notices) != 1 || !strings.Contains(notices[0], fmt.Sprintf("among %d SMs", blocks)) || !slices.Equal(got, want) {
				t.Errorf("%d blocks: notices %q", blocks, notices)
			}
			continue
		}
		firstDifference(t, fmt.Sprintf("%d blocks", blocks), m, layers, prompt, want, got)
		inOneKernel(t, s)
	}
}
