package weights

// DType is the type of a tensor's elements, by its name in a safetensors header; "" is no type.
type DType string

// The types that can be read as floats.
const (
	F32  DType = "F32"  // IEEE 754 binary32
	F16  DType = "F16"  // IEEE 754 binary16: 1 sign bit, 5 of exponent, 10 of fraction
	BF16 DType = "BF16" // bfloat16: the upper half of a binary32
	F64  DType = "F64"  // IEEE 754 binary64, which is rounded to float32
)

// dtypes are the types of the safetensors format: the bits of an element, and whether elements are exact numbers, which
// no conversion between float types concerns. Those of 4 and 6 bits are packed.
var dtypes = map[DType]struct {
	bits  int
	exact bool
}{
	F32: {32, false}, F16: {16, false}, BF16: {16, false}, F64: {64, false}, "C64": {64, false},
	"F8_E4M3": {8, false}, "F8_E5M2": {8, false}, "F8_E8M0": {8, false}, "F8_E4M3FNUZ": {8, false}, "F8_E5M2FNUZ": {8, false},
	"F6_E2M3": {6, false}, "F6_E3M2": {6, false}, "F4": {4, false}, "BOOL": {8, true},
	"U8": {8, true}, "U16": {16, true}, "U32": {32, true}, "U64": {64, true},
	"I8": {8, true}, "I16": {16, true}, "I32": {32, true}, "I64": {64, true},
}

// String returns the type's name in a safetensors header, such as "BF16".
func (d DType) String() string { return string(d) }

// Bits returns the size of an element in bits: a multiple of 8 but for packed types, 0 for what is no type.
func (d DType) Bits() int { return dtypes[d].bits }

// IsFloat reports whether tensors of this type can be read as floats.
func (d DType) IsFloat() bool { return decoders[d] != nil }

// decoders widen, or of F64 round, whole elements to float32.
var decoders = map[DType]func(dst []float32, src []byte){
	F32: float32FromF32, F16: float32FromF16, BF16: float32FromBF16, F64: float32FromF64,
}
