package exec

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpt2scope/cuda/persistent"
	"gpt2scope/gpt2"
	"gpt2scope/record"
	"gpt2scope/traces"
)

// drafted compares texts with drafts, which every launch verifies, with those without, and their last logits bit by bit.
// It returns what the drafts brought.
func drafted(t *testing.T, what string, plain, drafting *gpt2.Session, prompt []int32, g gpt2.Generation) gpt2.Speculated {
	t.Helper()
	by := g.Speculate
	text := func(s *gpt2.Session, by gpt2.Speculation) ([]gpt2.Token, []float32, time.Duration) {
		must(t, s.Reset())
		g.Speculate = by
		return generate(t, s, prompt, g), logitsOf(t, s.Runner()), s.Stats().DecodeTime
	}
	want, logits, took := text(plain, gpt2.Speculation{})
	inOneKernel(t, plain)
	r := drafting.Runner().(*Runner)
	r.drafts.always = true
	if k := r.persistent.kernel; k != nil {
		k.Epochs = persistent.MostEpochs // so that they begin anew in the text
	}
	got, row, with := text(drafting, by)
	if k := r.persistent.kernel; len(want) > 2*k.Tokens(g.Sampling) && k.Epochs >= persistent.MostEpochs {
		t.Errorf("%s: %d epochs", what, k.Epochs)
	}
	for i := range want {
		if got[i].ID != want[i].ID || got[i].Position != want[i].Position || g.Sampling.LogProbs && got[i].LogProb != want[i].LogProb {
			t.Fatalf("%s: token %d is %+v with drafts, and %+v without; %d and %d tokens", what, i, got[i], want[i], len(got), len(want))
		}
	}
	sameBits(t, what, row, logits)
	d := drafting.Stats().Speculated
	n := time.Duration(max(1, len(want)-1))
	t.Logf("%s, %s: %d tokens, %d passes, %d drafts, %d accepted; us per token %.1f, with drafts %.1f; of a pass %.1f", what, by, len(want), d.Passes, d.Drafted, d.Accepted,
		float64(took/n)/1e3, float64(with/n)/1e3, float64(d.VerifyTime)/1e3/float64(max(1, d.Passes)))
	return d
}

// TestEmulatedDrafts: passes over drafts give the tokens and, bit by bit, the logits of steps of one row, in the kernels
// run on the CPU. A recording has these passes, with all their steps.
func TestEmulatedDrafts(t *testing.T) {
	for _, kernels := range []string{"384", "q8_384"} {
		t.Run(kernels, func(t *testing.T) { emulatedDrafts(t, kernels) })
	}
}

func emulatedDrafts(t *testing.T, width string) {
	emulated(t, 48)
	t.Setenv("GS_EMULATED_SLOW", "200")
	m, b := emulatedModel(t), persistentGPU(t, width == "q8_384")
	if width == "q8_384" { // three logits a block, which its first packet has: drafts are not drawn
		m = randomModel(t, "random:L=2,C=384,NH=6,V=140,T=64")
	}
	plain, drafting := session(t, m, b, gpt2.Options{}), session(t, m, b, gpt2.Options{})
	prompt := []int32{7, 8, 9, 10, 11, 7, 8, 9, 12, 11, 7, 8}
	lookup, exits := gpt2.DefaultSpeculation(gpt2.DraftLookup), gpt2.Speculation{By: gpt2.DraftExits, Layers: 1, Drafts: 3}
	var all gpt2.Speculated
	for _, how := range []gpt2.Sampling{{}, {Temperature: 0.2, TopK: 5, TopP: 0.95, Seed: 3, LogProbs: true}} {
		for _, by := range []gpt2.Speculation{lookup, exits} {
			d := drafted(t, fmt.Sprintf("temperature %g", how.Temperature), plain, drafting, prompt,
				gpt2.Generation{Tokens: 10, IgnoreEOS: true, Sampling: how, Speculate: by})
			all.Accepted, all.Drafted = all.Accepted+d.Accepted, all.Drafted+d.Drafted
		}
	}
	if all.Accepted == 0 || width == "384" && all.Accepted == all.Drafted {
		t.Errorf("of %d drafts %d were right", all.Drafted, all.Accepted)
	}
	for _, by := range []gpt2.Speculation{lookup, exits} {
		to := record.New("test", "1")
		must(t, drafting.Reset())
		must(t, drafting.Record(to))
		generate(t, drafting, prompt, gpt2.Generation{Tokens: 9, IgnoreEOS: true, Speculate: by})
		must(t, drafting.StopRecording())
		trace, passes := to.Trace(), map[string]int{}
		_, kernels := ofDecode(trace)
		all := drafting.Runner().(*Runner).persistent.kernel.Steps() + 1
		for _, e := range trace.Events {
			if e.Kind != traces.KindPass || e.Name == gpt2.PrefillPass {
				continue
			}
			passes[e.Name]++
			want := all
			if e.Name == gpt2.DraftPass {
				want = 5*by.Layers + 2
			}
			if n := len(kernels[e.ID]); n != want {
				t.Errorf("%s at %g has %d kernels, want %d", e.Name, e.Value, n, want)
			}
		}
		d := drafting.Stats().Speculated
		if n := passes[gpt2.VerifyPass]; n != d.Passes || n == 0 || n+passes[gpt2.DecodePass] != 8-d.Accepted {
			t.Errorf("%s: %v, and measured %+v", by, passes, d)
		}
		if n := passes[gpt2.DraftPass]; (by == exits) != (n > 0) || by == exits && n != d.Drafted {
			t.Errorf("%s: %v, and measured %+v", by, passes, d)
		}
	}
	// What a text that ended early left in slots counts in no later one, whose launches verify nothing.
	must(t, drafting.Reset())
	g := gpt2.Generation{Tokens: 30, IgnoreEOS: true, Speculate: gpt2.DefaultSpeculation(gpt2.DraftLookup)}
	for _, err := range drafting.Generate(t.Context(), prompt, g) {
		must(t, err)
		if drafting.Stats().DecodeTokens == 3 {
			break
		}
	}
	if d := drafting.Stats().Speculated; d.Passes == 0 {
		t.Error("no drafts were verified before the text ended")
	}
	must(t, drafting.Reset())
	drafting.Runner().(*Runner).drafts.always = false
	g.Tokens = 62                                                 // nearly as many steps as there are slots
	g.Sampling = gpt2.Sampling{Temperature: 2, TopK: 40, Seed: 1} // so that hardly a pair of tokens comes twice
	generate(t, drafting, []int32{1}, g)
	if d := drafting.Stats().Speculated; d != (gpt2.Speculated{}) {
		t.Errorf("steps that verify nothing verified %+v", d)
	}
}

