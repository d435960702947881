package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"

	"gpt2scope/cuda"
	"gpt2scope/cuda/persistent"
	"gpt2scope/gpt2"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
)

// Runner executes the passes of one session, on a stream of its own.
type Runner struct {
	backend *Backend
	model   *gpt2.Model
	options gpt2.Options
	weights *uploaded        // held until Close
	params  map[string]param // of the weights, those that the layers need among them
	stream  *cuda.Stream

	memory memory
	state  state
	ring   ring

	plans    *gpt2.PlanCache
	compiled map[gpt2.Pass]*compiled
	last     lastPass

	recorder   recorder
	loading    loading
	persistent kernelState
	drafts     drafts
	failed     error // the device is lost: it sticks
}

// runAhead is how many decode steps may be launched one by one before their tokens are read.
const runAhead = 8

// maxCompiled bounds how many passes a session keeps launches and graphs of.
const maxCompiled = 32

// newRunner allocates what does not depend on the pass. What it made is the runner's to free, also where it fails.
func newRunner(b *Backend, m *gpt2.Model, o gpt2.Options, u *uploaded, params map[string]param) (*Runner, error) {
	defer annotate.Range("allocate", nvtx.Cyan)()
	r := &Runner{backend: b, model: m, options: o, weights: u, params: params, compiled: map[gpt2.Pass]*compiled{},
		plans: gpt2.NewPlanCache(b, m.Config, o.Layers),
		state: state{batch: o.Batch, tokens: make([]gpt2.Token, 0, o.Batch)}, ring: ring{batch: o.Batch}, recorder: off{}}
	var err error
	if r.stream, err = b.dev.NewStream(); err != nil {
		return r, err
	}
	if b.mode == Eager { // a kernel's time is then its own, from its start to its end
		if err := r.stream.NoOverlap(); err != nil {
			return r, err
		}
	}
	if err := r.memory.allocate(b, r.stream, m.Config, o); err != nil {
		return r, err
	}
	if err := r.ring.allocate(b.dev); err != nil {
		return r, err
	}
	return r, r.state.allocate(b.dev, o.Batch)
}

