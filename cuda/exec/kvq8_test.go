package exec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/weights"
)

// kvQ8 compares the logits of texts with keys and values in 8 bits with those of bfloat16: of prompts at their start and
// after others, and of decode steps. They must differ, but by no more than the types of activations explain.
func kvQ8(t *testing.T, q8, bf16 *Backend, spec string, batch int, prompts ...int) {
	m := randomModel(t, spec)
	o := gpt2.Options{Batch: batch}
	narrow, wide := session(t, m, q8, o).Runner().(*Runner), session(t, m, bf16, o).Runner().(*Runner)
	slots := int64(m.Config.Layers)
	if all, room := wide.memory.cache.Size(), narrow.memory.cache.Size()-wide.memory.cache.Size()/slots; room >= all*2/3 {
		t.Errorf("%s: a cache of %d bytes, and %d in bfloat16", spec, room, all)
	}
	rng := rand.New(rand.NewPCG(3, uint64(batch)))
	squares, of := 0.0, 0.0
	compare := func(what string) {
		t.Helper()
		got, want := logitsOf(t, narrow), logitsOf(t, wide)
		closeTo(t, fmt.Sprintf("%s, %d sequences, %s", spec, batch, what), got, want, bounds[weights.BF16])
		for i := range got {
			squares += math.Pow(float64(got[i]-want[i]), 2)
			of += math.Pow(float64(want[i]), 2)
		}
	}
	for _, T := range prompts {
		ids := randomIDs(rng, T*batch, m.Config.Vocab)
		a, b := decoded(t, narrow, ids, 0), decoded(t, wide, ids, 0)
		compare(fmt.Sprintf("a prompt of %d", T))
		for step := range 3 {
			if !slices.Equal(idsOf(a), idsOf(b)) { // texts part where two tokens are about as likely
				break
			}
			a, b = decoded(t, narrow, nil, 1), decoded(t, wide, nil, 1)
			compare(fmt.Sprintf("decode step %d after a prompt of %d", step, T))
		}
		must(t, narrow.Rewind(min(narrow.Position(), T)))
		must(t, wide.Rewind(narrow.Position()))
	}
	if squares == 0 {
		t.Errorf("%s: the logits are those of bfloat16", spec)
	}
	t.Logf("%s, %d sequences: logits differ by %.4f of their size", spec, batch, math.Sqrt(squares/of))
}

// TestKVQ8 is of a stub that computes, which has no idle rows: prompts are not padded.
func TestKVQ8(t *testing.T) {
	lib, _ := onStub(t, "STUB_COMPUTES")
	for _, mode := range []Mode{Eager, Auto} {
		q8, bf16 := backendOn(t, lib, Options{Mode: mode, KVQ8: true}), backendOn(t, lib, Options{Mode: Graph})
		kvQ8(t, q8, bf16, "random:L=3,C=64,NH=4,V=257,T=96", 2, 16, 1, 3)
		kvQ8(t, q8, bf16, "random:L=2,C=96,NH=1,V=257,T=96", 1, 1, 32, 8)
		if now, why := q8.Mode(); mode == Auto && (now != Graph || !strings.Contains(why, "8 bits")) {
			t.Errorf("mode %s, since %s", now, why)
		}
		m := randomModel(t, "random:L=1,C=24,NH=1,V=31,T=16")
		if _, err := q8.Prepare(t.Context(), m, gpt2.Options{Batch: 1, Context: 16, Layers: []int{0}}); err == nil {
			t.Error("heads of 24 values were taken")
		}
	}
	for _, o := range []Options{{Mode: Persistent}, {DType: weights.F32}, {Variants: map[string]string{variantDecode: variantSteps}}} {
		o.KVQ8 = true
		if _, err := NewOn(lib, o); err == nil || !strings.Contains(err.Error(), "--kv q8") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestKVQ8OnGPU(t *testing.T) {
	q8, bf16 := gpu(t, Options{Mode: Graph, KVQ8: true}), gpu(t, Options{Mode: Graph})
	for _, f := range []struct {
		spec    string
		batches []int
	}{
		{"random:L=3,C=384,NH=6,V=257,T=512,seed=2", []int{1, 3, 64}},
		{"random:L=2,C=768,NH=12,V=50257,T=1024", []int{1, 8, 32}},
		{"random:L=2,C=1600,NH=25,V=1000,T=512,seed=6", []int{1, 16}},
		{"random:L=2,C=320,NH=4,V=1000,T=512,seed=7", []int{2}},
		{"random:L=2,C=256,NH=2,V=1000,T=512,seed=8", []int{2}},
	} {
		for _, batch := range f.batches {
			kvQ8(t, q8, bf16, f.spec, batch, 37, 1, 8, 130, 64, 5)
		}
	}
}
