package gpt2_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"gpt2scope/cpu"
	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
	"gpt2scope/weights"
)

func parseSpeculation(t *testing.T, text string) gpt2.Speculation {
	t.Helper()
	s, err := gpt2.ParseSpeculation(text)
	if err != nil || s.String() != text {
		t.Fatalf("%s is %v, %v", text, s, err)
	}
	return s
}

// TestSpeculationDrawsTheSame: with drafts of every kind the tokens and their probabilities are those without, for every
// type, beyond the context too; drafts of the shipped model are accepted as its exits agree.
func TestSpeculationDrawsTheSame(t *testing.T) {
	m := openModel(t, "../weights/shakespeare")
	prompt := m.Tokenizer.EncodeOrdinary("ROMEO:\nWhat, what")
	for i, o := range []cpu.Options{{DType: weights.F32}, {DType: weights.BF16}, {Q8: true}} {
		o.Threads = 2
		b := require.Value(cpu.New(o))(t)
		t.Cleanup(func() { b.Close() })
		g := gpt2.Generation{Tokens: 80, IgnoreEOS: true, Sampling: []gpt2.Sampling{{}, {Temperature: 0.8, TopK: 40, Seed: 3},
			{Temperature: 1.1, RepeatPenalty: 1.2, RepeatLast: 20, TopLogProbs: 2, LogProbs: true, Seed: 4}}[i]}
		var want []gpt2.Token
		for _, how := range []string{"off", "exits=1,3", "exits=2,1", "exits=1,5", "lookup=3", "auto"} {
			s := newSession(t, m, b, gpt2.Options{Context: 64})
			g.Speculate = parseSpeculation(t, how)
			got := collect(t, s, prompt, g)
			if want == nil {
				want = got
			}
			if fmt.Sprint(got) != fmt.Sprint(want) { // a LogProb may be NaN
				t.Errorf("%s, %s: %v\nwithout drafts %v", b.Describe().WeightType, how, got, want)
			}
			d := s.Stats().Speculated
			if accepted := d.Accepted * []int{2, 5, 5}[i]; how == "exits=1,3" &&
				(i == 0 && d.Drafted < 3*(d.Passes-s.Stats().Shifts-1) || accepted < d.Drafted || d.VerifyTime <= 0) {
				t.Errorf("%s: %+v", how, d)
			}
			if n := s.Stats().DecodeTokens; n != len(want)-1 && s.Stats().Shifts == 0 {
				t.Errorf("%s: %d tokens were counted", how, n)
			}
		}
	}
}

// TestSpeculationStops: a caller that stops in the middle of accepted drafts, and one that cancels, find a session that
// goes on as without drafts.
func TestSpeculationStops(t *testing.T) {
	m := openModel(t, "../weights/shakespeare")
	s := newSession(t, m, backends(t)["cpu"], gpt2.Options{Context: 200})
	prompt := m.Tokenizer.EncodeOrdinary("ROMEO:\n")
	g := gpt2.Generation{Tokens: 40, IgnoreEOS: true, Speculate: parseSpeculation(t, "exits=1,3")}
	text := func(ids []int32, most int) (got []int32) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		for token, err := range s.Generate(ctx, ids, g) {
			if err != nil {
				break
			}
			if got = append(got, token.ID); most < 0 && len(got) == -most {
				cancel(errors.New("enough"))
			} else if len(got) == most {
				break
			}
		}
		return got
	}
	want := text(prompt, 40)
	for _, most := range []int{1, 2, 3, 4, 5, -2, -3} {
		must(t, s.Reset())
		got := text(prompt, most)
		if s.Length() != len(prompt)+len(got) || s.Position() != s.Length()-1 {
			t.Errorf("after %d tokens of %d the session holds %d, and %d in its cache", len(got), most, s.Length(), s.Position())
		}
		if got = append(got, text(nil, 20)...); !slices.Equal(got, want[:len(got)]) {
			t.Errorf("stopped after %d: %v, want %v", most, got, want)
		}
	}
}

// TestSpeculationRefuses: what cannot be drafted or verified is said before anything runs.
func TestSpeculationRefuses(t *testing.T) {
	for _, text := range []string{"", "on", "exits=", "exits=0,3", "exits=1", "lookup=0", "lookup=1,2", "auto=1", "off=1"} {
		if s, err := gpt2.ParseSpeculation(text); err == nil {
			t.Errorf("%q is %v", text, s)
		}
	}
	m := tiny(t, "L=2,T=32")
	for _, c := range []struct {
		backend, how string
		batch        int
	}{{"cpu", "exits=2,1", 1}, {"cpu", "exits=1,1", 2}, {"cpu", "lookup=40", 1}, {"reference", "lookup=2", 1}} {
		s := newSession(t, m, backends(t)[c.backend], gpt2.Options{Batch: c.batch})
		for token, err := range s.Generate(t.Context(), []int32{1, 2}, gpt2.Generation{Tokens: 2,
			Speculate: parseSpeculation(t, c.how)}) {
			if err == nil {
				t.Errorf("%s speculates %s with %v", c.backend, c.how, token)
			}
		}
	}
}
