package gpt2

// Forward is the model: it writes the plan of one pass over the given layers, in the order given. The first n layers
// give the exit after layer n. The pass and the layers must be valid for the model ([Pass.Check]).
//
// After Radford et al., "Language Models are Unsupervised Multitask Learners"
// (2019): pre-LN blocks, learned positions, lm_head tied to wte.
func Forward(c Config, layers []int, pass Pass) *Plan {
	p := &Plan{Config: c, Layers: layers, Pass: pass}
	T, R := pass.Tokens, pass.exitRows() // new tokens; rows that leave the last layer

	end := len(layers)
	if pass.Exit > 0 {
		end = pass.Exit
	}
	if pass.From == 0 {
		p.add(StageEmbed, -1, Operation{Out: BufX, Rows: T})
	} else {
		p.Buffers[BufX] = Shape{T, c.width(BufX)}
	}
	for slot := pass.From; slot < end; slot++ {
		q := T
		if slot == len(layers)-1 {
			q = R
		}
		p.add(StageLN1, slot, Operation{In: BufX, Out: BufNorm, Rows: T})
		p.add(StageCAttn, slot, Operation{In: BufNorm, Out: BufQKV, Rows: T, Queries: q})
		p.add(StageSDPA, slot, Operation{In: BufQKV, Out: BufAttn, Rows: T, Queries: q})
		p.add(StageAttnCProj, slot, Operation{In: BufAttn, Out: BufProj, Rows: q})
		p.add(StageResidual1, slot, Operation{In: BufX, Aux: BufProj, Out: BufX, Rows: q})
		p.add(StageLN2, slot, Operation{In: BufX, Out: BufNorm, Rows: q})
		p.add(StageCFC, slot, Operation{In: BufNorm, Out: BufInner, Rows: q})
		p.add(StageGELU, slot, Operation{In: BufInner, Out: BufInner, Rows: q})
		p.add(StageMLPCProj, slot, Operation{In: BufInner, Out: BufProj, Rows: q})
		p.add(StageResidual2, slot, Operation{In: BufX, Aux: BufProj, Out: BufX, Rows: q})
	}
	p.add(StageLNF, -1, Operation{In: BufX, Out: BufNorm, Rows: R})
	p.add(StageLMHead, -1, Operation{In: BufNorm, Out: BufLogits, Rows: R})
	if pass.Sample {
		p.add(StageSample, -1, Operation{In: BufLogits, Out: BufTokens, Rows: 1})
	}
	return p
}

// width returns the elements in a row of a buffer.
func (c Config) width(b Buffer) int {
	return [NumBuffers]int{
		BufX: c.Channels, BufNorm: c.Channels, BufQKV: 3 * c.Channels, BufAttn: c.Channels, BufProj: c.Channels,
		BufInner: c.Inner, BufLogits: c.Vocab, BufTokens: 1,
	}[b]
}

// add appends a stage of the layer at a slot, -1 for none; the rest of the operation's fields follow from the stage.
// Nothing follows the stage that [Pass.Until] names.
func (p *Plan) add(s Stage, slot int, o Operation) {
	if n := len(p.Steps); p.Pass.Until != "" && n > 0 && p.Steps[n-1].Name() == p.Pass.Until {
		return
	}
	c, layer := &p.Config, -1
	if slot >= 0 {
		layer = p.Layers[slot]
	}
	o.StageAt, o.Op = StageAt{s, slot, layer}, s.Info().Op
	o.K, o.N = c.width(o.In), c.width(o.Out)
	o.heads, o.batch = c.Heads, p.Pass.Batch
	switch name := (StageAt{s, layer, layer}).String(); o.Op {
	case OpEmbed:
		o.Weight, o.Bias = "wte.weight", "wpe.weight"
	case OpLayerNorm, OpLinear:
		o.Weight, o.Bias = name+".weight", name+".bias"
	case OpAttention:
		o.Scale = c.AttentionScale(layer)
	case OpActivation:
		o.Activation = c.Activation
	}
	if s == StageLMHead {
		if o.Bias = ""; c.Tied {
			o.Weight = "wte.weight"
		}
	}
	p.Steps = append(p.Steps, Step{Tag: len(p.Steps), Ops: []Operation{o}})

	rows := p.Pass.Tokens
	if o.Out == BufLogits || o.Out == BufTokens {
		rows = o.Rows
	}
	p.Buffers[o.Out] = Shape{rows, o.N}
}
