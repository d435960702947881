// Package ggufwrite makes GGUF files: whole small ones for tests, and the headers of others. It shares no code with the
// reader: the format is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
package ggufwrite

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
)

// File is a file in the making. The zero File has no values and no tensors.
type File struct {
	Version   uint32 // 0: 3
	Alignment int    // 0: 32, which is not written

	values, infos, data []byte
	nValues, nTensors   uint64
}

// scalars are the numbers of the types of scalars.
var scalars = map[reflect.Kind]uint32{reflect.Uint8: 0, reflect.Int8: 1, reflect.Uint16: 2, reflect.Int16: 3,
	reflect.Uint32: 4, reflect.Int32: 5,
	reflect.Float32: 6, reflect.Bool: 7, reflect.Uint64: 10, reflect.Int64: 11, reflect.Float64: 12}

// Value adds a metadata value: a number or bool of a fixed size, string, []string, []int32 or []float32.
func (f *File) Value(key string, v any) {
	f.nValues++
	f.values = appendString(f.values, key)
	kind := func(n uint32) { f.values = binary.LittleEndian.AppendUint32(f.values, n) }
	array := func(of uint32, n int) {
		kind(9)
		kind(of)
		f.values = binary.LittleEndian.AppendUint64(f.values, uint64(n))
	}
	switch v := v.(type) {
	case uint8, int8, uint16, int16, uint32, int32, float32, bool, uint64, int64, float64:
		kind(scalars[reflect.TypeOf(v).Kind()])
		f.values, _ = binary.Append(f.values, binary.LittleEndian, v) // of values of such types it is no error
	case string:
		kind(8)
		f.values = appendString(f.values, v)
	case []string:
		array(8, len(v))
		for _, s := range v {
			f.values = appendString(f.values, s)
		}
	case []int32:
		array(5, len(v))
		f.values, _ = binary.Append(f.values, binary.LittleEndian, v)
	case []float32:
		array(6, len(v))
		f.values, _ = binary.Append(f.values, binary.LittleEndian, v)
	default:
		panic(fmt.Sprintf("ggufwrite: no value of type %T", v))
	}
}

// The types of tensors.
const (
	F32  = 0
	F16  = 1
	Q2_K = 10 // for errors: its data are not made
	Q8_0 = 8
	BF16 = 30
)

// Tensor adds a tensor of the given row-major shape, whose elements are rounded to the type. Rows of Q8_0 are of a
// multiple of 32 elements.
func (f *File) Tensor(name string, kind uint32, shape []int, elements []float32) {
	align := cmp.Or(f.Alignment, 32)
	f.data = append(f.data, make([]byte, (align-len(f.data)%align)%align)...)
	f.Info(name, kind, shape, uint64(len(f.data)))
	f.data = append(f.data, Encode(kind, elements)...)
}

// Info adds the description of a tensor alone, whatever it says.
func (f *File) Info(name string, kind uint32, shape []int, offset uint64) {
	f.nTensors++
	f.infos = appendString(f.infos, name)
	f.infos = binary.LittleEndian.AppendUint32(f.infos, uint32(len(shape)))
	for i := range shape {
		f.infos = binary.LittleEndian.AppendUint64(f.infos, uint64(shape[len(shape)-1-i]))
	}
	f.infos = binary.LittleEndian.AppendUint32(f.infos, kind)
	f.infos = binary.LittleEndian.AppendUint64(f.infos, offset)
}

// Bytes returns the file.
func (f *File) Bytes() []byte {
	align := cmp.Or(f.Alignment, 32)
	if f.Alignment != 0 {
		f.Value("general.alignment", uint32(align))
	}
	b := binary.LittleEndian.AppendUint32([]byte("GGUF"), cmp.Or(f.Version, 3))
	b = binary.LittleEndian.AppendUint64(b, f.nTensors)
	b = binary.LittleEndian.AppendUint64(b, f.nValues)
	b = append(append(b, f.values...), f.infos...)
	b = append(b, make([]byte, (align-len(b)%align)%align)...)
	return append(b, f.data...)
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// Encode returns elements as a file stores them.
func Encode(kind uint32, x []float32) []byte {
	var b []byte
	switch kind {
	case F32:
		b, _ = binary.Append(b, binary.LittleEndian, x)
	case F16:
		for _, v := range x {
			b = binary.LittleEndian.AppendUint16(b, half(float64(v)))
		}
	case BF16:
		for _, v := range x {
			u := math.Float32bits(v)
			b = binary.LittleEndian.AppendUint16(b, uint16((u+0x7fff+u>>16&1)>>16))
		}
	case Q8_0:
		for ; len(x) > 0; x = x[32:] {
			most := 0.0
			for _, v := range x[:32] {
				most = max(most, math.Abs(float64(v)))
			}
			d := most / 127
			b = binary.LittleEndian.AppendUint16(b, half(d))
			for _, v := range x[:32] {
				q := 0.0
				if d > 0 {
					q = math.Round(float64(v) / d)
				}
				b = append(b, byte(int8(q)))
			}
		}
	}
	return b
}

// half returns the float16 nearest to v, ties to even; |v| is below 65520.
func half(v float64) uint16 {
	sign := uint16(0)
	if math.Signbit(v) {
		sign, v = 0x8000, -v
	}
	exponent := max(math.Floor(math.Log2(max(v, 0x1p-30))), -14)
	units := math.RoundToEven(v / math.Exp2(exponent-10)) // of the last place
	if units >= 2048 {
		units, exponent = units/2, exponent+1
	}
	if units < 1024 { // subnormal
		return sign | uint16(units)
	}
	return sign | uint16(exponent+15)<<10 | (uint16(units) - 1024)
}
