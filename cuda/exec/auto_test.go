package exec

import (
	"testing"

	"gpt2scope/gpt2"
)

// wideVocab is one of more tokens than its decode kernel can draw from.
const wideVocab = "random:L=2,C=384,NH=6,V=400,T=256"

// TestAutoBySession: which mode runs is found anew by each call, and by a survey before any.
func TestAutoBySession(t *testing.T) {
	lib, _ := onStub(t)
	b := backendOn(t, lib, Options{})
	if mode, _ := b.Mode(); mode != Auto {
		t.Errorf("before all: mode %s", mode)
	}
	m := randomModel(t, wideVocab)
	decode := gpt2.Pass{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}
	o := gpt2.Options{Batch: 1, Context: 64, Layers: gpt2.FirstLayers(2)}
	faster, err := b.Survey(m, o, decode)
	must(t, err)
	if mode, _ := b.Mode(); mode != Persistent {
		t.Errorf("after a survey: mode %s", mode)
	}
	s := session(t, m, b, gpt2.Options{})
	for _, f := range []struct {
		temperature float64
		mode        Mode
	}{{0, Persistent}, {1, Graph}, {0, Persistent}} {
		generate(t, s, []int32{1, 2}, gpt2.Generation{Tokens: 10, IgnoreEOS: true, Sampling: gpt2.Sampling{Temperature: f.temperature}})
		if mode, why := b.Mode(); mode != f.mode {
			t.Errorf("temperature %g: mode %s (%s)", f.temperature, mode, why)
		}
	}
	narrow, err := backendOn(t, lib, Options{}).Survey(randomModel(t, "random:L=2,C=64,NH=4,V=257,T=256"), o, decode)
	if err != nil || narrow.Work >= faster.Work {
		t.Errorf("work area of %d bytes where decode steps run as graphs, %d in one kernel (%v)", narrow.Work, faster.Work, err)
	}
}
