package cpu

import (
	"context"
	"errors"
	"time"

	"gpt2scope/gpt2"
)

// Repeat repeats steps of a pass: [gpt2.Repeater]. Sampling is done in Go and has no
// kernel to repeat.
func (r *runner) Repeat(ctx context.Context, ids []int32, pass gpt2.Pass, pick func(gpt2.Step) bool, d time.Duration) (rounds int, elapsed time.Duration, err error) {
	past := r.Position()
	defer func() { r.seek(past) }()
	if _, err := r.Prefill(ctx, ids, pass); err != nil { // fills the buffers that the steps read
		return 0, 0, err
	}
	r.seek(past)
	c, err := r.compile(pass)
	if err != nil {
		return 0, 0, err
	}
	var chosen []int
	for i, s := range c.plan.Steps {
		if pick(s) && c.from[i+1] > c.from[i] {
			chosen = append(chosen, i)
		}
	}
	if len(chosen) == 0 {
		return 0, 0, errors.New("the pass has no such step to repeat by a kernel of the CPU")
	}
	defer r.watch(ctx, c)()
	for began := time.Now(); elapsed < d || rounds == 0; elapsed = time.Since(began) {
		for _, i := range chosen {
			whole, err := c.program.run(c.from[i], c.from[i+1], mem[int64]{})
			if err != nil {
				return rounds, elapsed, err
			}
			if !whole {
				return rounds, elapsed, context.Cause(ctx)
			}
		}
		rounds++
	}
	return rounds, elapsed, nil
}
