package gpt2_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"gpt2scope/gpt2"
	"gpt2scope/record"
	"gpt2scope/reference/executor"
)

// loader is a backend whose runner loads something at every prefill.
type loader struct{ gpt2.Backend }

type loadingRunner struct {
	gpt2.Runner
	gpt2.OnDevice
	times []time.Duration
}

func (b loader) Prepare(ctx context.Context, m *gpt2.Model, o gpt2.Options) (gpt2.Runner, error) {
	r, err := b.Backend.Prepare(ctx, m, o)
	return &loadingRunner{Runner: r}, err
}

func (r *loadingRunner) Prefill(ctx context.Context, ids []int32, pass gpt2.Pass) ([]gpt2.Token, error) {
	r.times = append(r.times, time.Second)
	return r.Runner.Prefill(ctx, ids, pass)
}

func (r *loadingRunner) Loads() []gpt2.Load {
	if len(r.times) == 0 {
		return nil
	}
	loads := []gpt2.Load{{What: "library", Time: 5 * time.Second}} // by the first pass
	return append(loads, gpt2.Load{What: "kernels", Time: time.Duration(len(r.times)) * time.Second})
}

// What was loaded counts since the session began or was reset, as its statistics do.
func TestLoads(t *testing.T) {
	s := newSession(t, tiny(t, "L=1,T=16"), loader{executor.New()}, gpt2.Options{})
	for i, want := range [][]gpt2.Load{{{What: "library", Time: 5 * time.Second}, {What: "kernels", Time: time.Second}},
		{{What: "kernels", Time: time.Second}}} {
		if err := s.Reset(); err != nil || s.Loads() != nil {
			t.Errorf("before prompt %d: %v, %v", i, s.Loads(), err)
		}
		if _, err := s.Logits(t.Context(), []int32{1, 2}, gpt2.LogitsLast); err != nil {
			t.Fatal(err)
		}
		if got := s.Loads(); !slices.Equal(got, want) {
			t.Errorf("prompt %d loaded %v, want %v", i, got, want)
		}
	}
	if err := s.Close(); err != nil || s.Loads() != nil {
		t.Errorf("closed: %v, %v", s.Loads(), err)
	}
}

// A backend that has nothing optional says so in each place; what needs none works.
func TestUnsupported(t *testing.T) {
	b := executor.New()
	m := tiny(t, "L=1,T=16")
	s := newSession(t, m, b, gpt2.Options{})
	pass := gpt2.Pass{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}
	errs := map[string]error{"Record": s.Record(record.New("test", "1"))}
	_, errs["Measure"] = s.Measure(t.Context(), []int32{1}, pass, 1)
	_, errs["Launches"] = s.Launches(pass)
	for what, err := range errs {
		if !errors.Is(err, errors.ErrUnsupported) || !strings.HasPrefix(err.Error(), "the reference backend cannot ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := errors.Join(s.StopRecording(), s.Synchronize()); err != nil || s.Loads() != nil {
		t.Errorf("%v, loaded %v", err, s.Loads())
	}
	if d := b.Describe(); d.Name != b.Name() || d.WeightType != "f64" || d.Recorder != "" || d.GPU {
		t.Errorf("%+v", d)
	}
}

// A pass that the session does not have is refused before a runner sees it.
func TestPassesAreChecked(t *testing.T) {
	s := newSession(t, tiny(t, "L=1,T=16"), backends(t)["cpu"], gpt2.Options{})
	if _, err := s.Logits(t.Context(), make([]int32, 10), gpt2.LogitsLast); err != nil {
		t.Fatal(err)
	}
	pass := func(batch, tokens int) gpt2.Pass {
		return gpt2.Pass{Batch: batch, Tokens: tokens, Logits: gpt2.LogitsLast}
	}
	for _, c := range []struct {
		ids   []int32
		pass  gpt2.Pass
		words string
	}{
		{make([]int32, 2), pass(2, 1), "1 sequences and the pass 2"},
		{make([]int32, 7), pass(1, 7), "7 tokens do not fit in a context of 6"},
		{make([]int32, 3), pass(1, 2), "3 ids for a pass of 1 x 2"},
		{[]int32{257}, pass(1, 1), "outside the vocabulary"},
		{nil, pass(1, 0), "no tokens"},
	} {
		if _, err := s.Measure(t.Context(), c.ids, c.pass, 1); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%+v: %v; want %q", c.pass, err, c.words)
		}
	}
	if _, err := s.Measure(t.Context(), []int32{1}, pass(1, 1), 0); err == nil ||
		!strings.Contains(err.Error(), "0 repetitions") {
		t.Error(err)
	}
}
