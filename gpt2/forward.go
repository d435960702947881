package gpt2

import "fmt"

// Forward is the model: it writes the plan of one pass over the given layers, in the order given. The first n layers
// give the exit after layer n. The pass and the layers must be valid for the model ([Pass.Check]).
//
// After Radford et al., "Language Models are Unsupervised Multitask Learners"
// (2019): pre-LN blocks, learned positions, lm_head tied to wte.
func Forward(c Config, layers []int, pass Pass) *Plan {
	p := &planner{Plan: Plan{Config: c, Layers: layers, Pass: pass}, slot: -1, layer: -1}
	T, R := pass.Tokens, pass.exitRows() // new tokens; rows that leave the last layer

	end := len(layers)
	if pass.Exit > 0 {
		end = pass.Exit
	}
	if pass.From == 0 {
		p.embed(StageEmbed, BufX, T)
	} else {
		p.Buffers[BufX] = Shape{T, p.width(BufX)}
	}
	for slot := pass.From; slot < end; slot++ {
		layer := layers[slot]
		p.enter(slot, layer)
		q := T
		if slot == len(layers)-1 {
			q = R
		}
		p.norm(StageLN1, BufX, BufNorm, T)
		p.qkv(StageCAttn, BufNorm, BufQKV, T, q)
		p.attention(StageSDPA, BufQKV, BufAttn, T, q)
		p.linear(StageAttnCProj, BufAttn, BufProj, q)
		p.add(StageResidual1, BufX, BufProj, q)
		p.norm(StageLN2, BufX, BufNorm, q)
		p.linear(StageCFC, BufNorm, BufInner, q)
		p.activation(StageGELU, BufInner, q)
		p.linear(StageMLPCProj, BufInner, BufProj, q)
		p.add(StageResidual2, BufX, BufProj, q)
	}
	p.leave()
	p.norm(StageLNF, BufX, BufNorm, R)
	p.linear(StageLMHead, BufNorm, BufLogits, R)
	if pass.Sample {
		p.sample(StageSample, BufLogits, BufTokens)
	}
	return &p.Plan
}

// planner writes the steps of a plan; it knows which layer it is in.
type planner struct {
	Plan
	slot, layer int
	ended       bool // Pass.Until was reached
}

func (p *planner) enter(slot, layer int) { p.slot, p.layer = slot, layer }
func (p *planner) leave()                { p.slot, p.layer = -1, -1 }

// width returns the elements in a row of a buffer.
func (p *planner) width(b Buffer) int {
	c := p.Config
	return [NumBuffers]int{
		BufX: c.Channels, BufNorm: c.Channels, BufQKV: 3 * c.Channels, BufAttn: c.Channels, BufProj: c.Channels,
		BufInner: c.Inner, BufLogits: c.Vocab, BufTokens: 1,
	}[b]
}

// step appends an operation; the rest of its fields follow from the stage.
func (p *planner) step(s Stage, o Operation) {
	if p.ended {
		return
	}
	info := s.Info()
	o.StageAt, o.Op = StageAt{s, p.slot, p.layer}, info.Op
	o.K, o.N = p.width(o.In), p.width(o.Out)
	o.config, o.batch = &p.Config, p.Pass.Batch
	p.Steps = append(p.Steps, Step{Tag: len(p.Steps), Ops: []Operation{o}})
	p.ended = p.Pass.Until == o.StageAt.String()

	rows := p.Pass.Tokens
	if o.Out == BufLogits || o.Out == BufTokens {
		rows = o.Rows
	}
	p.Buffers[o.Out] = Shape{rows, o.N}
}

// param names a tensor of the current layer, or of the model outside the layers.
func (p *planner) param(s Stage, kind string) string {
	name := s.Info().Name + "." + kind
	if p.layer >= 0 {
		return fmt.Sprintf("h.%d.%s", p.layer, name)
	}
	return name
}

func (p *planner) embed(s Stage, x Buffer, rows int) {
	p.step(s, Operation{Out: x, Rows: rows, Weight: "wte.weight", Bias: "wpe.weight"})
}

func (p *planner) norm(s Stage, x, y Buffer, rows int) {
	p.step(s, Operation{In: x, Out: y, Rows: rows, Weight: p.param(s, "weight"), Bias: p.param(s, "bias")})
}

func (p *planner) linear(s Stage, x, y Buffer, rows int) {
	o := Operation{In: x, Out: y, Rows: rows, Weight: p.param(s, "weight"), Bias: p.param(s, "bias")}
	if s == StageLMHead {
		o.Bias = ""
		if p.Config.Tied {
			o.Weight = "wte.weight"
		}
	}
	p.step(s, o)
}

func (p *planner) qkv(s Stage, x, y Buffer, rows, queries int) {
	p.step(s, Operation{In: x, Out: y, Rows: rows, Queries: queries, Weight: p.param(s, "weight"),
		Bias: p.param(s, "bias")})
}

func (p *planner) attention(s Stage, qkv, y Buffer, rows, queries int) {
	p.step(s, Operation{In: qkv, Out: y, Rows: rows, Queries: queries, Scale: p.Config.AttentionScale(p.layer)})
}

func (p *planner) activation(s Stage, x Buffer, rows int) {
	p.step(s, Operation{In: x, Out: x, Rows: rows, Activation: p.Config.Activation})
}

func (p *planner) add(s Stage, x, z Buffer, rows int) {
	p.step(s, Operation{In: x, Aux: z, Out: x, Rows: rows})
}

func (p *planner) sample(s Stage, logits, tokens Buffer) {
	p.step(s, Operation{In: logits, Out: tokens, Rows: 1})
}
