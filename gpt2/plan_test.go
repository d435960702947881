package gpt2

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gpt2scope/ceilings"
)

// randomConfig draws a small geometry with odd sizes among them.
func randomConfig(r *rand.Rand) Config {
	heads := 1 + r.IntN(5)
	c := Config{
		Layers: 1 + r.IntN(5), Heads: heads, Channels: heads * (1 + r.IntN(20)), Positions: 16 + r.IntN(100), Vocab: 2 +
			r.IntN(300),
		Inner: 1 + r.IntN(90), Epsilon: 1e-5, Activation: Activation(r.IntN(3)), Tied: r.IntN(2) == 0, ScaleWeights: true, BOS: -1, EOS: -1,
	}
	return c
}

// randomLayers draws a run order, repeats and omissions allowed.
func randomLayers(r *rand.Rand, c Config) []int {
	layers := make([]int, 1+r.IntN(6))
	for i := range layers {
		layers[i] = r.IntN(c.Layers)
	}
	return layers
}

func randomPhase(r *rand.Rand, c Config) Pass {
	ph := Pass{Batch: 1 + r.IntN(3), Tokens: 1 + r.IntN(c.Positions), Logits: Logits(r.IntN(3))}
	ph.Sample = ph.Logits != LogitsNone && r.IntN(2) == 0
	return ph
}

// allChains are patterns that some backend may fuse.
var allChains = []Chain{
	{OpLayerNorm, OpLinear}, {OpLayerNorm, OpLinear, OpActivation}, {OpLinear, OpActivation}, {OpLinear, OpAdd},
	{OpAdd, OpLayerNorm}, {OpLinear, OpAdd, OpLayerNorm}, {OpEmbed, OpLayerNorm}, {OpLinear, OpSample},
}

func TestRegistryIsWhole(t *testing.T) {
	seen := map[string]bool{}
	c := Config{Layers: 2, Channels: 12, Heads: 3, Positions: 10, Vocab: 7, Inner: 20, Epsilon: 1e-5, Tied: true}
	for s := range NumStages {
		info := s.Info()
		if info.Name == "" || info.Op >= numOps || opNames[info.Op] == "" {
			t.Errorf("stage %d is not fully described: %+v", s, info)
			continue
		}
		if seen[info.Name] {
			t.Errorf("two stages are named %s", info.Name)
		}
		seen[info.Name] = true
		small, large := s.Cost(c, 1, 1, 4), s.Cost(c, 2, 3, 4)
		if small.FLOPs <= 0 || small.Bytes(Sizes{Weight: 4, Activation: 4, KV: 4}) <= 0 || large.FLOPs <= small.FLOPs {
			t.Errorf("the cost of %s is not one: %+v for one token, %+v for 2 x 3", info.Name, small, large)
		}
	}
}

// TestPlansCoverEveryStageOnce: every plan, fused or not, covers each stage of
// each slot exactly once, in order, with tags that are indices.
func TestPlansCoverEveryStageOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		c := randomConfig(r)
		layers, pass := randomLayers(r, c), randomPhase(r, c)
		var want []string
		for s := range NumStages {
			switch {
			case s == StageLN1: // the layers, all their stages
				for slot, layer := range layers {
					for in := range NumStages {
						if in.Info().InLayer {
							want = append(want, StageAt{in, slot, layer}.String())
						}
					}
				}
			case s.Info().InLayer:
			case s == StageSample && !pass.Sample:
			default:
				want = append(want, StageAt{s, -1, -1}.String())
			}
		}
		plan := Forward(c, layers, pass)
		chains := slices.Clone(allChains)
		r.Shuffle(len(chains), func(i, j int) { chains[i], chains[j] = chains[j], chains[i] })
		fused := plan.Fuse(chains[:r.IntN(len(chains)+1)]...)
		for _, p := range []*Plan{plan, fused} {
			var got []string
			for i, s := range p.Steps {
				if s.Tag != i {
					t.Fatalf("step %d has tag %d", i, s.Tag)
				}
				for _, o := range s.Ops {
					got = append(got, o.StageAt.String())
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("layers %v, %+v:\n got %v\nwant %v", layers, pass, got, want)
			}
		}
		past := r.IntN(10)
		a, b := plan.Cost(past), fused.Cost(past)
		if a.FLOPs != b.FLOPs || a.Weights != b.Weights || a.KV != b.KV || b.Activations > a.Activations {
			t.Fatalf("fusing changed more than activations: %+v, fused %+v", a, b)
		}
		if b.Activations <= 0 {
			t.Fatalf("fused activations are %d", b.Activations)
		}
	}
}

