package cuda

// #include "shim.h"
// #cgo noescape call_gs_embed
// #cgo nocallback call_gs_embed
// #cgo noescape call_gs_layernorm
// #cgo nocallback call_gs_layernorm
// #cgo noescape call_gs_linear
// #cgo nocallback call_gs_linear
// #cgo noescape call_gs_attention
// #cgo nocallback call_gs_attention
// #cgo noescape call_gs_activate
// #cgo nocallback call_gs_activate
// #cgo noescape call_gs_add
// #cgo nocallback call_gs_add
// #cgo noescape call_gs_sample
// #cgo nocallback call_gs_sample
// #cgo noescape call_gs_pack
// #cgo nocallback call_gs_pack
// #cgo noescape call_gs_empty_kernel
// #cgo nocallback call_gs_empty_kernel
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// Numbers of abi.h.
const (
	GEMVRows      = C.GS_GEMV_ROWS      // the most rows that the matrix-vector kernels take
	FewRows       = C.GS_FEW_ROWS       // the most rows that variant rows takes
	WGMMARows     = C.GS_WGMMA_ROWS     // the most for which "auto" takes Hopper's tensor cores; into bfloat16 there is no limit
	BLASWorkspace = C.GS_BLAS_WORKSPACE // bytes of device memory that a stream takes for cuBLASLt
)

// The launchers check what C assumes, then cross once. They allocate nothing where all is well: the argument struct
// stays on the stack.

// isType reports whether a type is one of the kernels'.
func isType(d DType) bool { return d == F32 || d == BF16 }

// isWeights reports whether weights with rows of so many columns can have a type.
func isWeights(d DType, columns int32) bool { return isType(d) || d == Q8 && columns%32 == 0 }

func shapeError(op, format string, args ...any) error {
	return &ShapeError{op, fmt.Sprintf(format, args...)}
}

// Embed launches x = wte[id] + wpe[position].
func (s *Stream) Embed(a EmbedArgs) error {
	switch {
	case a.B < 1 || a.T < 1 || a.C < 1 || a.P < 1:
		return shapeError("Embed", "B=%d T=%d C=%d P=%d; all must be at least 1", a.B, a.T, a.C, a.P)
	case int64(a.B)*int64(a.T) > maxRows:
		return shapeError("Embed", "B=%d T=%d are more than %d rows", a.B, a.T, maxRows)
	case !isWeights(a.DType, a.C):
		return shapeError("Embed", "type %d for C=%d; it must be F32 or BF16, or Q8 with a multiple of 32", a.DType, a.C)
	case a.IDs == 0 || a.Pos == 0 || a.WTE == 0 || a.WPE == 0 || a.X == 0:
		return shapeError("Embed", "IDs, Pos, WTE, WPE and X must all be given")
	}
	return failed(C.call_gs_embed(s.raw(), (*C.gs_embed_args)(unsafe.Pointer(&a))))
}

// maxRows keeps numbers of rows within an int32.
const maxRows = 1<<31 - 1

// LayerNorm launches x += add; y = (x - mean) / sqrt(var + eps) * gain + bias.
func (s *Stream) LayerNorm(a LayerNormArgs) error {
	switch {
	case a.M < 1 || a.C < 1:
		return shapeError("LayerNorm", "M=%d C=%d; both must be at least 1", a.M, a.C)
	case a.LDX < a.C || a.LDY < a.C || a.Add != 0 && a.LDAdd < a.C:
		return shapeError("LayerNorm", "rows %d, %d and %d apart (x, y, add) for C=%d", a.LDX, a.LDY, a.LDAdd, a.C)
	case !isType(a.YType) || a.Add != 0 && !isType(a.AddType):
		return shapeError("LayerNorm", "types %d and %d (y, add); they must be F32 or BF16", a.YType, a.AddType)
	case a.X == 0 || a.Y == 0 || a.Gain == 0 || a.Bias == 0:
		return shapeError("LayerNorm", "X, Y, Gain and Bias must all be given")
	}
	return failed(C.call_gs_layernorm(s.raw(), (*C.gs_layernorm_args)(unsafe.Pointer(&a))))
}

