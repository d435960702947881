package exec

import (
	"gpt2scope/gpt2"
)

// This file runs decode steps as mode persistent does, but with a kernel for each step of the
// program: in mode eager, with --variant decode=steps. Logits are bit by bit those of mode
// persistent, and profilers see every step.

// variantDecode stands for all stages of a decode step in Options.Variants, and variantSteps is its
// variant beside "auto".
const (
	variantDecode = "decode"
	variantSteps  = "steps"
)

// decodeAlone is what launches of single steps need beside the program.
type decodeAlone struct {
	began int    // position of the first token of the call
	tail  int    // tokens that mode persistent would have run in the same launch before this one
	epoch uint32 // of the token: see gs_decode_one
}

// tailAt returns how many tokens a launch of mode persistent has run before the one at a position, in a
// call that began at another, with so many tokens a launch.
func tailAt(position, began, tokens int) int { return (position - began) % tokens }

// alone returns the launches of single steps in place of those of a decode step or of a short prompt.
func (r *Runner) alone(c *compiled) *compiled {
	t := &r.together
	a := &t.alone
	if c.single != nil {
		return c.single
	}
	at, args := r.addresses(), t.args
	if rows := c.plan.Pass.Tokens; rows > 1 {
		args.Rows, args.IDs = int32(rows), at.ids
	}
	args.Sampling, args.Pos, args.TokensIO, args.Slots, args.Logits = at.sampling, at.pos, at.tokens, at.ring, at.buffers[gpt2.BufLogits]
	steps := make([][]launch, len(c.plan.Steps))
	for i, planned := range t.planned {
		steps[planned] = []launch{{run: func() error { return r.stream.DecodeOne(args, i, a.tail, a.epoch) }}}
	}
	if last := len(steps) - 1; c.samples {
		draw := r.writer(c.plan).sample(c.plan.Steps[last].Last())
		draw.DecodeWork = args.Work
		steps[last] = []launch{{run: func() error { return r.stream.Sample(draw) }}}
	}
	c.single = &compiled{plan: c.plan, steps: steps, ranges: c.ranges, samples: c.samples, alone: true}
	return c.single
}

// stepAlone launches a decode step at a position, or a short prompt, by its single steps.
func (r *Runner) stepAlone(c *compiled, position int) error {
	a, rows := &r.together.alone, c.plan.Pass.Tokens
	a.tail = tailAt(position, a.began, r.atOnce())
	a.epoch += uint32(r.together.args.Count)
	r.last = lastPass{plan: c.plan, rows: rows, logitsOnly: true}
	return r.pass(passAt{c, position, rows})
}
