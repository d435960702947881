package exec

import (
	"errors"
	"fmt"

	"gpt2scope/cuda"
	"gpt2scope/cuda/persistent"
	"gpt2scope/gpt2"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
)

// variantDecode stands for all stages of a decode step in Options.Variants, and variantSteps is its variant beside
// "auto": each step of the persistent kernel is a launch of its own, in mode eager. Logits are bit by bit those of mode
// persistent, and profilers see every step.
const (
	variantDecode = "decode"
	variantSteps  = "steps"
)

// kernelState is what a session has of the persistent kernel.
type kernelState struct {
	kernel  *persistent.Kernel // nil until a call first needs it
	refused string             // why the session can not use it
	on      bool               // the call under way uses it

	// Of launches of single steps.
	began int    // position of the first token of the call
	tail  int    // tokens that mode persistent would have run in the same launch before this one
	epoch uint32 // of the token: see gs_persistent_one
}

// session returns what the persistent kernel needs of the session.
func (w *writer) session() persistent.Session {
	return persistent.Session{
		Stream: w.stream, Config: w.config, Context: w.options.Context, LogitsLD: w.view(gpt2.BufLogits, 1).ld,
		Slots: ringSlots, DType: w.backend.held,
		Blocks: w.backend.options.decodeBlocks, Param: func(name string) cuda.Ptr { return w.params[name].ptr },
		Cache: w.cacheOf,
		Load:  func(call func() error) error { return w.loading.first(loadKernels, call) },
	}
}

// choose decides whether a pass of a call, which begins at the present position, runs in the persistent kernel.
// Otherwise it returns its launches: c, or those of single steps of the kernel.
func (r *Runner) choose(c *compiled, prompt bool) (*compiled, error) {
	p := &r.persistent
	p.on, p.began = false, r.state.position
	if r.backend.mode != Persistent && !r.backend.singleSteps {
		return c, nil
	}
	how, err := r.backend.chooseMode(&passFacts{config: r.model.Config, layers: len(r.options.Layers), pass: c.plan.Pass,
		prompt:   prompt,
		sampling: r.state.sampling, refused: p.refused})
	if err != nil {
		return c, err
	}
	if how.mode != Persistent && !how.singleSteps {
		if how.instead {
			r.backend.fallBack(how.why)
		}
		return c, nil
	}
	if p.kernel == nil {
		if err := r.makeKernel(); errors.Is(err, cuda.ErrNoKernel) {
			r.refuse(err)
			return c, nil
		} else if err != nil {
			return c, err
		}
	}
	if c.plan.Pass.Tokens > p.kernel.Rows {
		return c, nil
	}
	if err := p.kernel.PrepareSampling(r.state.sampling); err != nil {
		return c, err
	}
	if how.singleSteps {
		return r.singleLaunches(c), nil
	}
	p.on = true
	r.backend.found.Store(new(string))
	return c, nil
}

func (r *Runner) makeKernel() (err error) {
	defer annotate.Range("make decode program", nvtx.Cyan)()
	plan := r.Plan(r.decodePass())
	r.persistent.kernel, err = persistent.New(r.writer(plan).session(), plan)
	return err
}

// refuse makes all later decode steps of the session run as graphs, or by the kernels of mode eager. What was allocated
// stays until Close, since launches may still use it.
func (r *Runner) refuse(cause error) {
	r.persistent.on, r.persistent.refused = false, reason(cause)
	r.backend.fallBack(r.persistent.refused)
}

// reason is an error without the name of the call.
func reason(err error) string {
	if failed := (*cuda.Error)(nil); errors.As(err, &failed) && failed.Text != "" {
		return failed.Text
	}
	return err.Error()
}

func (r *Runner) kernelAddresses() persistent.Addresses {
	at := r.addresses()
	return persistent.Addresses{Sampling: at.sampling, Pos: at.pos, Tokens: at.tokens, Slots: at.ring,
		Logits: at.buffers[gpt2.BufLogits], IDs: at.ids}
}

// sampleAfter returns the launch that samples from the logits of the persistent kernel.
func (r *Runner) sampleAfter(plan *gpt2.Plan) func() error {
	a := r.writer(plan).sample(plan.Steps[len(plan.Steps)-1].Last())
	a.PersistentWork = r.persistent.kernel.Work()
	return func() error { return r.stream.Sample(a) }
}

