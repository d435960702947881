package gpt2

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"gpt2scope/internal/humanize"
)

// This file speculates: cheap guesses of the next tokens, drafts, are verified by one pass over all of them, which
// takes little longer than a decode step. Each token is the one that the whole model draws without drafts (Y. Leviathan
// et al., Fast Inference from Transformers via Speculative Decoding, 2023; here without a change of the distribution,
// as random numbers depend on the position alone).

// Speculation says where drafts come from.
type Speculation struct {
	By     Drafter
	Layers int // by exits: how many layers draft
	Drafts int // at most, for each pass that verifies
}

// Drafter is where drafts come from.
type Drafter string

const (
	DraftOff    Drafter = "off"    // nowhere; "" too
	DraftExits  Drafter = "exits"  // the first layers, with the logits after them
	DraftLookup Drafter = "lookup" // what followed the last tokens where they occurred before
	DraftAuto   Drafter = "auto"   // whichever is measured to be faster than no drafts, if one is
)

// DefaultSpeculation returns what a drafter does if no more is said.
func DefaultSpeculation(by Drafter) Speculation {
	return map[Drafter]Speculation{DraftExits: {DraftExits, 1, 4}, DraftLookup: {DraftLookup, 0, 3},
		DraftAuto: {By: DraftAuto}}[by]
}

// String writes it as [ParseSpeculation] reads it.
func (s Speculation) String() string {
	switch s.By {
	case "":
		return string(DraftOff)
	case DraftExits:
		return fmt.Sprintf("%s=%d,%d", s.By, s.Layers, s.Drafts)
	case DraftLookup:
		return fmt.Sprintf("%s=%d", s.By, s.Drafts)
	}
	return string(s.By)
}

// Off tells whether there are no drafts.
func (s Speculation) Off() bool { return s.By == "" || s.By == DraftOff }

var errSpeculation = errors.New("it must be off, exits[=K,N] (the first K layers draft up to N tokens), lookup[=N] or auto")

// ParseSpeculation reads "off", "exits", "exits=1,4", "lookup", "lookup=3" or "auto".
func ParseSpeculation(text string) (Speculation, error) {
	by, values, given := strings.Cut(text, "=")
	s := DefaultSpeculation(Drafter(by))
	var to []*int
	switch s.By {
	case DraftExits:
		to = []*int{&s.Layers, &s.Drafts}
	case DraftLookup:
		to = []*int{&s.Drafts}
	}
	if !given {
		if s.By == "" && by != string(DraftOff) {
			return s, errSpeculation
		}
		return s, nil
	}
	numbers := strings.Split(values, ",")
	if len(numbers) != len(to) {
		return s, errSpeculation
	}
	for i, text := range numbers {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxDim {
			return s, errSpeculation
		}
		*to[i] = n
	}
	return s, nil
}

// CanSpeculate says why passes cannot speculate so, nil if they can as far as is known. [DraftAuto] does without where
// it cannot.
func (s *Session) CanSpeculate(by Speculation) error {
	if by.Off() || by.By == DraftAuto {
		return nil
	}
	runner, can := s.runner.(Verifier)
	drafting, drafts := s.runner.(Drafting)
	switch layers := len(s.options.Layers); {
	case !can && !drafts:
		return unsupported(s.backend, "speculate; --speculate off goes without")
	case s.options.Batch > 1:
		return fmt.Errorf("speculation is for one sequence, not a batch of %d", s.options.Batch)
	case by.By == DraftExits && by.Layers >= layers:
		return fmt.Errorf("speculation %s: a run of %s has none beside those that draft; fewer must draft, or more run (--layers all)", by,
			humanize.Count(layers, "layer", "layers"))
	case can && by.Drafts >= runner.VerifyRows():
		return fmt.Errorf("speculation %s: these are too many drafts; a pass verifies at most %d here", by, runner.VerifyRows()-1)
	case drafts:
		if err := drafting.CanDraft(by); err != nil {
			return fmt.Errorf("speculation %s: %w; --speculate off goes without", by, err)
		}
	}
	return nil
}

// Speculated is what a session measured of its drafts.
type Speculated struct {
	Passes     int           // that verified
	Drafted    int           // tokens
	Accepted   int           // of them; the others were dropped
	DraftTime  time.Duration // of passes that drafted
	VerifyTime time.Duration // of passes that verified
}

