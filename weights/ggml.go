package weights

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"gpt2scope/internal/ggufwrite"
)

// ggmlType is how a GGUF file packs the elements of a row: so many in so many bytes. decode widens whole blocks; it is
// nil for types that are not read.
type ggmlType struct {
	name         string
	block, bytes int
	decode       func(dst []float32, src []byte)
}

// ggmlTypes are the types of tensors by their number; those without a name are unknown or withdrawn. The layouts are
// those of ggml-org/ggml, src/ggml-common.h, and elements are rounded as by ggml-org/llama.cpp, gguf-py/gguf/quants.py.
var ggmlTypes = [...]ggmlType{
	0:  {"F32", 1, 4, float32FromF32},
	1:  {"F16", 1, 2, float32FromF16},
	2:  blocks("Q4_0", 32, 2+16, fromQ4_0),
	3:  blocks("Q4_1", 32, 4+16, fromQ4_1),
	6:  blocks("Q5_0", 32, 2+4+16, fromQ5_0),
	7:  blocks("Q5_1", 32, 4+4+16, fromQ5_1),
	8:  blocks("Q8_0", 32, 2+32, fromQ8_0),
	12: blocks("Q4_K", 256, 4+12+128, fromQ4_K),
	13: blocks("Q5_K", 256, 4+12+32+128, fromQ5_K),
	14: blocks("Q6_K", 256, 128+64+16+2, fromQ6_K),
	20: blocks("IQ4_NL", 32, 2+16, fromIQ4_NL),
	30: {"BF16", 1, 2, float32FromBF16},

	9: {name: "Q8_1"}, 10: {name: "Q2_K"}, 11: {name: "Q3_K"}, 15: {name: "Q8_K"}, 16: {name: "IQ2_XXS"},
	17: {name: "IQ2_XS"}, 18: {name: "IQ3_XXS"}, 19: {name: "IQ1_S"}, 21: {name: "IQ3_S"}, 22: {name: "IQ2_S"},
	23: {name: "IQ4_XS"}, 24: {name: "I8"}, 25: {name: "I16"}, 26: {name: "I32"}, 27: {name: "I64"}, 28: {name: "F64"},
	29: {name: "IQ1_M"}, 34: {name: "TQ1_0"}, 35: {name: "TQ2_0"}, 39: {name: "MXFP4"}, 40: {name: "NVFP4"}, 41: {name: "Q1_0"},
}

// ggmlTypeOf returns a tensor's type by its number.
func ggmlTypeOf(number uint32) ggmlType {
	if int64(number) < int64(len(ggmlTypes)) && ggmlTypes[number].name != "" {
		return ggmlTypes[number]
	}
	return ggmlType{name: fmt.Sprintf("unknown (number %d)", number)}
}

// ggmlRead lists the types that are read.
func ggmlRead() string {
	var names []string
	for _, t := range ggmlTypes {
		if t.decode != nil {
			names = append(names, t.name)
		}
	}
	return strings.Join(names, ", ")
}

// blocks makes a type of the function that widens one block.
func blocks(name string, block, bytes int, one func(dst []float32, b []byte)) ggmlType {
	return ggmlType{name, block, bytes, func(dst []float32, src []byte) {
		for len(dst) >= block && len(src) >= bytes {
			one(dst[:block], src[:bytes])
			dst, src = dst[block:], src[bytes:]
		}
	}}
}

func half(b []byte) float32 { return float32FromHalf(binary.LittleEndian.Uint16(b)) }

// A float16 times whole numbers of 13 bits together is exact in float32, so a product that the compiler fuses with a
// sum gives the same bits.

func fromQ8_0(dst []float32, b []byte) {
	d := half(b)
	for i, q := range b[2:] {
		dst[i] = d * float32(int8(q))
	}
}

func fromQ4_0(dst []float32, b []byte) {
	d := half(b)
	for i, q := range b[2:] {
		dst[i], dst[i+16] = d*float32(int(q&15)-8), d*float32(int(q>>4)-8)
	}
}

