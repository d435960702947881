package gpt2_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"gpt2scope/cpu"
	"gpt2scope/gpt2"
)

// timing is a backend whose runners time passes themselves.
type timing struct {
	gpt2.Backend
	times []time.Duration
	err   error
	asked [2]int // past, repeat
}

type timingRunner struct {
	gpt2.Runner
	backend *timing
}

func (b *timing) Prepare(ctx context.Context, m *gpt2.Model, o gpt2.Options) (gpt2.Runner, error) {
	r, err := b.Backend.Prepare(ctx, m, o)
	return &timingRunner{r, b}, err
}

func (r *timingRunner) Measure(_ context.Context, _ gpt2.Phase, past, repeat int) ([]time.Duration, error) {
	r.backend.asked = [2]int{past, repeat}
	return r.backend.times, r.backend.err
}

// TestMeasurer checks that a runner's own times are taken, and its error told.
func TestMeasurer(t *testing.T) {
	model, err := gpt2.Random("random:L=1,C=8,NH=1,V=100,T=16")
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	for _, b := range []*timing{{times: []time.Duration{5, 1, 4, 2, 3}}, {err: errors.New("the GPU is on fire")}, {}} {
		b.Backend = cpu.NewReference()
		s, err := gpt2.NewSession(context.Background(), model, b, gpt2.Options{})
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.Measure(context.Background(), gpt2.Phase{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast}, 7, 5)
		if b.asked != [2]int{7, 5} {
			t.Errorf("the runner was asked for %v", b.asked)
		}
		switch {
		case b.err != nil:
			if !errors.Is(err, b.err) {
				t.Errorf("the error is %v", err)
			}
		case b.times == nil:
			if err == nil {
				t.Errorf("no times give %v", m)
			}
		case err != nil || m.Median != 3 || m.P10 != 1 || m.P90 != 5 || len(m.Times) != 5:
			t.Errorf("%v, %v", m, err)
		}
		s.Close()
	}
}
