package gpt2

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"gpt2scope/ceilings"
	"gpt2scope/record"
)

// This file is the whole contract between the model and what executes it. A backend implements [Backend], and its
// Prepare returns a [Runner]. What else it or its runners can do they show by implementing some of these interfaces:
//
//	of a backend   [Surveyor], [CeilingMeasurer], [Joiner]
//	of a runner    [Recordable], [OnDevice], [Verifier], [Drafting]
//
// Their users assert them; what a [Session] does not have without one is [errors.ErrUnsupported].

// Backend makes runners: something that can execute plans.
type Backend interface {
	// Name is what the command line calls it, such as "cpu".
	Name() string

	// Describe says what it is and how it runs. It measures nothing.
	Describe() Description

	// Fuse rewrites a plan into the one that the backend executes.
	Fuse(p *Plan) *Plan

	// Sizes are the bytes of an element of each kind, as the backend holds them of a model.
	Sizes(m *Model) Sizes

	// Prepare returns a runner for the model's layers. It packs or uploads the weights that Options.Layers needs, which
	// may take a while and is reported to Options.Progress.
	Prepare(ctx context.Context, m *Model, o Options) (Runner, error)

	// Close frees what sessions share, such as threads. Sessions must be closed before. Closing twice does nothing.
	Close() error
}

// Description says what a backend is and how it runs, for people, files and tables.
// A field is zero if it does not apply or is not known.
type Description struct {
	Name      string // that of [Backend.Name]
	Processor string // that computes: "AMD EPYC 9B45", "NVIDIA H100 80GB HBM3"
	GPU       bool   // the processor is a GPU
	Index     int    // of the GPU, as CUDA counts them
	PCI       string // address of the GPU: "0000:19:00.0"

	WeightType string            // in which weights are held: "f32", "bf16", "q8", "f64"
	Threads    int               // of the CPU
	Kernels    string            // instruction set of the CPU's kernels: "avx512"
	Mode       string            // how passes are launched on a GPU: "eager", "graph", "persistent"
	ModeReason string            // why in that mode
	Fallback   string            // what ran in another mode than Mode, and why: that of the last time
	Variants   map[string]string // kernels that were asked for, by the stage's name in its layer; of 8-bit caches "kv" too
	Recorder   string            // by what passes are recorded: "host", "stamps", "cupti"
	Versions   map[string]string // of libraries and drivers, by their names
}

// Options are what a session is made for.
type Options struct {
	Layers  []int // run order; nil runs every layer once
	Batch   int   // B, sequences of equal length; 0 is 1
	Context int   // capacity of the KV cache in tokens; 0 is the model's n_positions
	Chunk   int   // evaluate prompts in chunks of at most so many tokens; 0 does not split them
	Prompt  int   // tokens of the longest prompt, which tells what is needed; 0 is not known

	// Progress, if not nil, is called with how many bytes of weights are ready, and how
	// many there are in all. It is called from one goroutine at a time.
	Progress func(done, total int64)
}

// withDefaults fills in the options that are zero, and checks the others.
func (o Options) withDefaults(c Config) (Options, error) {
	if o.Layers == nil {
		o.Layers = FirstLayers(c.Layers)
	}
	o.Batch = cmp.Or(o.Batch, 1)
	o.Context = cmp.Or(o.Context, c.Positions)
	if err := CheckLayers(c, o.Layers); err != nil {
		return o, err
	}
	switch {
	case o.Batch < 0 || o.Batch > maxDim:
		return o, fmt.Errorf("the batch is %d; it must be from 1 to %d", o.Batch, maxDim)
	case o.Context < 1 || o.Context > c.Positions:
		return o, fmt.Errorf("the context is %d tokens; it must be from 1 to the model's %d", o.Context, c.Positions)
	case o.Batch > maxRows/o.Context:
		return o, fmt.Errorf("a batch of %d times a context of %d is more than %d tokens; lower one of them", o.Batch,
			o.Context, maxRows)
	case o.Chunk < 0:
		return o, fmt.Errorf("the chunk is %d tokens; it must be 0 (whole) or positive", o.Chunk)
	}
	return o, nil
}

// Runner executes the passes of one session: it owns the KV cache and the activation buffers. It belongs to one
// goroutine at a time. Its caller checks ids, passes and room in the context.
type Runner interface {
	// Plan returns the plan of a pass as this runner executes it, fused.
	Plan(pass Pass) *Plan

	// SetSampling says how passes that sample do it from now on.
	SetSampling(s Sampling)

	// Prefill evaluates ids, (B, T) row-major, after the Position tokens that the cache holds. If the pass samples, it
	// returns one token per sequence; the slice is valid until the next call.
	Prefill(ctx context.Context, ids []int32, pass Pass) ([]Token, error)

	// Decode runs n steps. Each evaluates the tokens sampled last and samples the next, which go to emit, one per
	// sequence; emit returns false to stop. The slice is valid until emit returns.
	Decode(ctx context.Context, n int, emit func([]Token) bool) error

	// Read copies rows of a buffer of the last pass: len(dst) elements from row
	// on. Row r of sequence b is row b*Rows + r.
	Read(b Buffer, row int, dst []float32) error

	// Position returns how many tokens of each sequence the cache holds.
	Position() int

	// Rewind drops cached tokens from a position on.
	Rewind(position int) error

	// Close frees what the runner holds. Closing twice does nothing.
	Close() error
}

