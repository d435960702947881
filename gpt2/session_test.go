package gpt2_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"gpt2scope/cpu"
	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
)

// tiny is a random model with a byte vocabulary.
func tiny(t testing.TB, spec string) *gpt2.Model {
	t.Helper()
	return openModel(t, "random:C=32,NH=2,V=257,"+spec)
}

func randomIDs(r *rand.Rand, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(r.IntN(256))
	}
	return ids
}

func collect(t testing.TB, s *gpt2.Session, ids []int32, g gpt2.Generation) []gpt2.Token {
	t.Helper()
	var tokens []gpt2.Token
	for token, err := range s.Generate(t.Context(), ids, g) {
		must(t, err)
		tokens = append(tokens, token)
	}
	return tokens
}

// TestExecutorsDrawTheSame: both executors generate the same text from a seed, beyond the context too.
func TestExecutorsDrawTheSame(t *testing.T) {
	m := tiny(t, "L=2,T=32")
	prompt := randomIDs(rand.New(rand.NewPCG(1, 1)), 10)
	for _, sampling := range []gpt2.Sampling{{}, {Temperature: 0.9, Seed: 5},
		{Temperature: 1.2, TopK: 40, TopP: 0.9, Seed: 6}} {
		var want []gpt2.Token
		for _, name := range []string{"cpu", "reference"} {
			s := newSession(t, m, backends(t)[name], gpt2.Options{})
			sampling.LogProbs = false
			got := collect(t, s, prompt, gpt2.Generation{Tokens: 80, Sampling: sampling, IgnoreEOS: true})
			// Of 10 + 80 tokens the last is not evaluated; 32 fit, and each time 16 are kept.
			if shifts := s.Stats().Shifts; len(got) != 80 || shifts != 4 {
				t.Fatalf("%s: %d tokens, %d shifts", name, len(got), shifts)
			}
			for i, token := range got {
				if token.Position != len(prompt)+i || token.Seq != 0 {
					t.Fatalf("%s: token %d is %+v", name, i, token)
				}
			}
			if want == nil {
				want = got
			}
			for i := range got {
				if got[i].ID != want[i].ID {
					t.Fatalf("%+v: token %d differs between executors", sampling, i)
				}
			}
		}
	}
}

// TestBatchEqualsSingles: sequences of a batch do not know of each other, and draw their own random numbers.
func TestBatchEqualsSingles(t *testing.T) {
	m := tiny(t, "L=2,T=48")
	r := rand.New(rand.NewPCG(4, 4))
	const B, T = 3, 9
	ids := randomIDs(r, B*T)
	batch := newSession(t, m, backends(t)["cpu"], gpt2.Options{Batch: B})
	got := make([][]int32, B)
	for _, token := range collect(t, batch, ids, gpt2.Generation{Tokens: 60, IgnoreEOS: true}) {
		got[token.Seq] = append(got[token.Seq], token.ID)
	}
	for b := range B {
		s := newSession(t, m, backends(t)["cpu"], gpt2.Options{})
		var want []int32
		for _, token := range collect(t, s, ids[b*T:(b+1)*T], gpt2.Generation{Tokens: 60, IgnoreEOS: true}) {
			want = append(want, token.ID)
		}
		if !slices.Equal(got[b], want) {
			t.Errorf("sequence %d is\n%v, alone\n%v", b, got[b], want)
		}
	}
	must(t, batch.Reset())
	same := slices.Concat(ids[:T], ids[:T], ids[:T])
	drawn := make([][]int32, B)
	for _, token := range collect(t, batch, same, gpt2.Generation{Tokens: 20, IgnoreEOS: true,
		Sampling: gpt2.Sampling{Temperature: 1, Seed: 1}}) {
		drawn[token.Seq] = append(drawn[token.Seq], token.ID)
	}
	if slices.Equal(drawn[0], drawn[1]) {
		t.Error("two sequences drew the same random numbers")
	}
}

