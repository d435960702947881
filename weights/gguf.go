package weights

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// GGUF is a model in one GGUF file, the format of llama.cpp: tensors, and metadata that takes the place of config.json
// and the tokenizer's files. The format is specified at https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
//
// Tensors have the names and layouts of the file: a matrix of a product is (outputs, inputs), the
// transpose of GPT-2's in a Hugging Face directory. F32, F16 and BF16 tensors keep their type. Others
// are widened to float32 when they are read, and their DType is F32.
type GGUF struct {
	*Checkpoint
	Values map[string]any // the metadata, by key; see OpenGGUF

	types map[string]string // by tensor: its type in the file
}

// Bounds on a GGUF file.
const (
	maxGGUFKey   = 1<<16 - 1 // bytes, by the specification
	maxGGUFName  = 64        // bytes of a tensor's name, by the specification
	maxGGUFDims  = 4         // by the specification
	maxAlignment = 1 << 20   // common is 32
	maxNesting   = 4         // arrays in arrays
)

// The types of metadata values.
const (
	ggufUint8 uint32 = iota
	ggufInt8
	ggufUint16
	ggufInt16
	ggufUint32
	ggufInt32
	ggufFloat32
	ggufBool
	ggufString
	ggufArray
	ggufUint64
	ggufInt64
	ggufFloat64
	endOfGGUFTypes
)

// ggufLeast is the least number of bytes that a value of each type takes.
var ggufLeast = [endOfGGUFTypes]int64{1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8}

// IsGGUF says whether path is that of a GGUF file: it ends in .gguf, or begins as such a file does.
func IsGGUF(path string) bool {
	if strings.EqualFold(filepath.Ext(path), ".gguf") {
		return true
	}
	s, err := openFile(path)
	if err != nil {
		return false
	}
	defer s.close()
	magic := make([]byte, min(s.size, 4))
	return s.read(magic, 0) == nil && string(magic) == "GGUF"
}

// OpenGGUF opens a GGUF file. It checks everything but the elements: each count, length, type and
// offset. The caller must call Close.
//
// In Values, integers are int64 or uint64 by the signedness of their type, floats are float32 or float64, arrays of
// strings are []string and arrays of integers []int64. Other arrays are nil: only their key is kept.
//
// A file of version 1 or of another byte order, one part of a split model, and tensors of
// types that are not read ([GGUF.Type]) are errors that name what was found.
func OpenGGUF(path string) (*GGUF, error) {
	s, err := openFile(path)
	if err != nil {
		return nil, err
	}
	return readGGUF(s)
}

// Type returns the type in which the file stores a tensor, such as "Q8_0"; "" if it has no such tensor.
func (g *GGUF) Type(tensor string) string { return g.types[tensor] }