// TestDraftAndVerifyAreAPass: a draft of all rows of the first layers, and a pass from there on, cover the stages of the
// whole pass once, but for the head.
func TestDraftAndVerifyAreAPass(t *testing.T) {
	c := Config{Layers: 3, Channels: 12, Heads: 3, Positions: 10, Vocab: 7, Inner: 20, Epsilon: 1e-5, Tied: true}
	layers, pass := []int{0, 2, 1}, Pass{Batch: 1, Tokens: 4, Logits: LogitsAll, Sample: true}
	names := func(p Pass) (all []string) {
		must(t, p.Check(c, layers, c.Positions))
		for _, s := range Forward(c, layers, p).Steps {
			if o := s.Ops[0]; o.Rows == pass.Tokens || o.Stage == StageSample {
				all = append(all, s.Name())
			}
		}
		return all
	}
	for exit := 1; exit < len(layers); exit++ {
		verify := pass
		verify.From, verify.Verify = exit, true
		got := slices.Concat(names(Pass{Batch: 1, Tokens: 4, Exit: exit}), names(verify))
		if want := names(pass); !slices.Equal(got, want) {
			t.Errorf("an exit after %d:\n got %v\nwant %v", exit, got, want)
		}
	}
	if err := (Pass{Batch: 1, Tokens: 1, Exit: 3}).Check(c, layers, 5); err == nil {
		t.Error("an exit after the last layer is a pass")
	}
}

// TestLastRowCostsLess: wanting one row makes the last layer and the exit cost
// what one row does, but for the keys and values of all.
func TestLastRowCostsLess(t *testing.T) {
	c := Config{Layers: 1, Channels: 64, Heads: 2, Positions: 128, Vocab: 100, Inner: 256, Epsilon: 1e-5, Tied: true}
	all := Forward(c, []int{0}, Pass{Batch: 1, Tokens: 100, Logits: LogitsAll})
	last := Forward(c, []int{0}, Pass{Batch: 1, Tokens: 100, Logits: LogitsLast})
	none := Forward(c, []int{0}, Pass{Batch: 1, Tokens: 100})
	for i, s := range last.Steps {
		a, l, n := all.Steps[i].Cost(0), s.Cost(0), none.Steps[i].Cost(0)
		switch s.Ops[0].Stage {
		case StageEmbed, StageLN1:
			if a != l || l != n {
				t.Errorf("%s: %+v, %+v and %+v should be equal", s.Name(), a, l, n)
			}
		case StageCAttn:
			out := int64(2*64*100 + 64) // K and V of 100 rows, Q of one
			if want := out * (2*64 + 1); l.FLOPs != want {
				t.Errorf("%s: %d FLOPs, want %d", s.Name(), l.FLOPs, want)
			}
			if n.Weights != 2*64*65 {
				t.Errorf("%s without logits reads %d weights", s.Name(), n.Weights)
			}
		case StageSDPA:
			if want := int64(100 * (4*64 + 6*2)); l.FLOPs != want || n.FLOPs != 0 || n.KV != 2*64*100 {
				t.Errorf("%s: %+v, and %+v without logits", s.Name(), l, n)
			}
		default:
			if l != s.Ops[0].Stage.Cost(c, 1, 1, 99) || n != (Cost{}) {
				t.Errorf("%s: %+v is not the cost of a row, or %+v is not nothing", s.Name(), l, n)
			}
		}
	}
}

func TestFusedNamesAndSavings(t *testing.T) {
	c := Config{Layers: 2, Channels: 8, Heads: 2, Positions: 16, Vocab: 11, Inner: 32, Epsilon: 1e-5, Tied: true}
	p := Forward(c, []int{1, 1}, Pass{Batch: 1, Tokens: 4, Logits: LogitsAll}).Fuse(Chain{OpLayerNorm, OpLinear,
		OpActivation}, Chain{OpLayerNorm, OpLinear}, Chain{OpLinear, OpAdd})
	var names []string
	for _, s := range p.Steps {
		names = append(names, s.Name())
	}
	want := []string{"wte+wpe"}
	for _, h := range []string{"h.1@0.", "h.1."} {
		for _, s := range []string{"%sln_1+%[1]sattn.c_attn", "%sattn.sdpa", "%sattn.c_proj+%[1]sresidual_1",
			"%sln_2+%[1]smlp.c_fc+%[1]smlp.gelu", "%smlp.c_proj+%[1]sresidual_2"} {
			want = append(want, fmt.Sprintf(s, h))
		}
	}
	want = append(want, "ln_f+lm_head")
	if !slices.Equal(names, want) {
		t.Fatalf("fused steps are\n%v, want\n%v", names, want)
	}
	// ln_2 + c_fc + gelu reads x and writes the inner activations, nothing between.
	if got := p.Steps[4].Cost(0).Activations; got != 4*8+4*32 {
		t.Errorf("%s moves %d activations, want %d", names[4], got, 4*8+4*32)
	}
	// c_proj + residual_2 reads inner and x, writes x.
	if got := p.Steps[5].Cost(0).Activations; got != 4*32+2*4*8 {
		t.Errorf("%s moves %d activations, want %d", names[5], got, 4*32+2*4*8)
	}
}

