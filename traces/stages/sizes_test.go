package stages

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/internal/samples"
)

// inferSample reads a sample and infers its stages.
func inferSample(t *testing.T, name string, model *Model) (*traces.Trace, *Inference) {
	t.Helper()
	tr := samples.Load(t, "stages/"+name+".json.gz")
	found := require.Value(Infer(tr, model))(t)
	return tr, found
}

// text writes a pointer to a value, "null" for nil.
func text[T any](p *T) string {
	if p == nil {
		return "null"
	}
	return fmt.Sprint(*p)
}

// givenGPT2 is the model with which the samples were made.
var givenGPT2 = &Model{"gpt2", gpt2.Published[0].Config}

// TestSizes: what passes compute, against what the samples were made with. A model that is given says how many heads
// there are, by which attention divides into sequences.
func TestSizes(t *testing.T) {
	for name, want := range map[string]string{
		"hf-eager-f32-L12-prefill":            "f32: 1x128+0, 1x128+0",
		"hf-eager-f32-L12-generate":           "f32: 1x16+0, 1x1+16, 1x1+17, 1x1+18",
		"hf-sdpa-bf16-L12-generate":           "bf16: 1x32+0, 1x1+32, 1x1+33, 1x1+34, 1x1+35",
		"hf-sdpa-bf16-L12-graph-prefill":      "bf16: 1x64+0, 1x64+0, 1x64+0",
		"hf-sdpa-f16-L12-graph-static-decode": "f16: 1x1+null, 1x1+null, 1x1+null",
		"hf-flash-f16-L6-b2-prefill":          "f16: 2x128+0, 2x128+0",
		"hf-math-bf16-L6-b2-prefill":          "bf16: 2x96+0, 2x96+0",
		"hf-sdpa-f32-L1-prefill":              "f32: 1x64+0, 1x64+0, 1x64+0, 1x64+0",
		"plain-sdpa-f16-L12-b4-prefill":       "f16: 4x200+0, 4x200+0",
		"plain-manual-f32-L12-prefill":        "f32: 1x128+0, 1x128+0",
		"plain-autocast-L6-prefill":           "bf16: 2x96+0, 2x96+0",
		"compile-hf-bf16-prefill":             "bf16: 1x64+0, 1x64+0",
		"compile-hf-f16-static-decode":        "f16: 1x1+null, 1x1+null",
		"compile-plain-f32-prefill":           "f32: 1x64+0, 1x64+0",
	} {
		_, r := inferSample(t, name, givenGPT2)
		var passes []string
		for i, p := range r.Passes {
			if !p.Whole || p.Layers != r.Layers || p.End <= p.Start || i > 0 && p.Start < r.Passes[i-1].End {
				t.Errorf("%s: pass %d is %+v", name, i, p)
			}
			passes = append(passes, fmt.Sprintf("%sx%s+%s", text(p.Batch), text(p.Tokens), text(p.Past)))
		}
		if got := r.DType + ": " + strings.Join(passes, ", "); got != want {
			t.Errorf("%s: %s, want %s; %s", name, got, want, strings.Join(r.CostsFrom, "; "))
		}
	}
}

// TestCosts: the costs of inferred steps are those of the engine's plan, also of steps that do several stages, and none
// where the sizes do not give them.
func TestCosts(t *testing.T) {
	config := givenGPT2.Config
	for _, test := range []struct {
		sample        string
		batch, tokens int
		past, rows    int // of logits
		unknown       []string
	}{
		{"hf-flash-f16-L6-b2-prefill", 2, 128, 0, 128, nil},
		{"hf-sdpa-bf16-L12-generate", 1, 1, 34, 1, nil},
		{"compile-plain-f32-prefill", 1, 64, 0, 64, nil},
		{"hf-sdpa-f16-L12-graph-static-decode", 1, 1, 0, 1, []string{"attn.sdpa"}},
	} {
		tr, r := inferSample(t, test.sample, givenGPT2)
		require.NoError(t, r.Apply(tr))
		sizes, _ := sizesOf(r.DType)
		at := slices.IndexFunc(tr.Header.Plans, func(p traces.Plan) bool { return p.Batch == test.batch && p.Tokens == test.tokens })
		if at < 0 {
			t.Fatalf("%s: no plan of %d x %d: %+v", test.sample, test.batch, test.tokens, tr.Header.Plans)
		}
		plan := &tr.Header.Plans[at]
		checked := 0
		for _, step := range plan.Steps {
			flops, bytes := step.CostAt(plan, test.past)
			name := traces.InAnyLayer(step.Name)
			if step.Name == NoStage || slices.ContainsFunc(test.unknown, func(u string) bool { return strings.Contains(name, u) }) {
				if flops != 0 || bytes != 0 {
					t.Errorf("%s %s costs %d FLOPs and %d bytes, which nothing says", test.sample, step.Name, flops, bytes)
				}
				continue
			}
			for s := range gpt2.NumStages {
				info := s.Info()
				if want := s.Cost(config, test.batch, test.tokens, test.past); name == info.Name || name == "h.N."+info.Name {
					checked++
					if flops != want.FLOPs || bytes != want.Bytes(sizes) {
						t.Errorf("%s %s: %d FLOPs and %d bytes, want %d and %d", test.sample, step.Name, flops, bytes, want.FLOPs, want.Bytes(sizes))
					}
				}
			}
			if flops <= 0 || bytes <= 0 {
				t.Errorf("%s %s has no cost", test.sample, step.Name)
			}
			if name == "h.N.residual_1+h.N.ln_2" { // the sum is written, and not read again
				checked++
				n := int64(test.batch * test.tokens * config.Channels)
				if want := 4*n*int64(sizes.Activation) + 2*int64(config.Channels)*int64(sizes.Weight); bytes != want {
					t.Errorf("%s %s: %d bytes, want %d", test.sample, step.Name, bytes, want)
				}
			}
		}
		if checked < 20 {
			t.Errorf("%s: %d steps were compared", test.sample, checked)
		}
	}
}

// TestGivenModel: without a model no step has a cost, and the recording says why; one with fewer layers than were found
// says so.
func TestGivenModel(t *testing.T) {
	small := *givenGPT2
	small.Config.Layers = 2
	for said, model := range map[string]*Model{"--model says of which": nil, "width 768, 12 heads, vocabulary 50257": givenGPT2,
		"but the kernels are of 6 layers, and it has 2": &small} {
		tr, r := inferSample(t, "hf-flash-f16-L6-b2-prefill", model)
		require.NoError(t, r.Apply(tr))
		costs := slices.ContainsFunc(tr.Header.Plans[0].Steps, func(s traces.Step) bool { return s.FLOPs > 0 })
		if from := strings.Join(tr.Header.CostsFrom, "; "); !strings.Contains(from, said) || costs != (model != nil) {
			t.Errorf("%s; want %q; costs: %t", from, said, costs)
		}
	}
}

// TestHeadOfLastToken: a prefill that computes logits of its last token alone costs those of one row.
func TestHeadOfLastToken(t *testing.T) {
	c := givenGPT2.Config
	r := &Inference{Layers: 1, DType: "f32", model: givenGPT2}
	for _, rows := range []int{1, 64} {
		plan := traces.Plan{Phase: "prefill", Steps: []traces.Step{{Name: "lm_head"}}}
		r.price(&plan, planKind{"prefill", 64, 1, 64, rows, true})
		if got, want := plan.Steps[0].FLOPs, 2*int64(rows)*int64(c.Channels)*int64(c.Vocab); got != want {
			t.Errorf("logits of %d rows: %d FLOPs, not %d", rows, got, want)
		}
	}
}
