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

// dtypes are the bits of an element of the types of the safetensors format. Those of 4 and 6 bits are packed.
var dtypes = map[DType]int{
	F32: 32, F16: 16, BF16: 16, F64: 64, "C64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
	"F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4, "BOOL": 8, "U8": 8, "U16": 16, "U32": 32, "U64": 64, "I8": 8,
	"I16": 16, "I32": 32, "I64": 64,
}

// String returns the type's name in a safetensors header, such as "BF16".
func (d DType) String() string { return string(d) }

// Bits returns the size of an element in bits: a multiple of 8 but for packed types, 0 for what is no type.
func (d DType) Bits() int { return dtypes[d] }

// IsFloat reports whether tensors of this type can be read as floats.
func (d DType) IsFloat() bool { return decoders[d] != nil }

// decoders widen, or of F64 round, whole elements to float32.
var decoders = map[DType]func(dst []float32, src []byte){
	F32: float32FromF32, F16: float32FromF16, BF16: float32FromBF16, F64: float32FromF64,
}
