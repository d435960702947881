package gpt2

import (
	"testing"
)

// TestCostsByCounting compares the formulas of the registry with loops that do what a stage does and count: a FLOP for
// each operation, an element for each read of an input and write of an output.
func TestCostsByCounting(t *testing.T) {
	const B, T, past = 2, 3, 5
	c := Config{Layers: 1, Channels: 6, Heads: 2, Positions: 16, Vocab: 11, Inner: 10, Epsilon: 1e-5, Tied: true}
	R, C, V, I, NH, HS := int64(B*T), int64(6), int64(11), int64(10), int64(2), int64(3)
	each := func(n int64, f func(i int64)) {
		for i := range n {
			f(i)
		}
	}
	var want [NumStages]Cost

	w := &want[StageEmbed]
	each(R*C, func(int64) { w.FLOPs++; w.Weights++; w.Activations++ }) // a row of wte for each token
	each(T*C, func(int64) { w.Weights++ })                             // a row of wpe for each position, shared by the batch

	for _, s := range []Stage{StageLN1, StageLN2, StageLNF} {
		w := &want[s]
		each(R*C, func(int64) {
			w.FLOPs++       // sum, for the mean
			w.FLOPs += 3    // difference, square, sum, for the variance
			w.FLOPs += 3    // times 1/sqrt(variance), times gain, plus bias
			w.Activations++ // read
			w.Activations++ // written
		})
		w.Weights = 2 * C // gain and bias
	}
	for s, dims := range map[Stage][2]int64{StageCAttn: {C, 3 * C}, StageAttnCProj: {C, C}, StageCFC: {C, I},
		StageMLPCProj: {I, C}} {
		w := &want[s]
		each(R, func(int64) {
			each(dims[1], func(int64) {
				each(dims[0], func(int64) { w.FLOPs += 2 })
				w.FLOPs++ // bias
			})
			w.Activations += dims[0] + dims[1]
		})
		each(dims[1], func(int64) { w.Weights += dims[0] + 1 })
	}
	w = &want[StageLMHead]
	each(R*V, func(int64) { w.FLOPs += 2 * C })
	w.Weights, w.Activations = V*C, R*(C+V)

	w = &want[StageSDPA]
	each(B, func(int64) {
		each(T, func(i int64) {
			each(NH, func(int64) {
				each(past+i+1, func(int64) {
					each(HS, func(int64) { w.FLOPs += 2 + 2 }) // q.k and p.v
					w.FLOPs += 6                               // scale, maximum, difference, exponential, sum, quotient
				})
			})
			w.Activations += 3*C + C // q, k and v, and the output
			w.KV += 2 * C            // the new row of keys and of values
		})
		each(past, func(int64) { w.KV += 2 * C })
	})
	for _, s := range []Stage{StageResidual1, StageResidual2} {
		each(R*C, func(int64) { want[s].FLOPs++; want[s].Activations += 3 })
	}
	w = &want[StageSample]
	each(B, func(int64) {
		each(V, func(int64) { w.FLOPs++; w.Activations++ })
		w.Activations++ // the token
	})
	for activation, flops := range map[Activation]int64{
		GELUNew: 9, // 0.5 x (1 + tanh(s (x + a x^3))): x^2, x^3, a x^3, +, s (), tanh, +, 0.5 x, their product
		GELUErf: 5, // 0.5 x (1 + erf(x / sqrt 2)): x / sqrt 2, erf, +, 0.5 x, their product
		ReLU:    1, // max(0, x)
	} {
		c.Activation = activation
		want[StageGELU] = Cost{}
		each(R*I, func(int64) { want[StageGELU].FLOPs += flops; want[StageGELU].Activations += 2 })
		for s := range NumStages {
			if got := s.Cost(c, B, T, past); got != want[s] {
				t.Errorf("%s costs %+v, counted %+v", s.Info().Name, got, want[s])
			}
		}
	}
}

