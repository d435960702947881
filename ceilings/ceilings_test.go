package ceilings

import (
	"math"
	"testing"
	"time"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
)

// TestFloor works out floors by hand: 1 GB/s, 1 GFLOP/s in float32 and 4 in bfloat16.
func TestFloor(t *testing.T) {
	c := Ceilings{Copy: 1, Read: 0.5, BF16: 4e-3, F32: 1e-3, Barrier: 2}
	cost := gpt2.Cost{FLOPs: 8000, Weights: 1000, Activations: 500, KV: 500}
	if d := c.Floor(cost, gpt2.Sizes{Weight: 4, Activation: 4, KV: 4}); d != 8*time.Microsecond { // 8 us of either
		t.Errorf("float32: %v", d)
	}
	if d := c.Floor(cost, gpt2.Sizes{Weight: 2, Activation: 2, KV: 2}); d != 4*time.Microsecond { // bytes 4 us, FLOPs 2 us
		t.Errorf("bfloat16: %v", d)
	}
	m, err := gpt2.Random("random:L=1,C=8,NH=1,V=100,T=16")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p := gpt2.Forward(m.Config, []int{0}, gpt2.Phase{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast})
	sizes := gpt2.Sizes{Weight: 2, Activation: 2, KV: 2}
	sum, whole := c.PlanFloor(p, 3, sizes), c.Floor(p.Cost(3), sizes)
	if sum < whole || sum > 2*whole {
		t.Errorf("the steps take %v at least, the whole %v", sum, whole)
	}
	if d := c.WithBarriers(p, sum) - sum; d != time.Duration(len(p.Steps)-1)*2*time.Microsecond {
		t.Errorf("%d steps need %v of barriers", len(p.Steps), d)
	}
}

func TestEncode(t *testing.T) {
	x := []float32{1, -0.5, 1 + 1.0/256, 1 + 3.0/256, 3.14159265}
	for i, want := range []float32{1, -0.5, 1, 1 + 1.0/64, 3.140625} { // ties go to even
		if got := Decode(Encode(x, cuda.BF16), cuda.BF16)[i]; got != want {
			t.Errorf("%g becomes %g as bfloat16, not %g", x[i], got, want)
		}
		if got := Decode(Encode(x, cuda.F32), cuda.F32)[i]; math.Float32bits(got) != math.Float32bits(x[i]) {
			t.Errorf("%g becomes %g as float32", x[i], got)
		}
	}
}