// Surveyor is a [Backend] that knows what sessions would do and need.
type Surveyor interface {
	// Survey returns what a session of these options, defaults filled in, would do in
	// some passes. It loads and runs nothing.
	Survey(m *Model, o Options, passes ...Pass) (*Survey, error)
}

// Survey is what sessions on a device would do and need.
type Survey struct {
	Passes []Pass `json:"-"` // those executed: a prompt may be padded

	// Bytes of the device's memory.
	Weights     int64 `json:"weights"`
	Cache       int64 `json:"kv_cache"`
	Activations int64 `json:"activations"` // of the largest of the passes
	Work        int64 `json:"workspaces"`  // what kernels and libraries need besides
	Free        int64 `json:"-"`           // now
	InAll       int64 `json:"-"`           // that there are
}

// Total returns the bytes in all.
func (s *Survey) Total() int64 { return s.Weights + s.Cache + s.Activations + s.Work }

// CeilingMeasurer is a [Backend] that can measure what its device does at most.
type CeilingMeasurer interface {
	// CeilingsKey names the device, and what runs on it, as a stored set does.
	CeilingsKey() (string, error)

	// MeasureCeilings measures the device; nothing else should use it meanwhile.
	MeasureCeilings(ctx context.Context) (ceilings.Set, error)
}

// Joiner is a [Backend] whose sessions can decode at the same time.
type Joiner interface {
	// Join returns a backend for at most so many sessions of a model, of one sequence each and with the same options, that
	// take decode steps together or beside one another. A session gets the logits that it would get alone, bit for bit.
	// Each is used by a goroutine of its own, and may wait for the others in decode steps; it is closed as soon as it has
	// no more to do.
	Join(m *Model) (b Backend, sessions int)
}

// Recordable is a [Runner] that can record its passes. Its methods are called between
// passes, by the goroutine that has the session.
type Recordable interface {
	// StartRecording records all later passes.
	StartRecording(r *record.Recorder) error

	// StopRecording gives the recorder the events of the passes since. Without
	// StartRecording before it, it does nothing.
	StopRecording() error
}

// OnDevice is a [Runner] of a device that works while the host goes on.
type OnDevice interface {
	// Measure times a pass on ids, (B, T) row-major: after a warm-up repeat times, each with the cache as it is, such as
	// decode steps that follow one another without the host waiting between them. It returns the durations. Decode steps
	// may lie before and after the present position, which is the same afterwards. The tokens sampled last are forgotten.
	Measure(ctx context.Context, ids []int32, pass Pass, repeat int) ([]time.Duration, error)

	// Launches returns how many launches a pass is. Of a graph they are its nodes.
	Launches(pass Pass) (int, error)

	// Synchronize waits until the device has done all that was launched: it may still be at work when a pass returns.
	Synchronize() error

	// Samples tells whether passes can sample so. If not, sessions ask for logits, read
	// those of each pass, and sample on the host.
	Samples(s Sampling) bool

	// Loads returns the libraries and kernels that passes loaded so far, when they first needed them: each thing once with
	// the time of all its parts.
	Loads() []Load
}

// Verifier is a [Runner] that can speculate: its Prefill takes passes with Exit, From and Verify, of one sequence. A pass
// of Exit layers leaves what goes into the next layer, for a pass From there over up to VerifyRows of the same tokens,
// which begins at the position of the first. A pass that verifies gives each row the logits that a decode step would
// give, bit for bit. If it samples, it returns a token for each row up to the first that is not the next of the ids.
type Verifier interface {
	// VerifyRows returns how many tokens a pass that verifies may have at most.
	VerifyRows() int
}

// Drafting is a [Runner] whose Decode can draft and verify by itself. It may draft fewer tokens at once than it is told.
type Drafting interface {
	// CanDraft says why Decode cannot speculate so, nil if nothing is known against it.
	CanDraft(by Speculation) error
	// Draft has the next Decode speculate after a text: all tokens so far, of which the last is not in the cache yet, else
	// it is an error. With [DraftAuto] it looks drafts up or lets first layers draft, whichever is faster, or does neither.
	Draft(text []int32, by Speculation) error
	// Drafted returns what that measured.
	Drafted() Speculated
}

// Load is something that passes had to load, and the time that took them.
type Load struct {
	What string // "cuBLASLt", "kernels"
	Time time.Duration
}

// unsupported says that a backend cannot do something optional.
func unsupported(b Backend, what string) error {
	return fmt.Errorf("the %s backend cannot %s: %w", b.Name(), what, errors.ErrUnsupported)
}

// StageError is a failure in a pass: at which step, of what shape, and why.
type StageError struct {
	Step  string // name of the step, "h.0.attn.c_attn"
	Shape string // what it worked on, "B=1 T=5 past=0"
	Err   error
}

// NewStageError says that a step of a plan failed, with past tokens in the cache.
func NewStageError(p *Plan, step Step, past int, err error) *StageError {
	return &StageError{step.Name(), fmt.Sprintf("B=%d T=%d past=%d", p.Pass.Batch, p.Pass.Tokens, past), err}
}

func (e *StageError) Error() string {
	return fmt.Sprintf("stage %s (%s): %v", e.Step, e.Shape, e.Err)
}

func (e *StageError) Unwrap() error { return e.Err }

// ErrClosed is returned by calls on a closed session or model.
var ErrClosed = errors.New("it was closed")
