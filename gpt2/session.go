package gpt2

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"
)

// Session is one conversation with a model on a backend: a KV cache, the tokens
// in it, and what was measured. It belongs to one goroutine at a time.
type Session struct {
	model   *Model
	backend Backend
	runner  Runner
	device  OnDevice // the runner, if it is
	options Options

	// history holds the tokens of each sequence: those in the cache, then those not
	// evaluated yet, such as the one sampled last.
	history [][]int32
	dropped int     // tokens lost from the front when the context was full
	sampler Sampler // for what the runner does not sample
	choice  *choice // of how to speculate; nil before it was asked for
	stats   Stats
	loaded  []Load // before the statistics began
	err     error  // the first one sticks
}

// Stats are what a session measured of itself, since it began or was reset.
type Stats struct {
	Prefills      int           // passes: of the prompt, of its chunks, and after a shift
	PrefillTokens int           // evaluated in prefills, over all sequences
	PrefillTime   time.Duration // of them, sampling of the first token included
	DecodeTokens  int           // sampled in decode steps, over all sequences
	DecodeSteps   int
	DecodeTime    time.Duration // of the steps, without the time that the caller took between them
	Shifts        int           // how often the context was full and its last half re-evaluated
	Speculated    Speculated
}

// NewSession prepares the backend to run the model.
func NewSession(ctx context.Context, m *Model, b Backend, o Options) (*Session, error) {
	o, err := o.withDefaults(m.Config)
	if err != nil {
		return nil, err
	}
	runner, err := b.Prepare(ctx, m, o)
	if err != nil {
		return nil, err
	}
	device, _ := runner.(OnDevice)
	return &Session{model: m, backend: b, runner: runner, device: device, options: o,
		history: make([][]int32, o.Batch)}, nil
}

// Model returns the model that the session runs.
func (s *Session) Model() *Model { return s.model }

// Runner returns what the backend prepared for the session. Passes run on it directly are not in the session's history.
func (s *Session) Runner() Runner { return s.runner }

// Options returns the session's options, defaults filled in.
func (s *Session) Options() Options { return s.options }

// Stats returns what was measured since the session began or was reset.
func (s *Session) Stats() Stats { return s.stats }

// Position returns how many tokens of each sequence the KV cache holds, 0 after Close.
func (s *Session) Position() int {
	if s.err == ErrClosed {
		return 0
	}
	return s.runner.Position()
}

// Length returns how many tokens of each sequence the session holds: those in the KV cache, and those that the next
// pass evaluates before any others, such as the one sampled last.
func (s *Session) Length() int { return len(s.history[0]) }

// Reset empties the KV cache and the statistics.
func (s *Session) Reset() error {
	if s.err != nil {
		return s.err
	}
	for i := range s.history {
		s.history[i] = s.history[i][:0]
	}
	s.dropped, s.stats = 0, Stats{}
	if s.device != nil {
		s.loaded = s.device.Loads()
	}
	return s.fail(context.Background(), s.runner.Rewind(0))
}

// Close frees the session. Closing twice does nothing.
func (s *Session) Close() error {
	if s.err == ErrClosed {
		return nil
	}
	s.err = ErrClosed
	return s.runner.Close()
}

// fail keeps the first error after which the state of the session is not known. A
// cancelled pass is no such error: its tokens are evaluated by the next one.
func (s *Session) fail(ctx context.Context, err error) error {
	if err != nil && s.err == nil && ctx.Err() == nil {
		s.err = err
	}
	return err
}

var errNoTokens = errors.New("there are no tokens to evaluate; give at least one")

// admit checks ids, (B, T) row-major, before they are evaluated after what the cache holds, and returns T.
func (s *Session) admit(ids []int32) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	B := s.options.Batch
	if len(ids) == 0 && s.pending() == 0 {
		return 0, errNoTokens
	}
	if len(ids)%B != 0 {
		return 0, fmt.Errorf("%d tokens are not %d sequences of equal length", len(ids), B)
	}
	if err := s.checkIDs(ids); err != nil {
		return 0, err
	}
	T := len(ids) / B
	if used := s.Position() + s.pending(); used+T > s.options.Context {
		more := ""
		if most := s.model.Config.Positions; s.options.Context < most {
			more = fmt.Sprintf(", or raise the context (the model can hold %d)", most)
		}
		if used == 0 {
			return 0, fmt.Errorf("the text has %d tokens and the context holds %d; shorten the text%s", T, s.options.Context,
				more)
		}
		return 0, fmt.Errorf("%d more tokens do not fit: the context holds %d and %d are used; reset the session%s", T,
			s.options.Context, used, more)
	}
	return T, nil
}

