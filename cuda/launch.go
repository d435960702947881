package cuda

// #include "table.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// The launchers below check what C assumes: that extents are positive, rows do not
// overlap, types are known. Each is one call into the library, asynchronous.

func badArgs(op, format string, args ...any) error {
	return fmt.Errorf("%s: %s", op, fmt.Sprintf(format, args...))
}

// matrixOK checks a matrix of (M, width), rows ld apart.
func matrixOK(op, name string, p Ptr, M, width, ld int32) error {
	switch {
	case p == 0:
		return badArgs(op, "%s is missing", name)
	case M <= 0 || width <= 0:
		return badArgs(op, "%s is (%d, %d); both must be positive", name, M, width)
	case ld < width:
		return badArgs(op, "rows of %s are %d apart and %d wide", name, ld, width)
	}
	return nil
}

// typeOK checks that a type is one that kernels compute with.
func typeOK(op string, types ...DType) error {
	for _, t := range types {
		if t != F32 && t != BF16 {
			return badArgs(op, "type %d is neither float32 nor bfloat16", t)
		}
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Embed launches x = wte[id] + wpe[position].
func (s *Stream) Embed(a EmbedArgs) error {
	if err := firstError(s.use("embed"), typeOK("embed", a.DType), matrixOK("embed", "x", a.X, a.B*a.T, a.C, a.C)); err != nil {
		return err
	}
	if a.IDs == 0 || a.Pos == 0 || a.WTE == 0 || a.WPE == 0 {
		return badArgs("embed", "ids, positions or a table is missing")
	}
	a.size = uint32(unsafe.Sizeof(a))
	return check("embed", C.call_gs_embed(s.table, s.h, (*C.gs_embed_args)(unsafe.Pointer(&a))))
}

// LayerNorm launches x += add; y = norm(x) gain + bias.
func (s *Stream) LayerNorm(a LayerNormArgs) error {
	err := firstError(s.use("layernorm"), typeOK("layernorm", a.YType, a.AddType),
		matrixOK("layernorm", "x", a.X, a.M, a.C, a.LDX), matrixOK("layernorm", "y", a.Y, a.M, a.C, a.LDY))
	if err == nil && a.Add != 0 {
		err = matrixOK("layernorm", "add", a.Add, a.M, a.C, a.LDAdd)
	}
	if err != nil {
		return err
	}
	if a.Gain == 0 || a.Bias == 0 {
		return badArgs("layernorm", "gain or bias is missing")
	}
	a.size = uint32(unsafe.Sizeof(a))
	return check("layernorm", C.call_gs_layernorm(s.table, s.h, (*C.gs_layernorm_args)(unsafe.Pointer(&a))))
}

// linearOK checks the arguments of a product; plans need no addresses.
func linearOK(a *LinearArgs, addresses bool) error {
	x, y := a.X, a.Y
	if !addresses {
		x, y = 1, 1
	}
	if err := firstError(typeOK("linear", a.DType, a.YType), matrixOK("linear", "x", x, a.M, a.K, a.LDX), matrixOK("linear", "y", y, a.M, a.N, a.LDY)); err != nil {
		return err
	}
	switch {
	case addresses && a.W == 0:
		return badArgs("linear", "w is missing")
	case a.Accumulate != 0 && (a.YType != F32 || a.Act != ActNone):
		return badArgs("linear", "adding to y needs float32 and no activation")
	case (a.Gain == 0) != (a.Shift == 0):
		return badArgs("linear", "a LayerNorm needs gain and shift")
	case a.Gain != 0 && a.M > GEMVRows:
		return badArgs("linear", "a LayerNorm on the way in is for up to %d rows, not %d", GEMVRows, a.M)
	case a.Act < ActNone || a.Act > ReLU:
		return badArgs("linear", "there is no activation %d", a.Act)
	}
	a.size = uint32(unsafe.Sizeof(*a))
	return nil
}

// Linear launches y = act(norm(x) W^T + bias), or y += it.
func (s *Stream) Linear(a LinearArgs) error {
	if err := firstError(s.use("linear"), linearOK(&a, true)); err != nil {
		return err
	}
	return check("linear", C.call_gs_linear(s.table, s.h, (*C.gs_linear_args)(unsafe.Pointer(&a))))
}

// LinearPlan is the algorithm that cuBLASLt runs for a product.
type LinearPlan struct {
	Candidates   int32     // how many were timed; 0 for the heuristic's first
	Microseconds float32   // of the fastest, 0 where nothing was timed
	Workspace    uint64    // bytes
	Algorithm    [8]uint64 // cublasLtMatmulAlgo_t, opaque
	Text         string    // for people
}

func planOf(c *C.gs_linear_plan) LinearPlan {
	p := LinearPlan{Candidates: int32(c.candidates), Microseconds: float32(c.microseconds), Workspace: uint64(c.workspace), Text: C.GoString(&c.text[0])}
	for i := range p.Algorithm {
		p.Algorithm[i] = uint64(c.algorithm[i])
	}
	return p
}

// LinearPlan returns the plan kept for a product, made by the library's heuristic
// where there is none.
func (s *Stream) LinearPlan(a LinearArgs) (LinearPlan, error) {
	if err := firstError(s.use("linear plan"), linearOK(&a, false)); err != nil {
		return LinearPlan{}, err
	}
	var c C.gs_linear_plan
	c.size = C.uint32_t(unsafe.Sizeof(c))
	err := check("linear plan", C.call_gs_linear_plan_get(s.table, s.h, (*C.gs_linear_args)(unsafe.Pointer(&a)), &c))
	return planOf(&c), err
}

// SetLinearPlan keeps a plan for a product.
func (s *Stream) SetLinearPlan(a LinearArgs, p LinearPlan) error {
	if err := firstError(s.use("linear plan"), linearOK(&a, false)); err != nil {
		return err
	}
	c := C.gs_linear_plan{candidates: C.int32_t(p.Candidates), microseconds: C.float(p.Microseconds), workspace: C.uint64_t(p.Workspace)}
	c.size = C.uint32_t(unsafe.Sizeof(c))
	for i, v := range p.Algorithm {
		c.algorithm[i] = C.uint64_t(v)
	}
	for i := 0; i < len(p.Text) && i < len(c.text)-1; i++ {
		c.text[i] = C.char(p.Text[i])
	}
	return check("linear plan", C.call_gs_linear_plan_set(s.table, s.h, (*C.gs_linear_args)(unsafe.Pointer(&a)), &c))
}

// TuneLinear times candidates for a product and keeps the fastest. It runs them, so
// addresses must be valid and y is overwritten.
func (s *Stream) TuneLinear(a LinearArgs, candidates int) (LinearPlan, error) {
	if err := firstError(s.use("tune"), linearOK(&a, true)); err != nil {
		return LinearPlan{}, err
	}
	if candidates < 1 {
		return LinearPlan{}, badArgs("tune", "%d candidates; there must be at least one", candidates)
	}
	var c C.gs_linear_plan
	c.size = C.uint32_t(unsafe.Sizeof(c))
	err := check("tune", C.call_gs_linear_tune(s.table, s.h, (*C.gs_linear_args)(unsafe.Pointer(&a)), C.int(candidates), &c))
	return planOf(&c), err
}

// maxHeadSize is the largest head that attention kernels take.
const maxHeadSize = 128

func attentionOK(a *AttentionArgs) error {
	if err := typeOK("attention", a.DType); err != nil {
		return err
	}
	switch {
	case a.B <= 0 || a.T <= 0 || a.NH <= 0 || a.P <= 0:
		return badArgs("attention", "B=%d T=%d NH=%d P=%d must be positive", a.B, a.T, a.NH, a.P)
	case a.HS <= 0 || a.HS > maxHeadSize:
		return badArgs("attention", "heads have %d elements; at most %d are supported", a.HS, maxHeadSize)
	case a.Q != 0 && a.Q != 1 && a.Q != a.T:
		return badArgs("attention", "%d queries of %d rows; it must be all, one or none", a.Q, a.T)
	case a.LDQKV < 3*a.NH*a.HS || a.Q > 0 && a.LDY < a.NH*a.HS:
		return badArgs("attention", "rows of qkv are %d apart and %d wide, those of y %d apart", a.LDQKV, 3*a.NH*a.HS, a.LDY)
	}
	a.size = uint32(unsafe.Sizeof(*a))
	return nil
}

// Attention launches the store of new keys and values, and y = softmax(scale q k^T,
// causal) v.
func (s *Stream) Attention(a AttentionArgs) error {
	if err := firstError(s.use("attention"), attentionOK(&a)); err != nil {
		return err
	}
	if a.QKV == 0 || a.KCache == 0 || a.VCache == 0 || a.Pos == 0 || a.Q > 0 && (a.Y == 0 || a.Work == 0) {
		return badArgs("attention", "an address is missing")
	}
	return check("attention", C.call_gs_attention(s.table, s.h, (*C.gs_attention_args)(unsafe.Pointer(&a))))
}

// AttentionWork returns the bytes of scratch memory that launches of a shape need.
func (s *Stream) AttentionWork(a AttentionArgs) (int64, error) {
	if err := firstError(s.use("attention"), attentionOK(&a)); err != nil {
		return 0, err
	}
	var n C.uint64_t
	err := check("attention", C.call_gs_attention_work(s.table, s.h, (*C.gs_attention_args)(unsafe.Pointer(&a)), &n))
	return int64(n), err
}

// Activate launches y = act(x + bias).
func (s *Stream) Activate(a ActivationArgs) error {
	if err := firstError(s.use("activation"), typeOK("activation", a.DType), matrixOK("activation", "x", a.X, a.M, a.N, a.LDX), matrixOK("activation", "y", a.Y, a.M, a.N, a.LDY)); err != nil {
		return err
	}
	a.size = uint32(unsafe.Sizeof(a))
	return check("activation", C.call_gs_activate(s.table, s.h, (*C.gs_activation_args)(unsafe.Pointer(&a))))
}

// Add launches x = x + z.
func (s *Stream) Add(a AddArgs) error {
	if err := firstError(s.use("add"), typeOK("add", a.DType), matrixOK("add", "x", a.X, a.M, a.N, a.LDX), matrixOK("add", "z", a.Z, a.M, a.N, a.LDZ)); err != nil {
		return err
	}
	a.size = uint32(unsafe.Sizeof(a))
	return check("add", C.call_gs_add(s.table, s.h, (*C.gs_add_args)(unsafe.Pointer(&a))))
}

func sampleOK(a *SampleArgs) error {
	if a.B <= 0 || a.V <= 0 || a.LD < a.V || a.T <= 0 || a.Count <= 0 {
		return badArgs("sample", "B=%d V=%d rows %d apart, T=%d, %d slots", a.B, a.V, a.LD, a.T, a.Count)
	}
	a.size = uint32(unsafe.Sizeof(*a))
	return nil
}

// Sample launches token = sample(logits), and moves the positions on.
func (s *Stream) Sample(a SampleArgs) error {
	if err := firstError(s.use("sample"), sampleOK(&a)); err != nil {
		return err
	}
	if a.Logits == 0 || a.Sampling == 0 || a.Pos == 0 || a.Tokens == 0 || a.Slots == 0 || a.Work == 0 {
		return badArgs("sample", "an address is missing")
	}
	return check("sample", C.call_gs_sample(s.table, s.h, (*C.gs_sample_args)(unsafe.Pointer(&a))))
}

// SampleWork returns the bytes of scratch memory that launches of a shape need.
func (s *Stream) SampleWork(a SampleArgs) (int64, error) {
	if err := firstError(s.use("sample"), sampleOK(&a)); err != nil {
		return 0, err
	}
	var n C.uint64_t
	err := check("sample", C.call_gs_sample_work(s.table, s.h, (*C.gs_sample_args)(unsafe.Pointer(&a)), &n))
	return int64(n), err
}

// Pack launches a conversion of (rows, cols), transposed where asked for.
func (s *Stream) Pack(a PackArgs) error {
	width := a.Cols
	if a.Transpose != 0 {
		width = a.Rows
	}
	if err := firstError(s.use("pack"), matrixOK("pack", "src", a.Src, a.Rows, a.Cols, a.Cols), matrixOK("pack", "dst", a.Dst, 1, width, a.LDDst)); err != nil {
		return err
	}
	a.size = uint32(unsafe.Sizeof(a))
	return check("pack", C.call_gs_pack(s.table, s.h, (*C.gs_pack_args)(unsafe.Pointer(&a))))
}

// Nothing launches an empty kernel: what a launch costs.
func (s *Stream) Nothing() error {
	if err := s.use("nothing"); err != nil {
		return err
	}
	return check("nothing", C.call_gs_nothing(s.table, s.h))
}

// Barriers launches one block per SM that meet so many times at a grid barrier;
// counter is 4 zero bytes.
func (s *Stream) Barriers(counter Ptr, rounds int) error {
	if err := s.use("barriers"); err != nil {
		return err
	}
	return check("barriers", C.call_gs_barriers(s.table, s.h, C.gs_ptr(counter), C.int(rounds)))
}

// ReadKernel launches a read of all bytes; out is 4 bytes.
func (s *Stream) ReadKernel(p Ptr, bytes int64, out Ptr) error {
	if err := s.use("read"); err != nil {
		return err
	}
	return check("read", C.call_gs_read(s.table, s.h, C.gs_ptr(p), C.uint64_t(bytes), C.gs_ptr(out)))
}

// CopyKernel launches a copy, 16 bytes per thread and turn.
func (s *Stream) CopyKernel(dst, src Ptr, bytes int64) error {
	if err := s.use("copy kernel"); err != nil {
		return err
	}
	return check("copy kernel", C.call_gs_copy_kernel(s.table, s.h, C.gs_ptr(dst), C.gs_ptr(src), C.uint64_t(bytes)))
}