// Close frees everything but the weights that other sessions use.
func (r *Runner) Close() error {
	if r.weights == nil {
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var errs []error
	if r.stream != nil && r.failed == nil {
		errs = append(errs, r.stream.Synchronize(), r.StopRecording())
	}
	errs = append(errs, r.forget(), r.freeStamps(), r.persistent.kernel.Free(), r.drafts.free(), r.memory.free(), r.state.free(),
		free(r.ring.slots))
	if r.stream != nil {
		errs = append(errs, r.stream.Close())
	}
	errs = append(errs, r.backend.release(r.model, r.weights))
	failed := r.failed
	*r = Runner{recorder: off{}}
	if failed != nil { // reported already; errors of freeing follow from it
		return nil
	}
	return cmp.Or(errs...)
}

// Plan returns the fused plan of a pass.
func (r *Runner) Plan(pass gpt2.Pass) *gpt2.Plan { return r.plans.Plan(pass) }

// SetSampling sets how later passes sample.
func (r *Runner) SetSampling(s gpt2.Sampling) {
	r.state.sampling, r.state.stale = s, true
	if !r.Samples(s) {
		r.backend.fallBack("the host samples")
	}
}

// Samples tells whether the device can sample so: csrc/sample.cu has no penalty, no min-p and no list of the likeliest
// tokens.
func (r *Runner) Samples(s gpt2.Sampling) bool { return s.Basic() }

// Position returns how many tokens the cache holds.
func (r *Runner) Position() int { return r.state.position }

// Synchronize waits until the device has done all that was launched: what comes after, such as a profiler's start,
// divides passes cleanly.
func (r *Runner) Synchronize() error {
	if r.failed != nil {
		return r.failed
	}
	return r.stream.Synchronize()
}

// Rewind drops cached tokens; their places are written again by later passes.
func (r *Runner) Rewind(position int) error {
	if position < 0 || position > r.state.position {
		return fmt.Errorf("cannot rewind to token %d of %d", position, r.state.position)
	}
	r.state.position, r.state.stale = position, true
	return nil
}

// compile returns the launches of the pass that runs in place of a pass. They are made once.
func (r *Runner) compile(pass gpt2.Pass) (*compiled, error) {
	pass = r.backend.executed(pass, r.options.Context)
	if c, ok := r.compiled[pass]; ok {
		return c, nil
	}
	plan := r.Plan(pass)
	if err := r.grow(plan); err != nil {
		return nil, err
	}
	if len(r.compiled) == maxCompiled {
		if err := r.forget(); err != nil {
			return nil, err
		}
	}
	w := r.writer(plan)
	if err := w.write(r.state.position); err != nil {
		return nil, err
	}
	c := &compiled{plan: plan, steps: w.steps, ranges: annotate.New(plan, nvtx.Green),
		samples: plan.Steps[len(plan.Steps)-1].Last().Op == gpt2.OpSample}
	r.compiled[pass] = c
	return c, nil
}

// writer returns what writes the launches of a plan.
func (r *Runner) writer(plan *gpt2.Plan) *writer {
	return &writer{backend: r.backend, config: r.model.Config, options: r.options, params: r.params, stream: r.stream,
		loading: &r.loading,
		at:      r.addresses(), plan: plan}
}

func (r *Runner) addresses() addresses {
	at := addresses{ring: r.ring.slots.Ptr()}
	r.memory.addresses(&at)
	r.state.addresses(&at)
	return at
}

// forget frees all graphs, and drops launches.
func (r *Runner) forget() error {
	var errs []error
	for pass, c := range r.compiled {
		errs = append(errs, r.recorder.forget(c), free(c.plain.graph))
		if c.single != nil {
			errs = append(errs, r.recorder.forget(c.single))
		}
		delete(r.compiled, pass)
	}
	r.last = lastPass{}
	return cmp.Or(errs...)
}

// grow makes the buffers large enough for a plan. Launches hold their addresses, so when a buffer moves all launches
// are dropped.
func (r *Runner) grow(plan *gpt2.Plan) error {
	if n := plan.Pass.Batch * plan.Pass.Tokens; n > r.state.room {
		if err := r.forget(); err != nil {
			return err
		}
		if err := r.state.allocate(r.backend.dev, n); err != nil {
			return err
		}
	}
	for b := range gpt2.NumBuffers {
		n := r.backend.bufferBytes(b, plan)
		if !r.memory.lacks(b, n) {
			continue
		}
		if err := r.forget(); err != nil {
			return err
		}
		if err := r.memory.reallocate(r.backend.dev, b, n); err != nil {
			return err
		}
	}
	return nil
}

// begin returns what a call launches for a pass, by [Runner.choose].
func (r *Runner) begin(pass gpt2.Pass, prompt bool) (*compiled, error) {
	if r.failed != nil {
		return nil, r.failed
	}
	c, err := r.compile(pass)
	if err != nil {
		return nil, err
	}
	c, err = r.choose(c, prompt)
	return c, r.fail(c, err)
}

// Prefill executes one pass.
func (r *Runner) Prefill(ctx context.Context, ids []int32, pass gpt2.Pass) ([]gpt2.Token, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := r.begin(pass, true)
	if err != nil {
		return nil, err
	}
	if err := r.state.enter(r.stream, ids, c.plan.Pass.Tokens); err != nil {
		return nil, r.fail(c, err)
	}
	if _, err := r.step(passAt{c, r.state.position, pass.Tokens}, 1); err != nil {
		return nil, r.fail(c, err)
	}
	r.state.tokens = r.state.tokens[:0]
	if !c.samples {
		if err := r.stream.Synchronize(); err != nil {
			return nil, r.fail(c, err)
		}
		if err := r.checkLate(c); err != nil {
			return nil, err
		}
		r.state.position += pass.Tokens
		r.state.stale = true // the device's position is still that before the pass
		return nil, nil
	}
	if err := r.await(ctx, r.state.step); err != nil {
		if ctx.Err() != nil {
			return nil, r.settle(c, 1, err)
		}
		return nil, r.fail(c, err)
	}
	if err := r.take(c, pass.Tokens); err != nil {
		return nil, err
	}
	return r.state.tokens, nil
}

// await waits for the tokens of a step.
func (r *Runner) await(ctx context.Context, step uint64) error {
	defer r.recorder.wait()()
	return r.ring.await(ctx, r.stream, step)
}

// take reads the tokens of the step that was awaited, and moves the position past those that its pass evaluated.
func (r *Runner) take(c *compiled, evaluated int) error {
	past, step := r.state.position, r.state.step
	r.state.step++
	if r.drafts.rows > 0 {
		r.drafts.took(r.ring.slot(step, 0), past)
	}
	tokens, err := r.ring.read(r.state.tokens, step)
	if late, ok := err.(persistent.Timeout); ok {
		return r.explain(c.plan, late)
	}
	r.state.position += evaluated
	if r.state.tokens = tokens; err != nil {
		return gpt2.NewStageError(c.plan, c.plan.Steps[len(c.plan.Steps)-1], past, err)
	}
	return nil
}

// pass launches a pass: eagerly, or as a graph from its second run on.
func (r *Runner) pass(at passAt) error {
	c := at.c
	v, other := r.recorder.variants(c)
	if r.backend.mode.captures() && c.plan.Pass.Until == "" && v.graph == nil && c.runs > 0 {
		if err := r.capture(at, v); err != nil {
			return err
		}
		if other != nil && other.graph == nil { // now, so that no later pass waits for its capture
			if err := r.capture(at, other); err != nil {
				return err
			}
		}
	}
	c.ranges.Begin(at.position)
	defer c.ranges.End()
	p := r.recorder.pass(at, v)
	defer p.close()
	if v.graph != nil {
		return p.replay(v.graph, r.stream)
	}
	first := c.runs == 0
	c.runs++
	return r.launch(c, p, first)
}

// capture makes the graph of a pass. A profiler attributes the graph's nodes by the NVTX ranges of its steps, which are
// opened here. They lie in a range of their own, so that what is captured is not counted as a pass that ran.
func (r *Runner) capture(at passAt, v *variant) (err error) {
	defer annotate.Range("record graph", nvtx.Blue)()
	at.c.ranges.Begin(r.state.position)
	defer at.c.ranges.End()
	p := r.recorder.capture(at, v)
	defer p.close()
	v.graph, err = r.stream.Capture(func() error { return r.launch(at.c, p, false) })
	return err
}

// launch launches every step. The first launches of a plan may load kernels.
func (r *Runner) launch(c *compiled, p passRecorder, first bool) error {
	if err := p.begin(); err != nil {
		return err
	}
	for i, launches := range c.steps {
		if len(launches) == 0 {
			continue
		}
		c.ranges.Step(i)
		p.step(i)
		for _, l := range launches {
			var err error
			if first {
				err = r.loading.first(l.loads(), func() error { return p.launch(i, l) })
			} else {
				err = p.launch(i, l)
			}
			if err != nil {
				p.endStep()
				return gpt2.NewStageError(c.plan, c.plan.Steps[i], r.state.position, err)
			}
		}
		p.endStep()
		c.ranges.EndStep(i)
	}
	return p.end()
}

// Decode runs n steps, launching ahead of the tokens that are read.
func (r *Runner) Decode(ctx context.Context, n int, emit func([]gpt2.Token) bool) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer func() { r.drafts.rows = 0 }()
	c, err := r.begin(r.decodePass(), false)
	if err != nil {
		return err
	}
	if err := r.state.refresh(r.stream); err != nil {
		return r.fail(c, err)
	}
	if err := r.drafts.check(r); err != nil {
		return err
	}
	launched := 0 // of the steps of this call
	for read := 0; read < n; read++ {
		if ctx.Err() != nil {
			return r.settle(c, launched-read, context.Cause(ctx))
		}
		for launched < n && launched-read < r.ahead() {
			steps, err := r.step(passAt{c, r.state.position + launched - read, 1}, n-launched)
			if err != nil {
				return r.fail(c, err)
			}
			launched += steps
		}
		if err := r.await(ctx, r.state.step); err != nil {
			if ctx.Err() != nil {
				return r.settle(c, launched-read, err)
			}
			return r.fail(c, err)
		}
		if err := r.take(c, 1); err != nil {
			return r.settle(c, launched-read-1, err)
		}
		if !emit(r.state.tokens) {
			return r.settle(c, launched-read-1, nil)
		}
	}
	return nil
}

