package gpt2

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"gpt2scope/internal/stats"
)

// Measurement is the time of a pass over several repetitions.
type Measurement struct {
	Median, P10, P90 time.Duration
	Times            []time.Duration // in the order measured
}

// fillChunk is how many tokens at a time fill the cache: little memory beside that of
// the pass itself.
const fillChunk = 32

// Measure times a pass of the phase, on random tokens, with past tokens in the
// cache: repeat times after a warm-up of at least two passes and 50 ms. Each
// decode step is timed alone, at the same past. The session must be for the
// phase's batch; it is empty afterwards.
//
// A runner that has a way of its own to time passes, such as steps that follow
// one another without a wait of the host's, is asked to ([Measurer]).
func (s *Session) Measure(ctx context.Context, phase Phase, past, repeat int) (Measurement, error) {
	if s.err != nil {
		return Measurement{}, s.err
	}
	if phase.Batch != s.options.Batch {
		return Measurement{}, fmt.Errorf("the session has %d sequences and the phase %d", s.options.Batch, phase.Batch)
	}
	if repeat < 1 {
		return Measurement{}, fmt.Errorf("%d repetitions; there must be at least one", repeat)
	}
	if past < 0 || past >= s.options.Context {
		return Measurement{}, fmt.Errorf("%d tokens in the cache leave no room in a context of %d", past, s.options.Context)
	}
	if err := phase.Check(s.model.Config, s.options.Layers, s.options.Context-past); err != nil {
		return Measurement{}, err
	}
	if err := s.Reset(); err != nil {
		return Measurement{}, err
	}
	if own, ok := s.runner.(Measurer); ok {
		times, err := own.Measure(ctx, phase, past, repeat)
		if err != nil {
			return Measurement{}, s.fail(ctx, err)
		}
		if len(times) == 0 {
			return Measurement{}, errors.New("the executor measured nothing")
		}
		return newMeasurement(times), s.Reset()
	}
	random := rand.New(rand.NewPCG(1, 2))
	ids := make([]int32, phase.Batch*max(past, phase.Tokens))
	for i := range ids {
		ids[i] = int32(random.IntN(s.model.Config.Vocab))
	}
	for from := 0; from < past; from += fillChunk {
		n := min(fillChunk, past-from)
		if _, err := s.runner.Prefill(ctx, ids[phase.Batch*from:phase.Batch*(from+n)], Phase{Batch: phase.Batch, Tokens: n}); err != nil {
			return Measurement{}, s.fail(ctx, err)
		}
	}
	pass := func() (time.Duration, error) {
		start := time.Now()
		_, err := s.runner.Prefill(ctx, ids[:phase.Batch*phase.Tokens], phase)
		elapsed := time.Since(start)
		if err == nil {
			err = s.runner.Rewind(past)
		}
		return elapsed, s.fail(ctx, err)
	}
	for start, n := time.Now(), 0; n < 2 || time.Since(start) < 50*time.Millisecond; n++ {
		if _, err := pass(); err != nil {
			return Measurement{}, err
		}
	}
	times := make([]time.Duration, repeat)
	for i := range times {
		var err error
		if times[i], err = pass(); err != nil {
			return Measurement{}, err
		}
	}
	return newMeasurement(times), s.Reset()
}

// Measurer is implemented by runners that time passes themselves: after a warm-up,
// repeat times, with past tokens in the cache. The result has a duration of one
// pass for each.
type Measurer interface {
	Measure(ctx context.Context, phase Phase, past, repeat int) ([]time.Duration, error)
}

// newMeasurement returns the times with their quantiles. There is at least one.
func newMeasurement(times []time.Duration) Measurement {
	sorted := slices.Sorted(slices.Values(times))
	at := func(q float64) time.Duration { return stats.Quantile(sorted, q) }
	return Measurement{Median: at(0.5), P10: at(0.1), P90: at(0.9), Times: times}
}