// readGGUF reads all but the elements. It owns the file.
func readGGUF(s *storage) (_ *GGUF, err error) {
	g := &GGUF{
		Checkpoint: &Checkpoint{tensors: map[string]Tensor{}, files: []*storage{s}},
		Values:     map[string]any{}, types: map[string]string{},
	}
	defer func() {
		if err != nil {
			g.Close()
		}
	}()
	r := &ggufReader{file: s}
	magic := r.bytes(4, "the magic number")
	if r.err == nil && string(magic) != "GGUF" {
		prefix := make([]byte, min(s.size, 64))
		if err := s.read(prefix, 0); err != nil {
			return nil, err
		}
		if is := identify(prefix); is != "" {
			return nil, problem(s.name, "is not a GGUF file but looks like %s", is)
		}
		if len(prefix) > 8 && prefix[8] == '{' {
			return nil, problem(s.name, "is not a GGUF file but looks like a safetensors file: give the directory that holds "+
				"it, under the name %s", SingleFile)
		}
		return nil, problem(s.name, "is not a GGUF file: it does not begin with GGUF")
	}
	version := r.uint32("the version")
	switch {
	case r.err != nil:
		return nil, r.err
	case bits.ReverseBytes32(version)-1 < 3: // 1 to 3 in the other order
		return nil, problem(s.name, "is a GGUF file in big-endian order; convert the model again on a little-endian machine")
	case version != 2 && version != 3:
		return nil, problem(s.name, "is a GGUF file of version %d; versions 2 and 3 are read: convert the model again with "+
			"a current llama.cpp", version)
	}
	// A tensor takes 24 bytes of the header at least, a value 13.
	tensors, values := r.count(24, "the number of tensors"), r.count(13, "the number of metadata values")
	for range values {
		if err := r.value(g.Values); err != nil {
			return nil, err
		}
	}
	if n, ok := g.Values["split.count"]; ok && n != uint64(0) && n != uint64(1) {
		return nil, problem(s.name, "is one part of a model split into %v files; join them with llama.cpp's "+
			"llama-gguf-split --merge", n)
	}
	align := uint64(32)
	if v, ok := g.Values["general.alignment"]; ok {
		if align, ok = v.(uint64); !ok || align < 8 || align > maxAlignment || align&(align-1) != 0 {
			return nil, problem(s.name, "general.alignment is %v; it must be a power of two from 8 to %d", v, maxAlignment)
		}
	}
	var infos []ggufInfo
	for range tensors {
		info := r.tensor()
		if r.err != nil {
			return nil, r.err
		}
		infos = append(infos, info)
	}
	if r.err != nil {
		return nil, r.err
	}
	data := (r.pos + int64(align) - 1) &^ (int64(align) - 1)
	slices.SortStableFunc(infos, func(a, b ggufInfo) int { return cmp.Compare(a.offset, b.offset) })
	end, last := int64(0), ""
	for _, info := range infos {
		t, size, err := info.resolve(s, data, align)
		if err != nil {
			return nil, err
		}
		if int64(info.offset) < end && size > 0 {
			return nil, &Error{File: s.name, Tensor: t.Name, Offset: data + int64(info.offset),
				Problem: fmt.Sprintf("its data overlap those of tensor %s: the file is damaged or malicious", quote(last))}
		}
		if size > 0 {
			end, last = int64(info.offset)+size, t.Name
		}
		if err := g.add(t); err != nil {
			return nil, err
		}
		g.types[t.Name] = ggmlTypeOf(info.dtype).name
	}
	return g, nil
}

// ggufInfo describes a tensor as the header does.
type ggufInfo struct {
	name   string
	dims   []uint64 // the fastest first
	dtype  uint32
	offset uint64 // from the beginning of the data
	at     int64  // byte of the file at which the description begins
}

// resolve checks a description against the file, and returns the tensor and the bytes that it takes.
func (i ggufInfo) resolve(s *storage, data int64, align uint64) (t Tensor, size int64, err error) {
	fail := func(format string, args ...any) (Tensor, int64, error) {
		return t, 0, &Error{File: s.name, Tensor: i.name, Offset: i.at, Problem: fmt.Sprintf(format, args...)}
	}
	kind := ggmlTypeOf(i.dtype)
	if kind.decode == nil {
		return fail("is of type %s; read are %s: make a file of one of these with llama.cpp's llama-quantize "+
			"--allow-requantize IN.gguf OUT.gguf Q8_0", kind.name, ggmlRead())
	}
	p := packed{file: s, block: kind.block, bytes: kind.bytes, decode: kind.decode}
	if t.DType = F32; p.block == 1 {
		t.DType = DType(kind.name)
	}
	t.Name = i.name
	if !setShape(&t, i.dims) {
		return fail("dimensions %s are of too many elements", shapeString(i.dims))
	}
	slices.Reverse(t.Shape)
	if cols := append(i.dims, 1)[0]; cols%uint64(p.block) != 0 {
		return fail("has rows of %d elements, and %s packs %d together: the file is damaged", cols, kind.name, p.block)
	}
	size = int64(t.n) / int64(p.block) * int64(p.bytes) // n is below 2^59, bytes / block at most 4: no overflow
	switch {
	case i.offset%align != 0:
		return fail("begins at offset %d, which is not a multiple of the alignment %d: the file is damaged", i.offset, align)
	case data > s.size && size > 0, i.offset > uint64(max(0, s.size-data)), size > s.size-data-int64(i.offset) && size > 0:
		return fail("its %d bytes at offset %d reach beyond the end of the file: it is truncated, copy or download it again",
			size, i.offset)
	}
	p.begin = data + int64(i.offset)
	if p.block == 1 {
		t.file, t.begin = s, p.begin
	} else {
		t.read = p.read
	}
	t.packed = &p
	return t, size, nil
}

