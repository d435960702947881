package main

import (
	"fmt"

	"gpt2scope/annotate"
	"gpt2scope/cuda/nvtx"
)

// captureWarmUp is how many tokens come before a capture: by then kernels are
// loaded, plans made and graphs recorded.
const captureWarmUp = 4

// profiled is a device whose profiler can be turned on and off, by
// cudaProfilerStart and cudaProfilerStop.
type profiled interface{ Profiler(on bool) error }

// captureRange is --capture-range: after a warm-up it turns the profiler on for a
// number of decode steps. A device that runs ahead of the tokens that it shows,
// as in graph mode, has steps before and after in flight at both ends.
type captureRange struct {
	device profiled // nil on the CPU, where an NVTX range marks the steps
	steps  int      // 0: no capture
	tokens int      // so far
	on     bool
	end    func()
}

// needs returns how many tokens a run must make for the capture to be whole.
func (c *captureRange) needs() int { return captureWarmUp + c.steps }

// token is to be called after each token.
func (c *captureRange) token() error {
	if c.steps == 0 {
		return nil
	}
	switch c.tokens++; c.tokens {
	case captureWarmUp:
		if c.device != nil {
			if err := c.device.Profiler(true); err != nil {
				return fmt.Errorf("--capture-range: the profiler does not start: %w", err)
			}
		}
		c.on, c.end = true, annotate.Span("capture", nvtx.Red)
	case c.needs():
		return c.stop()
	}
	return nil
}

// stop ends a capture that is on, as where a text ends before it is whole.
func (c *captureRange) stop() error {
	if !c.on {
		return nil
	}
	c.on = false
	c.end()
	if c.device != nil {
		if err := c.device.Profiler(false); err != nil {
			return fmt.Errorf("--capture-range: the profiler does not stop: %w", err)
		}
	}
	return nil
}