// checkIDs says which id is not one of the model's.
func (s *Session) checkIDs(ids []int32) error {
	V := s.model.Config.Vocab
	for i, id := range ids {
		if id < 0 || int(id) >= V {
			return fmt.Errorf("token %d at place %d is outside the vocabulary; ids are 0 to %d", id, i, V-1)
		}
	}
	return nil
}

// MakeRoom drops the oldest tokens if n more per sequence would not fit in the context: of those that it holds, the
// last half of the context is kept at most. The next pass evaluates what was kept again.
func (s *Session) MakeRoom(n int) error {
	if s.err != nil {
		return s.err
	}
	C := s.options.Context
	switch {
	case s.Position()+s.pending()+n <= C:
		return nil
	case n > C:
		return fmt.Errorf("%d tokens do not fit in the context, which holds %d; give fewer", n, C)
	}
	return s.drop(min(C/2, C-n))
}

// drop keeps the last tokens of each sequence only, to be evaluated again by the next pass.
func (s *Session) drop(keep int) error {
	drop := len(s.history[0]) - keep
	for b, h := range s.history {
		s.history[b] = append(h[:0], h[drop:]...)
	}
	s.dropped += drop
	s.stats.Shifts++
	return s.fail(context.Background(), s.runner.Rewind(0))
}

// pending returns how many tokens per sequence are to be evaluated before any
// others: the one sampled last, or those of a cancelled pass.
func (s *Session) pending() int { return len(s.history[0]) - s.runner.Position() }

// prefill evaluates ids after the history, in passes of a chunk each, the last of which samples if the pass says so, and
// calls each, if it is not nil, after every one of them with its first row. Its tokens are valid until the next pass.
func (s *Session) prefill(ctx context.Context, ids []int32, pass Pass, each func(pass Pass, row int) error) ([]Token,
	error) {
	B := s.options.Batch
	T := len(ids)/B + s.pending()
	for b := range B {
		s.history[b] = append(s.history[b], ids[b*(len(ids)/B):(b+1)*(len(ids)/B)]...)
	}
	chunk := min(T, cmp.Or(s.options.Chunk, T))
	buf := make([]int32, B*chunk)
	start := time.Now()
	var tokens []Token
	for done := 0; done < T; {
		n := min(chunk, T-done)
		from := s.runner.Position()
		for b := range B {
			copy(buf[b*n:(b+1)*n], s.history[b][from:from+n])
		}
		part := pass
		part.Batch, part.Tokens = B, n
		if done+n < T { // only the last chunk has the last row
			part.Sample = false
			if part.Logits == LogitsLast {
				part.Logits = LogitsNone
			}
		}
		var err error
		if tokens, err = s.runner.Prefill(ctx, buf[:B*n], part); err != nil {
			return nil, s.fail(ctx, err)
		}
		s.stats.Prefills++
		if each != nil {
			if err := each(part, done); err != nil {
				return nil, err
			}
		}
		done += n
	}
	s.stats.PrefillTime += time.Since(start)
	s.stats.PrefillTokens += B * T
	return tokens, nil
}

// keep appends sampled tokens, one per sequence, to the history.
func (s *Session) keep(tokens []Token) {
	for _, t := range tokens {
		s.history[t.Seq] = append(s.history[t.Seq], t.ID)
	}
}

// Generation says what to generate and when to stop.
type Generation struct {
	Tokens    int // at most so many new tokens per sequence; 0 is until the end of text
	Sampling  Sampling
	IgnoreEOS bool     // go on after the model's end-of-text token
	Stop      []string // end the text before the first of these ([Session.Text] only)
	Speculate Speculation
}