func TestUntilEndsThePlan(t *testing.T) {
	c := Config{Layers: 2, Channels: 8, Heads: 2, Positions: 16, Vocab: 11, Inner: 32, Epsilon: 1e-5, Tied: true}
	whole := Forward(c, []int{0, 1}, Pass{Batch: 2, Tokens: 4, Logits: LogitsAll})
	for i, s := range whole.Steps {
		p := Forward(c, []int{0, 1}, Pass{Batch: 2, Tokens: 4, Until: s.Name()})
		if len(p.Steps) != i+1 || p.Steps[i].Name() != s.Name() {
			t.Fatalf("until %s: %d steps", s.Name(), len(p.Steps))
		}
		if b, shape := p.Output(); shape.Rows != 4 || shape.Width != s.Last().N || b != s.Last().Out {
			t.Errorf("until %s: output %s %+v", s.Name(), b, shape)
		}
	}
}

func TestFindStage(t *testing.T) {
	layers := []int{0, 2, 2}
	for s := range NumStages {
		for slot, layer := range layers {
			at := StageAt{s, slot, layer}
			if !s.Info().InLayer {
				at = StageAt{s, -1, -1}
			}
			if got, err := FindStage(at.String(), layers); err != nil || got != at {
				t.Errorf("FindStage(%q) = %+v, %v", at, got, err)
			}
		}
	}
	for _, name := range []string{"", "h.0", "h.1.ln_1", "h.9.ln_1", "ln_1", "h.0.ln_f", "h.2.ln_1.", "h.-1.ln_1"} {
		if at, err := FindStage(name, layers); err == nil && name != "h.2.ln_1" {
			t.Errorf("FindStage(%q) = %+v", name, at)
		}
	}
	if _, err := FindStage("h.7.ln_1", layers); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("with N of %v, and", layers)) {
		t.Error(err)
	}
}

// Every stage but sample has an output, under its own name alone.
func TestFindOutput(t *testing.T) {
	layers := []int{0, 2, 2}
	for _, s := range Forward(Config{Layers: 3, Channels: 8, Heads: 2, Vocab: 10, Positions: 8, Inner: 32}, layers,
		Pass{Batch: 1, Tokens: 1, Logits: LogitsLast, Sample: true}).Steps {
		at, err := FindOutput(s.Name(), layers)
		if sample := s.Name() == "sample"; sample != (err != nil) || at.String() != s.Name() {
			t.Errorf("%s: %v, %v", s.Name(), at, err)
		}
	}
	for _, name := range []string{"", "ln_f+lm_head", "wte", "h.1.ln_1"} {
		if at, err := FindOutput(name, layers); err == nil {
			t.Errorf("%q is the output of %v", name, at)
		}
	}
}

// TestWork: all steps that multiply, fused or not, and attention too, have the rate of the
// type that the backend multiplies in; nothing else has. Bytes are those of the cost.
func TestWork(t *testing.T) {
	c := Config{Layers: 2, Channels: 8, Heads: 2, Vocab: 100, Positions: 16, Inner: 32, Activation: GELUNew}
	sizes := Sizes{Weight: 2, Activation: 4, KV: 3, Multiply: ceilings.BF16}
	p := Forward(c, []int{0, 1}, Pass{Batch: 2, Tokens: 3, Logits: LogitsLast, Sample: true})
	for _, p := range []*Plan{p, p.Fuse(Chain{OpLayerNorm, OpLinear, OpActivation}, Chain{OpLayerNorm, OpLinear},
		Chain{OpLinear, OpAdd})} {
		types := map[Op]string{}
		for i, w := range p.Work(5, sizes) {
			s := p.Steps[i]
			if before, ok := types[s.Op()]; ok && before != w.Type {
				t.Errorf("%s multiplies in %s, others of its kind in %s", s.Name(), w.Type, before)
			}
			types[s.Op()] = w.Type
			cost := s.Cost(5)
			if w.FLOPs != cost.FLOPs || w.Activations != 4*cost.Activations || w.Bytes != 2*cost.Weights+3*cost.KV ||
				w != s.Work(5, sizes) {
				t.Errorf("%s: %+v of %+v", s.Name(), w, cost)
			}
		}
		for op, kind := range types {
			if want := op == OpLinear || op == OpAttention; want != (kind == ceilings.BF16) || !want && kind != ceilings.F32 {
				t.Errorf("%v computes in %s", op, kind)
			}
		}
		if _, ok := types[OpAttention]; !ok || len(types) < 4 {
			t.Errorf("only %v", types)
		}
	}
	// A device with a fast bfloat16 rate bounds attention by it.
	set := ceilings.Set{Values: []ceilings.Value{{Name: "read", Unit: ceilings.GBs, Value: 1e6},
		{Name: ceilings.F32, Unit: ceilings.TFLOPs, Value: 1e-6}, {Name: ceilings.BF16, Unit: ceilings.TFLOPs, Value: 8e-6}}}
	floors, ok := set.Floors(p.Work(5, sizes))
	for i, s := range p.Steps {
		rate := 1e-3 // FLOPs in a ns
		if s.Op() == OpAttention || s.Op() == OpLinear {
			rate = 8e-3
		}
		if want := float64(s.Cost(5).FLOPs) / rate; !ok || math.Abs(floors[i].Time-want) > 1e-9*want ||
			floors[i].Bound != ceilings.BoundFLOPs {
			t.Errorf("%s: %+v, %v; want %g ns", s.Name(), floors[i], ok, want)
		}
	}
}
