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
	err := s.Record(record.New("test", "1"))
	if !errors.Is(err, errors.ErrUnsupported) || !strings.HasPrefix(err.Error(), "the reference backend cannot ") {
		t.Error(err)
	}
	if err := s.StopRecording(); err != nil || s.Loads() != nil {
		t.Errorf("%v, loaded %v", err, s.Loads())
	}
	if d := b.Describe(); d.Name != b.Name() || d.WeightType != "f64" || d.Recorder != "" || d.GPU {
		t.Errorf("%+v", d)
	}
}
