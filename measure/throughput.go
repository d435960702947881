package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gpt2scope/gpt2"
	"gpt2scope/internal/stats"
)

// Test is a test of llama.cpp's llama-bench: the evaluation of a prompt (Prompt tokens), or the
// generation of tokens one after another (Gen tokens). One of the two is 0. Depth tokens are in
// the cache before, of each sequence of the session.
type Test struct {
	Prompt, Gen, Depth int
}

// String names the test as llama-bench does: pp512, tg128, tg128 @ d512.
func (t Test) String() string {
	name := fmt.Sprintf("pp%d", t.Prompt)
	if t.Gen > 0 {
		name = fmt.Sprintf("tg%d", t.Gen)
	}
	if t.Depth > 0 {
		name += fmt.Sprintf(" @ d%d", t.Depth)
	}
	return name
}

// Tokens returns how many tokens of each sequence the test evaluates.
func (t Test) Tokens() int { return t.Prompt + t.Gen }

// Throughput is what was measured of a test.
type Throughput struct {
	Test    Test
	Batch   int
	Samples []time.Duration // of each repetition
}

// PerSecond returns the mean of the tokens per second of all sequences over the repetitions, and their standard
// deviation, 0 of a single one. Both are llama-bench's: means of rates, and n - 1 degrees of freedom.
func (t Throughput) PerSecond() (mean, deviation float64) {
	rates := make([]float64, len(t.Samples))
	for i, d := range t.Samples {
		rates[i] = t.Rate(d)
	}
	return stats.MeanStdDev(rates)
}

// Rate returns the tokens per second of all sequences of a repetition.
func (t Throughput) Rate(d time.Duration) float64 {
	return float64(t.Batch*t.Test.Tokens()) / max(d.Seconds(), 1e-9)
}

// Nanoseconds returns the mean of the times of the test, and their standard deviation.
func (t Throughput) Nanoseconds() (mean, deviation float64) { return stats.MeanStdDev(t.Samples) }

// Run measures a test on random tokens, after a warm-up. A prompt gives the logits of its last row.
// Generated tokens are the likeliest, sampled where the logits are. The session is empty afterwards.
func Run(ctx context.Context, s *gpt2.Session, t Test, repeat int) (Throughput, error) {
	batch := s.Options().Batch
	out := Throughput{Test: t, Batch: batch}
	switch {
	case repeat < 1:
		return out, fmt.Errorf("%d repetitions; there must be at least one", repeat)
	case t.Prompt < 0 || t.Gen < 0 || t.Depth < 0 || (t.Prompt > 0) == (t.Gen > 0):
		return out, fmt.Errorf("%+v is no test: it must have a prompt or generate tokens", t)
	case t.Depth+t.Tokens() > s.Options().Context:
		return out, fmt.Errorf("%s takes %d tokens, and the context holds %d", t, t.Depth+t.Tokens(), s.Options().Context)
	}
	if t.Prompt > 0 {
		times, err := Pass(ctx, s, gpt2.Pass{Batch: batch, Tokens: t.Prompt, Logits: gpt2.LogitsLast}, t.Depth, repeat)
		out.Samples = times.All
		return out, err
	}
	err := Fill(ctx, s, t.Depth)
	if err == nil {
		_, err = generate(ctx, s, min(t.Gen, warmUp), t.Depth)
	}
	for range repeat {
		if err != nil {
			break
		}
		var elapsed time.Duration
		elapsed, err = generate(ctx, s, t.Gen, t.Depth)
		out.Samples = append(out.Samples, elapsed)
	}
	return out, errors.Join(err, s.Reset())
}

// warmUp is how many tokens are generated before any are timed.
const warmUp = 16

// generate times n decode steps that follow one another, the first of a given token, and rewinds the cache.
func generate(ctx context.Context, s *gpt2.Session, n, depth int) (time.Duration, error) {
	r, ids := s.Runner(), IDs(s.Model(), s.Options().Batch)
	start := time.Now()
	err := decode(ctx, r, ids, n)
	elapsed := time.Since(start)
	if err != nil {
		return 0, err
	}
	return elapsed, r.Rewind(depth)
}