// ggufReader reads the header of a GGUF file from its beginning. Its first error sticks.
type ggufReader struct {
	file *storage
	pos  int64  // of the next byte
	buf  []byte // the bytes from pos on that have been read
	err  error
}

// fail notes an error at the place that has been reached.
func (r *ggufReader) fail(format string, args ...any) error {
	if r.err == nil {
		r.err = &Error{File: r.file.name, Offset: r.pos, Problem: fmt.Sprintf(format, args...)}
	}
	return r.err
}

// left returns how many bytes of the file follow.
func (r *ggufReader) left() int64 { return r.file.size - r.pos }

// bytes returns the next n bytes, which are valid until the next call, or nil after an error. what
// names them in messages.
func (r *ggufReader) bytes(n int64, what string) []byte {
	switch {
	case r.err != nil:
		return nil
	case n > r.left():
		r.fail("%s takes %d bytes, and %d are left of the file: it is truncated or damaged, copy or download it again", what,
			n, r.left())
		return nil
	case r.pos+n > maxHeader:
		r.fail("the header has more than %d bytes, the most that is read", maxHeader)
		return nil
	}
	if int64(len(r.buf)) < n {
		r.buf = make([]byte, min(r.left(), max(n, 1<<20)))
		if r.err = r.file.read(r.buf, r.pos); r.err != nil {
			return nil
		}
	}
	b := r.buf[:n:n]
	r.buf, r.pos = r.buf[n:], r.pos+n
	return b
}

func (r *ggufReader) uint32(what string) uint32 { return uint32(unsigned(r.bytes(4, what))) }
func (r *ggufReader) uint64(what string) uint64 { return unsigned(r.bytes(8, what)) }

// unsigned returns the number of up to 8 bytes, the least first.
func unsigned(b []byte) uint64 {
	var all [8]byte
	copy(all[:], b)
	return binary.LittleEndian.Uint64(all[:])
}

// signed returns the number of up to 8 bytes in two's complement, the least first.
func signed(b []byte) int64 {
	shift := 64 - 8*len(b)
	return int64(unsigned(b)<<shift) >> shift
}

// count reads the number of things that take at least so many bytes each, all in the rest of the file.
func (r *ggufReader) count(least int64, what string) uint64 {
	n := r.uint64(what)
	if r.err == nil && n > uint64(r.left()/least) {
		r.fail("%s is %d, more than the %d bytes that follow can hold: the file is truncated or damaged", what, n, r.left())
	}
	if r.err != nil {
		return 0
	}
	return n
}

// string reads a string of at most so many bytes.
func (r *ggufReader) string(most uint64, what string) string {
	n := r.uint64("the length of " + what)
	if r.err == nil && n > most {
		r.fail("%s has %d bytes, and at most %d are allowed: the file is damaged", what, n, most)
	}
	return string(r.bytes(int64(n), what))
}

func (r *ggufReader) value(values map[string]any) error {
	key := r.string(maxGGUFKey, "a metadata key")
	if r.err == nil && (key == "" || !utf8.ValidString(key)) {
		r.fail("%s is no metadata key: the file is damaged", quote(key))
	}
	if _, ok := values[key]; ok {
		r.fail("the metadata key %s occurs twice", quote(key))
	}
	kind := r.uint32("the type of " + quote(key))
	if r.err != nil {
		return r.err
	}
	v := r.scalar(kind, key)
	if kind == ggufArray {
		v = r.array(key, 1)
	}
	if r.err == nil {
		values[key] = v
	}
	return r.err
}

