package layers

import (
	"context"
	"errors"

	"gpt2scope/gpt2"
	"gpt2scope/measure"
)

// MemoryUse is what a session took, in bytes.
type MemoryUse struct {
	Host   int64 `json:"host_peak"` // of the process; 0 if the system does not report it
	Device int64 `json:"device"`    // 0 of the CPU
}

// memoryRuns is how often the passes run: a GPU makes a graph at the second run.
const memoryRuns = 3

// MeasureMemory loads a run order of layers, runs a few passes and returns how much memory that took. What the process
// did before counts too, so each run order needs a process of its own.
func (e *Experiment) MeasureMemory(ctx context.Context, order []int) (use MemoryUse, err error) {
	before, _, err := gpt2.MemoryOf(e.Backend)
	onDevice := err == nil
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return use, err
	}
	s, err := e.session(ctx, order, e.batch())
	if err != nil {
		return use, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	capacity := s.Options().Context
	for range memoryRuns {
		for _, n := range []int{e.PromptLen, max(1, e.Past)} {
			g := gpt2.Generation{Tokens: 1 + min(memoryRuns, capacity-n), IgnoreEOS: true}
			for _, err := range s.Generate(ctx, measure.IDs(e.Model, e.batch()*n), g) {
				if err != nil {
					return use, err
				}
			}
			if err := s.Reset(); err != nil {
				return use, err
			}
		}
	}
	if onDevice {
		after, _, err := gpt2.MemoryOf(e.Backend)
		if err != nil {
			return use, err
		}
		use.Device = int64(before) - int64(after)
	} else if err := e.fillContext(ctx, s); err != nil { // of a host's memory only what was written to counts
		return use, err
	}
	use.Host = measure.PeakMemory()
	return use, nil
}

// fillContext evaluates tokens until the KV cache is full, as many at once as a prefill has, so that activations take
// no more than they did.
func (e *Experiment) fillContext(ctx context.Context, s *gpt2.Session) error {
	for capacity := s.Options().Context; s.Position() < capacity; {
		n := min(e.PromptLen, capacity-s.Position())
		if _, err := s.Logits(ctx, measure.IDs(e.Model, e.batch()*n), gpt2.LogitsNone); err != nil {
			return err
		}
	}
	return nil
}
