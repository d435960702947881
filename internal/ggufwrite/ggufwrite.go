// Package ggufwrite makes GGUF files: whole small ones for tests, and the headers of others. It shares no code with the
// reader: the format is that of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
package ggufwrite

import (
	"cmp"
	"encoding/binary"
	"fmt"
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

// Types of tensors.
const (
	F32  = 0
	F16  = 1
	Q8_0 = 8
	BF16 = 30
)

// Tensor adds a tensor of the given row-major shape with its data as the type stores them.
func (f *File) Tensor(name string, kind uint32, shape []int, data []byte) {
	align := cmp.Or(f.Alignment, 32)
	f.data = append(f.data, make([]byte, (align-len(f.data)%align)%align)...)
	f.Info(name, kind, shape, uint64(len(f.data)))
	f.data = append(f.data, data...)
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