// scalar reads a value that is no array.
func (r *ggufReader) scalar(kind uint32, key string) any {
	if kind >= endOfGGUFTypes {
		r.fail("the metadata value of %s has the unknown type %d", quote(key), kind)
		return nil
	}
	if kind == ggufArray || r.err != nil {
		return nil
	}
	what := "the value of " + quote(key)
	if kind == ggufString {
		return r.string(maxHeader, what)
	}
	b := r.bytes(ggufLeast[kind], what)
	if b == nil {
		return nil
	}
	switch kind {
	case ggufInt8, ggufInt16, ggufInt32, ggufInt64:
		return signed(b)
	case ggufFloat32:
		return math.Float32frombits(uint32(unsigned(b)))
	case ggufFloat64:
		return math.Float64frombits(unsigned(b))
	case ggufBool:
		if b[0] > 1 {
			r.fail("the metadata value of %s is the byte %d, neither true nor false", quote(key), b[0])
		}
		return b[0] == 1
	}
	return unsigned(b)
}

// array reads an array, at the given depth of nesting. Of strings and integers the elements are kept.
func (r *ggufReader) array(key string, depth int) any {
	kind := r.uint32("the type of the array " + quote(key))
	if r.err != nil {
		return nil
	}
	switch {
	case kind >= endOfGGUFTypes:
		r.fail("the array %s is of the unknown type %d", quote(key), kind)
	case depth > maxNesting:
		r.fail("the array %s is nested more than %d deep", quote(key), maxNesting)
	}
	if r.err != nil {
		return nil
	}
	n := r.count(ggufLeast[kind], "the length of the array "+quote(key))
	switch kind {
	case ggufArray:
		for range n {
			if r.array(key, depth+1); r.err != nil {
				break
			}
		}
	case ggufString:
		var list []string
		for range n {
			s := r.string(maxHeader, "a string of "+quote(key))
			if r.err != nil {
				return nil
			}
			list = append(list, s)
		}
		return list
	case ggufFloat32, ggufFloat64, ggufBool:
		r.bytes(int64(n)*ggufLeast[kind], "the array "+quote(key))
	default:
		list := make([]int64, 0, min(n, 1<<16))
		for range n {
			v := r.scalar(kind, key)
			if r.err != nil {
				return nil
			}
			switch v := v.(type) {
			case int64:
				list = append(list, v)
			case uint64:
				list = append(list, int64(min(v, math.MaxInt64)))
			}
		}
		return list
	}
	return nil
}

func (r *ggufReader) tensor() ggufInfo {
	info := ggufInfo{at: r.pos}
	info.name = r.string(maxGGUFName, "a tensor's name")
	if r.err == nil && (info.name == "" || !utf8.ValidString(info.name)) {
		r.fail("%s is no name of a tensor: the file is damaged", quote(info.name))
	}
	n := r.uint32("the number of dimensions of " + quote(info.name))
	if n > maxGGUFDims {
		r.fail("tensor %s has %d dimensions; at most %d are allowed: the file is damaged", quote(info.name), n, maxGGUFDims)
	}
	for range n {
		if r.err != nil {
			break
		}
		info.dims = append(info.dims, r.uint64("a dimension of "+quote(info.name)))
	}
	info.dtype = r.uint32("the type of " + quote(info.name))
	info.offset = r.uint64("the offset of " + quote(info.name))
	return info
}

// packed is where and how a file stores a tensor in rows of blocks.
type packed struct {
	file   *storage
	begin  int64
	block  int // elements, and bytes, that are packed together
	bytes  int
	decode func(dst []float32, src []byte) // whole blocks
}

