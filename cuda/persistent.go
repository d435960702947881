package cuda

// #include "shim.h"
// #cgo noescape call_gs_fold
// #cgo nocallback call_gs_fold
// #cgo noescape call_gs_persistent
// #cgo nocallback call_gs_persistent
// #cgo noescape call_gs_persistent_one
// #cgo nocallback call_gs_persistent_one
import "C"

import "unsafe"

// Numbers of gs_persistent in abi.h.
const (
	PersistentTokens     = C.GS_PERSISTENT_TOKENS      // the most decode steps of a launch
	PersistentSequences  = C.GS_PERSISTENT_SEQUENCES   // the most sequences of a launch
	PersistentRows       = C.GS_PERSISTENT_ROWS        // the most rows of a prompt
	PersistentVerify     = C.GS_PERSISTENT_VERIFY      // the most rows of a pass that verifies drafts
	SlotTimeout          = C.GS_SLOT_TIMEOUT           // the token of a slot if a block waited too long for another one
	PersistentForWeights = C.GS_PERSISTENT_FOR_WEIGHTS // in the position of such a slot: it waited for weights

	mostCandidates  = C.GS_PERSISTENT_CANDIDATES
	candidatesOfAll = C.GS_PERSISTENT_CANDIDATES_ALL
)

// PersistentStamp is when a block of a decode kernel did what in a step, by %globaltimer, as in gs_persistent_stamp. It
// is zero if the block has no part in the step.
type PersistentStamp [C.GS_PERSISTENT_PUBLISHED + 1]uint64

// What a PersistentStamp has the times of.
const (
	// the first warp has the weights, or keys and values, that it needs first; may be 0 if it did not wait for them
	PersistentReady     = C.GS_PERSISTENT_READY
	PersistentArrived   = C.GS_PERSISTENT_ARRIVED   // and the inputs
	PersistentMade      = C.GS_PERSISTENT_MADE      // of a pass that verifies drafts, its rows, and 256 times its tokens
	PersistentPublished = C.GS_PERSISTENT_PUBLISHED // the last outputs were stored for the other blocks
)

// PersistentHeader is gs_persistent_header: the first bytes of PersistentArgs.Work.
type PersistentHeader struct {
	Epoch   uint32 // of the last step that ran
	Expired uint32 // 0, or 2^31 + what slots get as the position: a block waited too long
}

// PersistentKind is what a step of a decode program does, as in gs_persistent_kind.
type PersistentKind int32

const (
	PersistentLinear PersistentKind = iota
	PersistentAttention
)

// PersistentData is what a Linear of a decode program reads or writes, as in gs_persistent_data.
type PersistentData int32

const (
	PersistentEmbedding PersistentData = iota // in: the embedding of the token, normalised
	PersistentResidual                        // in: the residual stream, normalised; out: added to it
	PersistentHidden                          // in, out: between the two products of an MLP
	PersistentAttended                        // in: the output of attention
	PersistentQKV                             // out: the input of attention
	PersistentLogits                          // out: of the last step
)

// PersistentStep is gs_persistent_step: one of a program, in device memory.
type PersistentStep struct {
	Kind           PersistentKind
	In, Out        PersistentData // of a Linear
	Act            Activation     // of a Linear: ActNone or GELUTanh
	N, K           int32          // of a Linear
	W              Ptr            // (N, K) of the type of PersistentArgs
	Bias           Ptr            // (N) float32, or 0; if the input is normalised, Folded of a Fold
	Gain           Ptr            // (K) float32 if the input is normalised, else 0
	Sums           Ptr            // (N) float32 of a Fold if the input is normalised, else 0
	KCache, VCache Ptr            // (B, NH, P, HS) BF16, of attention
}

// FoldArgs are gs_fold_args: what a LayerNorm before a product adds to each output.
type FoldArgs struct {
	size        uint32
	N, K        int32
	W           Ptr // (N, K) of DType, BF16 or Q8
	Gain, Shift Ptr // (K) float32
	Bias        Ptr // (N) float32, or 0
	Sums        Ptr // (N) float32: W gain
	Folded      Ptr // (N) float32: W shift + bias
	DType       DType
}

