package cpu

import (
	"context"
	"fmt"
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/weights"
)

// geometries are the models that decode and prefill are measured on: A and B have the
// shape of the shipped model with 6 layers and 1, C and D that of gpt2 with 1 and 12.
var geometries = []struct {
	name, model     string
	prefill, cached int // tokens of a prefill, and in the cache at a decode step
}{
	{"A", "random:L=6,C=384,NH=6,V=257,T=1024", 256, 128},
	{"B", "random:L=1,C=384,NH=6,V=257,T=1024", 256, 128},
	{"C", "random:L=1,C=768,NH=12,V=50257,T=1024", 1024, 512},
	{"D", "random:gpt2", 1024, 512},
}

// benchPass times a pass on every geometry and both types of weights, and reports
// rates of the least FLOPs and bytes.
func benchPass(b *testing.B, phaseOf func(tokens int) gpt2.Pass, cached func(n int) int) {
	for _, g := range geometries {
		for _, held := range []weights.DType{weights.F32, weights.BF16} {
			b.Run(fmt.Sprintf("%s/%s", g.name, held), func(b *testing.B) {
				m, err := gpt2.Random(g.model)
				if err != nil {
					b.Fatal(err)
				}
				s := session(b, m, Options{DType: held}, gpt2.Options{})
				pass, past := phaseOf(g.prefill), cached(g.cached)
				r := s.Runner()
				ids := make([]int32, max(pass.Tokens, past))
				for i := range ids {
					ids[i] = int32((i * 7919) % m.Config.Vocab)
				}
				if past > 0 {
					if _, err := r.Prefill(context.Background(), ids[:past], gpt2.Pass{Batch: 1, Tokens: past}); err != nil {
						b.Fatal(err)
					}
				}
				for b.Loop() {
					if _, err := r.Prefill(context.Background(), ids[:pass.Tokens], pass); err != nil {
						b.Fatal(err)
					}
					if err := r.Rewind(past); err != nil {
						b.Fatal(err)
					}
				}
				cost, perSecond := r.Plan(pass).Cost(past), float64(b.N)/b.Elapsed().Seconds()
				b.ReportMetric(float64(cost.FLOPs)*perSecond/1e9, "GFLOP/s")
				b.ReportMetric(float64(cost.Bytes(s.Backend().Sizes()))*perSecond/1e9, "GB/s")
			})
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	benchPass(b, func(int) gpt2.Pass { return gpt2.Pass{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true} }, func(n int) int { return n })
}

func BenchmarkPrefillAll(b *testing.B) {
	benchPass(b, func(n int) gpt2.Pass { return gpt2.Pass{Batch: 1, Tokens: n, Logits: gpt2.LogitsAll} }, func(int) int { return 0 })
}

func BenchmarkPrefillLast(b *testing.B) {
	benchPass(b, func(n int) gpt2.Pass { return gpt2.Pass{Batch: 1, Tokens: n, Logits: gpt2.LogitsLast} }, func(int) int { return 0 })
}
