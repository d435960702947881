package weights

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// The loops below convert between elements in a file (little-endian bytes, at any alignment) and elements in memory.
// They load and store whole words through encoding/binary, which the compiler turns into single instructions.

// littleEndian says whether this machine stores numbers as files do. Then equal types are copied as bytes.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// float32FromF32 copies len(dst) elements. src holds at least 4*len(dst) bytes.
func float32FromF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

// float32FromF64 rounds len(dst) elements, to nearest and ties to even. src holds at least 8*len(dst) bytes.
func float32FromF64(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
	}
}

// float32FromBF16 widens len(dst) elements. src holds at least 2*len(dst) bytes.
func float32FromBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = BFloat16ToFloat32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// float32FromF16 widens len(dst) elements. src holds at least 2*len(dst) bytes.
func float32FromF16(dst []float32, src []byte) {
	const (
		lanes    = 0x0001000100010001 // one in each 16 bits
		signs    = 0x8000 * lanes
		exponent = 0x7c00 * lanes
		bias     = (127 - 15) << 23
	)
	for len(dst) >= 4 && len(src) >= 8 {
		w := binary.LittleEndian.Uint64(src)
		// Weights are normal numbers nearly always, and those only need another bias in the exponent. Adding 0x7c00 to
		// an exponent reaches the sign bit unless it is 0; adding 0x0400, only if it is all ones.
		if e := w & exponent; (e+exponent)&^(e+0x0400*lanes)&signs == signs {
			a, b, c, d := uint32(w), uint32(w>>16), uint32(w>>32), uint32(w>>48)
			dst[0] = math.Float32frombits((a&0x8000)<<16 | (a&0x7fff)<<13 + bias)
			dst[1] = math.Float32frombits((b&0x8000)<<16 | (b&0x7fff)<<13 + bias)
			dst[2] = math.Float32frombits((c&0x8000)<<16 | (c&0x7fff)<<13 + bias)
			dst[3] = math.Float32frombits((d&0x8000)<<16 | (d&0x7fff)<<13 + bias)
		} else {
			for i := range 4 {
				dst[i] = float32FromHalf(uint16(w >> (16 * i)))
			}
		}
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = float32FromHalf(binary.LittleEndian.Uint16(src[2*i:]))
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

// float32Bytes returns the memory of x.
func float32Bytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// BFloat16ToFloat32 returns the value of a bfloat16, exactly.
func BFloat16ToFloat32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// Float32ToBFloat16 returns the bfloat16 nearest to x, ties to even. A finite x
// beyond bfloat16's range becomes infinite; NaN stays NaN.
func Float32ToBFloat16(x float32) uint16 {
	u := math.Float32bits(x)
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
	sign, exponent, fraction := uint32(h&0x8000)<<16, uint32(h&0x7c00)>>10, uint32(h&0x03ff)
	switch exponent {
	case 0: // zero or subnormal: fraction * 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case 31: // infinity or NaN
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

// FirstNonFinite returns the index of the first NaN or infinity in x, or -1.
func FirstNonFinite(x []float32) int {
	// Without its sign, a number whose exponent is all ones is at least 0x7f800000; adding 0x00800000 to it reaches the
	// sign bit, and to any other number does not. No sum carries out of its 32 bits.
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
