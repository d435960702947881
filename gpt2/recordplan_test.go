package gpt2_test

import (
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/record"
)

// Costs of a recorded plan at any position are those of the plan itself.
func TestRecordedPlans(t *testing.T) {
	c := gpt2.Config{Layers: 2, Channels: 64, Heads: 4, Vocab: 300, Positions: 128, Inner: 256}
	sizes := gpt2.Sizes{Weight: 2, Activation: 4, KV: 2}
	for _, pass := range []gpt2.Pass{{Batch: 3, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true},
		{Batch: 1, Tokens: 17, Logits: gpt2.LogitsLast}} {
		plan := gpt2.Forward(c, gpt2.FirstLayers(2), pass)
		r := record.New("test", "1")
		plans := gpt2.NewRecordedPlans(r, sizes)
		index := plans.Index(plan, 5, pass.Tokens)
		made := *plan // an equal plan at another address
		for _, again := range []int32{plans.Index(plan, 9, pass.Tokens), plans.Index(&made, 9, pass.Tokens)} {
			if again != index {
				t.Errorf("the plan was registered twice: %d, %d", index, again)
			}
		}
		if padded := plans.Index(plan, 5, pass.Tokens+3); padded == index ||
			r.Trace().Header.Plans[padded].Padded != pass.Tokens+3 {
			t.Error("a padded pass has the plan of one that is not")
		}
		h := r.Trace().Header
		p := &h.Plans[index]
		grows := false
		for _, past := range []int{0, 1, 50, 100} {
			for i, s := range plan.Steps {
				want := s.Cost(past)
				flops, bytes := p.Steps[i].CostAt(p, past)
				if flops != want.FLOPs || bytes != want.Bytes(sizes) {
					t.Errorf("%s with %d tokens before: %d FLOPs and %d bytes, want %d and %d", s.Name(), past, flops, bytes,
						want.FLOPs, want.Bytes(sizes))
				}
				grows = grows || p.Steps[i].BytesPerPast > 0
			}
		}
		if !grows {
			t.Error("no step costs more with more tokens in the cache")
		}
	}
}
