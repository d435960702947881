package gpt2_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
	"gpt2scope/reference/executor"
)

// watched is a backend whose runner notes the passes of prefills, and may fail.
type watched struct {
	gpt2.Backend
	passes []gpt2.Pass
	failed error // of a decode step whose caller takes no more tokens
}

type watchedRunner struct {
	gpt2.Runner
	backend *watched
}

func (b *watched) Prepare(ctx context.Context, m *gpt2.Model, o gpt2.Options) (gpt2.Runner, error) {
	r, err := b.Backend.Prepare(ctx, m, o)
	return &watchedRunner{r, b}, err
}

func (r *watchedRunner) Prefill(ctx context.Context, ids []int32, pass gpt2.Pass) ([]gpt2.Token, error) {
	r.backend.passes = append(r.backend.passes, pass)
	return r.Runner.Prefill(ctx, ids, pass)
}

func (r *watchedRunner) Decode(ctx context.Context, n int, emit func([]gpt2.Token) bool) error {
	left := false
	err := r.Runner.Decode(ctx, n, func(tokens []gpt2.Token) bool {
		left = !emit(tokens)
		return !left
	})
	if left && r.backend.failed != nil {
		return r.backend.failed
	}
	return err
}

// TestChunks: only the last chunk of a prompt computes logits and samples.
func TestChunks(t *testing.T) {
	last := func(tokens int) gpt2.Pass {
		return gpt2.Pass{Batch: 2, Tokens: tokens, Logits: gpt2.LogitsLast, Sample: true}
	}
	part := func(tokens int) gpt2.Pass { return gpt2.Pass{Batch: 2, Tokens: tokens} }
	for _, c := range []struct {
		tokens, chunk int
		want          []gpt2.Pass
	}{{10, 4, []gpt2.Pass{part(4), part(4), last(2)}}, {3, 1, []gpt2.Pass{part(1), part(1), last(1)}}, {8, 4,
		[]gpt2.Pass{part(4), last(4)}}} {
		b := &watched{Backend: executor.New()}
		s := newSession(t, tiny(t, "L=1,T=32"), b, gpt2.Options{Batch: 2, Chunk: c.chunk})
		collect(t, s, make([]int32, 2*c.tokens), gpt2.Generation{Tokens: 1, IgnoreEOS: true})
		if !slices.Equal(b.passes, c.want) {
			t.Errorf("a prompt of %d tokens in chunks of %d is %+v, want %+v", c.tokens, c.chunk, b.passes, c.want)
		}
	}
}

// TestLogitsAfterGenerating: the logits of a text do not depend on whether a part of it
// was generated before, nor on chunks; the rows returned are those of the ids given.
func TestLogitsAfterGenerating(t *testing.T) {
	m := tiny(t, "L=2,T=32")
	r := rand.New(rand.NewPCG(11, 11))
	const B, V, more = 2, 257, 7
	prompt, ids := randomIDs(r, B*5), randomIDs(r, B*more)
	for _, chunk := range []int{0, 3} {
		s := newSession(t, m, backends(t)["cpu"], gpt2.Options{Batch: B, Chunk: chunk})
		text := [B][]int32{}
		for b := range B {
			text[b] = slices.Clone(prompt[5*b : 5*b+5])
		}
		for _, token := range collect(t, s, prompt, gpt2.Generation{Tokens: 4, IgnoreEOS: true}) {
			text[token.Seq] = append(text[token.Seq], token.ID)
		}
		got := require.Value(s.Logits(t.Context(), ids, gpt2.LogitsAll))(t)
		whole := newSession(t, m, backends(t)["cpu"], gpt2.Options{Batch: B})
		var all []int32
		for b := range B {
			all = append(append(all, text[b]...), ids[more*b:more*(b+1)]...)
		}
		want := require.Value(whole.Logits(t.Context(), all, gpt2.LogitsAll))(t)
		T := len(text[0]) + more
		for b := range B {
			mustBeClose(t, "logits after generating", got[b*more*V:(b+1)*more*V], want[(b*T+T-more)*V:(b+1)*T*V], tolerance)
		}
	}
}

// TestContextCountsPending: the token sampled last takes room, though it is not in the cache yet.
func TestContextCountsPending(t *testing.T) {
	s := newSession(t, tiny(t, "L=1,T=16"), backends(t)["cpu"], gpt2.Options{})
	collect(t, s, make([]int32, 10), gpt2.Generation{Tokens: 4, IgnoreEOS: true}) // 13 in the cache, one pending
	if _, err := s.Logits(t.Context(), make([]int32, 3), gpt2.LogitsLast); err == nil {
		t.Fatal("17 tokens fit in a context of 16")
	}
	if _, err := s.Logits(t.Context(), make([]int32, 2), gpt2.LogitsLast); err != nil || s.Position() != 16 {
		t.Errorf("16 tokens in a context of 16: %v, position %d", err, s.Position())
	}
}

// TestRepeatedLayersLastRow: the last row of logits is the same whether all rows were
// computed or only that one, also if a layer runs several times.
func TestRepeatedLayersLastRow(t *testing.T) {
	m := tiny(t, "L=2,T=16")
	ids := randomIDs(rand.New(rand.NewPCG(12, 12)), 9)
	for name, b := range backends(t) {
		s := newSession(t, m, b, gpt2.Options{Layers: []int{1, 0, 1, 1}})
		all := require.Value(s.Logits(t.Context(), ids, gpt2.LogitsAll))(t)
		must(t, s.Reset())
		last := require.Value(s.Logits(t.Context(), ids, gpt2.LogitsLast))(t)
		mustBeClose(t, name, last, all[8*257:], tolerance)
	}
}