// TestTextIsWhole: pieces are whole UTF-8 characters, and together are what the
// tokens decode to; stop strings end it, and no part of them is shown.
func TestTextIsWhole(t *testing.T) {
	m := tiny(t, "L=1,T=64")
	w := gpt2.NewTextWriter(m, gpt2.Generation{Stop: []string{"STOP", "Ende"}})
	var pieces []string
	for _, id := range m.Tokenizer.Encode("Grüße, 世界 🙂 En, ST. Then STOP and more") {
		if piece := w.Push(id); piece != "" {
			pieces = append(pieces, piece)
		}
	}
	pieces = append(pieces, w.Flush())
	if text := strings.Join(pieces, ""); text != "Grüße, 世界 🙂 En, ST. Then " || !w.Stopped() {
		t.Errorf("text is %q, stopped %v", text, w.Stopped())
	}
	for _, piece := range pieces {
		if !utf8.ValidString(piece) {
			t.Errorf("piece %q is not whole", piece)
		}
	}
	w = gpt2.NewTextWriter(m, gpt2.Generation{Stop: []string{"STOP"}})
	out := ""
	for _, id := range m.Tokenizer.Encode("no ST") {
		out += w.Push(id)
	}
	if out += w.Flush(); out != "no ST" || w.Stopped() {
		t.Errorf("text that only begins like a stop string came out as %q", out)
	}
	for _, c := range []struct {
		in   string
		want []string // after each byte; then Flush
	}{
		{"aé", []string{"a", "", "é", ""}},
		{"€!", []string{"", "", "€", "!", ""}},
		{"😀", []string{"", "", "", "😀", ""}},
		{"\xe2\x82", []string{"", "", ""}},
		{"\xe2\x82a", []string{"", "", "\xe2\x82a", ""}},
		{"\xe2\xe2\x82\xac", []string{"", "\xe2", "", "€", ""}},
		{"\xff\x80a", []string{"\xff", "\x80", "a", ""}},
		{"\xed\xa0\x80", []string{"", "\xed\xa0", "\x80", ""}}, // a surrogate: not UTF-8
		{"\xf4\x90", []string{"", "\xf4\x90", ""}},             // above U+10FFFF
		{"\xc0\x80", []string{"\xc0", "\x80", ""}},             // overlong
		{"\xf0\x9f\x98\xf0\x9f\x98\x80", []string{"", "", "", "\xf0\x9f\x98", "", "", "😀", ""}},
	} {
		w := gpt2.NewTextWriter(m, gpt2.Generation{})
		var got []string
		for _, id := range m.Tokenizer.Encode(c.in) { // a byte
			got = append(got, w.Push(id))
		}
		if got = append(got, w.Flush()); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.in, got, c.want)
		}
	}
}

// TestSessionRefuses bad input with a sentence, and goes on working.
func TestSessionRefuses(t *testing.T) {
	m := tiny(t, "L=2,T=16")
	b := backends(t)["cpu"]
	for _, o := range []gpt2.Options{{Layers: []int{2}}, {Layers: []int{-1}}, {Layers: []int{}}, {Batch: -1},
		{Context: 17}, {Context: -1}, {Chunk: -1}} {
		if s, err := gpt2.NewSession(t.Context(), m, b, o); err == nil {
			s.Close()
			t.Errorf("%+v was accepted", o)
		}
	}
	s := newSession(t, m, b, gpt2.Options{Batch: 2})
	long := make([]int32, 2*17)
	for _, v := range []struct {
		ids   []int32
		names string
	}{{nil, "no tokens"}, {[]int32{1, 2, 3}, "equal length"}, {[]int32{1, 257}, "257"}, {[]int32{-1, 3}, "-1"}, {long,
		"17"}} {
		_, err := s.Logits(t.Context(), v.ids, gpt2.LogitsLast)
		if err == nil || !strings.Contains(err.Error(), v.names) {
			t.Errorf("ids %v gave %v", v.ids, err)
		}
		for _, err := range s.Generate(t.Context(), v.ids, gpt2.Generation{Tokens: 1}) {
			if err == nil || !strings.Contains(err.Error(), v.names) {
				t.Errorf("generating from %v gave %v", v.ids, err)
			}
		}
	}
	for _, err := range s.Generate(t.Context(), []int32{1, 2}, gpt2.Generation{Tokens: 1,
		Sampling: gpt2.Sampling{Temperature: -1}}) {
		if err == nil {
			t.Error("a negative temperature was accepted")
		}
	}
	for _, stage := range []string{"", "h.2.ln_1", "sample", "h.0.attn"} {
		if _, _, err := s.Activations(t.Context(), []int32{1, 2}, stage); err == nil {
			t.Errorf("stage %q was accepted", stage)
		}
	}
	if _, err := s.Logits(t.Context(), []int32{1, 2}, gpt2.LogitsAll); err != nil {
		t.Errorf("after bad input: %v", err)
	}
	s.Close()
	if _, err := s.Logits(t.Context(), []int32{1, 2}, gpt2.LogitsAll); !errors.Is(err, gpt2.ErrClosed) {
		t.Errorf("a closed session gave %v", err)
	}
}