// PersistentArgs are gs_persistent_args: decode steps of 1 to 8 sequences, with weights in bfloat16 or 8 bits and
// the cache in bfloat16, or a prompt of up to 8 tokens of one sequence.
type PersistentArgs struct {
	size        uint32
	Count       int32 // steps of the program
	Steps       Ptr   // (Count) PersistentStep
	WTE, WPE    Ptr   // (V, C) of DType, (P, C) BF16
	Sampling    Ptr   // Sampling
	Pos         Ptr   // (B) int32
	TokensIO    Ptr   // (B) int32: the tokens to begin with, then the last ones
	Slots       Ptr   // (SlotCount, B) Slot
	Logits      Ptr   // (B, V) float32, of the last decode step, rows LD apart
	Work        Ptr   // PersistentWork bytes, zeroed once, of one stream
	C, NH, P, V int32
	B, LD       int32
	SlotCount   int32
	Tokens      int32 // decode steps to run, 1 to as many as PersistentWork says
	Timeout     int32 // milliseconds that a block waits for another one at most
	Eps         float32
	LogitsOnly  int32 // 1: one step, whose logits a [Stream.Sample] samples from
	Blocks      int32 // of the grid; 0: one per SM
	Stamps      Ptr   // (passes, Count+1, blocks) PersistentStamp, zeroed, or 0; passes: Tokens, times Verify with Exit; the last row is the choice of the token
	Candidates  int32 // 0: tokens are the argmax; else the candidates that Sampling draws from, which [CanSample] allows
	Rows        int32 // 0, or the tokens of a prompt, 2 to PersistentRows
	IDs         Ptr   // (Rows) int32: the prompt
	DType       DType // of weights: BF16 or Q8
	Verify      int32 // 0, or 2 to PersistentVerify: passes of up to so many rows verify drafts, looked up in Text
	Exit        int32 // with Verify: so many layers draft instead; 0: none do
	Trial       int32 // with Exit: they draft no more in a launch after so many passes whose first draft was wrong; 0: go on
	Text        Ptr   // (P+1) int32: the tokens up to the last one, to which launches add theirs; or 0, without Verify
}

// decodes reports whether the decode kernels take weights of a type.
func decodes(d DType) bool { return d == BF16 || d == Q8 }

// CanSample tells whether a decode kernel can draw tokens from so many candidates, the likeliest of a vocabulary.
func CanSample(candidates, vocab int) bool {
	return candidates >= 1 && candidates <= vocab && (candidates <= mostCandidates || vocab <= candidatesOfAll)
}

// Fold launches sums = W gain and folded = W shift + bias: with these a decode program does a LayerNorm after the
// product that follows it.
func (s *Stream) Fold(a FoldArgs) error {
	switch {
	case a.N < 1 || a.K < 1:
		return shapeError("Fold", "N=%d K=%d; both must be at least 1", a.N, a.K)
	case !decodes(a.DType) || a.DType == Q8 && a.K%32 != 0:
		return shapeError("Fold", "type %d and K=%d; it must be BF16, or Q8 with a multiple of 32", a.DType, a.K)
	case a.W == 0 || a.Gain == 0 || a.Shift == 0 || a.Sums == 0 || a.Folded == 0:
		return shapeError("Fold", "W, Gain, Shift, Sums and Folded must all be given")
	}
	return failed(C.call_gs_fold(s.raw(), (*C.gs_fold_args)(unsafe.Pointer(&a))))
}

