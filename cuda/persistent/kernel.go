package persistent

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"
	"unsafe"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
)

// patience is how long a block of the kernel waits for another one. Blocks wait for microseconds, or for milliseconds
// if other processes share the GPU in turns.
const patience = 2 * time.Second

// Session is what the kernel needs of a session.
type Session struct {
	Stream   *cuda.Stream
	Config   gpt2.Config
	Context  int // tokens of each sequence that the cache holds
	LogitsLD int // elements between the logits of two sequences
	Slots    int // steps whose tokens the host's ring holds
	Blocks   int // of the grid; 0: one per SM

	Param func(name string) cuda.Ptr             // matrices, those of products and wte of DType, float32 vectors
	DType cuda.DType                             // cuda.BF16 or cuda.Q8
	Cache func(slot int) (keys, values cuda.Ptr) // (B, NH, Context, HS), of a slot of the run order
	Load  func(launch func() error) error        // does a call that may load kernels
}

// Kernel is the persistent kernel of a session: its program on the device, and its limits.
type Kernel struct {
	Session
	program, work *cuda.Buffer        // the steps, and the folded LayerNorms that they read; the work area
	Planned       []int               // of each step of the program, that of the plan
	args          cuda.PersistentArgs // but for addresses that may change
	tokens        int                 // decode steps of a launch, at most
	sampled       int                 // the same where it samples: 0 if it cannot, -1 until that is known
	Rows          int                 // of a prompt, at most; 1 is a decode step
	verifies      [2]bool             // whether it verifies drafts: greedily, and where it samples
	Epochs        uint64              // that launches since Reset have had, at most
	loaded        map[[4]bool]bool
}

// needs is what the kernel needs of a session, and can do.
type needs struct {
	program, work int64
	tokens, rows  int
	verifies      bool
}

// standIn is an address that nothing reads.
const standIn cuda.Ptr = 256

// Bytes returns how much memory the kernel needs for a decode plan. The error matches [cuda.ErrNoKernel] if the plan
// has no program, or the device no kernel.
func (s Session) Bytes(plan *gpt2.Plan) (int64, error) {
	n, err := s.needs(plan)
	return n.program + n.work, err
}

func (s Session) needs(plan *gpt2.Plan) (n needs, err error) {
	p, err := s.write(plan, standIn)
	if err != nil {
		return n, err
	}
	a := s.argsOf(plan, p)
	err = s.Load(func() (err error) {
		n.work, n.tokens, err = s.Stream.PersistentWork(a)
		return err
	})
	if err != nil {
		return n, err
	}
	n.program, n.rows = int64(p.end-standIn)+p.table(), 1
	for a.Rows = 2; a.Rows <= cuda.PersistentRows && a.B == 1; a.Rows++ {
		work, _, err := s.Stream.PersistentWork(a)
		if errors.Is(err, cuda.ErrNoKernel) {
			break
		}
		if err != nil {
			return n, err
		}
		n.rows, n.work = int(a.Rows), max(n.work, work)
	}
	n.work = max(n.work, 16)
	if a.B > 1 {
		return n, nil
	}
	a.Rows, a.Verify = 0, cuda.PersistentVerify
	work, tokens, err := s.Stream.PersistentWork(a)
	if errors.Is(err, cuda.ErrNoKernel) {
		return n, nil
	}
	n.work, n.verifies = max(n.work, work), tokens >= n.tokens
	return n, err
}

// argsOf are the arguments of launches of a program, but for addresses that may change.
func (s Session) argsOf(plan *gpt2.Plan, p program) cuda.PersistentArgs {
	c := s.Config
	return cuda.PersistentArgs{
		Count: int32(len(p.steps)), Steps: p.end, WTE: s.Param("wte.weight"), WPE: s.Param("wpe.weight"),
		C: int32(c.Channels), NH: int32(c.Heads), P: int32(s.Context), V: int32(c.Vocab), B: int32(plan.Pass.Batch),
		LD: int32(s.LogitsLD), DType: s.DType,
		SlotCount: int32(s.Slots), Blocks: int32(s.Blocks), Timeout: int32(patience.Milliseconds()), Eps: float32(c.Epsilon),
	}
}