// TestCancelledGeneration ends with the cause.
func TestCancelledGeneration(t *testing.T) {
	m := tiny(t, "L=1,T=32")
	cause := errors.New("enough")
	for name, b := range backends(t) {
		s := newSession(t, m, b, gpt2.Options{})
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		n := 0
		var last error
		for _, err := range s.Generate(ctx, []int32{1}, gpt2.Generation{IgnoreEOS: true}) {
			if last = err; err == nil {
				if n++; n == 10 {
					cancel(cause)
				}
			}
		}
		if !errors.Is(last, cause) || n > 12 {
			t.Errorf("%s: %d tokens, then %v", name, n, last)
		}
		if more := collect(t, s, []int32{2}, gpt2.Generation{Tokens: 3, IgnoreEOS: true}); len(more) != 3 ||
			more[0].Position != n+2 {
			t.Errorf("%s: after a cancelled generation of %d: %+v", name, n, more)
		}
	}
}

// TestEvaluate scores every token once, and as the logits say.
func TestEvaluate(t *testing.T) {
	m := tiny(t, "L=1,T=32")
	s := newSession(t, m, backends(t)["cpu"], gpt2.Options{})
	three := newSession(t, m, backends(t)["cpu"], gpt2.Options{Batch: 3, Chunk: 7})
	reference := newSession(t, m, backends(t)["reference"], gpt2.Options{})
	r := rand.New(rand.NewPCG(9, 9))
	for i := range 20 {
		ids := randomIDs(r, 1+r.IntN(120))
		window := 1 + r.IntN(32)
		stride := 1 + r.IntN(window)
		a := require.Value([]*gpt2.Session{s, three}[i%2].Evaluate(t.Context(), ids, window, stride, nil))(t)
		b := require.Value(reference.Evaluate(t.Context(), ids, window, stride, nil))(t)
		if a.Tokens != len(ids) || b.Tokens != len(ids) {
			t.Fatalf("%d tokens, window %d, stride %d: %d scored", len(ids), window, stride, a.Tokens)
		}
		passed := 0 // a window at each stride until all tokens are scored
		for from, scored := 0, 0; scored < len(ids); from += stride {
			passed, scored = passed+min(window, len(ids)-from), from+window
		}
		if a.Passed != passed {
			t.Errorf("%d tokens, window %d, stride %d: %d evaluated, want %d", len(ids), window, stride, a.Passed, passed)
		}
		if d := a.Loss() - b.Loss(); !(d < 1e-5 && d > -1e-5) {
			t.Errorf("loss %g, reference %g", a.Loss(), b.Loss())
		}
	}
	// A window that holds all: the loss is that of one pass.
	ids := randomIDs(r, 20)
	whole := require.Value(s.Evaluate(t.Context(), ids, 32, 32, nil))(t)
	nats := 0.0
	for i := range ids {
		must(t, s.Reset())
		for token, err := range s.Generate(t.Context(), append([]int32{256}, ids[:i]...),
			gpt2.Generation{Tokens: 1, IgnoreEOS: true, Sampling: gpt2.Sampling{LogProbs: true}}) {
			must(t, err)
			logits := make([]float32, 257)
			must(t, s.Runner().Read(gpt2.BufLogits, 0, logits))
			nats -= float64(token.LogProb) + float64(logits[ids[i]]-logits[token.ID])
		}
	}
	if d := whole.Nats - nats; !(d < 1e-3 && d > -1e-3) {
		t.Errorf("evaluation sums to %g nats, single passes to %g", whole.Nats, nats)
	}
	for _, v := range [][2]int{{0, 1}, {33, 1}, {8, 0}, {8, 9}} {
		if _, err := s.Evaluate(t.Context(), ids, v[0], v[1], nil); err == nil {
			t.Errorf("window %d, stride %d was accepted", v[0], v[1])
		}
	}
	if _, err := s.Evaluate(t.Context(), nil, 8, 8, nil); err == nil {
		t.Error("an empty text was evaluated")
	}
}

