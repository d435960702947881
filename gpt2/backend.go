package gpt2

import (
	"context"
	"errors"
	"fmt"

	"gpt2scope/ceilings"
)

// Backend makes runners: something that can execute plans.
type Backend interface {
	// Name is what the command line calls it, such as "cpu".
	Name() string

	// Fuse rewrites a plan into the one that the backend executes.
	Fuse(p *Plan) *Plan

	// Sizes are the bytes of an element of each kind, as the backend holds them.
	Sizes() Sizes

	// Prepare makes ready to run the model's layers: it packs or uploads the
	// weights that Options.Layers needs, which may take a while and is reported
	// to Options.Progress.
	Prepare(ctx context.Context, m *Model, o Options) (Runner, error)

	// Close frees what sessions share, such as threads. Sessions must be closed
	// before. Closing twice does nothing.
	Close() error
}

// CeilingMeasurer is implemented by backends that can measure what their device does at
// most.
type CeilingMeasurer interface {
	// CeilingsKey names the device, and what runs on it, as a stored set does.
	CeilingsKey() (string, error)

	// MeasureCeilings measures the device; nothing else should use it meanwhile. If data
	// is positive, only what a pass over data of so many bytes needs may be measured.
	MeasureCeilings(ctx context.Context, data int64) (ceilings.Set, error)
}

// Options are what a session is made for.
type Options struct {
	Layers  []int // run order; nil runs every layer once
	Batch   int   // B, sequences of equal length; 0 is 1
	Context int   // capacity of the KV cache in tokens; 0 is the model's n_positions
	Chunk   int   // evaluate prompts in chunks of at most so many tokens; 0 does not split them

	// Progress, where it is not nil, is told bytes of weights made ready, of a
	// total. It is called from one goroutine at a time.
	Progress func(done, total int64)
}

// withDefaults fills in what was left out, and checks the rest.
func (o Options) withDefaults(c Config) (Options, error) {
	if o.Layers == nil {
		o.Layers = FirstLayers(c.Layers)
	}
	if o.Batch == 0 {
		o.Batch = 1
	}
	if o.Context == 0 {
		o.Context = c.Positions
	}
	if err := CheckLayers(c, o.Layers); err != nil {
		return o, err
	}
	switch {
	case o.Batch < 0 || o.Batch > maxDim:
		return o, fmt.Errorf("the batch is %d; it must be from 1 to %d", o.Batch, maxDim)
	case o.Context < 1 || o.Context > c.Positions:
		return o, fmt.Errorf("the context is %d tokens; it must be from 1 to the model's %d", o.Context, c.Positions)
	case o.Batch > maxRows/o.Context:
		return o, fmt.Errorf("a batch of %d times a context of %d is more than %d tokens; lower one of them", o.Batch, o.Context, maxRows)
	case o.Chunk < 0:
		return o, fmt.Errorf("the chunk is %d tokens; it must be 0 (whole) or positive", o.Chunk)
	}
	return o, nil
}

// Runner executes the passes of one session: it owns the KV cache and the
// activation buffers. It belongs to one goroutine at a time. Its caller checks
// ids, phases and room in the context.
type Runner interface {
	// Plan returns the plan of a phase as this runner executes it, fused.
	Plan(phase Phase) *Plan

	// SetSampling says how passes that sample do it from now on.
	SetSampling(s Sampling)

	// Prefill evaluates ids, (B, T) row-major, after the Position tokens that
	// the cache holds. Where the phase samples, it returns one token per
	// sequence; the slice is valid until the next call.
	Prefill(ctx context.Context, ids []int32, phase Phase) ([]Token, error)

	// Decode runs n steps. Each evaluates the tokens sampled last and samples
	// the next, which go to emit, one per sequence; emit returns false to stop.
	// The slice is valid until emit returns.
	Decode(ctx context.Context, n int, emit func([]Token) bool) error

	// Read copies rows of a buffer of the last pass: len(dst) elements from row
	// on, where sequence b's row r is row b*Rows + r.
	Read(b Buffer, row int, dst []float32) error

	// Position returns how many tokens of each sequence the cache holds.
	Position() int

	// Rewind drops cached tokens from a position on.
	Rewind(position int) error

	// Close frees what the runner holds. Closing twice does nothing.
	Close() error
}

// StageError is a failure in a pass: at which step, of what shape, and why.
type StageError struct {
	Step  string // name of the step, "h.0.attn.c_attn"
	Shape string // what it worked on, "B=1 T=5 past=0"
	Err   error
}

// NewStageError says that a step of a plan failed, with past tokens in the cache.
func NewStageError(p *Plan, step Step, past int, err error) *StageError {
	return &StageError{step.Name(), fmt.Sprintf("B=%d T=%d past=%d", p.Phase.Batch, p.Phase.Tokens, past), err}
}

// Error gives one sentence.
func (e *StageError) Error() string {
	return fmt.Sprintf("stage %s (%s): %v", e.Step, e.Shape, e.Err)
}

// Unwrap returns the cause.
func (e *StageError) Unwrap() error { return e.Err }

// ErrClosed is returned by calls on a closed session or model.
var ErrClosed = errors.New("it was closed")
