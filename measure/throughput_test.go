package measure_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
	"gpt2scope/measure"
)

// counting notes how many steps each call of Decode runs and from which position on.
type counting struct {
	gpt2.Runner
	steps, from []int
}

func (r *counting) Decode(ctx context.Context, n int, emit func([]gpt2.Token) bool) error {
	r.steps, r.from = append(r.steps, n), append(r.from, r.Position())
	return r.Runner.Decode(ctx, n, emit)
}

type countingBackend struct {
	gpt2.Backend
	runner *counting
}

func (b *countingBackend) Prepare(ctx context.Context, m *gpt2.Model, o gpt2.Options) (gpt2.Runner, error) {
	r, err := b.Backend.Prepare(ctx, m, o)
	b.runner = &counting{Runner: r}
	return b.runner, err
}

// A generation of n tokens is n decode steps from the depth on, each time anew, after a shorter one; a
// prompt is one prefill at that depth.
func TestRun(t *testing.T) {
	b := &countingBackend{Backend: fast(t)}
	s := session(t, b, gpt2.Options{Batch: 2})
	result, err := measure.Run(t.Context(), s, measure.Test{Gen: 40, Depth: 9}, 3)
	require.NoError(t, err)
	if !slices.Equal(b.runner.steps, []int{15, 39, 39, 39}) || !slices.Equal(b.runner.from, []int{10, 10, 10, 10}) {
		t.Errorf("decoded %v steps from %v", b.runner.steps, b.runner.from)
	}
	if len(result.Samples) != 3 || slices.Min(result.Samples) <= 0 || result.Batch != 2 || s.Position() != 0 {
		t.Errorf("%+v, position %d", result, s.Position())
	}
	timed := &fake{Backend: fast(t), times: []time.Duration{1, 2}}
	s = session(t, timed, gpt2.Options{})
	if result, err = measure.Run(t.Context(), s, measure.Test{Prompt: 30, Depth: 7}, 2); err != nil ||
		!slices.Equal(result.Samples, timed.times) || timed.at != 7 {
		t.Errorf("%+v (%v) at position %d", result, err, timed.at)
	}
	for _, test := range []measure.Test{{}, {Prompt: 1, Gen: 1}, {Gen: -1}, {Prompt: 1, Depth: -1}, {Prompt: 80, Depth: 1},
		{Gen: 81}} {
		if _, err := measure.Run(t.Context(), s, test, 1); err == nil {
			t.Errorf("%+v: no error", test)
		}
	}
	if _, err := measure.Run(t.Context(), s, measure.Test{Gen: 1}, 0); err == nil ||
		!strings.Contains(err.Error(), "0 repetitions") {
		t.Errorf("0 repetitions: %v", err)
	}
}

// Means and deviations are of the rates, as llama-bench has them.
func TestThroughput(t *testing.T) {
	x := measure.Throughput{Test: measure.Test{Gen: 10}, Batch: 2, Samples: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}} // 20, 10, 5 tokens/s
	if mean, deviation := x.PerSecond(); math.Abs(mean-35.0/3) > 1e-9 || math.Abs(deviation-math.Sqrt(175.0/3)) > 1e-9 {
		t.Errorf("%g ± %g tokens/s", mean, deviation)
	}
	if mean, deviation := x.Nanoseconds(); math.Abs(mean-7e9/3) > 1e-3 || math.Abs(deviation-1e9*math.Sqrt(7.0/3)) > 1e-3 {
		t.Errorf("%g ± %g ns", mean, deviation)
	}
	x.Samples = x.Samples[:1]
	if mean, deviation := x.PerSecond(); mean != 20 || deviation != 0 {
		t.Errorf("of one sample: %g ± %g", mean, deviation)
	}
	for test, want := range map[measure.Test]string{{Prompt: 512}: "pp512", {Gen: 128}: "tg128",
		{Gen: 1, Depth: 64}: "tg1 @ d64"} {
		if test.String() != want {
			t.Errorf("%+v is %s, expected %s", test, test, want)
		}
	}
}
