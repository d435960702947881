package exec

import (
	"slices"
	"strings"
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/internal/stub"
	"gpt2scope/weights"
)

// wide is a model of a width at which one kernel was measured to be faster than graphs.
const wide = "random:L=2,C=384,NH=6,V=257,T=256"

// wideVocab is one of more tokens than its decode kernel can draw from.
const wideVocab = "random:L=2,C=384,NH=6,V=400,T=256"

// TestAuto: mode auto runs decode steps in one kernel where that is possible and was measured to
// be faster, and as graphs otherwise, without a notice; the description says which, and why.
func TestAuto(t *testing.T) {
	lib, c := onStub(t)
	for what, f := range map[string]struct {
		options  Options
		model    string
		batch    int
		sampling gpt2.Sampling
		refusal  string
		mode     Mode
		words    string
	}{
		"greedy":                     {mode: Persistent, words: "least time"},
		"recorder":                   {options: Options{Recorder: RecorderStamps}, mode: Persistent},
		"sampling":                   {sampling: gpt2.Sampling{Temperature: 1}, mode: Persistent},
		"sampling of 40":             {model: wideVocab, sampling: gpt2.Sampling{Temperature: 1, TopK: 40}, mode: Persistent},
		"sampling of all":            {model: wideVocab, sampling: gpt2.Sampling{Temperature: 1}, mode: Graph, words: "tokens are sampled"},
		"sampling, one layer of 768": {model: "random:L=1,C=768,NH=12,V=400,T=64", sampling: gpt2.Sampling{Temperature: 1}, mode: Persistent},
		"sampling of two":            {model: wideVocab, batch: 2, sampling: gpt2.Sampling{Temperature: 1, TopK: 40}, mode: Persistent},
		"sampling of all, two":       {model: wideVocab, batch: 2, sampling: gpt2.Sampling{Temperature: 1}, mode: Graph, words: "tokens are sampled"},
		"sampling of all, five":      {model: "random:L=1,C=384,NH=6,V=257,T=256", batch: 5, sampling: gpt2.Sampling{Temperature: 1}, mode: Graph, words: "from many candidates"},
		"sampling of 40, five":       {model: "random:L=1,C=384,NH=6,V=257,T=256", batch: 5, sampling: gpt2.Sampling{Temperature: 1, TopK: 40}, mode: Persistent},
		"batch":                      {batch: 2, mode: Persistent, words: "least time"},
		"five of width 1600":         {model: "random:L=1,C=1600,NH=25,V=257,T=64", batch: 5, mode: Graph, words: "of 5 sequences at a width of 1600"},
		"batch of 9":                 {batch: 9, mode: Graph, words: "of 9 sequences"},
		"float32":                    {options: Options{DType: weights.F32}, mode: Graph, words: "weights are f32"},
		"variant":                    {options: Options{Variants: map[string]string{"attn.sdpa": "naive"}}, mode: Graph, words: "--variant"},
		"no kernel":                  {refusal: "compute capability 8.0", mode: Graph, words: "compute capability 8.0"},
		"not faster":                 {model: small, mode: Graph, words: "at a width of 64"},
	} {
		t.Run(what, func(t *testing.T) {
			var notices []string
			f.options.Notice = func(s string) { notices = append(notices, s) }
			if f.model == "" {
				f.model = wide
			}
			b := backendOn(t, lib, f.options)
			batch := max(1, f.batch)
			c.Reset()
			c.Decode(stub.Decode{Refusal: f.refusal})
			s := session(t, randomModel(t, f.model), b, gpt2.Options{Batch: batch})
			generate(t, s, make([]int32, 3*batch), gpt2.Generation{Tokens: 20, IgnoreEOS: true, Sampling: f.sampling})
			if got := slices.Contains(c.Calls(), "gs_decode"); got != (f.mode == Persistent) {
				t.Errorf("decode steps in one kernel: %v", got)
			}
			mode, why := b.Mode()
			if d := b.Describe(); mode != f.mode || !strings.Contains(why, f.words) || len(notices) > 0 || d.Mode != mode.String() || d.ModeReason != why || d.Fallback != "" {
				t.Errorf("mode %s (%s), notices %q, %+v", mode, why, notices, d)
			}
		})
	}
}

// TestAutoDraws: the decode kernel draws the tokens of a launch in mode auto too.
func TestAutoDraws(t *testing.T) {
	lib, c := onStub(t)
	r := prepared(t, randomModel(t, "random:L=3,C=384,NH=6,V=257,T=64"), c, backendOn(t, lib, Options{}), gpt2.Options{})
	r.SetSampling(gpt2.Sampling{Temperature: 1, TopK: 40, Seed: 1})
	decoded(t, r, make([]int32, 9), 0)
	c.Reset()
	decoded(t, r, nil, 8)
	if calls := c.Calls(); countOf(calls, "gs_sample") != 0 || countOf(calls, "gs_decode") != 1 {
		t.Error(calls)
	}
}

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
	if err != nil {
		t.Fatal(err)
	}
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