// checkLinear checks the shape of a product, and its pointers where it is to run.
func checkLinear(op string, a *LinearArgs, run bool) error {
	switch {
	case a.M < 1 || a.N < 1 || a.K < 1:
		return shapeError(op, "M=%d N=%d K=%d; all must be at least 1", a.M, a.N, a.K)
	case a.LDX < a.K || a.LDY < a.N:
		return shapeError(op, "rows of x %d apart and of y %d apart, for K=%d N=%d", a.LDX, a.LDY, a.K, a.N)
	case !isWeights(a.DType, a.K) || !isType(a.YType):
		return shapeError(op, "types %d and %d (x and w, y) for K=%d; they must be F32 or BF16, or that of w Q8 with a "+
			"multiple of 32", a.DType, a.YType, a.K)
	case a.Act < ActNone || a.Act > ReLU:
		return shapeError(op, "activation %d is not known", a.Act)
	case a.Accumulate != 0 && (a.YType != F32 || a.Act != ActNone):
		return shapeError(op, "only a float32 y with no activation can be added to, not type %d with activation %d", a.YType,
			a.Act)
	case a.Gain != 0 && a.M > GEMVRows:
		return shapeError(op, "LayerNorm on the way in takes up to %d rows, not %d", GEMVRows, a.M)
	case a.Gain != 0 && a.Shift == 0:
		return shapeError(op, "Gain without Shift")
	case run && (a.X == 0 || a.W == 0 || a.Y == 0):
		return shapeError(op, "X, W and Y must all be given")
	}
	return nil
}

// Linear launches y = act(norm(x) W^T + bias), or y += norm(x) W^T + bias. Where
// [Stream.NeedsBLAS] says so it needs [Library.OpenBLAS] before.
func (s *Stream) Linear(a LinearArgs) error {
	if err := checkLinear("Linear", &a, true); err != nil {
		return err
	}
	return failed(C.call_gs_linear(s.raw(), (*C.gs_linear_args)(unsafe.Pointer(&a))))
}

// LinearVariant returns the variant that a product takes: another than the arguments' where that is auto.
func (s *Stream) LinearVariant(a LinearArgs) (int32, error) {
	if err := checkLinear("LinearVariant", &a, false); err != nil {
		return 0, err
	}
	var v C.int
	err := failed(C.call_gs_linear_variant(s.raw(), (*C.gs_linear_args)(unsafe.Pointer(&a)), &v))
	return int32(v), err
}

// NeedsBLAS reports whether [Stream.Linear] would multiply by cuBLASLt.
func (s *Stream) NeedsBLAS(a LinearArgs) (bool, error) {
	v, err := s.LinearVariant(a)
	return err == nil && s.dev.lib.Variants(OpLinear)[v] == "blas", err
}

// TuneLinear makes the stream keep an algorithm of cuBLASLt for a product: the first of its heuristic where there is none
// yet. Only the shape and types of the arguments count. With candidates it runs the product with up to so many, which
// waits and overwrites y, and keeps the fastest.
func (s *Stream) TuneLinear(a LinearArgs, candidates int) error {
	if candidates < 0 || candidates > 1<<20 {
		return shapeError("TuneLinear", "%d candidates; it must be from 0 to %d", candidates, 1<<20)
	}
	if err := checkLinear("TuneLinear", &a, candidates > 0); err != nil {
		return err
	}
	return failed(C.call_gs_linear_tune(s.raw(), (*C.gs_linear_args)(unsafe.Pointer(&a)), C.int(candidates)))
}

// MaxHeadSize is the largest head that the attention kernels take.
const MaxHeadSize = 512

func checkAttention(op string, a *AttentionArgs, run bool) error {
	switch {
	case a.B < 1 || a.T < 1 || a.NH < 1 || a.HS < 1 || a.P < 1:
		return shapeError(op, "B=%d T=%d NH=%d HS=%d P=%d; all must be at least 1", a.B, a.T, a.NH, a.HS, a.P)
	case a.HS > MaxHeadSize:
		return shapeError(op, "a head size of %d; %d is the most", a.HS, MaxHeadSize)
	case a.Q != 0 && a.Q != 1 && a.Q != a.T:
		return shapeError(op, "Q=%d queries of T=%d rows; it must be 0, 1 or T", a.Q, a.T)
	case a.T > a.P:
		return shapeError(op, "T=%d rows into a cache of P=%d", a.T, a.P)
	case int64(a.LDQKV) < 3*int64(a.NH)*int64(a.HS) || a.Q > 0 && int64(a.LDY) < int64(a.NH)*int64(a.HS):
		return shapeError(op, "rows of qkv %d apart and of y %d apart, for NH=%d HS=%d", a.LDQKV, a.LDY, a.NH, a.HS)
	case !isType(a.DType):
		return shapeError(op, "type %d; it must be F32 or BF16", a.DType)
	case run && (a.QKV == 0 || a.KCache == 0 || a.VCache == 0 || a.Pos == 0 || a.Q > 0 && a.Y == 0):
		return shapeError(op, "QKV, KCache, VCache, Pos and Y must all be given")
	}
	return nil
}