// draft has the next Decode make drafts where the runner does, and returns what ends that.
func (g *generation) draft() (end func(), err error) {
	runner, can := g.runner.(Drafting)
	by := g.Speculate
	if by.By == DraftAuto && can {
		can, by.Drafts = g.options.Batch == 1 && runner.CanDraft(by) == nil, DefaultSpeculation(DraftLookup).Drafts
	}
	if !can || g.onHost || by.Off() {
		return func() {}, nil
	}
	return func() {
		d, s := runner.Drafted(), &g.stats.Speculated
		s.Passes, s.Drafted, s.Accepted = s.Passes+d.Passes, s.Drafted+d.Drafted, s.Accepted+d.Accepted
		s.DraftTime, s.VerifyTime = s.DraftTime+d.DraftTime, s.VerifyTime+d.VerifyTime
		g.stats.DecodeSteps -= d.Accepted // which passes made beside others
	}, runner.Draft(g.history[0], by)
}

func (g *generation) speculates() bool {
	_, can := g.runner.(Verifier)
	return can && !g.onHost && !g.Speculate.Off() && (g.Speculate.By != DraftAuto || g.choice != nil)
}

// speculate makes at most n tokens, as Decode does.
func (g *generation) speculate(ctx context.Context, n int) error {
	for !g.over && n > 0 {
		made, before, drafted := g.made, g.stats.DecodeTime, g.stats.Speculated.Drafted
		by, measured := g.Speculate, g.Speculate.By == DraftAuto
		if measured {
			by = g.choice.ways[g.choice.now()].Speculation
		}
		if err := g.round(ctx, by, min(by.Drafts, n-1)); err != nil {
			return err
		}
		if measured {
			g.choice.took(g.made-made, g.stats.Speculated.Drafted-drafted, g.stats.DecodeTime-before)
		}
		n -= g.made - made
	}
	return nil
}

// leastShare is how probable a token must be to the layers that draft it. Of the shipped model's tokens at temperature
// 0.8, the first layer's are those of all layers in 13 of 100 cases below 0.1, in 49 around 0.35, and in 99 above 0.9; to
// draft and verify one takes a third of a decode step on a Xeon, 0.6 on a Zen 4.
const leastShare = 0.4

// round drafts up to n tokens and verifies them, or makes a decode step if there are none. Afterwards all tokens but
// the last are in the cache.
func (g *generation) round(ctx context.Context, by Speculation, n int) (err error) {
	base, start := len(g.history[0]), time.Now()
	stats := &g.stats.Speculated
	defer func() {
		if err != nil { // back to the tokens that are sure
			g.history[0] = g.history[0][:base]
			err = cmp.Or(err, g.runner.Rewind(base-1))
		}
	}()
	from := 0
	if by.By == DraftLookup {
		g.history[0] = append(g.history[0], lookUp(g.history[0], n)...)
	} else if n > 0 {
		from = by.Layers
		for i := range n + 1 { // the last one only for the hidden states of its layers
			pass := Pass{Batch: 1, Tokens: 1, Exit: from}
			if i < n {
				pass.Logits, pass.Sample = LogitsLast, true
			}
			tokens, err := g.runner.Prefill(ctx, g.history[0][base-1+i:], pass)
			if err != nil {
				return err
			}
			if i < n && tokens[0].share > 0 && tokens[0].share < leastShare {
				break
			}
			g.keep(tokens)
		}
		stats.DraftTime += time.Since(start)
	}
	ids := g.history[0][base-1:]
	pass := Pass{Batch: 1, Tokens: len(ids), Logits: LogitsLast, Sample: true}
	if from > 0 || len(ids) > 1 {
		pass.Logits, pass.From, pass.Verify = LogitsAll, from, true
	}
	if err := g.runner.Rewind(base - 1); err != nil {
		return err
	}
	verify := time.Now()
	tokens, err := g.runner.Prefill(ctx, ids, pass)
	if err != nil {
		return err
	}
	if pass.Verify {
		stats.Passes++
		stats.Drafted += len(ids) - 1
		stats.Accepted += len(tokens) - 1
		stats.VerifyTime += time.Since(verify)
	}
	g.stats.DecodeTime += time.Since(start)
	g.stats.DecodeSteps++
	g.history[0] = g.history[0][:base]
	for i := range tokens {
		g.stats.DecodeTokens++
		if g.emit(tokens[i : i+1]); g.over {
			break
		}
	}
	return g.runner.Rewind(len(g.history[0]) - 1)
}

// Lengths of the last tokens that are looked up.
const leastMatch, mostMatch = 2, 8

// lookUp returns n tokens that followed the longest match of the last tokens of a text, the last such, or none. A text
// that repeats its last tokens does so again.
func lookUp(text []int32, n int) []int32 {
	end := len(text)
	best, at := leastMatch-1, 0
	for i := end - 1; i >= leastMatch && best < mostMatch; i-- {
		m := 0
		for m < mostMatch && m < i && text[i-1-m] == text[end-1-m] {
			m++
		}
		if m > best {
			best, at = m, i
		}
	}
	if at == 0 {
		return nil
	}
	drafts := make([]int32, n)
	for i := range drafts {
		drafts[i] = text[at+i%(end-at)]
	}
	return drafts
}

