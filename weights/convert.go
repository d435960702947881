package weights

import (
	"encoding/binary"
	"math"
	"slices"
	"unsafe"
)

// The loops below convert between elements in a file (little-endian bytes, at any alignment) and elements in memory.
// They load and store whole words through encoding/binary, which the compiler turns into single instructions. float32 is
// written as its bytes: the kernels are for machines that store numbers as files do.

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
	for i := range dst {
		dst[i] = float32FromHalf(binary.LittleEndian.Uint16(src[2*i:]))
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
	// Exponent and fraction, shifted into place, are a float32 that is too small by 2^112, also of subnormal numbers.
	u := math.Float32bits(math.Float32frombits(uint32(h&0x7fff)<<13) * 0x1p112)
	if h&0x7c00 == 0x7c00 { // infinity or NaN
		u |= 0x7f800000
	}
	return math.Float32frombits(u | uint32(h&0x8000)<<16)
}

// FirstNonFinite returns the index of the first NaN or infinity in x, or -1.
func FirstNonFinite(x []float32) int {
	return slices.IndexFunc(x, func(v float32) bool { return v-v != 0 })
}