// Attention launches: keys and values of the new rows go into the cache, and y = softmax(scale q k^T, causal) v for the
// last Q rows of each sequence.
func (s *Stream) Attention(a AttentionArgs) error {
	if err := checkAttention("Attention", &a, true); err != nil {
		return err
	}
	return failed(C.call_gs_attention(s.raw(), (*C.gs_attention_args)(unsafe.Pointer(&a))))
}

// AttentionWork returns how many bytes of Work an Attention of this shape needs.
func (s *Stream) AttentionWork(a AttentionArgs) (int64, error) {
	if err := checkAttention("AttentionWork", &a, false); err != nil {
		return 0, err
	}
	var n C.uint64_t
	err := failed(C.call_gs_attention_work(s.raw(), (*C.gs_attention_args)(unsafe.Pointer(&a)), &n))
	return int64(n), err
}

// Activate launches y = act(x + bias).
func (s *Stream) Activate(a ActivationArgs) error {
	switch {
	case a.M < 1 || a.N < 1:
		return shapeError("Activate", "M=%d N=%d; both must be at least 1", a.M, a.N)
	case a.LDX < a.N || a.LDY < a.N:
		return shapeError("Activate", "rows of x %d apart and of y %d apart, for N=%d", a.LDX, a.LDY, a.N)
	case a.X == a.Y && a.LDX != a.LDY:
		return shapeError("Activate", "in place with rows %d and %d apart", a.LDX, a.LDY)
	case !isType(a.DType):
		return shapeError("Activate", "type %d; it must be F32 or BF16", a.DType)
	case a.Act < ActNone || a.Act > ReLU:
		return shapeError("Activate", "activation %d is not known", a.Act)
	case a.X == 0 || a.Y == 0:
		return shapeError("Activate", "X and Y must both be given")
	}
	return failed(C.call_gs_activate(s.raw(), (*C.gs_activation_args)(unsafe.Pointer(&a))))
}

// Add launches x = x + z.
func (s *Stream) Add(a AddArgs) error {
	switch {
	case a.M < 1 || a.N < 1:
		return shapeError("Add", "M=%d N=%d; both must be at least 1", a.M, a.N)
	case a.LDX < a.N || a.LDZ < a.N:
		return shapeError("Add", "rows of x %d apart and of z %d apart, for N=%d", a.LDX, a.LDZ, a.N)
	case !isType(a.DType):
		return shapeError("Add", "type %d; it must be F32 or BF16", a.DType)
	case a.X == 0 || a.Z == 0:
		return shapeError("Add", "X and Z must both be given")
	}
	return failed(C.call_gs_add(s.raw(), (*C.gs_add_args)(unsafe.Pointer(&a))))
}

func checkSample(op string, a *SampleArgs, run bool) error {
	switch {
	case a.B < 1 || a.V < 1 || a.T < 1 || a.Count < 1:
		return shapeError(op, "B=%d V=%d T=%d Count=%d; all must be at least 1", a.B, a.V, a.T, a.Count)
	case a.LD < a.V:
		return shapeError(op, "rows %d apart for V=%d", a.LD, a.V)
	case run && (a.Logits == 0 || a.Sampling == 0 || a.Pos == 0 || a.Tokens == 0 || a.Slots == 0):
		return shapeError(op, "Logits, Sampling, Pos, Tokens and Slots must all be given")
	}
	return nil
}

// Sample launches token = sample(logits), for each sequence, and moves positions on.
func (s *Stream) Sample(a SampleArgs) error {
	if err := checkSample("Sample", &a, true); err != nil {
		return err
	}
	return failed(C.call_gs_sample(s.raw(), (*C.gs_sample_args)(unsafe.Pointer(&a))))
}

// SampleWork returns how many bytes of Work a Sample of this shape needs.
func (s *Stream) SampleWork(a SampleArgs) (int64, error) {
	if err := checkSample("SampleWork", &a, false); err != nil {
		return 0, err
	}
	var n C.uint64_t
	err := failed(C.call_gs_sample_work(s.raw(), (*C.gs_sample_args)(unsafe.Pointer(&a)), &n))
	return int64(n), err
}

