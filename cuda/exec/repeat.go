package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"gpt2scope/gpt2"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
)

const (
	repeatLaunches = 256                  // of a captured run of rounds, about
	repeatBurst    = 5 * time.Millisecond // between two waits for the device
)

// Repeat repeats steps of a pass: [gpt2.Repeater]. The time is from the first launch until the device was done. In
// modes that capture, rounds are captured and replayed.
func (r *Runner) Repeat(ctx context.Context, ids []int32, pass gpt2.Pass, pick func(gpt2.Step) bool,
	d time.Duration) (rounds int, elapsed time.Duration, err error) {
	if r.failed != nil {
		return 0, 0, r.failed
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := r.compile(pass)
	if err != nil {
		return 0, 0, err
	}
	if c.plan.Pass == r.decodePass() && r.backend.singleSteps {
		if c, err = r.choose(c, false); err != nil {
			return 0, 0, r.fail(c, err)
		}
	}
	launches, samples, err := c.pick(pick)
	if err != nil {
		return 0, 0, err
	}
	r.last = lastPass{plan: c.plan, rows: pass.Tokens}
	defer r.state.reset(r.state.position)
	// A whole pass loads the kernels and fills the buffers that the steps read.
	if err := r.state.enter(r.stream, ids, c.plan.Pass.Tokens); err != nil {
		return 0, 0, r.fail(c, err)
	}
	if c.singleSteps {
		err = r.launchSingly(c, r.state.position)
	} else {
		err = r.pass(passAt{c, r.state.position, pass.Tokens})
	}
	if err != nil {
		return 0, 0, r.fail(c, err)
	}
	if err := r.stream.Synchronize(); err != nil {
		return 0, 0, r.fail(c, err)
	}
	if c.samples {
		r.state.step++
	}
	if err := r.state.enter(r.stream, ids, c.plan.Pass.Tokens); err != nil {
		return 0, 0, r.fail(c, err)
	}
	rounds, elapsed, err = r.replay(ctx, launches, d)
	if samples {
		r.state.step += uint64(rounds)
	}
	if err != nil && !errors.Is(err, context.Cause(ctx)) {
		err = r.fail(c, err)
	}
	return rounds, elapsed, err
}

// pick returns the launches of the chosen steps, and whether they sample.
func (c *compiled) pick(pick func(gpt2.Step) bool) (launches []launch, samples bool, err error) {
	steps := 0
	for i, s := range c.plan.Steps {
		if pick(s) && len(c.steps[i]) > 0 {
			launches = append(launches, c.steps[i]...)
			samples = samples || s.Op() == gpt2.OpSample
			steps++
		}
	}
	switch {
	case steps == 0:
		return nil, false, errors.New("the pass has no such step to repeat")
	case samples && steps > 1: // sampling moves the position, and others would leave the cache
		return nil, false, fmt.Errorf("sampling cannot be repeated together with other steps: it moves the position")
	}
	return launches, samples, nil
}

// replay runs rounds of launches for at least d.
func (r *Runner) replay(ctx context.Context, launches []launch, d time.Duration) (
	rounds int, elapsed time.Duration, err error) {
	perRun := max(1, repeatLaunches/len(launches))
	run := func() error {
		for range perRun {
			for _, l := range launches {
				if err := l.run(); err != nil {
					return err
				}
			}
		}
		return nil
	}
	once := run
	if r.backend.mode.captures() {
		g, failed := r.stream.Capture(run)
		if failed != nil {
			return 0, 0, failed
		}
		defer func() { err = cmp.Or(err, r.stream.Synchronize(), g.Free()) }()
		once = func() error { return g.Launch(r.stream) }
	}
	defer annotate.Range("repeat", nvtx.Red)()
	burst := 1 // runs between two waits
	for began := time.Now(); ; {
		if ctx.Err() != nil {
			return rounds, elapsed, context.Cause(ctx)
		}
		start := time.Now()
		for range burst {
			if err := once(); err != nil {
				return rounds, elapsed, err
			}
		}
		if err := r.stream.Synchronize(); err != nil {
			return rounds, elapsed, err
		}
		rounds += burst * perRun
		if elapsed = time.Since(began); elapsed >= d {
			return rounds, elapsed, nil
		}
		if took := time.Since(start); took < repeatBurst/2 && burst < 1<<12 {
			burst *= 2
		}
	}
}
