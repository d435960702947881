package exec

import (
	"context"
	"runtime"
	"time"

	"gpt2scope/gpt2"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
)

// measureSteps is how many passes are launched back to back for one duration.
const measureSteps = 16

// Measure times steady passes: [gpt2.OnDevice]. They are launched back to back, so that the time is the device's or the
// host's, whichever is longer, as when text is generated. Each duration is the mean of measureSteps passes, or of one
// prefill that samples. The positions of decode steps are around the present one.
func (r *Runner) Measure(ctx context.Context, ids []int32, pass gpt2.Pass, repeat int) ([]time.Duration, error) {
	past := r.state.position
	steps, start := measureSteps, past
	switch {
	case pass.Tokens == 1 && pass.Sample:
		steps = min(steps, r.options.Context)
		start = max(0, min(past-steps/2, r.options.Context-steps))
	case pass.Sample:
		steps = 1
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r.state.position = start
	defer r.state.reset(past)
	c, err := r.begin(pass, pass != r.decodePass())
	if err != nil {
		return nil, err
	}
	burst := func(name string) (time.Duration, error) {
		if err := r.state.enter(r.stream, ids, c.plan.Pass.Tokens); err != nil {
			return 0, err
		}
		if err := r.stream.Synchronize(); err != nil {
			return 0, err
		}
		defer annotate.Range(name, nvtx.Red)()
		began := time.Now()
		for launched := 0; launched < steps; {
			at, n := start, 1 // a prompt that does not sample does not move the position
			if pass.Tokens == 1 && pass.Sample {
				at, n = start+launched, steps-launched
			}
			n, err := r.step(passAt{c, at, pass.Tokens}, n)
			if err != nil {
				return 0, err
			}
			launched += n
		}
		if err := r.stream.Synchronize(); err != nil {
			return 0, err
		}
		elapsed := time.Since(began) / time.Duration(steps)
		if c.samples {
			r.state.step += uint64(steps)
			if _, err := r.ring.read(nil, r.state.step-1); (r.persistent.on || c.singleSteps) && err != nil {
				return 0, r.explain(c.plan, err)
			}
		}
		return elapsed, r.checkLate(c)
	}
	var times []time.Duration
	for began := time.Now(); len(times) < repeat; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		warm, name := time.Since(began) > 100*time.Millisecond, "warm up"
		if warm {
			name = "measure"
		}
		d, err := burst(name)
		if err != nil {
			return nil, r.fail(c, err)
		}
		if warm {
			times = append(times, d)
		}
	}
	return times, nil
}

// Launches returns how many launches a pass is, those of cuBLASLt counted as one each. In graph mode they are the
// graph's nodes, and the host launches it once. In mode persistent a launch is of up to [cuda.PersistentTokens] decode
// steps, and one step is counted as 1, as is a prompt of up to [cuda.PersistentRows] tokens.
func (r *Runner) Launches(pass gpt2.Pass) (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := r.begin(pass, pass != r.decodePass())
	if err != nil {
		return 0, err
	}
	if r.persistent.on {
		return 1, nil
	}
	n := 0
	for _, launches := range c.steps {
		n += len(launches)
	}
	return n, nil
}