// Generate evaluates ids, (B, T) row-major, after what the session holds, and yields new tokens as they are made, one
// per sequence and step, sequences in order. It ends after g.Tokens per sequence, or after the end-of-text token (for a
// batch: when every sequence has met it; each goes on until then). When the context is full, the last half of it is
// re-evaluated and generation goes on. The last token yielded is evaluated by the next call, which may have no ids.
//
// An error ends the sequence; a cancelled context gives its cause, and the session can be used on.
func (s *Session) Generate(ctx context.Context, ids []int32, g Generation) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		err := g.Sampling.Check()
		if err == nil {
			_, err = s.admit(ids)
		}
		if err == nil {
			err = s.CanSpeculate(g.Speculate)
		}
		if err != nil {
			yield(Token{}, err)
			return
		}
		run := generation{Session: s, Generation: g, yield: yield, ended: make([]bool, s.options.Batch)}
		if g.Tokens == 0 {
			run.Tokens = math.MaxInt
		}
		run.Sampling.History = func(seq int) []int32 { return s.history[seq] }
		run.onHost = s.device != nil && !s.device.Samples(run.Sampling)
		if g.Speculate.By == DraftAuto && s.choice == nil {
			s.choice = newChoice(s)
		}
		// Passes that are measured later do not depend on how a text was sampled.
		defer s.runner.SetSampling(Sampling{})
		if err := run.all(ctx, ids); err != nil && !run.left {
			yield(Token{}, err)
		}
	}
}

// generation is one Generate under way.
type generation struct {
	*Session
	Generation
	yield  func(Token, error) bool
	onHost bool   // the runner cannot sample as asked: logits are read and sampled here
	ended  []bool // sequences that met the end of text
	made   int    // steps so far
	over   bool
	left   bool // the caller took no more tokens, so that none may be yielded
}

// all takes steps until the generation is over: a prefill of what was given, or of what was kept when the context was
// full, which samples; then as many decode steps, or rounds of drafts, as fit in the context.
func (g *generation) all(ctx context.Context, ids []int32) error {
	for !g.over {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if g.made == 0 || g.Position() == g.options.Context {
			if g.made > 0 {
				ids = nil
				if err := g.drop(max(1, g.options.Context/2)); err != nil {
					return err
				}
			}
			g.runner.SetSampling(g.sampling())
			tokens, err := g.first(ctx, ids)
			if err != nil {
				return err
			}
			g.emit(tokens)
			continue
		}
		n := min(g.Tokens-g.made, g.options.Context-g.Position())
		if g.speculates() {
			if err := g.speculate(ctx, n); err != nil {
				return g.fail(ctx, err)
			}
			continue
		}
		decode := g.runner.Decode
		if g.onHost {
			decode = g.decodeOnHost
		}
		measured, err := g.draft()
		if err != nil {
			return g.fail(ctx, err)
		}
		lap := time.Now()
		err = decode(ctx, n, func(tokens []Token) bool {
			g.stats.DecodeTime += time.Since(lap)
			g.stats.DecodeTokens += len(tokens)
			g.stats.DecodeSteps++
			g.emit(tokens)
			lap = time.Now()
			return !g.over
		})
		measured()
		if err != nil {
			return g.fail(ctx, err)
		}
	}
	return nil
}

// sampling is how to sample, with how many tokens of the text were dropped.
func (g *generation) sampling() Sampling {
	sampling := g.Sampling
	sampling.Offset = g.dropped
	return sampling
}

// first evaluates ids after the history and samples.
func (g *generation) first(ctx context.Context, ids []int32) (tokens []Token, err error) {
	if !g.onHost {
		return g.prefill(ctx, ids, Pass{Logits: LogitsLast, Sample: true}, nil)
	}
	_, err = g.prefill(ctx, ids, Pass{Logits: LogitsLast}, func(pass Pass, _ int) error {
		if pass.Logits == LogitsLast {
			tokens, err = g.sampleOnHost()
		}
		return g.fail(ctx, err)
	})
	return tokens, err
}