func ExampleSession_Text() {
	ctx := context.Background()
	model, err := gpt2.Open("../weights/shakespeare") // any Hugging Face GPT-2 directory
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	backend, err := cpu.New(cpu.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	session, err := gpt2.NewSession(ctx, model, backend, gpt2.Options{Layers: gpt2.FirstLayers(6)})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	for piece, err := range session.Text(ctx, "ROMEO:", gpt2.Generation{Tokens: 40}) { // greedy
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(piece) // text as it is made
	}
	// Output: I will not stay thee to the world to th
}

func ExampleForward() {
	model, _ := gpt2.Random("random:gpt2")
	plan := gpt2.Forward(model.Config, gpt2.FirstLayers(1), gpt2.Pass{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast})
	for _, step := range plan.Steps {
		fmt.Printf("%2d %-10s %-18s %6.2f MFLOP\n", step.Tag, step.Op(), step.Name(), float64(step.Cost(512).FLOPs)/1e6)
	}
	// Output:
	//  0 Embed      wte+wpe              0.00 MFLOP
	//  1 LayerNorm  h.0.ln_1             0.01 MFLOP
	//  2 Linear     h.0.attn.c_attn      3.54 MFLOP
	//  3 Attention  h.0.attn.sdpa        1.61 MFLOP
	//  4 Linear     h.0.attn.c_proj      1.18 MFLOP
	//  5 Add        h.0.residual_1       0.00 MFLOP
	//  6 LayerNorm  h.0.ln_2             0.01 MFLOP
	//  7 Linear     h.0.mlp.c_fc         4.72 MFLOP
	//  8 Activation h.0.mlp.gelu         0.03 MFLOP
	//  9 Linear     h.0.mlp.c_proj       4.72 MFLOP
	// 10 Add        h.0.residual_2       0.00 MFLOP
	// 11 LayerNorm  ln_f                 0.01 MFLOP
	// 12 Linear     lm_head             77.19 MFLOP
}

// limited is a backend whose device cannot sample: sessions read its logits.
type limited struct{ gpt2.Backend }

type limitedRunner struct {
	gpt2.Runner
	gpt2.OnDevice
}

func (b limited) Prepare(ctx context.Context, m *gpt2.Model, o gpt2.Options) (gpt2.Runner, error) {
	r, err := b.Backend.Prepare(ctx, m, o)
	return limitedRunner{Runner: r}, err
}

func (limitedRunner) Samples(gpt2.Sampling) bool { return false }
func (limitedRunner) Loads() []gpt2.Load         { return nil }

func (limitedRunner) Decode(context.Context, int, func([]gpt2.Token) bool) error {
	return errors.New("a device that cannot sample was asked to decode")
}

// TestSamplingOnHost: what is sampled from logits that the session read is what the backend samples: the same tokens,
// positions, log-probabilities and alternatives, of a batch, in chunks, and beyond the context.
func TestSamplingOnHost(t *testing.T) {
	m := tiny(t, "L=2,T=32")
	const B, T = 2, 9
	prompt := randomIDs(rand.New(rand.NewPCG(14, 14)), B*T)
	for _, sampling := range []gpt2.Sampling{
		{}, {Temperature: 1, LogProbs: true}, {RepeatPenalty: 1.3, TopLogProbs: 3}, {Temperature: 0.9, TopK: 50, TopP: 0.9, MinP: 0.05, RepeatPenalty: 1.2, RepeatLast: 20, LogProbs: true, Seed: 3},
	} {
		g := gpt2.Generation{Tokens: 50, Sampling: sampling, IgnoreEOS: true}
		var want []gpt2.Token
		for i, b := range []gpt2.Backend{backends(t)["cpu"], limited{backends(t)["cpu"]}} {
			s := newSession(t, m, b, gpt2.Options{Batch: B, Chunk: 4})
			got := collect(t, s, prompt, g)
			if s.Stats().Shifts == 0 || s.Stats().DecodeTokens == 0 || len(got) != B*50 {
				t.Fatalf("%d tokens, %+v", len(got), s.Stats())
			}
			if i == 0 {
				want = got
			}
			for i, token := range got {
				if fmt.Sprint(token) != fmt.Sprint(want[i]) {
					t.Fatalf("%+v: token %d is %+v, and %+v if the backend samples", sampling, i, token, want[i])
				}
			}
		}
	}
}

// TestPenaltyCounts: the repetition penalty is for the text of its own sequence, the prompt and what was generated. One so
// large never lets a greedy token come again.
func TestPenaltyCounts(t *testing.T) {
	m := tiny(t, "L=1,T=128")
	const B, T = 2, 20
	g := gpt2.Generation{Tokens: 40, IgnoreEOS: true, Sampling: gpt2.Sampling{RepeatPenalty: 1e30}}
	prompt := randomIDs(rand.New(rand.NewPCG(16, 16)), B*T)
	var batch [B][]int32
	for _, token := range collect(t, newSession(t, m, backends(t)["cpu"], gpt2.Options{Batch: B}), prompt, g) {
		batch[token.Seq] = append(batch[token.Seq], token.ID)
	}
	for b, got := range batch {
		met := map[int32]bool{}
		for _, id := range prompt[b*T : (b+1)*T] {
			met[id] = true
		}
		for i, id := range got {
			if met[id] {
				t.Errorf("sequence %d: token %d, made as number %d, is in the text already", b, id, i)
			}
			met[id] = true
		}
		var alone []int32
		for _, token := range collect(t, newSession(t, m, backends(t)["cpu"], gpt2.Options{}), prompt[b*T:(b+1)*T], g) {
			alone = append(alone, token.ID)
		}
		if !slices.Equal(got, alone) {
			t.Errorf("sequence %d is %v, and alone %v", b, got, alone)
		}
	}
}

// TestMakeRoom: a conversation goes on when its context is full, with the last part of it.
func TestMakeRoom(t *testing.T) {
	m := tiny(t, "L=2,T=32")
	r := rand.New(rand.NewPCG(15, 15))
	s := newSession(t, m, backends(t)["cpu"], gpt2.Options{})
	text := randomIDs(r, 20)
	for _, token := range collect(t, s, text, gpt2.Generation{Tokens: 6, IgnoreEOS: true}) {
		text = append(text, token.ID)
	}
	if err := s.MakeRoom(6); err != nil || s.Stats().Shifts != 0 || s.Position() != 25 {
		t.Fatalf("6 more of 26 fit, and: %v, %d shifts, position %d", err, s.Stats().Shifts, s.Position())
	}
	for _, c := range []struct{ more, kept int }{{7, 16}, {20, 12}, {32, 0}} {
		must(t, s.MakeRoom(c.more))
		ids := randomIDs(r, c.more)
		got := collect(t, s, ids, gpt2.Generation{Tokens: 1, IgnoreEOS: true})
		text = append(text, ids...)
		fresh := newSession(t, m, backends(t)["cpu"], gpt2.Options{})
		want := collect(t, fresh, text[len(text)-c.more-c.kept:], gpt2.Generation{Tokens: 1, IgnoreEOS: true})
		if got[0].ID != want[0].ID || got[0].Position != len(text) {
			t.Errorf("after room for %d: %+v, want token %d at %d", c.more, got[0], want[0].ID, len(text))
		}
		text = append(text, got[0].ID)
	}
	if err := s.MakeRoom(33); err == nil || !strings.Contains(err.Error(), "33 tokens do not fit") {
		t.Errorf("room for 33 tokens in a context of 32: %v", err)
	}
}
