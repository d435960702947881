package annotate_test

import (
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
)

func plan(t *testing.T) *gpt2.Plan {
	t.Helper()
	m := require.Value(gpt2.Random("random:L=2,C=64,NH=4,V=257,T=64"))(t)
	return gpt2.Forward(m.Config, []int{0, 1}, gpt2.Pass{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true})
}

// TestOff: with no tool attached there is no Pass, and its methods cost nothing.
func TestOff(t *testing.T) {
	if nvtx.Active() {
		t.Skip("a tool is attached")
	}
	p := annotate.New(plan(t), nvtx.Green)
	if p != nil {
		t.Fatal("there is a Pass with no tool attached")
	}
	if n := testing.AllocsPerRun(100, func() {
		p.Begin(3)
		p.Step(0)
		p.EndStep(0)
		p.End()
		annotate.Range("load", nvtx.Yellow)()
	}); n != 0 {
		t.Errorf("a pass allocates %v times", n)
	}
}
