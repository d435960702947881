package stages

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/internal/samples"
)

// inferSample reads a sample and infers its stages.
func inferSample(t *testing.T, name string, model *Model) (*traces.Trace, *Inference) {
	t.Helper()
	tr := samples.Load(t, "stages/"+name+".json.gz")
	found := fixtures.Must(Infer(tr, model))(t)
	return tr, found
}

// text writes a pointer to a value, "null" for nil.
func text[T any](p *T) string {
	if p == nil {
		return "null"
	}
	return fmt.Sprint(*p)
}

// TestGeometry: sizes of the model and of the passes, against those with which the samples were made.
func TestGeometry(t *testing.T) {
	for name, want := range map[string]string{
		"hf-eager-f32-L12-prefill":            "gpt2 768 12 3072 50257 f32: 1x128+0, 1x128+0",
		"hf-eager-f32-L12-generate":           "gpt2 768 12 3072 50257 f32: 1x16+0, 1x1+16, 1x1+17, 1x1+18",
		"hf-sdpa-bf16-L12-generate":           "gpt2 768 12 3072 50257 bf16: 1x32+0, 1x1+32, 1x1+33, 1x1+34, 1x1+35",
		"hf-sdpa-bf16-L12-graph-prefill":      "gpt2 768 12 3072 50257 bf16: 1x64+0, 1x64+0, 1x64+0",
		"hf-sdpa-f16-L12-graph-static-decode": "gpt2 768 12 3072 50257 f16: 1x1+null, 1x1+null, 1x1+null",
		"hf-flash-f16-L6-b2-prefill":          "gpt2 768 12 3072 50257 f16: 2x128+0, 2x128+0",
		"hf-math-bf16-L6-b2-prefill":          "gpt2 768 12 3072 50257 bf16: 2x96+0, 2x96+0",
		"hf-sdpa-f32-L1-prefill":              "gpt2 768 12 3072 50257 f32: 1x64+0, 1x64+0, 1x64+0, 1x64+0",
		"hf-sdpa-bf16-L48-generate":           "null 256 4 1024 null bf16: 1x8+0, 1x1+8",
		"plain-sdpa-f16-L12-b4-prefill":       "gpt2 768 12 3072 50257 f16: 4x200+0, 4x200+0",
		"plain-manual-f32-L12-prefill":        "gpt2 768 12 3072 50257 f32: 1x128+0, 1x128+0",
		"plain-autocast-L6-prefill":           "gpt2 768 12 3072 50257 bf16: 2x96+0, 2x96+0",
		"compile-hf-bf16-prefill":             "gpt2 768 12 3072 50257 bf16: 1x64+0, 1x64+0",
		"compile-hf-f16-static-decode":        "gpt2 768 12 3072 50257 f16: 1x1+null, 1x1+null",
		"compile-plain-f32-prefill":           "gpt2 768 12 3072 50257 f32: 1x64+0, 1x64+0",
	} {
		_, r := inferSample(t, name, nil)
		g := r.Geometry
		var passes []string
		for i, p := range r.Passes {
			if !p.Whole || p.Layers != r.Layers || p.End <= p.Start || i > 0 && p.Start < r.Passes[i-1].End {
				t.Errorf("%s: pass %d is %+v", name, i, p)
			}
			passes = append(passes, fmt.Sprintf("%sx%s+%s", text(p.Batch), text(p.Tokens), text(p.Past)))
		}
		got := strings.Join([]string{text(g.Model), text(g.Width), text(g.Heads), text(g.Inner), text(g.Vocab), text(g.DType)}, " ") + ": " + strings.Join(passes, ", ")
		if got != want {
			t.Errorf("%s: %s, want %s; %s", name, got, want, strings.Join(g.From, "; "))
		}
		if g.Confidence <= 0.2 || g.Confidence > 1 || len(g.From) == 0 {
			t.Errorf("%s: confidence %g, %q", name, g.Confidence, g.From)
		}
	}
}

