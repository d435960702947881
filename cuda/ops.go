package cuda

// #include "abi.h"
import "C"

// Ptr is a device address, 0 for none.
type Ptr uint64

// DType is the type of elements on the device.
type DType int32

// The types, as in gs_dtype.
const (
	F32 DType = iota
	BF16
	F16
	Q8 // of weights: in rows of groups of 8-bit integers and their scales; what else has this type is BF16
)

// Size returns the bytes of an element.
func (d DType) Size() int {
	if d == F32 {
		return 4
	}
	return 2
}

// RowBytes returns the bytes of a row of weights. Those of Q8 have a multiple of 32.
func (d DType) RowBytes(columns int) int {
	if d == Q8 {
		return columns + (columns+C.GS_Q8_GROUP-1)/C.GS_Q8_GROUP*C.GS_Q8_SCALES
	}
	return columns * d.Size()
}

// Activation is what a Linear or an Activate applies, as in gs_activation.
type Activation int32

const (
	ActNone Activation = iota
	GELUTanh
	GELUErf
	ReLU
)

// The argument structs have the layout of those in abi.h, which documents them; the shim fills in the size. A
// test compares sizes and offsets.

// EmbedArgs are gs_embed_args: x = wte[id] + wpe[position].
type EmbedArgs struct {
	size       uint32
	DType      DType
	IDs        Ptr // (B, T) int32
	Pos        Ptr // (B) int32
	Pad        Ptr // (1) int32, or 0
	WTE, WPE   Ptr // (V, C), (P, C)
	X          Ptr // (B, T, C) float32
	B, T, C, P int32
}

// LayerNormArgs are gs_layernorm_args: x += add; y = norm(x) gain + bias.
type LayerNormArgs struct {
	size                  uint32
	Variant               int32
	X                     Ptr // (M, C) float32
	Add                   Ptr // (M, C) of AddType, or 0
	Gain, Bias            Ptr // (C) float32
	Y                     Ptr // (M, C) of YType
	M, C, LDX, LDAdd, LDY int32
	AddType, YType        DType
	Eps                   float32
}

// LinearArgs are gs_linear_args: y = act(norm(x) W^T + bias), or y += it.
type LinearArgs struct {
	size              uint32
	Variant           int32
	X                 Ptr // (M, K) of DType; float32 where Gain is given
	W                 Ptr // (N, K) of DType; Q8 for the variants gemv and rows only
	Bias              Ptr // (N) float32, or 0
	BiasBF16          Ptr // (N) bfloat16, or 0
	Gain, Shift       Ptr // (K) float32, or 0
	Y                 Ptr // (M, N) of YType
	M, N, K, LDX, LDY int32
	DType, YType      DType
	Act               Activation
	Accumulate        int32
	Eps               float32
}

// AttentionArgs are gs_attention_args.
type AttentionArgs struct {
	size               uint32
	Variant            int32
	QKV                Ptr // (B*T, 3*C) of DType
	KCache, VCache     Ptr // (B, NH, P, HS) of DType; with Wide int8, then float32 scales (B, NH, P)
	Wide               Ptr // 0, or for a cache in 8 bits room for KCache and then VCache in DType
	Pos, Pad           Ptr // (B), (1) int32
	Y                  Ptr // (B*Q, C) of DType
	Work               Ptr // AttentionWork bytes, zeroed once
	B, T, Q, NH, HS, P int32
	LDQKV, LDY         int32
	DType              DType
	Scale              float32
}

// ActivationArgs are gs_activation_args: y = act(x + bias).
type ActivationArgs struct {
	size           uint32
	Variant        int32
	X, Y           Ptr // (M, N) of DType
	Bias           Ptr // (N) float32, or 0
	M, N, LDX, LDY int32
	DType          DType
	Act            Activation
}

// AddArgs are gs_add_args: x = x + z.
type AddArgs struct {
	size           uint32
	Variant        int32
	X              Ptr // (M, N) float32
	Z              Ptr // (M, N) of DType
	M, N, LDX, LDZ int32
	DType          DType
}

// Sampling is gs_sampling: how to draw, in device memory.
type Sampling struct {
	Temperature, TopP float64
	Seed, Offset      uint64
	Step              uint64 // launches so far
	TopK              int32
	LogProbs          int32
}

// Slot is gs_slot: what a sampling launch writes for the host, of one sequence.
type Slot struct {
	Sequence uint64 // step + 1, written last
	Token    int32  // -1: the logits were not finite; SlotTimeout
	LogProb  float32
	Position int64
	Time     uint64 // %globaltimer, nanoseconds
	Rows     int32  // with Verify, of the pass, in the slot of its first token, -1 in those of others; else left as it was
	Verify   int32  // and ns since the last draft was made by Exit layers, 0 if none was
}

// SampleArgs are gs_sample_args.
type SampleArgs struct {
	size        uint32
	Variant     int32
	Logits      Ptr // (B, V) float32, rows LD apart
	Sampling    Ptr
	Pos, Pad    Ptr
	Tokens      Ptr // (B) int32
	Slots       Ptr // (Count, B) Slot
	Work        Ptr // SampleWork bytes, zeroed once
	B, V, LD, T int32
	Count       int32
	// the work area of the [Stream.Persistent] that wrote the logits, or 0: if one of its blocks waited too long, slots
	// say so
	PersistentWork Ptr
}

// PackArgs are gs_pack_args.
type PackArgs struct {
	size              uint32
	Transpose         int32
	Src, Dst          Ptr
	Rows, Cols, LDDst int32
	SrcType, DstType  DType
	First             int32 // with Q8: the column of Dst at which it begins, a multiple of 32; else 0
}
