package measure

import (
	"cmp"
	"context"
	"time"

	"gpt2scope/gpt2"
)

// Work is something that a session does again and again while something else, such as an energy counter, is read.
type Work struct {
	Tokens int // that a round makes or takes, of all sequences

	// Run does rounds for at least d, and returns how many there were and their time.
	Run func(ctx context.Context, d time.Duration) (rounds int, elapsed time.Duration, err error)
}

// stretch is how many decode steps follow one another before the cache is rewound.
const stretch = 64

// Decoding is the work of decode steps: greedy ones, from past tokens in the cache on
// and a stretch of 64 steps further, again and again.
func Decoding(s *gpt2.Session, past int) Work {
	batch := s.Options().Batch
	n := min(stretch, s.Options().Context-past)
	ids := IDs(s.Model(), batch)
	return rounds(s, past, Work{Tokens: batch}, n, func(ctx context.Context) error {
		return decode(ctx, s.Runner(), ids, n)
	})
}

// decode does n decode steps that follow one another, the first of given tokens, one of each sequence.
func decode(ctx context.Context, r gpt2.Runner, ids []int32, n int) error {
	step := gpt2.Pass{Batch: len(ids), Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}
	_, err := r.Prefill(ctx, ids, step)
	if err == nil && n > 1 {
		err = r.Decode(ctx, n-1, func([]gpt2.Token) bool { return true })
	}
	return err
}

// Prefilling is the work of evaluating a prompt of the pass's tokens, after past tokens in the cache.
func Prefilling(s *gpt2.Session, pass gpt2.Pass, past int) Work {
	ids := IDs(s.Model(), pass.Batch*pass.Tokens)
	return rounds(s, past, Work{Tokens: pass.Batch * pass.Tokens}, 1, func(ctx context.Context) error {
		_, err := s.Runner().Prefill(ctx, ids, pass)
		return err
	})
}

// rounds makes w do passes from past tokens in the cache on, n of them at a time.
func rounds(s *gpt2.Session, past int, w Work, n int, passes func(ctx context.Context) error) Work {
	w.Run = func(ctx context.Context, d time.Duration) (done int, elapsed time.Duration, err error) {
		defer func() { err = cmp.Or(err, s.Reset()) }()
		if err := Fill(ctx, s, past); err != nil {
			return 0, 0, err
		}
		for began := time.Now(); elapsed < d; elapsed = time.Since(began) {
			if err := passes(ctx); err != nil {
				return done, elapsed, err
			}
			if err := s.Runner().Rewind(past); err != nil {
				return done, elapsed, err
			}
			done += n
		}
		return done, elapsed, nil
	}
	return w
}
