package weights

// DType is the type of a tensor's elements. The zero DType is no type.
type DType uint8

// The element types of the safetensors format. F32, F16 and BF16 can be read as
// floats; the others are known by name and size only.
const (
	_    DType = iota
	F32        // IEEE 754 binary32
	F16        // IEEE 754 binary16: 1 sign bit, 5 of exponent, 10 of fraction
	BF16       // bfloat16: the upper half of a binary32
	F64        // IEEE 754 binary64
	Bool       // one byte, 0 or 1
	U8         // unsigned integers
	U16
	U32
	U64
	I8 // signed integers, two's complement
	I16
	I32
	I64
	C64    // complex number of two binary32
	F8E4M3 // 8-bit floats
	F8E5M2
	F8E8M0
	F8E4M3FNUZ
	F8E5M2FNUZ
	F6E2M3 // 6-bit floats, packed
	F6E3M2
	F4 // 4-bit floats, packed
	endOfDTypes
)

// dtypes gives each DType its name in a header and the size of an element.
var dtypes = [endOfDTypes]struct {
	name string
	bits int
}{
	0:          {"none", 0},
	F32:        {"F32", 32},
	F16:        {"F16", 16},
	BF16:       {"BF16", 16},
	F64:        {"F64", 64},
	Bool:       {"BOOL", 8},
	U8:         {"U8", 8},
	U16:        {"U16", 16},
	U32:        {"U32", 32},
	U64:        {"U64", 64},
	I8:         {"I8", 8},
	I16:        {"I16", 16},
	I32:        {"I32", 32},
	I64:        {"I64", 64},
	C64:        {"C64", 64},
	F8E4M3:     {"F8_E4M3", 8},
	F8E5M2:     {"F8_E5M2", 8},
	F8E8M0:     {"F8_E8M0", 8},
	F8E4M3FNUZ: {"F8_E4M3FNUZ", 8},
	F8E5M2FNUZ: {"F8_E5M2FNUZ", 8},
	F6E2M3:     {"F6_E2M3", 6},
	F6E3M2:     {"F6_E3M2", 6},
	F4:         {"F4", 4},
}

// ParseDType returns the type with the given name in a safetensors header, such
// as "BF16", and whether there is one.
func ParseDType(name string) (DType, bool) {
	for d := F32; d < endOfDTypes; d++ {
		if dtypes[d].name == name {
			return d, true
		}
	}
	return 0, false
}

// String returns the type's name in a safetensors header, such as "BF16".
func (d DType) String() string {
	if d >= endOfDTypes {
		return "invalid"
	}
	return dtypes[d].name
}

// Bits returns the size of an element in bits: a multiple of 8 except for the
// packed types F6E2M3, F6E3M2 and F4; 0 for the zero DType.
func (d DType) Bits() int {
	if d >= endOfDTypes {
		return 0
	}
	return dtypes[d].bits
}

// IsFloat reports whether tensors of this type can be read as floats: whether it
// is F32, F16 or BF16.
func (d DType) IsFloat() bool { return d == F32 || d == F16 || d == BF16 }

// isInteger reports whether elements are exact numbers, which no conversion
// between float types concerns.
func (d DType) isInteger() bool { return d >= Bool && d <= I64 }
