package auto

import (
	"math"
	"time"

	"gpt2scope/ceilings"
	"gpt2scope/gpt2"
)

// Run is what is to be done: prompts are evaluated and tokens generated, or a text is evaluated in windows.
type Run struct {
	Config  gpt2.Config
	Layers  []int // run order
	Context int   // tokens that the KV cache holds

	Prompt int // tokens
	New    int // tokens to generate

	Windows int  // passes over Prompt tokens that give all logits, in place of a generation
	OnHost  bool // tokens are sampled on the host, from logits that are copied there
}

// Work is what a run has to do on a device.
type Work struct {
	Weights int64 // bytes to make ready
	Prefill Part  // all passes of more than a token
	Decode  Part  // all decode steps
	BLAS    bool  // a pass needs the GPU's library of matrix products
	OnHost  bool  // logits are copied to the host
}

// Part is a number of passes. Floor and steps are sums over them.
type Part struct {
	Passes  int
	Steps   int
	FloorUs float64 // the least time by the ceilings of the device
}

// Device is a device that could run.
type Device struct {
	GPU   bool
	Name  string // names the device in the history: processor, threads and kernels, or the GPU
	DType string // in which it holds weights

	OwnRows int // of products, that a GPU multiplies without a library

	Sizes gpt2.Sizes
	Fuse  func(*gpt2.Plan) *gpt2.Plan // as the device executes a plan

	Ceilings ceilings.Set // measured here, or those of a table, which have no time
}

// ceilings names the ceilings that floors are made of.
func (d *Device) ceilings() string {
	if d.Ceilings.Time.IsZero() {
		return tableName
	}
	return d.Ceilings.Time.UTC().Format(time.RFC3339)
}

// Work returns what a run has to do on the device.
func (d *Device) Work(r Run) Work {
	run := r.Config
	run.Layers = len(r.Layers)
	w := Work{Weights: int64(float64(run.Parameters()) * d.Sizes.Weight), OnHost: r.OnHost}
	if r.Windows > 0 {
		w.OnHost = true // logits are scored there
		d.prefill(&w, r, r.Windows, r.Prompt, gpt2.LogitsAll)
		return w
	}
	d.generation(&w, r)
	return w
}

// generation adds the passes that [gpt2.Session.Generate] runs: when the context is full, its last half is evaluated
// again.
func (d *Device) generation(w *Work, r Run) {
	prompt, context := max(1, r.Prompt), max(1, r.Context)
	if r.New < 1 {
		return
	}
	d.prefill(w, r, 1, prompt, gpt2.LogitsLast)
	left := r.New - 1 // a prefill samples a token
	n := min(left, max(0, context-prompt))
	d.decode(w, r, n, prompt+(n-1)/2)
	if left -= n; left < 1 {
		return
	}
	kept := max(1, context/2)
	shifts := (left + context - kept) / (context - kept + 1) // after as many decode steps as fill the context again
	d.prefill(w, r, shifts, kept, gpt2.LogitsLast)
	d.decode(w, r, left-shifts, (kept+context-1)/2)
}

// prefill adds count passes over so many tokens, as if none were evaluated in chunks, whose sum differs little.
func (d *Device) prefill(w *Work, r Run, count, tokens int, logits gpt2.Logits) {
	d.add(&w.Prefill, r, count, gpt2.Pass{Batch: 1, Tokens: tokens, Logits: logits, Sample: logits == gpt2.LogitsLast}, 0)
	w.BLAS = w.BLAS || d.GPU && tokens > d.OwnRows
}

// decode adds n steps. Costs grow with the cache in proportion: the mean past stands for all.
func (d *Device) decode(w *Work, r Run, n, past int) {
	if n > 0 {
		d.add(&w.Decode, r, n, gpt2.Pass{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}, past)
	}
}

// add adds passes of one plan.
func (d *Device) add(p *Part, r Run, passes int, pass gpt2.Pass, past int) {
	plan := d.Fuse(gpt2.Forward(r.Config, r.Layers, pass))
	p.Passes += passes
	p.Steps += passes * len(plan.Steps)
	p.FloorUs += float64(passes) * float64(d.Ceilings.PassFloor(plan.Work(past, d.Sizes)).Nanoseconds()) / 1e3
}

// Tokens returns how many new tokens a run is expected to make of those it may: without a limit (math.MaxInt) as many
// as fill the context.
func Tokens(most, prompt, context int) int {
	if most == math.MaxInt {
		return max(1, context-prompt+1)
	}
	return most
}
