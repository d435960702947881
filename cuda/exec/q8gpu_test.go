package exec

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/weights"
)

// rounded gives a session the weights of another one of the same model, which holds them in 8 bits.
func rounded(t testing.TB, s, from *gpt2.Session) {
	t.Helper()
	to, q8 := s.Runner().(*Runner), from.Runner().(*Runner)
	for _, p := range to.model.Config.Params() {
		if isVector(p) || p.Name == "wpe.weight" {
			continue
		}
		rows, columns := p.Shape[1], p.Shape[0]
		if isStored(p) {
			rows, columns = rowsOf(p), p.Shape[1]
		}
		must(t, to.stream.Pack(cuda.PackArgs{Src: q8.params[p.Name].ptr, Dst: to.params[p.Name].ptr, Rows: int32(rows), Cols: int32(columns), LDDst: int32(columns),
			SrcType: cuda.Q8, DstType: cuda.BF16}))
	}
	must(t, to.stream.Synchronize())
}

// TestQ8OnGPU: 8-bit weights give, within the bound of bfloat16, the logits of the same weights in bfloat16: in the
// decode kernel, whose steps launched one by one have the same bits, and in mode graph.
func TestQ8OnGPU(t *testing.T) {
	b, steps, graph, bf16 := persistentGPU(t, true), stepsGPU(t, Options{Q8: true}), gpu(t, Options{Mode: Graph, Q8: true}), gpu(t, Options{})
	compared := map[string]int{}
	for _, f := range []struct {
		spec    string
		batches []int
	}{
		{"random:L=3,C=384,NH=6,V=257,T=512,seed=2", []int{1, 2, 8}},
		{"random:L=2,C=768,NH=12,V=50257,T=512", []int{1, 3, 8}},
		{"random:L=2,C=1024,NH=16,V=1000,T=512,seed=4", []int{1, 4}},
		{"random:L=2,C=1280,NH=20,V=1000,T=512,seed=5", []int{1, 4}},
		{"random:L=3,C=1600,NH=25,V=1000,T=512,seed=6", []int{1, 4}},
	} {
		m := randomModel(t, f.spec)
		V := m.Config.Vocab
		for _, batch := range f.batches {
			o := gpt2.Options{Batch: batch}
			fast, singly, slow, same := session(t, m, b, o), session(t, m, steps, o), session(t, m, graph, o), session(t, m, bf16, o)
			rounded(t, same, fast)
			rng := rand.New(rand.NewPCG(7, uint64(batch)))
			for _, past := range []int{3, 17, 370} {
				const n = 19
				prompt := randomIDs(rng, past*batch, V)
				what := fmt.Sprintf("%s, %d sequences after %d tokens", f.spec, batch, past)
				tokens, got := ran(t, fast, prompt, n)
				inOneKernel(t, fast)
				_, twin := ran(t, singly, prompt, n)
				sameBits(t, what+", single steps", twin, got)
				for how, s := range map[string]*gpt2.Session{"bfloat16": same, "mode graph": slow} {
					if other, want := ran(t, s, prompt, n); slices.Equal(idsOf(tokens), idsOf(other)) {
						closeTo(t, what+", "+how, got, want, bounds[weights.BF16])
						compared[how]++
					}
				}
			}
		}
	}
	if compared["bfloat16"] == 0 || compared["mode graph"] == 0 {
		t.Errorf("texts that were the same: %v", compared)
	}
}
