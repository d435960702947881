package exec

import (
	"slices"
	"testing"

	"gpt2scope/cpu"
	"gpt2scope/gpt2"
	"gpt2scope/weights"
)

// TestSamplingOnHost: what the device cannot sample is sampled on the host from its logits, with the tokens, beyond the
// context too, that the CPU makes of the same seed. What it can is left to it.
func TestSamplingOnHost(t *testing.T) {
	lib, c := onStub(t, "STUB_COMPUTES")
	m := randomModel(t, small)
	host, err := cpu.New(cpu.Options{})
	must(t, err)
	defer host.Close()
	text := func(b gpt2.Backend, sampling gpt2.Sampling) (tokens []gpt2.Token) {
		t.Helper()
		s, err := gpt2.NewSession(t.Context(), m, b, gpt2.Options{Context: 16})
		must(t, err)
		defer s.Close()
		c.Reset()
		for token, err := range s.Generate(t.Context(), []int32{5, 4, 3, 2, 1}, gpt2.Generation{Tokens: 24, IgnoreEOS: true, Sampling: sampling}) {
			must(t, err)
			tokens = append(tokens, token)
		}
		if s.Stats().Shifts == 0 {
			t.Error("the text stayed within the context")
		}
		return tokens
	}
	for _, mode := range []Mode{Eager, Graph} {
		device := backendOn(t, lib, Options{Mode: mode, DType: weights.F32})
		for _, sampling := range []gpt2.Sampling{
			{RepeatPenalty: 1.3}, {Temperature: 1, MinP: 0.05, Seed: 1}, {TopLogProbs: 2}, {LogProbs: true, TopLogProbs: 2},
			{Temperature: 0.8, TopK: 60, TopP: 0.95, MinP: 0.02, RepeatPenalty: 1.1, RepeatLast: 10, Seed: 2},
		} {
			want, got := text(host, sampling), text(device, sampling)
			if slices.Contains(c.Calls(), "gs_sample") {
				t.Errorf("%s, %+v: the device sampled", mode, sampling)
			}
			for i := range want {
				w, g := want[i], got[i]
				if g.ID != w.ID || g.Position != w.Position || len(g.Top) != sampling.TopLogProbs || sampling.LogProbs && !(max(w.LogProb-g.LogProb, g.LogProb-w.LogProb) < 1e-5) {
					t.Fatalf("%s, %+v: token %d is %+v, and %+v on the CPU", mode, sampling, i, g, w)
				}
				for n, top := range g.Top {
					if top.ID != w.Top[n].ID {
						t.Fatalf("%s: the likeliest of token %d are %v, and %v on the CPU", mode, i, g.Top, w.Top)
					}
				}
			}
		}
		if text(device, gpt2.Sampling{Temperature: 1, TopK: 5, TopP: 0.9, LogProbs: true}); !slices.Contains(c.Calls(), "gs_sample") {
			t.Errorf("%s: the device did not sample what it can", mode)
		}
		if err := device.Close(); err != nil {
			t.Error(err)
		}
	}
}
