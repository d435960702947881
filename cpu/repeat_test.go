package cpu

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"gpt2scope/gpt2"
)

// TestRepeat repeats steps; afterwards the session goes on as if they had not run.
func TestRepeat(t *testing.T) {
	m, err := gpt2.Random("random:L=2,C=32,NH=2,V=67,T=32")
	if err != nil {
		t.Fatal(err)
	}
	s := session(t, m, Options{Threads: 2}, gpt2.Options{})
	r := s.Runner().(*runner)
	decode := gpt2.Pass{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}
	prompt := gpt2.Pass{Batch: 1, Tokens: 5, Logits: gpt2.LogitsLast, Sample: true}
	ids := []int32{1, 2, 3, 4, 5}
	want, err := r.Prefill(t.Context(), ids, prompt)
	if err != nil {
		t.Fatal(err)
	}
	first := want[0]
	is := func(stage gpt2.Stage) func(gpt2.Step) bool {
		return func(s gpt2.Step) bool {
			return slices.ContainsFunc(s.Ops, func(o gpt2.Operation) bool { return o.Stage == stage })
		}
	}
	if err := r.Rewind(3); err != nil {
		t.Fatal(err)
	}
	for _, stage := range []gpt2.Stage{gpt2.StageCAttn, gpt2.StageSDPA, gpt2.StageResidual2, gpt2.StageLMHead, gpt2.StageEmbed} {
		for _, pass := range []gpt2.Pass{decode, prompt} {
			start := time.Now()
			rounds, elapsed, err := r.Repeat(t.Context(), ids[:pass.Tokens], pass, is(stage), 5*time.Millisecond)
			if err != nil || rounds < 1 || elapsed < 5*time.Millisecond || elapsed > time.Since(start) || r.Position() != 3 {
				t.Errorf("%s: %d rounds in %v, at %d, %v", stage.Info().Name, rounds, elapsed, r.Position(), err)
			}
		}
	}
	if rounds, _, err := r.Repeat(t.Context(), ids[:1], decode, is(gpt2.StageLNF), 0); err != nil || rounds != 1 {
		t.Errorf("for no time: %d rounds, %v", rounds, err)
	}
	for _, pick := range []func(gpt2.Step) bool{func(gpt2.Step) bool { return false }, is(gpt2.StageSample)} {
		if _, _, err := r.Repeat(t.Context(), ids[:1], decode, pick, 0); err == nil || !strings.Contains(err.Error(), "no such step") {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("why")
	time.AfterFunc(10*time.Millisecond, func() { cancel(why) })
	if _, _, err := r.Repeat(ctx, ids[:1], decode, is(gpt2.StageCFC), time.Hour); err != why {
		t.Errorf("cancelled: %v", err)
	}
	if err := r.Rewind(0); err != nil {
		t.Fatal(err)
	}
	if again, err := r.Prefill(t.Context(), ids, prompt); err != nil || again[0].ID != first.ID {
		t.Errorf("%+v, %v; want %+v", again, err, first)
	}
}