// TestCosts: the costs of inferred steps are those of the engine's plan, also of steps that do several stages, and none
// where the sizes do not give them.
func TestCosts(t *testing.T) {
	config := gpt2.Published()[0].Config
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
		tr, r := inferSample(t, test.sample, nil)
		fixtures.Check(t, r.Apply(tr))
		sizes, _ := r.Geometry.sizes()
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
				if want := info.Cost(config, test.batch, test.tokens, test.past); name == info.Name || name == "h.N."+info.Name {
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

// TestGivenModel: sizes that are given are taken, and a recording that contradicts them says so.
func TestGivenModel(t *testing.T) {
	models := gpt2.Published()
	for i, contradicts := range []bool{false, true} {
		_, r := inferSample(t, "hf-flash-f16-L6-b2-prefill", &Model{models[i].Name, models[i].Config})
		said := strings.Contains(strings.Join(r.Geometry.From, "; "), "few agree with that width")
		if *r.Geometry.Width != models[i].Config.Channels || *r.Geometry.Vocab != 50257 || said != contradicts {
			t.Errorf("%s: width %s, %q", models[i].Name, text(r.Geometry.Width), r.Geometry.From)
		}
	}
}

// TestShapesOfOperators: where PyTorch recorded the shapes of inputs, they give the sizes, whatever the grids are. They
// may be damaged.
func TestShapesOfOperators(t *testing.T) {
	record := func(shapes func(op, inputs string) string) *traces.Trace {
		p := &program{}
		work := func(op, inputs string, kernel func()) func() {
			return func() {
				p.in("", kernel)()
				e := &p.events[len(p.events)-1] // the range, which ends last
				e.Kind, e.Name, e.Inputs = traces.KindOp, op, shapes(op, inputs)
			}
		}
		norm := work("aten::layer_norm", "[[2,10,192],[],[192],[192],[],[]]", p.k("layer_norm_kernel"))
		product := func(n, k int) func() {
			return work("aten::addmm", fmt.Sprintf("[[%d],[20,%d],[%d,%d],[],[]]", n, k, k, n), p.k("some_gemm_bf16"))
		}
		add := p.k("void at::native::CUDAFunctor_add<float>")
		for range 2 {
			p.k("embedding_kernel")()
			for range 3 {
				for _, f := range []func(){norm, product(576, 192), work("aten::scaled_dot_product_attention", "[[2,3,10,64],[2,3,15,64],[2,3,15,64]]", p.k("flash_fwd")), product(192, 192), add,
					norm, product(768, 192), p.k("gelu"), product(192, 768), add} {
					f()
				}
			}
			norm()
			work("aten::linear", "[[2,1,192],[300,192],[]]", p.k("head_gemm_bf16"))()
		}
		return p.trace()
	}
	r := fixtures.Must(Infer(record(func(_, inputs string) string { return inputs }), nil))(t)
	g := r.Geometry
	if got := strings.Join([]string{text(g.Width), text(g.Heads), text(g.Inner), text(g.Vocab), text(g.DType)}, " "); got != "192 3 768 300 bf16" || g.Confidence != 1 {
		t.Errorf("found %s, %+v", got, g)
	}
	if len(r.Passes) != 2 || text(r.Passes[1].Batch) != "2" || text(r.Passes[1].Tokens) != "10" || text(r.Passes[1].Past) != "5" || r.sizes[1].headRows != 2 {
		t.Errorf("passes %+v, %+v", r.Passes, r.sizes)
	}
	for _, damaged := range []string{"", "[", "[[1,-3,1e99],[99999999999999999999]]", "[[0,0,0],[0,0],[0,0]]", "[[[[]]]]", "{}", "[[16777216,16777216,16777216],[16777216],[16777216,16777216]]"} {
		tr := record(func(string, string) string { return damaged })
		r, err := Infer(tr, nil)
		if err == nil {
			err = r.Apply(tr)
		}
		if err != nil {
			t.Errorf("%s: %v", damaged, err)
		}
	}
}

// TestHeadOfLastToken: a prefill that computes logits of its last token alone costs those of one row.
func TestHeadOfLastToken(t *testing.T) {
	c, dtype := gpt2.Published()[0].Config, "f32"
	r := &Inference{Layers: 1, Geometry: Geometry{Width: &c.Channels, Heads: &c.Heads, Inner: &c.Inner, Vocab: &c.Vocab, DType: &dtype}}
	for _, rows := range []int{1, 64} {
		plan := traces.Plan{Phase: "prefill", Steps: []traces.Step{{Name: "lm_head"}}}
		r.price(&plan, planKind{"prefill", 64, 1, 64, rows, true})
		if got, want := plan.Steps[0].FLOPs, 2*int64(rows)*int64(c.Channels)*int64(c.Vocab); got != want {
			t.Errorf("logits of %d rows: %d FLOPs, not %d", rows, got, want)
		}
	}
}