func checkPersistent(op string, a *PersistentArgs, run bool) error {
	switch {
	case a.Count < 1 || a.C < 1 || a.NH < 1 || a.P < 1 || a.V < 1 || a.B < 1:
		return shapeError(op, "Count=%d C=%d NH=%d P=%d V=%d B=%d; all must be at least 1", a.Count, a.C, a.NH, a.P, a.V, a.B)
	case !decodes(a.DType):
		return shapeError(op, "weights of type %d; they must be BF16 or Q8", a.DType)
	case run && a.LD < a.V:
		return shapeError(op, "rows of logits %d apart for V=%d", a.LD, a.V)
	case a.C%a.NH != 0:
		return shapeError(op, "C=%d is not a multiple of NH=%d", a.C, a.NH)
	case run && (a.Tokens < 0 || a.Tokens > PersistentTokens):
		return shapeError(op, "%d tokens; it must be from 0 to %d", a.Tokens, PersistentTokens)
	case run && a.LogitsOnly != 0 && a.Tokens != 1:
		return shapeError(op, "%d tokens; with LogitsOnly it must be 1", a.Tokens)
	case run && a.Candidates != 0 && (a.LogitsOnly != 0 || !CanSample(int(a.Candidates), int(a.V))):
		return shapeError(op, "a token drawn from %d candidates of %d; the kernel draws from up to %d, or from all of up "+
			"to %d, and not with LogitsOnly", a.Candidates, a.V, mostCandidates, candidatesOfAll)
	case a.Rows < 0 || a.Rows == 1 || a.Rows > PersistentRows:
		return shapeError(op, "a prompt of %d rows; it must be from 2 to %d, or 0 for decode steps", a.Rows, PersistentRows)
	case a.Rows > 0 && (a.B != 1 || a.Candidates != 0):
		return shapeError(op, "a prompt of %d sequences with Candidates=%d; it must be 1, and 0", a.B, a.Candidates)
	case run && a.Rows > 0 && (a.Tokens != 1 || a.IDs == 0):
		return shapeError(op, "a prompt with Tokens=%d and IDs=%#x; Tokens must be 1, and IDs given", a.Tokens, a.IDs)
	case a.Verify < 0 || a.Verify == 1 || a.Verify > PersistentVerify:
		return shapeError(op, "passes of %d rows verify drafts; it must be from 2 to %d, or 0", a.Verify, PersistentVerify)
	case a.Verify != 0 && (a.B != 1 || a.Rows != 0 || a.LogitsOnly != 0 || run && a.Text == 0):
		return shapeError(op, "drafts with B=%d, Rows=%d, LogitsOnly=%d and Text=%#x; B must be 1, Rows and LogitsOnly 0, "+
			"and Text given", a.B, a.Rows, a.LogitsOnly, a.Text)
	case a.Exit < 0 || a.Exit > 0 && a.Verify == 0:
		return shapeError(op, "%d layers draft with Verify=%d; it must be 0 or more, and 0 without Verify", a.Exit, a.Verify)
	case run && a.SlotCount < a.Tokens:
		return shapeError(op, "%d slots for %d tokens", a.SlotCount, a.Tokens)
	case run && a.Timeout < 1:
		return shapeError(op, "a timeout of %d ms; it must be at least 1", a.Timeout)
	case run && (a.Steps == 0 || a.WTE == 0 || a.WPE == 0 || a.Sampling == 0 || a.Pos == 0 || a.TokensIO == 0 ||
		a.Slots == 0 || a.Logits == 0 || a.Work == 0):
		return shapeError(op, "Steps, WTE, WPE, Sampling, Pos, TokensIO, Slots, Logits and Work must all be given")
	}
	return nil
}

// Persistent launches decode steps, one after another in one kernel: token = argmax of the logits of each, unless
// Candidates or LogitsOnly is set. Or, with Rows, a prompt, and the token after it. With Tokens 0 the kernel is
// loaded, and nothing runs. The program must be one that the kernel has, with each step's data in its shape, and positions must stay below
// P: neither is checked.
func (s *Stream) Persistent(a PersistentArgs) error {
	if err := checkPersistent("Persistent", &a, true); err != nil {
		return err
	}
	return failed(C.call_gs_persistent(s.raw(), (*C.gs_persistent_args)(unsafe.Pointer(&a))))
}

// PersistentStepOnly launches one step of a decode program, its results bit by bit those of [Stream.Persistent].
// Launches of all steps in order are the decode step of the token at Pos up to its logits; a [Stream.Sample] takes the
// token. tail is how many tokens before this one a launch of [Stream.Persistent] would have begun, since attention
// divides keys by where that is. epoch is the same for all steps of a token, and that of the next token is Count more;
// a prompt has one for all its rows. Stamps, Tokens and LogitsOnly are not read, nor is what Slots points at, which
// must be given all the same.
func (s *Stream) PersistentStepOnly(a PersistentArgs, step, tail int, epoch uint32) error {
	a.Tokens, a.LogitsOnly, a.SlotCount = 1, 1, max(a.SlotCount, 1)
	if err := checkPersistent("PersistentStepOnly", &a, true); err != nil {
		return err
	}
	if step < 0 || step >= int(a.Count) || tail < 0 || tail >= PersistentTokens || tail > 0 && a.Rows > 0 {
		return shapeError("PersistentStepOnly",
			"step %d of %d, %d tokens before this one; steps are counted from 0, and at most "+
				"%d tokens come before, none before a prompt", step, a.Count, tail, PersistentTokens-1)
	}
	return failed(C.call_gs_persistent_one(s.raw(), (*C.gs_persistent_args)(unsafe.Pointer(&a)),
		C.int(step), C.int(tail), C.uint32_t(epoch)))
}

// PersistentWork returns how many bytes of Work a [Stream.Persistent] of this shape needs, and how many decode steps a
// launch may run, at most PersistentTokens; fewer where Candidates is set. If the device or the model's shape has no
// such kernel, the error matches [ErrNoKernel].
func (s *Stream) PersistentWork(a PersistentArgs) (bytes int64, tokens int, err error) {
	if err := checkPersistent("PersistentWork", &a, false); err != nil {
		return 0, 0, err
	}
	var n C.uint64_t
	var most C.int32_t
	err = failed(C.call_gs_persistent_work(s.raw(), (*C.gs_persistent_args)(unsafe.Pointer(&a)), &n, &most))
	return int64(n), int(most), err
}
