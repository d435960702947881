package main

import (
	"fmt"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
)

// captureWarmUp is how many tokens come before a capture: by then kernels are
// loaded, plans made and graphs recorded.
const captureWarmUp = 4

// captureRange is --capture-range: after a warm-up it turns the profiler on for a
// number of decode steps. A device runs ahead of the tokens that are shown, so
// generation pauses at both ends to capture just these steps.
type captureRange struct {
	steps   int                 // 0: no capture
	device  gpt2.ProfilerSwitch // nil on the CPU: there only an NVTX range marks the steps
	session interface{ Synchronize() error }
	on      bool
	done    bool
	end     func()
}

// needs returns how many tokens a run must make for the capture to be whole.
func (c *captureRange) needs() int { return captureWarmUp + c.steps }

// check says whether a text can hold the capture: the number of tokens to be
// made, those of the prompt, and the context, beyond which steps are not steady.
func (c *captureRange) check(tokens, prompt, context int) error {
	switch {
	case c.steps == 0:
		return nil
	case c.steps > tokens-captureWarmUp:
		return cli.Usagef("--capture-range %d: it takes %d tokens besides, to warm up, and --tokens is %d; raise that", c.steps, captureWarmUp, tokens)
	case c.steps > context-prompt-captureWarmUp+1: // the last token is not evaluated
		return cli.Usagef("--capture-range %d: with the prompt's %s and %d to warm up, that does not fit in the context of %d; give fewer steps",
			c.steps, cli.Count(prompt, "token"), captureWarmUp, context)
	}
	return nil
}

// generation asks for the pauses that the capture needs.
func (c *captureRange) generation(g gpt2.Generation) gpt2.Generation {
	if c.steps > 0 {
		g.Pauses, g.OnPause = []int{captureWarmUp, c.needs()}, c.pause
		c.end = annotate.Span("warm up", nvtx.Red)
	}
	return g
}

// pause turns the profiler on at the first pause, off at the second.
func (c *captureRange) pause(made int) error {
	if err := c.session.Synchronize(); err != nil {
		return err
	}
	if made == c.needs() {
		c.done = true
		return c.stop()
	}
	c.endRange()
	if c.device != nil {
		if err := c.device.Profiler(true); err != nil {
			return fmt.Errorf("--capture-range: the profiler does not start: %w", err)
		}
	}
	c.on, c.end = true, annotate.Span("capture", nvtx.Red)
	return nil
}

// endRange closes the range of the warm-up or of the capture.
func (c *captureRange) endRange() {
	if c.end != nil {
		c.end()
		c.end = nil
	}
}

// stop ends a capture that is on, such as of a text that ends too early.
func (c *captureRange) stop() error {
	c.endRange()
	if !c.on {
		return nil
	}
	c.on = false
	if c.device != nil {
		if err := c.device.Profiler(false); err != nil {
			return fmt.Errorf("--capture-range: the profiler does not stop: %w", err)
		}
	}
	return nil
}

// finish must be called after the last token. A capture of fewer steps is an error:
// nothing else would tell it from a whole one.
func (c *captureRange) finish(made int) error {
	if err := c.stop(); err != nil || c.steps == 0 || c.done {
		return err
	}
	return fmt.Errorf("--capture-range %d: the text ended after %s, and the capture takes %d; leave out --stop, or add --ignore-eos", c.steps, cli.Count(made, "token"), c.needs())
}
