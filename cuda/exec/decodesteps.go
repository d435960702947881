package exec

// This file runs decode steps as mode persistent does, but with a kernel for each step of the
// program: in mode eager, with --variant decode=steps. Logits are bit by bit those of mode
// persistent, and profilers see every step.

// variantDecode stands for all stages of a decode step in Options.Variants, and variantSteps is its
// variant beside "auto".
const (
	variantDecode = "decode"
	variantSteps  = "steps"
)

// singleSteps is what launches of single steps need beside the program.
type singleSteps struct {
	began int    // position of the first token of the call
	tail  int    // tokens that mode persistent would have run in the same launch before this one
	epoch uint32 // of the token: see gs_decode_one
}

// tailAt returns how many tokens a launch of mode persistent has run before the one at a position, in a
// call that began at another, with so many tokens a launch.
func tailAt(position, began, tokens int) int { return (position - began) % tokens }

// singleLaunches returns the launches of single steps in place of those of a decode step or of a short prompt.
func (r *Runner) singleLaunches(c *compiled) *compiled {
	t := &r.together
	a := &t.single
	if c.single != nil {
		return c.single
	}
	args := r.decodeArgs(c.plan)
	steps := make([][]launch, len(c.plan.Steps))
	for i, planned := range t.planned {
		steps[planned] = []launch{{run: func() error { return r.stream.DecodeOne(args, i, a.tail, a.epoch) }}}
	}
	if last := len(steps) - 1; c.samples {
		draw := r.drawAfter(c.plan)
		steps[last] = []launch{{run: func() error { return r.stream.Sample(draw) }}}
	}
	c.single = &compiled{plan: c.plan, steps: steps, ranges: c.ranges, samples: c.samples, stepwise: true}
	return c.single
}

// stepSingly launches a decode step at a position, or a short prompt, by its single steps.
func (r *Runner) stepSingly(c *compiled, position int) error {
	a, rows := &r.together.single, c.plan.Pass.Tokens
	a.tail = tailAt(position, a.began, r.atOnce())
	a.epoch += uint32(r.together.args.Count)
	r.last = lastPass{plan: c.plan, rows: rows, logitsOnly: true}
	return r.pass(passAt{c, position, rows})
}