// launchPersistent launches up to n decode steps at a position in the persistent kernel, and returns how many. If c is
// a prompt, that is the one step.
func (r *Runner) launchPersistent(c *compiled, position, n int) (int, error) {
	k, rows := r.persistent.kernel, c.plan.Pass.Tokens
	l := persistent.Launch{At: r.kernelAddresses(), Sampling: r.state.sampling, Rows: rows,
		Apart: k.SamplesApart(r.state.sampling) || !c.samples}
	if rows > 1 { // the kernel of prompts takes the argmax only
		l.Tokens, l.Apart = 1, l.Apart || !persistent.Greedy(r.state.sampling)
	} else {
		l.Tokens = min(n, k.Tokens(r.state.sampling))
	}
	if l.Apart {
		l.Tokens = 1
	}
	if l.Tokens = min(l.Tokens, r.options.Context-position-rows+1); l.Tokens < 1 {
		return 0, fmt.Errorf("the context of %d tokens is full", r.options.Context)
	}
	drafts := rows == 1 && r.drafts.rows > 0
	if drafts {
		d := &r.drafts
		l.At.Text, l.At.Logits = d.device.Ptr(), d.device.Ptr()+cuda.Ptr(d.begin)
		d.launch(r, &l, position)
	}
	rec, err := r.persistentRecorder()
	if err != nil {
		return 0, err
	}
	name, count := "decode x%d", l.Tokens
	if rows > 1 {
		name, count = "prefill T=%d", rows
	}
	defer annotate.Range(name, nvtx.Green, count)()
	var note *launchNote
	if rec != nil {
		note, l.Stamps = rec.begin(r, c, position, l)
	}
	if err = k.Launch(l); err == nil && drafts {
		err = r.drafts.preload(r, l)
	}
	if note != nil {
		rec.end(note, err)
	}
	if err == nil && l.Apart && c.samples {
		sample := r.sampleAfter(c.plan)
		if note != nil {
			err = rec.sample(note, sample)
		} else {
			err = sample()
		}
	}
	if err != nil {
		return 0, err
	}
	r.last = lastPass{plan: c.plan, rows: rows, logitsOnly: true, drafted: drafts}
	return l.Tokens, nil
}

// singleLaunches returns the launches of single steps in place of those of a decode step or of a short prompt.
func (r *Runner) singleLaunches(c *compiled) *compiled {
	if c.single != nil {
		return c.single
	}
	p, at, rows := &r.persistent, r.kernelAddresses(), c.plan.Pass.Tokens
	steps := make([][]launch, len(c.plan.Steps))
	for i, planned := range p.kernel.Planned {
		steps[planned] = []launch{{run: func() error { return p.kernel.LaunchStep(at, rows, i, p.tail, p.epoch) }}}
	}
	if c.samples {
		steps[len(steps)-1] = []launch{{run: r.sampleAfter(c.plan)}}
	}
	c.single = &compiled{plan: c.plan, steps: steps, ranges: c.ranges, samples: c.samples, singleSteps: true}
	return c.single
}

// nextSingly prepares the launches of the single steps of a decode step, or of a short prompt.
func (r *Runner) nextSingly(at passAt) {
	p := &r.persistent
	p.tail = (at.position - p.began) % p.kernel.Tokens(r.state.sampling)
	// Packets need not be cleared: those of so many epochs ago have been written again.
	p.epoch = (p.epoch + uint32(p.kernel.Steps())) % persistent.MostEpochs
}

// checkLate tells of a timeout after launches whose token nothing awaits, which have ended.
func (r *Runner) checkLate(c *compiled) error {
	if !r.persistent.on || c.samples {
		return nil
	}
	return r.explain(c.plan, r.persistent.kernel.Expired())
}

// explain makes the error of a step of a plan that ended with an error. After a timeout in the persistent kernel the
// session does not use it any more. Position and tokens are those of the last step that was read.
func (r *Runner) explain(plan *gpt2.Plan, err error) error {
	late, ok := err.(persistent.Timeout)
	if !ok {
		return err
	}
	k := r.persistent.kernel
	r.state.stale = true
	if step := late.Step(); step < len(k.Planned) {
		err = gpt2.NewStageError(plan, plan.Steps[k.Planned[step]], r.state.position, err)
	}
	r.refuse(errors.New("its kernel timed out in this session"))
	after := r.stream.Synchronize() // launches that were ahead end at once
	if after == nil {
		after = k.Reset()
	}
	if after != nil {
		return fmt.Errorf("%w; and after that: %w", err, after)
	}
	return err
}
