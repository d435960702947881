package executor

import (
	"math"
	"math/rand/v2"
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
	"gpt2scope/reference"
)

// TestReferenceProducts compares the products of the reference backend, which are gorgonia's, with package reference:
// in both layouts of weights, with and without bias, for all rows and for the last of each sequence.
func TestReferenceProducts(t *testing.T) {
	m := require.Value(gpt2.Random("random:L=1,C=24,NH=2,V=37,T=16"))(t)
	defer m.Close()
	const B, T = 2, 3
	prepared := require.Value(New().Prepare(t.Context(), m, gpt2.Options{Layers: []int{0}, Batch: B, Context: 16}))(t)
	defer prepared.Close()
	r := prepared.(*Runner)
	random := rand.New(rand.NewPCG(1, 1))
	ids := []int32{5, 36, 0, 1, 2, 7} // (B, T)
	for _, logits := range []gpt2.Logits{gpt2.LogitsLast, gpt2.LogitsAll} {
		r.Begin(ids, gpt2.Pass{Batch: B, Tokens: T, Logits: logits})
		products := 0
		for _, step := range r.plan.Steps {
			o := step.Last()
			if o.Op != gpt2.OpLinear {
				continue
			}
			products++
			for _, row := range r.rows(o.In, o.Rows) {
				for i := range row {
					row[i] = random.NormFloat64()
				}
			}
			require.NoError(t, r.Step(step))
			formula := reference.Linear[float64]
			if o.Stage == gpt2.StageLMHead {
				formula = reference.LinearTransposed[float64]
			}
			got := r.rows(o.Out, o.Rows)
			for i, x := range r.rows(o.In, o.Rows) {
				for n, want := range formula(x, r.Weight(o.Weight), r.Weight(o.Bias)) {
					if !(math.Abs(got[i][n]-want) <= 1e-13*math.Sqrt(float64(o.K))) {
						t.Fatalf("%s, row %d, output %d is %v, want %v", step.Name(), i, n, got[i][n], want)
					}
				}
			}
		}
		if products != 5 {
			t.Errorf("the plan has %d products, want 5", products)
		}
	}
}