// read is the ReadFunc of the tensor.
func (p *packed) read(dst []float32, off int) error {
	return p.file.hold(func() error {
		var scratch []byte
		var wide []float32
		for len(dst) > 0 {
			n := min(len(dst), pieceBytes/4)
			if scratch == nil {
				scratch, wide = p.scratch(n)
			}
			if err := p.row(dst[:n], off, scratch, wide); err != nil {
				return err
			}
			dst, off = dst[n:], off+n
		}
		return nil
	})
}

// scratch returns memory for row to read up to n elements.
func (p *packed) scratch(n int) ([]byte, []float32) {
	if p.block == 1 {
		return make([]byte, n*p.bytes), nil
	}
	blocks := n/p.block + 2
	return make([]byte, blocks*p.bytes), make([]float32, blocks*p.block)
}

// row fills dst with elements that follow one another from off on. The file is held.
func (p *packed) row(dst []float32, off int, scratch []byte, wide []float32) error {
	first, end := off/p.block, (off+len(dst)+p.block-1)/p.block
	src := scratch[:(end-first)*p.bytes]
	if err := p.file.readAt(src, p.begin+int64(first)*int64(p.bytes)); err != nil {
		return err
	}
	if p.block == 1 {
		p.decode(dst, src)
		return nil
	}
	wide = wide[:(end-first)*p.block]
	p.decode(wide, src)
	copy(dst, wide[off-first*p.block:])
	return nil
}

// packing returns where and how a file stores the tensor; nil if none does, or not as floats.
func (t Tensor) packing() *packed {
	if t.packed != nil || t.file == nil || !t.DType.IsFloat() {
		return t.packed
	}
	return &packed{file: t.file, begin: t.begin, block: 1, bytes: t.DType.Bits() / 8, decode: decoders[t.DType]}
}

// Transposed returns the transpose of a matrix of floats, whose elements are put in their places when they are read: as
// float32, or, of a transpose, the matrix that it is of. It is an error if t is no such matrix.
func (t Tensor) Transposed() (Tensor, error) {
	if t.turned != nil {
		original := *t.turned
		original.Name = t.Name
		return original, nil
	}
	if len(t.Shape) != 2 || !t.DType.IsFloat() {
		return Tensor{}, t.problem("of shape %s and type %s cannot be transposed: it is no matrix of floats",
			shapeString(t.Shape), t.DType)
	}
	rows, cols, p := t.Shape[0], t.Shape[1], t.packing()
	turned, err := NewTensor(t.Name, []int{cols, rows}, func(dst []float32, off int) error {
		if len(dst) == 0 {
			return nil
		}
		first, end := off/rows, (off+len(dst)-1)/rows+1 // columns of t
		if p == nil {
			return transpose(dst, off-first*rows, rows, end-first, func(part []float32, r int) error {
				return t.ReadFloat32(part, r*cols+first)
			})
		}
		scratch, wide := p.scratch(end - first)
		return p.file.hold(func() error {
			return transpose(dst, off-first*rows, rows, end-first, func(part []float32, r int) error {
				return p.row(part, r*cols+first, scratch, wide)
			})
		})
	})
	turned.turned = &t
	return turned, err
}

// transpose fills dst with elements of the transpose of a matrix (rows, cols), from off on. read reads a row; a few rows
// at a time are read, and then written column by column.
func transpose(dst []float32, off, rows, cols int, read func(dst []float32, row int) error) error {
	const tile = 16 // rows; 16 float32 are a cache line of dst
	src := make([]float32, tile*cols)
	for r := 0; r < rows; r += tile {
		n := min(tile, rows-r)
		for i := range n {
			if err := read(src[i*cols:(i+1)*cols], r+i); err != nil {
				return err
			}
		}
		for c := range cols {
			for i := range n {
				if to := c*rows + r + i - off; to >= 0 && to < len(dst) {
					dst[to] = src[i*cols+c]
				}
			}
		}
	}
	return nil
}