// ahead is how many decode steps are launched before the token of the first is read.
func (r *Runner) ahead() int {
	if k := r.persistent.kernel; r.persistent.on && !k.SamplesApart(r.state.sampling) {
		return k.Tokens(r.state.sampling) + runAhead // while a launch runs, the next one waits in the stream
	}
	return runAhead
}

// step launches decode steps from a pass on, from 1 to n, and returns how many; or a prompt, as one.
func (r *Runner) step(at passAt, n int) (int, error) {
	if r.persistent.on {
		steps, err := r.launchPersistent(at.c, at.position, n)
		if !errors.Is(err, cuda.ErrNoKernel) {
			return steps, err
		}
		r.refuse(err) // nothing was launched
	}
	if at.c.singleSteps {
		r.nextSingly(at)
	}
	r.last = lastPass{plan: at.c.plan, rows: at.tokens, logitsOnly: at.c.singleSteps}
	return 1, r.pass(at)
}

func (r *Runner) decodePass() gpt2.Pass {
	return gpt2.Pass{Batch: r.options.Batch, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}
}

// settle waits for launched steps whose tokens were not read, and drops them: position and tokens stay those of the
// last step that was read. The count of launches goes on, so that slots of dropped steps are not read as new ones.
func (r *Runner) settle(c *compiled, ahead int, cause error) error {
	if ahead > 0 {
		if err := r.stream.Synchronize(); err != nil {
			return r.fail(c, err)
		}
		r.state.step += uint64(ahead)
		r.state.stale = true
	}
	return cause
}

// fail adds to an error which pass failed. If the device no longer works, the error sticks.
func (r *Runner) fail(c *compiled, err error) error {
	if err == nil {
		return nil
	}
	var stage *gpt2.StageError
	if !errors.As(err, &stage) && !errors.Is(err, context.Canceled) {
		err = fmt.Errorf("a pass of B=%d T=%d after %d tokens: %w", c.plan.Pass.Batch, c.plan.Pass.Tokens, r.state.position,
			err)
	}
	if r.stream.Synchronize() != nil { // the device is lost to this process
		r.failed = err
	}
	r.state.stale = true
	r.state.step += ringSlots // past whatever was launched
	return err
}