func fromQ4_1(dst []float32, b []byte) {
	d, m := half(b), half(b[2:])
	for i, q := range b[4:] {
		dst[i], dst[i+16] = d*float32(q&15)+m, d*float32(q>>4)+m
	}
}

func fromQ5_0(dst []float32, b []byte) {
	d, fifth := half(b), binary.LittleEndian.Uint32(b[2:])
	for i, q := range b[6:] {
		dst[i] = d * float32(int(uint32(q&15)|fifth>>i&1<<4)-16)
		dst[i+16] = d * float32(int(uint32(q>>4)|fifth>>(i+16)&1<<4)-16)
	}
}

func fromQ5_1(dst []float32, b []byte) {
	d, m, fifth := half(b), half(b[2:]), binary.LittleEndian.Uint32(b[4:])
	for i, q := range b[8:] {
		dst[i] = d*float32(uint32(q&15)|fifth>>i&1<<4) + m
		dst[i+16] = d*float32(uint32(q>>4)|fifth>>(i+16)&1<<4) + m
	}
}

func fromQ4_K(dst []float32, b []byte) { fromK(dst, b, b[16:], make([]byte, 32)) }
func fromQ5_K(dst []float32, b []byte) { fromK(dst, b, b[48:], b[16:48]) }

// fromK widens eight groups of 32, each with a scale and a minimum of 6 bits, from their lower four bits and the fifth.
func fromK(dst []float32, b, low, fifth []byte) {
	d, dMin, s := half(b), half(b[2:]), b[4:16]
	for j := range 8 {
		scale, least := s[j]&63, s[(j+4)%12]&63
		if j >= 4 {
			scale, least = s[j+4]&15|s[j-4]>>6<<4, s[j+4]>>4|s[j]>>6<<4
		}
		dj, m := d*float32(scale), dMin*float32(least)
		for i, q := range low[j/2*32:][:32] {
			dst[32*j+i] = dj*float32(q>>(j%2*4)&15|fifth[i]>>j&1<<4) - m
		}
	}
}

// fromQ6_K widens sixteen groups of 16, each with a signed scale, from their lower four bits and the upper two.
func fromQ6_K(dst []float32, b []byte) {
	low, high, scales, d := b[:128], b[128:192], b[192:208], half(b[208:])
	for i := range dst {
		part, row, col := i/128, i/32%4, i%32
		q := low[64*part+row%2*32+col]>>(row/2*4)&15 | high[32*part+col]>>(2*row)&3<<4
		dst[i] = d * float32(int8(scales[i/16])) * float32(int(q)-32)
	}
}

// iq4 are the values of IQ4_NL's 16 numbers.
var iq4 = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

func fromIQ4_NL(dst []float32, b []byte) {
	d := half(b)
	for i, q := range b[2:] {
		dst[i], dst[i+16] = d*iq4[q&15], d*iq4[q>>4]
	}
}

// A GGUFValue is a key of the metadata with its value: a uint32, float32, bool, string, []string or []int32.
type GGUFValue = struct {
	Key   string
	Value any
}

// WriteGGUF writes a GGUF file as Write writes others. Matrices are converted to options.DType, F32 or BF16. Vectors,
// and the tensor that wide names, are converted to F32, in which ggml computes with them.
func WriteGGUF(ctx context.Context, path string, values []GGUFValue, tensors []Tensor, wide string,
	options WriteOptions) error {
	const align = 32
	plan := &writePlan{align: align, progress: options.Progress}
	var file ggufwrite.File
	for _, v := range values {
		file.Value(v.Key, v.Value)
	}
	for _, t := range tensors {
		d, number := F32, uint32(ggufwrite.F32)
		if options.DType == BF16 && len(t.Shape) > 1 && t.Name != wide {
			d, number = BF16, ggufwrite.BF16
		}
		file.Info(t.Name, number, t.Shape, uint64(plan.add(t, d)))
	}
	plan.header = file.Bytes()
	plan.size += int64(len(plan.header))
	return WriteFile(ctx, path, plan.write)
}
