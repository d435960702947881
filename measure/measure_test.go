package measure_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"gpt2scope/cpu"
	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
	"gpt2scope/measure"
	"gpt2scope/reference/executor"
)

// fake is a backend of a runner that notes the passes it runs, and times them itself where it is told to.
type fake struct {
	gpt2.Backend
	times  []time.Duration
	err    error
	at     int // the position when it measured
	repeat int
	passes []gpt2.Pass
}

type noting struct {
	gpt2.Runner
	backend *fake
}

type timing struct {
	noting
	gpt2.OnDevice
}

func (b *fake) Prepare(ctx context.Context, m *gpt2.Model, o gpt2.Options) (gpt2.Runner, error) {
	r, err := b.Backend.Prepare(ctx, m, o)
	if b.times == nil && b.err == nil {
		return &noting{r, b}, err
	}
	return &timing{noting: noting{r, b}}, err
}

func (r *noting) Prefill(ctx context.Context, ids []int32, pass gpt2.Pass) ([]gpt2.Token, error) {
	r.backend.passes = append(r.backend.passes, pass)
	return r.Runner.Prefill(ctx, ids, pass)
}

func (r *timing) Measure(_ context.Context, _ []int32, _ gpt2.Pass, repeat int) ([]time.Duration, error) {
	r.backend.at, r.backend.repeat = r.Position(), repeat
	return r.backend.times, r.backend.err
}

func (*timing) Loads() []gpt2.Load { return nil }

var decode = gpt2.Pass{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}

// session makes one of a small model.
func session(t testing.TB, b gpt2.Backend, o gpt2.Options) *gpt2.Session {
	t.Helper()
	m := require.Value(gpt2.Random("random:L=1,C=32,NH=2,V=257,T=80"))(t)
	s := require.Value(gpt2.NewSession(t.Context(), m, b, o))(t)
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), m.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func fast(t testing.TB) gpt2.Backend {
	t.Helper()
	b := require.Value(cpu.New(cpu.Options{Threads: 1}))(t)
	t.Cleanup(func() { b.Close() })
	return b
}

// A runner's own times are taken, at the position asked for, and its error is returned.
func TestMeasurer(t *testing.T) {
	for _, b := range []*fake{{times: []time.Duration{5, 1, 4, 2, 3}}, {err: errors.New("the GPU is on fire")}} {
		b.Backend = executor.New()
		m, err := measure.Pass(t.Context(), session(t, b, gpt2.Options{}), decode, 7, 5)
		if b.at != 7 || b.repeat != 5 {
			t.Errorf("the runner measured at %d, %d times", b.at, b.repeat)
		}
		switch {
		case b.err != nil:
			if !errors.Is(err, b.err) {
				t.Errorf("the error is %v", err)
			}
		case err != nil || m.Median != 3 || m.P10 != 1 || m.P90 != 5 || len(m.All) != 5:
			t.Errorf("%v, %v", m, err)
		}
	}
}

// Passes are timed, and the session is empty afterwards.
func TestPass(t *testing.T) {
	for _, b := range []gpt2.Backend{fast(t), executor.New()} {
		s := session(t, b, gpt2.Options{})
		for _, v := range []struct {
			pass gpt2.Pass
			past int
		}{{gpt2.Pass{Batch: 1, Tokens: 40, Logits: gpt2.LogitsAll}, 0}, {decode, 30}} {
			m := require.Value(measure.Pass(t.Context(), s, v.pass, v.past, 9))(t)
			if len(m.All) != 9 || m.Median <= 0 || m.P10 > m.Median || m.Median > m.P90 || s.Position() != 0 {
				t.Errorf("%+v: %+v, position %d", v.pass, m, s.Position())
			}
		}
		for words, err := range map[string]error{
			"do not fit":    second(measure.Pass(t.Context(), s, gpt2.Pass{Batch: 1, Tokens: 60, Logits: gpt2.LogitsAll}, 30, 1)),
			"no room":       second(measure.Pass(t.Context(), s, decode, 80, 1)),
			"1 sequences":   second(measure.Pass(t.Context(), s, gpt2.Pass{Batch: 2, Tokens: 1}, 0, 1)),
			"0 repetitions": second(measure.Pass(t.Context(), s, decode, 0, 0)),
		} {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%v; want %q", err, words)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

// The cache is filled in chunks of at most 33 tokens, none of them a decode step.
func TestFill(t *testing.T) {
	b := &fake{Backend: executor.New()}
	s := session(t, b, gpt2.Options{Batch: 2})
	for tokens, want := range map[int][]int{0: nil, 1: {1}, 32: {32}, 33: {33}, 34: {32, 2}, 65: {32, 33},
		70: {32, 32, 6}} {
		b.passes = nil
		if err := measure.Fill(t.Context(), s, tokens); err != nil || s.Position() != tokens {
			t.Fatalf("%d tokens: the cache holds %d, %v", tokens, s.Position(), err)
		}
		var got []int
		for _, p := range b.passes {
			if p.Batch != 2 || p.Logits != gpt2.LogitsNone || p.Sample {
				t.Errorf("a pass %+v", p)
			}
			got = append(got, p.Tokens)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d tokens were evaluated as %d, want %d", tokens, got, want)
		}
	}
}