// choice finds by measuring which of several ways to speculate is fastest. It tries all of them now and then, less and
// less often, and goes on with the fastest.
type choice struct {
	ways  []way // the first is none
	trial int   // rounds left of a trial; 0 if the fastest is in use
	turn  int   // the way that is tried, or was last
	best  int   // the way that was fastest last
	until int   // rounds until the next trial
	pause int   // rounds until the next trials of all
}

// way is one of them with what it made of late. Only the least times since a way was last tried count: other programs
// take the cores for a while, and steps take longer the longer the text is, for ways that are not in use too.
type way struct {
	Speculation
	tokens, rounds float64
	of             []roundTimes // by drafts
}

// roundTimes says of rounds of as many drafts how many there were and the least that one took, in ns.
type roundTimes struct{ count, least float64 }

// scale multiplies what a way made, and the least times.
func (w *way) scale(made, least float64) {
	w.tokens, w.rounds = w.tokens*made, w.rounds*made
	for n := range w.of {
		w.of[n].count, w.of[n].least = w.of[n].count*made, w.of[n].least*least
	}
}

// Of trials: how many rounds they take, after how many the first begins, how many lie between trials of all ways at
// first and at most; how much of what a way made before a trial counts in it, and how much longer a round may have
// become since the one before. What a way made is forgotten over `memory` rounds. A way must be faster than none by
// `gain`; that in use stays until it is slower than none by `keep` over the square root of its rounds, since rounds
// vary. It must make `leastTokens` a round.
const trialRounds, firstTrial, firstPause, mostPause, before, grown = 12, 2, 48, 512, 0.25, 1.3
const memory, gain, keep, leastTokens = 64, 1.03, 0.4, 1.1

// newChoice returns the ways to speculate that a session has, nil if there are none.
func newChoice(s *Session) *choice {
	runner, ok := s.runner.(Verifier)
	if !ok || s.options.Batch > 1 || len(s.options.Layers) <= 2*DefaultSpeculation(DraftExits).Layers {
		return nil // a decode step of a layer or two is so short that trials cost more than 2 %
	}
	c := &choice{ways: []way{{}}, until: firstTrial, pause: firstPause}
	n := runner.VerifyRows() - 1
	for _, by := range []Speculation{DefaultSpeculation(DraftExits), DefaultSpeculation(DraftLookup)} {
		if by.Drafts = min(by.Drafts, n); by.Drafts > 0 {
			c.ways = append(c.ways, way{Speculation: by})
		}
	}
	return c
}

// now returns the way in use.
func (c *choice) now() int {
	if c.trial > 0 {
		return c.turn
	}
	return c.best
}

// perToken returns what a token takes in ns, as far as a way was measured.
func (w *way) perToken() float64 {
	ns := 0.0
	for _, of := range w.of {
		ns += of.count * of.least
	}
	return ns / w.tokens
}

// took notes what a round with so many drafts made in which time.
func (c *choice) took(tokens, drafted int, d time.Duration) {
	now := c.now()
	w := &c.ways[now]
	w.scale(1-1.0/memory, 1)
	for drafted >= len(w.of) {
		w.of = append(w.of, roundTimes{least: float64(d)})
	}
	of := &w.of[drafted]
	of.count, of.least = of.count+1, min(of.least, float64(d))
	w.tokens, w.rounds = w.tokens+float64(tokens), w.rounds+1
	if c.trial > 0 {
		c.trial--
		// One that is much slower than another is not tried longer; drafts have two rounds.
		again := now > 0 && (tokens > 1 || c.trial == trialRounds-1)
		if c.trial > 0 && (again || w.perToken() < 1.5*c.ways[c.fastest()].perToken()) {
			return
		}
		c.trial = 0
	} else if c.until--; c.until <= 0 {
		if c.until, c.turn = 1, (c.turn+1)%len(c.ways); c.turn == 0 { // all were tried
			c.until, c.pause = c.pause, min(4*c.pause, mostPause)
		}
		c.trial = trialRounds
		c.ways[c.turn].scale(before, grown)
		return
	}
	c.best = c.fastest()
}

// fastest returns the way that takes least for a token.
func (c *choice) fastest() int {
	best := 0
	for i := range c.ways {
		least := c.ways[best].perToken()
		if best == 0 && i == c.best {
			least *= 1 + keep/math.Sqrt(c.ways[i].rounds)
		} else if best == 0 {
			least /= gain
		}
		if w := &c.ways[i]; w.tokens > 0 && w.perToken() < least && (i == 0 || w.tokens >= leastTokens*w.rounds) {
			best = i
		}
	}
	return best
}