// TestDraftsOnGPU: the same on a GPU, of texts that repeat themselves and of others, greedy and drawn.
// GPT2SCOPE_PROMPTS is of how many more prompts.
func TestDraftsOnGPU(t *testing.T) {
	more, _ := strconv.Atoi(os.Getenv("GPT2SCOPE_PROMPTS"))
	lookup := gpt2.DefaultSpeculation(gpt2.DraftLookup)
	ways := []gpt2.Speculation{lookup, lookup, {By: gpt2.DraftExits, Layers: 1, Drafts: 3}, {By: gpt2.DraftExits, Layers: 2, Drafts: 2}}
	for _, spec := range []string{
		"random:L=3,C=1600,NH=25,V=50257,T=1024,seed=7", "q8 random:L=3,C=1600,NH=25,V=50257,T=1024,seed=7",
		"random:L=12,C=768,NH=12,V=50257,T=1024,seed=4", "random:L=6,C=384,NH=6,V=300,T=1024,seed=2", "random:L=1,C=384,NH=6,V=257,T=512",
		"../../weights/shakespeare", "q8 random:L=12,C=768,NH=12,V=50257,T=1024,seed=4", "q8 random:L=2,C=384,NH=6,V=300,T=1024,seed=2",
	} {
		name, q8 := strings.CutPrefix(spec, "q8 ")
		b := persistentGPU(t, q8)
		var m *gpt2.Model
		if strings.HasPrefix(name, "random:") {
			m = randomModel(t, name)
		} else {
			var err error
			m, err = gpt2.Open(name)
			must(t, err)
			t.Cleanup(func() { m.Close() })
		}
		plain, drafting := session(t, m, b, gpt2.Options{}), session(t, m, b, gpt2.Options{})
		r := rand.New(rand.NewPCG(7, 8))
		V, T := m.Config.Vocab, m.Config.Positions
		runs := [][2]int{{1, 30}, {9, 100}, {60, 400}, {T - 20, 18}}
		for range more {
			runs = append(runs, [2]int{1 + r.IntN(200), 20})
		}
		for _, how := range []gpt2.Sampling{{}, {Temperature: 1, TopK: 40, Seed: 9}, {Temperature: 0.1, TopK: 3, TopP: 0.9, Seed: 5, LogProbs: true}} {
			for _, run := range runs {
				prompt := randomIDs(r, run[0], V)
				for n, by := range ways { // the second one repeats itself
					if by.Layers >= m.Config.Layers {
						continue
					}
					drafted(t, fmt.Sprintf("%s, %d tokens after %d, temperature %g", spec, run[1], len(prompt), how.Temperature), plain, drafting, prompt,
						gpt2.Generation{Tokens: run[1], IgnoreEOS: true, Sampling: how, Speculate: by})
					if n != 0 {
						continue
					}
					prompt = slices.Concat(prompt, prompt)[:min(2*len(prompt), T-run[1]-1)]
				}
			}
		}
	}
}