// New puts the program of a decode plan on the device. The error matches [cuda.ErrNoKernel] as that of [Session.Bytes].
func New(s Session, plan *gpt2.Plan) (k *Kernel, err error) {
	n, err := s.needs(plan)
	if err != nil {
		return nil, err
	}
	k = &Kernel{Session: s, tokens: n.tokens, sampled: -1, Rows: n.rows, verifies: [2]bool{n.verifies}, loaded: map[[4]bool]bool{}}
	defer func() {
		if err != nil {
			err, k = cmp.Or(err, k.Free()), nil
		}
	}()
	dev := s.Stream.Device()
	if k.program, err = dev.Alloc(n.program); err != nil {
		return k, fmt.Errorf("the persistent kernel's program takes %d KiB of GPU memory: %w", n.program>>10, err)
	}
	if k.work, err = dev.Alloc(n.work); err != nil {
		return k, err
	}
	if err := k.Reset(); err != nil {
		return k, err
	}
	p, err := s.write(plan, k.program.Ptr())
	if err != nil {
		return k, err
	}
	k.Planned, k.args = p.planned, s.argsOf(plan, p)
	k.args.Work = k.work.Ptr()
	for _, f := range p.folds {
		if err := s.Load(func() error { return s.Stream.Fold(f) }); err != nil {
			return k, err
		}
	}
	table := unsafe.Slice((*byte)(unsafe.Pointer(&p.steps[0])), len(p.steps)*int(unsafe.Sizeof(p.steps[0])))
	return k, k.program.Write(int64(p.end-k.program.Ptr()), table)
}

// Free frees the kernel's memory. A nil kernel has none.
func (k *Kernel) Free() error {
	if k == nil {
		return nil
	}
	var errs []error
	for _, b := range []*cuda.Buffer{k.program, k.work} {
		if b != nil {
			errs = append(errs, b.Free())
		}
	}
	return cmp.Or(errs...)
}

// MostEpochs is after how many epochs, of 32 bits, launches begin anew: no packet has one that is still to come.
const MostEpochs = 1 << 31

// Reset makes the work area ready for the next launch: the first one, that after one in which a block waited too long,
// or after [MostEpochs].
func (k *Kernel) Reset() error {
	k.Epochs = 0
	return k.Stream.Set(k.work, 0, 0, k.work.Size())
}

// Blocks returns the size of the grid.
func (k *Kernel) Blocks() int {
	return cmp.Or(k.Session.Blocks, k.Stream.Device().Info().Processors)
}

// PrepareSampling finds out how many decode steps a launch that samples so may have. Sampling takes shared memory.
func (k *Kernel) PrepareSampling(s gpt2.Sampling) error {
	if k.sampled >= 0 || candidates(s, k.Config.Vocab) == 0 || SamplesApart(s, k.Config.Vocab) {
		return nil
	}
	a := k.args
	a.Candidates = 1
	tokens := 0
	err := k.Load(func() (err error) {
		_, tokens, err = k.Stream.PersistentWork(a)
		return err
	})
	switch {
	case errors.Is(err, cuda.ErrNoKernel):
		k.sampled = 0
	case err != nil:
		return err
	default:
		k.sampled = tokens
	}
	if !k.verifies[0] || k.sampled == 0 {
		return nil
	}
	a.Verify = cuda.PersistentVerify
	_, tokens, err = k.Stream.PersistentWork(a)
	if errors.Is(err, cuda.ErrNoKernel) {
		return nil
	}
	k.verifies[1] = tokens >= k.sampled // launches must be as long as without drafts, which the order of sums depends on
	return err
}

// SamplesApart tells whether another kernel samples.
func (k *Kernel) SamplesApart(s gpt2.Sampling) bool {
	return SamplesApart(s, k.Config.Vocab) || k.sampled == 0 && candidates(s, k.Config.Vocab) > 0
}

// Tokens returns how many decode steps a launch has at most.
func (k *Kernel) Tokens(s gpt2.Sampling) int {
	switch {
	case k.SamplesApart(s):
		return 1
	case candidates(s, k.Config.Vocab) > 0:
		return k.sampled
	}
	return k.tokens
}

// Verifies tells whether launches can verify drafts.
func (k *Kernel) Verifies(s gpt2.Sampling) bool {
	if k.SamplesApart(s) {
		return false
	}
	if candidates(s, k.Config.Vocab) > 0 {
		return k.verifies[1]
	}
	return k.verifies[0]
}

