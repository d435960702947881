package weights

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// The loops below convert between elements in a file (little-endian bytes, at
// any alignment) and elements in memory. They load and store whole words through
// encoding/binary, which the compiler turns into single instructions, and work
// on eight elements at a time where that pays; see the benchmarks.

// littleEndian says whether this machine lays out numbers as files do, so that
// equal types are copied as bytes.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// float32FromF32 copies len(dst) elements. src holds at least 4*len(dst) bytes.
func float32FromF32(dst []float32, src []byte) {
	if littleEndian {
		copy(float32Bytes(dst), src)
		return
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

// float32FromBF16 widens len(dst) elements. src holds at least 2*len(dst) bytes.
func float32FromBF16(dst []float32, src []byte) {
	for len(dst) >= 8 && len(src) >= 16 {
		lo, hi := binary.LittleEndian.Uint64(src), binary.LittleEndian.Uint64(src[8:])
		dst[0] = math.Float32frombits(uint32(lo) << 16)
		dst[1] = math.Float32frombits(uint32(lo) &^ 0xffff)
		dst[2] = math.Float32frombits(uint32(lo>>32) << 16)
		dst[3] = math.Float32frombits(uint32(lo>>32) &^ 0xffff)
		dst[4] = math.Float32frombits(uint32(hi) << 16)
		dst[5] = math.Float32frombits(uint32(hi) &^ 0xffff)
		dst[6] = math.Float32frombits(uint32(hi>>32) << 16)
		dst[7] = math.Float32frombits(uint32(hi>>32) &^ 0xffff)
		dst, src = dst[8:], src[16:]
	}
	for i := range dst {
		dst[i] = BFloat16ToFloat32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// float32FromF16 widens len(dst) elements. src holds at least 2*len(dst) bytes.
func float32FromF16(dst []float32, src []byte) {
	for len(dst) >= 4 && len(src) >= 8 {
		w := binary.LittleEndian.Uint64(src)
		dst[0] = float32FromHalf(uint16(w))
		dst[1] = float32FromHalf(uint16(w >> 16))
		dst[2] = float32FromHalf(uint16(w >> 32))
		dst[3] = float32FromHalf(uint16(w >> 48))
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = float32FromHalf(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// bfloat16FromF32 rounds len(dst) elements. src holds at least 4*len(dst) bytes.
func bfloat16FromF32(dst []uint16, src []byte) {
	for len(dst) >= 4 && len(src) >= 16 {
		lo, hi := binary.LittleEndian.Uint64(src), binary.LittleEndian.Uint64(src[8:])
		dst[0] = bfloat16FromBits(uint32(lo))
		dst[1] = bfloat16FromBits(uint32(lo >> 32))
		dst[2] = bfloat16FromBits(uint32(hi))
		dst[3] = bfloat16FromBits(uint32(hi >> 32))
		dst, src = dst[4:], src[16:]
	}
	for i := range dst {
		dst[i] = bfloat16FromBits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

// bfloat16FromF16 rounds len(dst) elements. src holds at least 2*len(dst) bytes.
func bfloat16FromF16(dst []uint16, src []byte) {
	for i := range dst {
		dst[i] = Float32ToBFloat16(float32FromHalf(binary.LittleEndian.Uint16(src[2*i:])))
	}
}

// bfloat16FromBF16 copies len(dst) elements. src holds at least 2*len(dst) bytes.
func bfloat16FromBF16(dst []uint16, src []byte) {
	if littleEndian {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), 2*len(dst)), src)
		return
	}
	for i := range dst {
		dst[i] = binary.LittleEndian.Uint16(src[2*i:])
	}
}

// f32FromFloat32 writes src as F32. dst holds 4*len(src) bytes.
func f32FromFloat32(dst []byte, src []float32) {
	if littleEndian {
		copy(dst, float32Bytes(src))
		return
	}
	for i, x := range src {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
	}
}

// bf16FromFloat32 writes src, rounded, as BF16. dst holds 2*len(src) bytes. It
// returns the index of the first finite element that bfloat16 cannot hold, or -1.
func bf16FromFloat32(dst []byte, src []float32) (overflow int) {
	const inf = 0x7f80
	for i, x := range src {
		h := Float32ToBFloat16(x)
		if h&0x7fff == inf && !math.IsInf(float64(x), 0) {
			return i
		}
		binary.LittleEndian.PutUint16(dst[2*i:], h)
	}
	return -1
}

// f16FromFloat32 writes src, rounded, as F16. dst holds 2*len(src) bytes. It
// returns the index of the first finite element that F16 cannot hold, or -1.
func f16FromFloat32(dst []byte, src []float32) (overflow int) {
	const inf = 0x7c00
	for i, x := range src {
		h := halfFromFloat32(x)
		if h&0x7fff == inf && !math.IsInf(float64(x), 0) {
			return i
		}
		binary.LittleEndian.PutUint16(dst[2*i:], h)
	}
	return -1
}

// float32Bytes returns the memory of x.
func float32Bytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// BFloat16ToFloat32 returns the value of a bfloat16, exactly.
func BFloat16ToFloat32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// Float32ToBFloat16 returns the bfloat16 nearest to x, ties to even. A finite x
// beyond bfloat16's range becomes infinite; NaN stays NaN.
func Float32ToBFloat16(x float32) uint16 { return bfloat16FromBits(math.Float32bits(x)) }

func bfloat16FromBits(u uint32) uint16 {
	if u&0x7fffffff > 0x7f800000 {
		// The fraction of a NaN may lie in the lower half only: set the quiet bit,
		// or cutting that half off would make it an infinity.
		return uint16(u>>16) | 0x40
	}
	// Adding just under half of the last place kept, or exactly half if that
	// place is odd, carries into it exactly when rounding up is right.
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// float32FromHalf returns the value of an IEEE 754 binary16, exactly.
func float32FromHalf(h uint16) float32 {
	if e := h & 0x7c00; e-0x0400 < 0x7800 { // a normal number: rebias the exponent from 15 to 127
		return math.Float32frombits(uint32(h&0x8000)<<16 | uint32(h&0x7fff)<<13 + (127-15)<<23)
	}
	return float32FromSpecialHalf(h)
}

// float32FromSpecialHalf is float32FromHalf for zeros, subnormal numbers,
// infinities and NaNs. It is apart so that the other can be inlined.
//
//go:noinline
func float32FromSpecialHalf(h uint16) float32 {
	sign, fraction := uint32(h&0x8000)<<16, uint32(h&0x03ff)
	if h&0x7c00 == 0 { // fraction * 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	}
	return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
}

// halfFromFloat32 returns the IEEE 754 binary16 nearest to x, ties to even. A
// finite x beyond its range becomes infinite; NaN stays NaN.
func halfFromFloat32(x float32) uint16 {
	u := math.Float32bits(x)
	sign, a := uint16(u>>16)&0x8000, u&0x7fffffff
	switch {
	case a > 0x7f800000: // NaN: keep the upper part of its fraction, and the quiet bit
		return sign | 0x7e00 | uint16(a>>13)&0x3ff
	case a >= 0x477ff000: // at least halfway from 65504, the largest, to 65536
		return sign | 0x7c00
	case a < 0x38800000: // less than 2^-14: subnormal, a multiple of 2^-24
		// That is the last place of 0.5, so this addition does the rounding.
		return sign | uint16(math.Float32bits(math.Float32frombits(a)+0.5)-math.Float32bits(0.5))
	}
	return sign | uint16((a+0xfff+a>>13&1-(127-15)<<23)>>13)
}

// FirstNonFinite returns the index of the first NaN or infinity in x, or -1.
func FirstNonFinite(x []float32) int {
	// Without its sign, a number whose exponent is all ones is at least
	// 0x7f800000; adding 0x00800000 to it reaches the sign bit, and to any other
	// number does not. No sum carries out of its 32 bits.
	const block = 64
	done := 0
	for ; len(x)-done >= block; done += block {
		var any uint32
		for _, v := range x[done : done+block] {
			any |= math.Float32bits(v)&0x7fffffff + 0x00800000
		}
		if any>>31 != 0 {
			break
		}
	}
	for i, v := range x[done:] {
		if math.Float32bits(v)&0x7f800000 == 0x7f800000 {
			return done + i
		}
	}
	return -1
}

// FirstNonFiniteBFloat16 returns the index of the first NaN or infinity in the
// bfloat16 numbers x, or -1.
func FirstNonFiniteBFloat16(x []uint16) int {
	const block = 64
	done := 0
	for ; len(x)-done >= block; done += block {
		var any uint16
		for _, v := range x[done : done+block] {
			any |= v&0x7fff + 0x0080
		}
		if any>>15 != 0 {
			break
		}
	}
	for i, v := range x[done:] {
		if v&0x7f80 == 0x7f80 {
			return done + i
		}
	}
	return -1
}
