package exec

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"gpt2scope/cuda"
	"gpt2scope/cuda/persistent"
	"gpt2scope/gpt2"
)

// drafts are what a session has to verify drafts in the persistent kernel, which makes them itself, by the text so far
// or by the first layers.
type drafts struct {
	rows   int              // of a pass that verifies, at most; 0 where none does
	layers int              // that draft; 0: drafts are looked up
	auto   bool             // goes without where none can be verified
	always bool             // every launch verifies, whatever that brings: for tests
	nth    int              // launches of this Decode
	device *cuda.Buffer     // (Context + 1) int32, the text; then the logits of a pass
	host   *cuda.HostBuffer // from which the text is copied
	begin  int64            // of the logits
	guess  guesses
	exits  gains
	row    int    // of the logits: that of the token read last
	before uint64 // when the token before was there

	measured gpt2.Speculated
}

// Draft has the next Decode verify drafts: [gpt2.Drafting].
func (r *Runner) Draft(text []int32, by gpt2.Speculation) error {
	d := &r.drafts
	if len(text) != r.state.position+1 {
		return fmt.Errorf("drafts after a text of %d tokens, with %d in the cache", len(text), r.state.position)
	}
	var err error
	if d.begin = cuda.Align(4 * int64(r.options.Context+1)); d.host == nil {
		if d.host, err = r.backend.dev.AllocHost(d.begin); err != nil {
			return err
		}
	}
	if d.device == nil {
		row := r.backend.bufferBytes(gpt2.BufLogits, r.Plan(r.decodePass()))
		if d.device, err = r.backend.dev.Alloc(d.begin + cuda.PersistentVerify*row); err != nil {
			return err
		}
	}
	if err := r.stream.Synchronize(); err != nil { // an earlier copy may be under way
		return err
	}
	for step := range uint64(ringSlots) { // of passes whose tokens were dropped
		r.ring.slot(step, 0).Rows = 0
	}
	for i, id := range text {
		binary.LittleEndian.PutUint32(d.host.Bytes()[4*i:], uint32(id))
	}
	d.rows, d.layers, d.auto = min(by.Drafts+1, cuda.PersistentVerify), by.Layers, by.By == gpt2.DraftAuto
	d.before, d.measured, d.row, d.nth = 0, gpt2.Speculated{}, 0, 0
	if n := len(d.guess.text); n > len(text) || !slices.Equal(d.guess.text, text[:n]) { // what another text gained says nothing
		d.exits = gains{}
	}
	d.guess.read(text)
	return r.stream.CopyToDevice(d.device, 0, d.host, 0, 4*int64(len(text)))
}

// Drafted returns what the last Decode with drafts measured.
func (r *Runner) Drafted() gpt2.Speculated { return r.drafts.measured }

// CanDraft says why decode steps cannot verify drafts of a drafter, nil if they can as far as is known.
func (r *Runner) CanDraft(by gpt2.Speculation) error {
	switch {
	case by.By == gpt2.DraftLookup && by.Drafts >= cuda.PersistentVerify:
		return fmt.Errorf("these are too many drafts; a pass verifies at most %d here", cuda.PersistentVerify-1)
	case r.backend.mode != Persistent:
		return errors.New("on a GPU drafts are verified in mode persistent only")
	}
	return nil
}

// check says why the Decode that begins cannot verify drafts. One that need not goes without.
func (d *drafts) check(r *Runner) error {
	why := ""
	switch {
	case d.rows == 0:
		return nil
	case !r.persistent.on:
		why = "these decode steps run as graphs"
	case !r.persistent.kernel.Verifies(r.state.sampling):
		why = "the persistent kernel has none for this model and way of sampling"
	default:
		return nil
	}
	if d.auto {
		d.rows = 0
		return nil
	}
	return fmt.Errorf("%w: drafts are verified in passes of the persistent kernel: %s; --speculate off goes without",
		errors.ErrUnsupported, why)
}

// took notes a token of a step that was read, whose slot says how many rows the pass had if it was its first token.
func (d *drafts) took(s *cuda.Slot, position int) {
	layers := d.exits.used[position%ringSlots]
	switch {
	case s.Rows > 1:
		d.measured.Passes++
		d.measured.Drafted += int(s.Rows) - 1
		if d.before != 0 {
			took := time.Duration(s.Time - d.before)
			verify := cmp.Or(time.Duration(s.Verify), took)
			d.measured.VerifyTime += verify
			d.measured.DraftTime += took - verify
		}
		if layers > 0 {
			d.exits.by[layers-1].took(s.Time, d.before)
		}
		d.row = 0
	case s.Rows < 0:
		if layers > 0 {
			d.exits.by[layers-1].tokens++
		}
		d.measured.Accepted++
		d.row++
	default:
		d.exits.plain.took(s.Time, d.before)
		d.row = 0
	}
	d.before = s.Time
	d.guess.take(s.Token)
	s.Rows = 0
}