// Launch is what one launch runs.
type Launch struct {
	At       Addresses
	Sampling gpt2.Sampling
	Tokens   int  // decode steps, at most Kernel.Tokens; 1 of a prompt; 0: the kernel is loaded only
	Rows     int  // of a prompt; 1: decode steps
	Apart    bool // it leaves the logits of its one step to another kernel
	Verify   int  // of passes that verify drafts, the rows at most; 0: steps of one token
	Exit     int  // with Verify, how many layers draft; 0: drafts are looked up in the text
	Trial    int  // with Exit, after how many passes without a right draft they draft no more; 0: they go on
	Stamps   cuda.Ptr
}

// Addresses are those of the session's state, which may change between launches.
type Addresses struct{ Sampling, Pos, Tokens, Slots, Logits, IDs, Text cuda.Ptr }

func (k *Kernel) at(l Addresses, rows int) cuda.PersistentArgs {
	a := k.args
	a.Sampling, a.Pos, a.TokensIO, a.Slots, a.Logits, a.Text = l.Sampling, l.Pos, l.Tokens, l.Slots, l.Logits, l.Text
	if rows > 1 {
		a.Rows, a.IDs = int32(rows), l.IDs
	}
	return a
}

// Launch launches decode steps, or a prompt. The error matches [cuda.ErrNoKernel] if the blocks cannot be resident at
// once; then nothing was launched.
func (k *Kernel) Launch(l Launch) error {
	a := k.at(l.At, l.Rows)
	a.Tokens, a.Stamps = int32(l.Tokens), l.Stamps
	a.Verify, a.Exit, a.Trial = int32(l.Verify), int32(l.Exit), int32(l.Trial)
	if k.Epochs > MostEpochs {
		if err := k.Reset(); err != nil {
			return err
		}
	}
	k.Epochs += uint64(l.Tokens) * uint64(max(l.Verify, 1)*k.Steps()) // each draft may take a pass
	if l.Apart {
		a.LogitsOnly = 1
	} else {
		a.Candidates = int32(candidates(l.Sampling, k.Config.Vocab))
	}
	variant := [4]bool{a.Stamps != 0, a.Candidates != 0, l.Rows > 1, l.Verify > 0}
	if k.loaded[variant] {
		return k.Stream.Persistent(a)
	}
	err := k.loadFirst(a)
	k.loaded[variant] = err == nil
	return err
}

// Preload loads the kernel of a launch, so that the first such launch does not wait for it.
func (k *Kernel) Preload(l Launch) error {
	l.Tokens = 0
	return k.Launch(l)
}

// loadFirst does a launch that may load its kernel. It is a function of its own, so that others do not allocate.
func (k *Kernel) loadFirst(a cuda.PersistentArgs) error {
	return k.Load(func() error { return k.Stream.Persistent(a) })
}

// LaunchStep launches one step of the program: see [cuda.Stream.PersistentStepOnly].
func (k *Kernel) LaunchStep(at Addresses, rows, step, tail int, epoch uint32) error {
	return k.Stream.PersistentStepOnly(k.at(at, rows), step, tail, epoch)
}

// Work returns the address of the work area, for a kernel that samples from the logits.
func (k *Kernel) Work() cuda.Ptr { return k.args.Work }

// Steps returns how many steps the program has.
func (k *Kernel) Steps() int { return int(k.args.Count) }

// Expired returns the Timeout of launches that have ended, nil if there was none.
func (k *Kernel) Expired() error {
	var h cuda.PersistentHeader
	if err := k.work.Read(0, unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h))); err != nil {
		return err
	}
	if h.Expired == 0 {
		return nil
	}
	return Timeout(h.Expired & math.MaxInt32)
}

// Timeout is a launch in which a block waited too long for another one, or for weights: 65536 * the step of the program
// + the block, and cuda.PersistentForWeights in it.
type Timeout int64

func (e Timeout) Error() string {
	block, waited, what := int(e&0xffff), patience, "data of the others"
	if block&cuda.PersistentForWeights != 0 {
		block, waited, what = block&^cuda.PersistentForWeights, patience-patience/8, "its weights"
	}
	return fmt.Sprintf("SM %d waited longer than %v for %s, in step %d of the persistent kernel", block, waited, what,
		e.Step())
}

// Step returns the step of the program.
func (e Timeout) Step() int { return int(e >> 16) }
