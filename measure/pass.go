package measure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gpt2scope/gpt2"
	"gpt2scope/internal/stats"
)

// Times are the times of a pass over several repetitions.
type Times struct {
	Median, P10, P90 time.Duration
	All              []time.Duration // in the order measured
}

// Pass times a pass on random ids, with past tokens in the cache: repeat times, after a warm-up. Each decode step has
// the same number of tokens before it. The session must be for the pass's batch; it is empty afterwards.
//
// A runner that can time passes itself does so ([gpt2.OnDevice]). Others run at least
// two passes and 50 ms for warm-up, and each pass is timed alone.
func Pass(ctx context.Context, s *gpt2.Session, pass gpt2.Pass, past, repeat int) (Times, error) {
	if repeat < 1 {
		return Times{}, fmt.Errorf("%d repetitions; there must be at least one", repeat)
	}
	if err := prepare(ctx, s, pass, past); err != nil {
		return Times{}, err
	}
	ids := IDs(s.Model(), pass.Batch*pass.Tokens)
	var times []time.Duration
	var err error
	if device, ok := s.Runner().(gpt2.OnDevice); ok {
		times, err = device.Measure(ctx, ids, pass, repeat)
	} else {
		times, err = alone(ctx, s, ids, pass, past, repeat, func() {})
	}
	if err != nil {
		return Times{}, err
	}
	return newTimes(times), s.Reset()
}

// alone times passes one by one. It calls warm after the warm-up.
func alone(ctx context.Context, s *gpt2.Session, ids []int32, pass gpt2.Pass, past, repeat int, warm func()) (
	[]time.Duration, error) {
	r := s.Runner()
	once := func() (time.Duration, error) {
		start := time.Now()
		_, err := r.Prefill(ctx, ids, pass)
		elapsed := time.Since(start)
		if err == nil {
			err = r.Rewind(past)
		}
		return elapsed, err
	}
	for start, n := time.Now(), 0; n < 2 || time.Since(start) < 50*time.Millisecond; n++ {
		if _, err := once(); err != nil {
			return nil, err
		}
	}
	warm()
	times := make([]time.Duration, repeat)
	for i := range times {
		var err error
		if times[i], err = once(); err != nil {
			return nil, err
		}
	}
	return times, nil
}

// newTimes returns the times with their quantiles. There is at least one.
func newTimes(all []time.Duration) Times {
	sorted := slices.Sorted(slices.Values(all))
	at := func(q float64) time.Duration { return stats.Quantile(sorted, q) }
	return Times{Median: at(0.5), P10: at(0.1), P90: at(0.9), All: all}
}

// prepare fills the cache before a pass, where session and pass go together.
func prepare(ctx context.Context, s *gpt2.Session, pass gpt2.Pass, past int) error {
	o := s.Options()
	if pass.Batch != o.Batch {
		return fmt.Errorf("the session has %d sequences and the pass %d", o.Batch, pass.Batch)
	}
	if past < 0 || past >= o.Context {
		return fmt.Errorf("%d tokens in the cache leave no room in a context of %d", past, o.Context)
	}
	if err := pass.Check(s.Model().Config, o.Layers, o.Context-past); err != nil {
		return err
	}
	return Fill(ctx, s, past)
}