// TestStats: tokens of all sequences count, tokens pending from the call before too,
// and the time that the caller takes between tokens does not. A reset empties them.
func TestStats(t *testing.T) {
	const B, T, pause = 2, 7, 5 * time.Millisecond
	s := newSession(t, tiny(t, "L=1,T=16"), backends(t)["cpu"], gpt2.Options{Batch: B})
	began, paused := time.Now(), time.Duration(0)
	for _, err := range s.Generate(t.Context(), make([]int32, B*T), gpt2.Generation{Tokens: 4, IgnoreEOS: true}) {
		must(t, err)
		from := time.Now()
		time.Sleep(pause) // eight times, six of them between decode steps
		paused += time.Since(from)
	}
	got := s.Stats()
	if all := time.Since(began); got.DecodeTime <= 0 || got.PrefillTime <= 0 ||
		got.DecodeTime+got.PrefillTime+paused > all {
		t.Errorf("prefill %v, decode steps %v and the caller's %v are more than %v", got.PrefillTime, got.DecodeTime, paused,
			all)
	}
	got.DecodeTime, got.PrefillTime = 0, 0
	if want := (gpt2.Stats{Prefills: 1, PrefillTokens: B * T, DecodeTokens: 3 * B, DecodeSteps: 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	collect(t, s, make([]int32, B*2), gpt2.Generation{Tokens: 1, IgnoreEOS: true})
	if n := s.Stats().PrefillTokens; n != B*(T+1+2) {
		t.Errorf("%d tokens were evaluated in prefills, want %d", n, B*(T+1+2))
	}
	collect(t, s, make([]int32, B), gpt2.Generation{Tokens: 9, IgnoreEOS: true})
	if s.Stats().Shifts == 0 {
		t.Error("a text beyond the context did not shift it")
	}
	if err := s.Reset(); err != nil || s.Stats() != (gpt2.Stats{}) || s.Position() != 0 {
		t.Errorf("after a reset: %v, %+v, position %d", err, s.Stats(), s.Position())
	}
	for _, token := range collect(t, s, make([]int32, B*T), gpt2.Generation{Tokens: 1, IgnoreEOS: true}) {
		if token.Position != T {
			t.Errorf("after a reset the first token is at %d, want %d", token.Position, T)
		}
	}
}

// TestEndOfTextOfBatch: a batch ends when every sequence has met the end of text.
func TestEndOfTextOfBatch(t *testing.T) {
	const B, n = 2, 40
	m := tiny(t, "L=1,T=64")
	prompt := randomIDs(rand.New(rand.NewPCG(13, 13)), B*3)
	sampling := gpt2.Sampling{Temperature: 5, TopK: 4, Seed: 2}
	s := newSession(t, m, backends(t)["cpu"], gpt2.Options{Batch: B})
	first := [B]map[int32]int{{}, {}} // step at which a sequence first has a token
	for _, token := range collect(t, s, prompt, gpt2.Generation{Tokens: n, IgnoreEOS: true, Sampling: sampling}) {
		if _, ok := first[token.Seq][token.ID]; !ok {
			first[token.Seq][token.ID] = token.Position - 3
		}
	}
	checked := 0
	for id, a := range first[0] {
		b, both := first[1][id]
		if a == b {
			continue
		}
		steps := max(a, b) + 1
		if !both {
			steps = n
		}
		m.Config.EOS = int(id)
		s := newSession(t, m, backends(t)["cpu"], gpt2.Options{Batch: B})
		if got := len(collect(t, s, prompt, gpt2.Generation{Tokens: n, Sampling: sampling})); got != B*steps {
			t.Errorf("the end of text is token %d, of steps %d and %d (met by both: %v): %d tokens, want %d", id, a, b, both,
				got, B*steps)
		}
		if checked++; checked == 5 {
			break
		}
	}
	if checked == 0 {
		t.Fatal("no token can stand for the end of text")
	}
}

// TestErrorAfterBreak: after the caller has left the loop, an error that the runner
// finds afterwards is not yielded, and fails the session.
func TestErrorAfterBreak(t *testing.T) {
	b := &watched{Backend: executor.New(), failed: errors.New("the GPU is on fire")}
	s := newSession(t, tiny(t, "L=1,T=32"), b, gpt2.Options{})
	n := 0
	for _, err := range s.Generate(t.Context(), []int32{1}, gpt2.Generation{Tokens: 20, IgnoreEOS: true}) {
		must(t, err)
		if n++; n == 3 {
			break
		}
	}
	if _, err := s.Logits(t.Context(), []int32{1}, gpt2.LogitsLast); !errors.Is(err, b.failed) {
		t.Errorf("after a failed pass: %v", err)
	}
}

// TestStopStrings: the one that comes first in the text counts, and what may be the start of any of them is held back.
func TestStopStrings(t *testing.T) {
	m := tiny(t, "L=1,T=64")
	for _, v := range []struct {
		stop []string
		text string
		want string
	}{
		{[]string{"later", "first"}, "a first, then later", "a "},
		{[]string{"ABCD", "CX"}, "xABCD", "x"},
		{[]string{"ABCD", "CX"}, "xABCXy", "xAB"},
		{[]string{"ABC", "BC"}, "xABC", "x"}, // both end here
		{[]string{"BC", "ABC"}, "xABC", "x"},
	} {
		w, out := gpt2.NewTextWriter(m, gpt2.Generation{Stop: v.stop}), ""
		for _, id := range m.Tokenizer.Encode(v.text) {
			out += w.Push(id) // a byte
		}
		out += w.Flush()
		if out != v.want || !w.Stopped() {
			t.Errorf("%q with the stop strings %q gave %q, want %q", v.text, v.stop, out, v.want)
		}
	}
}
