package cpu

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"gpt2scope/gpt2"
)

// Repeat runs the steps of a pass that pick chooses, one after another, round after
// round for at least d, as they run in a pass of the phase on random tokens with past
// tokens in the cache. It returns how many rounds there were and how long they took. A
// step that works in place, such as a residual add, meets its own output the next
// time. Sampling is done in Go and has no kernel to repeat. The cache is empty
// afterwards.
func (r *runner) Repeat(ctx context.Context, phase gpt2.Phase, past int, pick func(gpt2.Step) bool, d time.Duration) (rounds int, elapsed time.Duration, err error) {
	random := rand.New(rand.NewPCG(1, 2))
	ids := make([]int32, phase.Batch*max(past, phase.Tokens))
	for i := range ids {
		ids[i] = int32(random.IntN(r.model.Config.Vocab))
	}
	r.seek(0)
	defer func() { r.seek(0) }()
	if past > 0 {
		if _, err := r.Prefill(ctx, ids[:phase.Batch*past], gpt2.Phase{Batch: phase.Batch, Tokens: past}); err != nil {
			return 0, 0, err
		}
	}
	if _, err := r.Prefill(ctx, ids[:phase.Batch*phase.Tokens], phase); err != nil { // fills the buffers that the steps read
		return 0, 0, err
	}
	r.seek(past)
	c, err := r.compile(phase)
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
