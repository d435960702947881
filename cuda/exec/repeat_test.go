package exec

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"gpt2scope/gpt2"
)

// is picks the steps of a stage.
func is(stage gpt2.Stage) func(gpt2.Step) bool {
	return func(s gpt2.Step) bool {
		return slices.ContainsFunc(s.Ops, func(o gpt2.Operation) bool { return o.Stage == stage })
	}
}

// hold empties the cache and fills it with some tokens.
func hold(t testing.TB, r *Runner, tokens int) {
	t.Helper()
	err := r.Rewind(0)
	if err == nil && tokens > 0 {
		_, err = r.Prefill(t.Context(), make([]int32, tokens), gpt2.Pass{Batch: 1, Tokens: tokens})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func countOf(calls []string, name string) (n int) {
	for _, c := range calls {
		if c == name {
			n++
		}
	}
	return n
}

// Rounds are what was launched, in all modes, and a session goes on afterwards.
func TestRepeat(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	for _, mode := range modes {
		r := prepared(t, m, c, backendOn(t, lib, Options{Mode: mode}), gpt2.Options{})
		hold(t, r, 7)
		for _, w := range []struct {
			stage  gpt2.Stage
			call   string
			pass   gpt2.Pass
			rounds int // of one burst: repeatLaunches over the launches of a round
		}{
			{gpt2.StageCAttn, "gs_linear", samplingPass(1, 1), repeatLaunches / 2},
			{gpt2.StageSDPA, "gs_attention", samplingPass(1, 1), repeatLaunches / 2},
			{gpt2.StageLMHead, "gs_linear", samplingPass(1, 1), repeatLaunches},
			{gpt2.StageSample, "gs_sample", samplingPass(1, 1), repeatLaunches},
			{gpt2.StageCFC, "gs_linear", gpt2.Pass{Batch: 1, Tokens: 20, Logits: gpt2.LogitsAll}, repeatLaunches / 2},
		} {
			// How often a pass and all around it launch the same function: counted of a run that repeats another step.
			around := func(stage gpt2.Stage) (int, int, int) {
				c.Reset()
				rounds, elapsed, err := r.Repeat(t.Context(), make([]int32, w.pass.Tokens), w.pass, is(stage), 0)
				if err != nil || elapsed <= 0 {
					t.Fatalf("%s, %s: %v after %v", mode, w.stage.Info().Name, err, elapsed)
				}
				calls := c.Calls()
				return rounds, countOf(calls, w.call), countOf(calls, "gs_graph_launch")
			}
			for range 4 { // a pass is launched eagerly, then recorded, then replayed; buffers that grow begin that anew
				around(gpt2.StageEmbed)
			}
			_, without, _ := around(gpt2.StageEmbed)
			rounds, with, graphs := around(w.stage)
			if perRound := repeatLaunches / w.rounds; rounds != w.rounds || with-without != rounds*perRound {
				t.Errorf("%s, %s: %d rounds, want %d; %d launches besides %d", mode, w.stage.Info().Name, rounds, w.rounds, with-without, without)
			}
			if (graphs > 0) != mode.captures() {
				t.Errorf("%s: %d launches of graphs", mode, graphs)
			}
		}
		start := time.Now()
		rounds, elapsed, err := r.Repeat(t.Context(), []int32{1}, samplingPass(1, 1), is(gpt2.StageSample), 20*time.Millisecond)
		if err != nil || elapsed < 20*time.Millisecond || elapsed > time.Since(start) || rounds <= repeatLaunches {
			t.Errorf("%s: %d rounds in %v, %v", mode, rounds, elapsed, err)
		}
		// Tokens count sampling launches, modulo the vocabulary: none was lost.
		if r.Position() != 7 {
			t.Errorf("the cache holds %d tokens, 7 before", r.Position())
		}
		hold(t, r, 0)
		var last int32
		tokens, err := r.Prefill(t.Context(), []int32{1, 2, 3}, samplingPass(1, 3))
		if err != nil {
			t.Fatal(err)
		}
		last = tokens[0].ID
		if err := r.Decode(t.Context(), 20, func(tokens []gpt2.Token) bool {
			if tokens[0].ID != (last+1)%257 {
				t.Errorf("%s: token %d follows %d", mode, tokens[0].ID, last)
			}
			last = tokens[0].ID
			return true
		}); err != nil || r.Position() != 23 {
			t.Errorf("%s: at %d, %v", mode, r.Position(), err)
		}
	}
}

func TestRepeatFails(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	for _, mode := range modes {
		r := prepared(t, m, c, backendOn(t, lib, Options{Mode: mode}), gpt2.Options{})
		hold(t, r, 3)
		for words, pick := range map[string]func(gpt2.Step) bool{
			"no such step":            func(gpt2.Step) bool { return false },
			"moves the position":      func(gpt2.Step) bool { return true },
			"moves the position, too": func(s gpt2.Step) bool { return s.Op() == gpt2.OpSample || s.Op() == gpt2.OpEmbed },
		} {
			if _, _, err := r.Repeat(t.Context(), []int32{1}, samplingPass(1, 1), pick, 0); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(words, ", too")) {
				t.Errorf("%s: %v; want %q", mode, err, words)
			}
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		why := errors.New("why")
		time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
		if _, _, err := r.Repeat(ctx, []int32{1}, samplingPass(1, 1), is(gpt2.StageCFC), time.Hour); !errors.Is(err, why) {
			t.Errorf("%s: cancelled: %v", mode, err)
		}
		if _, err := r.Prefill(t.Context(), []int32{1, 2, 3}, samplingPass(1, 3)); err != nil {
			t.Errorf("%s: after it was cancelled: %v", mode, err)
		}
		for n := 1; ; n++ { // every launch fails once
			c.Reset()
			c.Fail("launch", n)
			_, _, err := r.Repeat(t.Context(), []int32{1}, samplingPass(1, 1), is(gpt2.StageCFC), 0)
			if err == nil {
				if n < 20 {
					t.Errorf("%s: only %d launches could fail", mode, n-1)
				}
				break
			}
			oneSentence(t, err)
		}
		c.Reset()
	}
}

// On a GPU: every stage of a pass, and text as before.
func TestRepeatOnGPU(t *testing.T) {
	for _, mode := range modes {
		b := gpu(t, Options{Mode: mode})
		m := randomModel(t, "random:L=2,C=384,NH=6,V=257,T=256")
		s := session(t, m, b, gpt2.Options{})
		prompt := randomIDs(rand.New(rand.NewPCG(7, 8)), 30, 257)
		want := idsOf(generate(t, s, prompt, gpt2.Generation{Tokens: 20, IgnoreEOS: true}))
		r := s.Runner().(*Runner)
		for _, pass := range []gpt2.Pass{samplingPass(1, 1), {Batch: 1, Tokens: 100, Logits: gpt2.LogitsAll}} {
			past := 100 * (2 - min(2, pass.Tokens)) // 100 of a decode step
			for stage := range gpt2.NumStages {
				if !slices.ContainsFunc(r.Plan(pass).Steps, is(stage)) {
					continue
				}
				if err := s.Reset(); err != nil {
					t.Fatal(err)
				}
				hold(t, r, past)
				rounds, elapsed, err := r.Repeat(t.Context(), make([]int32, pass.Tokens), pass, is(stage), 10*time.Millisecond)
				if err != nil {
					t.Fatalf("%s, %s, T=%d: %v", mode, stage.Info().Name, pass.Tokens, err)
				}
				t.Logf("%s, T=%d, %s: %v a round", mode, pass.Tokens, stage.Info().Name, elapsed/time.Duration(rounds))
			}
		}
		if err := s.Reset(); err != nil {
			t.Fatal(err)
		}
		if got := idsOf(generate(t, s, prompt, gpt2.Generation{Tokens: 20, IgnoreEOS: true})); !slices.Equal(got, want) {
			t.Errorf("%s: %v, before %v", mode, got, want)
		}
	}
}
