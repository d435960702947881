package stages

import (
	"slices"
	"strings"

	"gpt2scope/ceilings"
	"gpt2scope/gpt2"
	"gpt2scope/traces"
)

// planKind is what passes of one plan have in common.
type planKind struct {
	phase                         string
	rows, batch, tokens, headRows int // 0 is not known
	hasPast                       bool
}

// kind returns the kind of plan that a pass has.
func (p *Pass) kind() planKind {
	s := p.size
	return planKind{p.Phase, s.rows, s.batch, s.tokens, s.headRows, s.past >= 0}
}

// price gives the steps of an inferred plan their costs: those of the engine's plan of the same pass, with the same
// stages joined. Steps whose costs the sizes do not give have none.
func (r *Inference) price(plan *traces.Plan, k planKind) {
	sizes, ok := sizesOf(r.DType)
	if !ok || r.model == nil || k.rows == 0 {
		return
	}
	// If the batch is not known, the rows count as those of one sequence: only attention and the positions of the
	// embeddings depend on more.
	batch, tokens, divided := k.batch, k.tokens, true
	if batch == 0 || tokens == 0 || batch*tokens != k.rows {
		batch, tokens, divided = 1, k.rows, false
	} else {
		plan.Batch, plan.Tokens = batch, tokens
	}
	c := r.model.Config
	c.Layers, c.Positions = max(1, r.Layers), tokens
	layers := gpt2.FirstLayers(c.Layers)
	steps := map[string]*gpt2.Step{}
	for _, logits := range []gpt2.Logits{gpt2.LogitsLast, gpt2.LogitsAll} {
		pass := gpt2.Pass{Batch: batch, Tokens: tokens, Logits: logits, Sample: true}
		if c.Check() != nil || pass.Check(c, layers, tokens) != nil {
			return
		}
		p := joinAs(gpt2.Forward(c, layers, pass), plan.Steps)
		for i := range p.Steps {
			name := p.Steps[i].Name()
			if logits == gpt2.LogitsLast || k.headRows >= k.rows || !covers(name, gpt2.StageLMHead) {
				steps[name] = &p.Steps[i]
			}
		}
	}
	for i := range plan.Steps {
		step := &plan.Steps[i]
		of := steps[step.Name]
		if of == nil || covers(step.Name, gpt2.StageLMHead) && k.headRows == 0 ||
			covers(step.Name, gpt2.StageSample) && !divided ||
			covers(step.Name, gpt2.StageSDPA) && (!divided || !k.hasPast) {
			continue
		}
		of.Price(step, sizes)
	}
}

// covers reports whether a step does the work of a stage.
func covers(step string, stage gpt2.Stage) bool {
	info := stage.Info()
	return slices.ContainsFunc(strings.Split(step, "+"), func(part string) bool {
		return part == info.Name || info.InLayer && strings.HasSuffix(part, "."+info.Name)
	})
}

// sizesOf are those of the elements of a type; ok is false if it is not known. Products of 16-bit types run at the same
// rate, whichever it is.
func sizesOf(dtype string) (s gpt2.Sizes, ok bool) {
	switch dtype {
	case "f32":
		return gpt2.Sizes{Weight: 4, Activation: 4, KV: 4, Multiply: ceilings.F32}, true
	case "bf16", "f16":
		return gpt2.Sizes{Weight: 2, Activation: 2, KV: 2, Multiply: ceilings.BF16}, true
	}
	return s, false
}

// joinAs joins the stages of a plan as the names of other steps do.
func joinAs(p *gpt2.Plan, as []traces.Step) *gpt2.Plan {
	ops := map[string]gpt2.Op{}
	for _, s := range p.Steps {
		ops[s.Name()] = s.Op()
	}
	wanted := map[string]bool{}
	var chains []gpt2.Chain
	for _, s := range as {
		// "wte+wpe" is one stage.
		parts := strings.Split(strings.Replace(s.Name, "wte+wpe", "wte wpe", 1), "+")
		var chain gpt2.Chain
		for _, part := range parts {
			op, ok := ops[strings.Replace(part, "wte wpe", "wte+wpe", 1)]
			if !ok {
				break
			}
			chain = append(chain, op)
		}
		if len(chain) == len(parts) && len(parts) > 1 {
			chains = append(chains, chain)
			wanted[s.Name] = true
		}
	}
	return p.FuseWhere(func(all []gpt2.Operation) bool {
		var names []string
		for _, o := range all {
			names = append(names, o.StageAt.String())
		}
		return wanted[strings.Join(names, "+")]
	}, chains...)
}