// decodeOnHost is [Runner.Decode] with sampling on the host.
func (g *generation) decodeOnHost(ctx context.Context, n int, emit func([]Token) bool) error {
	ids := make([]int32, len(g.history))
	pass := Pass{Batch: len(ids), Tokens: 1, Logits: LogitsLast}
	for range n {
		for b, h := range g.history {
			ids[b] = h[len(h)-1]
		}
		if _, err := g.runner.Prefill(ctx, ids, pass); err != nil {
			return err
		}
		tokens, err := g.sampleOnHost()
		if err != nil {
			return err
		}
		if !emit(tokens) {
			break
		}
	}
	return nil
}

// sampleOnHost reads the last row of logits of each sequence, and samples.
func (g *generation) sampleOnHost() ([]Token, error) {
	var tokens []Token
	logits := make([]float32, g.model.Config.Vocab)
	for b := range g.history {
		if err := g.runner.Read(BufLogits, b, logits); err != nil {
			return nil, err
		}
		t, err := g.sampler.Sample(g.sampling(), logits, b, g.Position())
		if err != nil {
			return nil, &StageError{"sample", fmt.Sprintf("sequence %d, %d tokens", b, g.Position()), err}
		}
		tokens = append(tokens, t)
	}
	return tokens, nil
}

// emit hands out the tokens of a step.
func (g *generation) emit(tokens []Token) {
	g.keep(tokens)
	g.made++
	for _, t := range tokens {
		if !g.IgnoreEOS && g.model.EndsText(t.ID) {
			g.ended[t.Seq] = true
		}
		if !g.over && !g.yield(t, nil) {
			g.over, g.left = true, true
		}
	}
	if g.made >= g.Tokens || !slices.Contains(g.ended, false) {
		g.over = true
	}
}

// Logits evaluates ids, (B, T) row-major, after what the session holds, and returns the rows of logits that were asked
// for: (B, T, V) for [LogitsAll], (B, 1, V) for [LogitsLast].
func (s *Session) Logits(ctx context.Context, ids []int32, which Logits) ([]float32, error) {
	T, err := s.admit(ids)
	if err == nil && T == 0 {
		err = errNoTokens
	}
	if err != nil {
		return nil, err
	}
	B, V := s.options.Batch, s.model.Config.Vocab
	if which == LogitsNone {
		_, err := s.prefill(ctx, ids, Pass{}, nil)
		return nil, err
	}
	if which == LogitsLast {
		T = 1
	}
	var logits []float32
	skip := s.pending() // rows of a token sampled earlier were not asked for
	_, err = s.prefill(ctx, ids, Pass{Logits: which}, func(part Pass, row int) error {
		if logits == nil { // after the pass, so that what is too large fails there
			logits = make([]float32, B*T*V)
		}
		rows := part.exitRows()
		for b := range B {
			for r := range rows {
				to := row + r - skip
				if which == LogitsLast {
					to = 0
				}
				if to < 0 {
					continue
				}
				if err := s.runner.Read(BufLogits, b*rows+r, logits[(b*T+to)*V:(b*T+to+1)*V]); err != nil {
					return s.fail(ctx, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return logits, nil
}

// Activations evaluates ids, (B, T) row-major, in an emptied session and returns the output of one stage, (B, T,
// width), such as (B, T, 3*C) for h.0.attn.c_attn. The pass ends after that stage, so nothing that follows is fused with
// it. Afterwards the session is empty.
func (s *Session) Activations(ctx context.Context, ids []int32, stage string) ([]float32, Shape, error) {
	at, err := FindOutput(stage, s.options.Layers)
	if err != nil {
		return nil, Shape{}, err
	}
	if err := s.Reset(); err != nil {
		return nil, Shape{}, err
	}
	T, err := s.admit(ids)
	if err != nil {
		return nil, Shape{}, err
	}
	pass := Pass{Batch: s.options.Batch, Tokens: T, Until: at.String()}
	if _, err := s.runner.Prefill(ctx, ids, pass); err != nil {
		return nil, Shape{}, s.fail(ctx, err)
	}
	buffer, shape := s.runner.Plan(pass).Output()
	out := make([]float32, s.options.Batch*shape.Rows*shape.Width)
	if err := s.runner.Read(buffer, 0, out); err != nil {
		return nil, Shape{}, s.fail(ctx, err)
	}
	return out, shape, s.Reset()
}