// TestFuseKeeps: what a fused step passes on stays in memory if a later step reads
// it; steps are joined only with equal rows, and fused steps not again.
func TestFuseKeeps(t *testing.T) {
	c := Config{Layers: 2, Channels: 8, Heads: 2, Positions: 16, Vocab: 11, Inner: 32, Epsilon: 1e-5, Tied: true}
	p := Forward(c, []int{0, 1}, Pass{Batch: 2, Tokens: 4, Logits: LogitsAll, Sample: true})
	step := func(p *Plan, name string) Step {
		t.Helper()
		for _, s := range p.Steps {
			if s.Name() == name {
				return s
			}
		}
		t.Fatalf("there is no step %s", name)
		return Step{}
	}
	// x is read again by the residual after ln_2: the sum is written, and only ln_2's read is spared.
	const n = 2 * 4 * 8
	fused := step(p.Fuse(Chain{OpAdd, OpLayerNorm}), "h.0.residual_1+h.0.ln_2")
	if got := fused.Cost(0).Activations; got != 3*n+2*n-n {
		t.Errorf("%s moves %d activations, want %d", fused.Name(), got, 4*n)
	}
	if exit := p.Fuse(Chain{OpLinear, OpSample}); len(exit.Steps) != len(p.Steps) {
		t.Error("lm_head of 4 rows is joined with the sampling of one")
	}
	once := p.Fuse(Chain{OpLinear, OpActivation})
	if twice := once.Fuse(Chain{OpLinear, OpLinear}); len(twice.Steps) != len(once.Steps) {
		t.Error("a fused step is joined again")
	}
}

// TestRepeatedLayers: of a layer that runs several times only the last run is limited
// to the last row, and its scores are scaled as the layer's, wherever it runs.
func TestRepeatedLayers(t *testing.T) {
	c := Config{Layers: 3, Channels: 8, Heads: 2, Positions: 16, Vocab: 11, Inner: 32, Epsilon: 1e-5, Tied: true,
		ScaleWeights: true, ScaleByInverseLayer: true}
	layers := []int{2, 0, 2}
	for _, s := range Forward(c, layers, Pass{Batch: 1, Tokens: 5, Logits: LogitsLast}).Steps {
		o := s.Ops[0]
		if o.Slot < 0 {
			continue
		}
		want := 5
		if o.Slot == 2 {
			want = 1
		}
		if o.Stage == StageCAttn || o.Stage == StageSDPA {
			if o.Queries != want || o.Rows != 5 {
				t.Errorf("%s has %d queries of %d rows, want %d of 5", s.Name(), o.Queries, o.Rows, want)
			}
		} else if o.Stage != StageLN1 && o.Rows != want {
			t.Errorf("%s has %d rows, want %d", s.Name(), o.Rows, want)
		}
		if o.Stage == StageSDPA && o.Scale != c.AttentionScale(layers[o.Slot]) {
			t.Errorf("%s scales by %g, want %g", s.Name(), o.Scale, c.AttentionScale(layers[o.Slot]))
		}
	}
}

func TestPhaseCheck(t *testing.T) {
	c := Config{Layers: 2, Channels: 8, Heads: 2, Positions: 16, Vocab: 11, Inner: 32, Epsilon: 1e-5, Tied: true}
	for _, v := range []struct {
		pass Pass
		ok   bool
	}{
		{Pass{Batch: 1, Tokens: 8, Logits: LogitsLast, Sample: true}, true},
		{Pass{Batch: 1, Tokens: 9, Logits: LogitsLast}, false}, // the capacity is 8
		{Pass{Batch: 0, Tokens: 1}, false},
		{Pass{Batch: 1, Tokens: 0}, false},
		{Pass{Batch: 1, Tokens: 1, Sample: true}, false}, // without logits
		{Pass{Batch: 1, Tokens: 1, Logits: LogitsLast, Sample: true, Until: "ln_f"}, false},
		{Pass{Batch: 1, Tokens: 1, Until: "h.1.ln_2"}, true},
		{Pass{Batch: 1, Tokens: 1, Until: "h.2.ln_2"}, false},
	} {
		if err := v.pass.Check(c, []int{0, 1}, 8); (err == nil) != v.ok {
			t.Errorf("%+v: %v", v.pass, err)
		}
	}
}