// launch says how the next launch speculates, which begins at a position.
func (d *drafts) launch(r *Runner, l *persistent.Launch, position int) {
	exit := 0 // layers that d.exits chose
	switch {
	case d.layers > 0:
		l.Verify, l.Exit = d.rows, d.layers
	case d.always || d.guess.made(d.rows) > persistent.Pays:
		l.Verify = d.rows
	case d.auto:
		if exit, l.Trial = d.exits.next(len(r.options.Layers)); exit > 0 {
			l.Verify, l.Exit = cuda.PersistentVerify, exit
		}
	}
	d.nth++
	for n := range l.Tokens {
		d.exits.used[(position+n)%ringSlots] = exit
	}
}

// preload loads the kernel that verifies while launches run, so that no trial waits for it. No trial
// comes before the third launch.
func (d *drafts) preload(r *Runner, l persistent.Launch) error {
	if !d.auto || d.nth != 2 || len(r.options.Layers) < leastLayers {
		return nil
	}
	l.Verify = cuda.PersistentVerify
	return r.persistent.kernel.Preload(l)
}

// gains tells how many layers draft so that texts are soonest ready, by what tokens took of late.
type gains struct {
	plain        pace
	by           [mostExits]pace // 1, 2 ... layers
	tried        int             // how many layers, of late
	until, pause int             // launches until the next trial, and after all were tried
	used         [ringSlots]int  // how many layers drafted a token, by its position
}

// pace is what tokens took of late.
type pace struct{ ns, tokens float64 }

// Of so few layers a step is so short that trials cost more than they bring; at most so many draft. Launches between
// trials, and how much faster drafts must make a token. Where one that was tried took so much longer, others do too.
const leastLayers, mostExits, firstPause, mostPause, gain, hopeless = 3, 3, 32, 128, 1.03, 1.1

// took notes a pass, by the time of its first token and that of the token before.
func (p *pace) took(now, before uint64) {
	if before == 0 {
		return
	}
	p.ns += float64(now-before) - p.ns/recently
	p.tokens += 1 - p.tokens/recently
}

func (p *pace) perToken() float64 { return p.ns / p.tokens }

// next returns how many of the layers draft in the next launch and, of a trial, after how many passes without a right
// draft they draft no more; else 0.
func (g *gains) next(layers int) (drafting, trial int) {
	if g.plain.tokens == 0 || layers < leastLayers {
		return 0, 0
	}
	least := g.plain.perToken() / gain
	for i := range g.by {
		if p := &g.by[i]; p.tokens > 0 && p.perToken() < least {
			drafting, least = i+1, p.perToken()
		}
	}
	if g.until--; g.until > 0 {
		return drafting, 0
	}
	g.tried++
	if n := g.tried - 1; n == min(mostExits, layers/2) ||
		n > 0 && !(g.by[n-1].perToken() < hopeless*g.plain.perToken()) {
		g.pause = min(max(firstPause, 4*g.pause), mostPause)
		g.tried, g.until = 0, g.pause
		return drafting, 0
	}
	g.until = 3 // launches that are ahead end before the next trial
	return g.tried, 2
}

func (d *drafts) free() error { return errors.Join(free(d.device), free(d.host)) }

// guesses tells whether drafts would be right: how often, of late, a token was the one that followed the two before it
// where they occurred last.
type guesses struct {
	text  []int32
	after map[[2]int32]int // the place after a pair
	right float64          // part of the tokens that were guessed
}

// A token counts with 1/recently.
const recently = 24

func (g *guesses) read(text []int32) {
	*g = guesses{after: map[[2]int32]int{}}
	for _, id := range text {
		g.take(id)
	}
}

func (g *guesses) take(id int32) {
	if n := len(g.text); n >= 2 {
		pair := [2]int32(g.text[n-2:])
		at, known := g.after[pair]
		hit := 0.0
		if known && g.text[at] == id {
			hit = 1
		}
		g.right += (hit - g.right) / recently
		g.after[pair] = n
	}
	g.text = append(g.text, id)
}

// made returns how many tokens a pass of so many rows would have made.
func (g *guesses) made(rows int) float64 {
	made, all := 1.0, 1.0
	for range rows - 1 {
		all *= g.right
		made += all
	}
	return made
}