// Pack launches the conversion of a dense matrix, transposed if Transpose is set.
func (s *Stream) Pack(a PackArgs) error {
	width := a.Cols
	if a.Transpose != 0 {
		width = a.Rows
	}
	switch {
	case a.Rows < 1 || a.Cols < 1:
		return shapeError("Pack", "%d x %d; both must be at least 1", a.Rows, a.Cols)
	case a.LDDst < width:
		return shapeError("Pack", "rows %d apart for a width of %d", a.LDDst, width)
	case a.SrcType < F32 || a.SrcType > Q8 || !isWeights(a.DstType, a.LDDst) ||
		a.SrcType == Q8 && (a.DstType != BF16 || a.Transpose != 0 || a.Cols%32 != 0):
		return shapeError("Pack", "types %d to %d are not known, or not for %d x %d", a.SrcType, a.DstType, a.Rows, a.Cols)
	case a.DstType == Q8 && (width%32 != 0 || a.First < 0 || a.First%32 != 0 || a.First+width > a.LDDst):
		return shapeError("Pack", "columns %d to %d of %d; Q8 takes multiples of 32", a.First, a.First+width, a.LDDst)
	case a.Src == 0 || a.Dst == 0:
		return shapeError("Pack", "Src and Dst must both be given")
	}
	return failed(C.call_gs_pack(s.raw(), (*C.gs_pack_args)(unsafe.Pointer(&a))))
}

// EmptyKernel launches an empty kernel: what a launch costs.
func (s *Stream) EmptyKernel() error {
	return failed(C.call_gs_empty_kernel(s.raw()))
}

// HopBytes returns the size of the work area of [Stream.Hops] on a device of so many SMs.
func HopBytes(packets, processors int) int64 {
	return C.GS_HOP_HEADER + 2*16*int64(packets)*int64(processors)
}

// Hops launches one block per SM. In each of so many rounds every block publishes so many packets of 16 bytes, and
// reads those of all blocks. work is [HopBytes], zeros before the first launch. The error matches [ErrNoKernel] if the
// device has no such kernel. [HopsCompleted] says whether all rounds ran.
func (s *Stream) Hops(work *Buffer, packets, rounds int) error {
	if processors := s.dev.info.Processors; work.Ptr() == 0 || packets < 1 || packets > maxRows || rounds < 1 ||
		rounds > maxRows || work.Size() < HopBytes(packets, processors) {
		return shapeError("Hops", "%d rounds of %d packets of each of %d SMs, %d bytes at %#x; %d are needed", rounds,
			packets, processors, work.Size(), uint64(work.Ptr()), HopBytes(packets, processors))
	}
	return failed(C.call_gs_hops(s.raw(), C.gs_ptr(work.Ptr()), C.int(packets), C.int(rounds)))
}

// HopsCompleted returns an error if a block of a launch of [Stream.Hops] waited a second for another one, so that the
// rounds did not complete. The launch must have ended.
func HopsCompleted(work *Buffer) error {
	var header C.gs_hop_header
	if err := work.Read(0, unsafe.Slice((*byte)(unsafe.Pointer(&header)), unsafe.Sizeof(header))); err != nil {
		return err
	}
	if header.late != 0 {
		return errors.New("a block waited more than a second for another one while they exchanged values; " +
			"try again with nothing else running on the GPU")
	}
	return nil
}

// ReadKernel launches a kernel that reads bytes once. out is 4 bytes.
func (s *Stream) ReadKernel(p Ptr, bytes int64, out Ptr) error {
	if p == 0 || out == 0 || bytes < 1 {
		return shapeError("ReadKernel", "%d bytes at %#x; out at %#x", bytes, uint64(p), uint64(out))
	}
	return failed(C.call_gs_read(s.raw(), C.gs_ptr(p), C.uint64_t(bytes), C.gs_ptr(out)))
}

// CacheTurn is the bytes of a turn of [Stream.ReadAgain].
const CacheTurn = C.GS_CACHE_TURN

// ReadAgain launches a kernel that reads turns of [CacheTurn] bytes, a block for each, over and over: passes times. out
// is 4 bytes.
func (s *Stream) ReadAgain(p Ptr, turns, passes int, out Ptr) error {
	if p == 0 || out == 0 || turns < 1 || turns > maxRows || passes < 1 || passes > maxRows {
		return shapeError("ReadAgain", "%d turns, %d times, at %#x; out at %#x", turns, passes, uint64(p), uint64(out))
	}
	return failed(C.call_gs_read_again(s.raw(), C.gs_ptr(p), C.uint32_t(turns), C.uint32_t(passes), C.gs_ptr(out)))
}

// CopyKernel launches a kernel that copies bytes: dst = src.
func (s *Stream) CopyKernel(dst, src Ptr, bytes int64) error {
	if dst == 0 || src == 0 || bytes < 1 {
		return shapeError("CopyKernel", "%d bytes from %#x to %#x", bytes, uint64(src), uint64(dst))
	}
	return failed(C.call_gs_copy_kernel(s.raw(), C.gs_ptr(dst), C.gs_ptr(src), C.uint64_t(bytes)))
}
