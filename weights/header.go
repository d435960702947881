package weights

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxHeader bounds the JSON that is parsed, a file's header or an index. It is the
// limit of the reference implementation.
const maxHeader = 100_000_000

// readHeader checks a safetensors file completely, short of its elements, and returns its tensors in the order of their
// place.
func readHeader(s *storage) ([]Tensor, error) {
	// The longest prefix that messages can make use of.
	prefix := make([]byte, min(s.size, 64))
	if err := s.read(prefix, 0); err != nil {
		return nil, err
	}
	if len(prefix) < 8 {
		return nil, notSafetensors(s, prefix, fmt.Sprintf("is %d bytes long, too short for a safetensors file", s.size))
	}
	n := binary.LittleEndian.Uint64(prefix)
	switch {
	case n > maxHeader:
		return nil, notSafetensors(s, prefix, fmt.Sprintf("is not a safetensors file: its first 8 bytes would mean a "+
			"header of %d bytes, and the most is %d", n, maxHeader))
	case n > uint64(s.size-8):
		return nil, notSafetensors(s, prefix, fmt.Sprintf("is truncated: it says that its header has %d bytes, but "+
			"only %d follow", n, s.size-8))
	case n < 2 || prefix[8] != '{':
		return nil, notSafetensors(s, prefix, "is not a safetensors file: no header, a JSON object, begins at byte 8")
	}
	text := make([]byte, n)
	if err := s.read(text, 8); err != nil {
		return nil, err
	}
	var header struct {
		Metadata map[string]string              `json:"__metadata__"`
		Tensors  map[string]description[uint64] `json:",inline"`
	}
	if err := unmarshal(s.name, "the header", text, 8, &header); err != nil {
		return nil, err
	}
	data := 8 + int64(n)
	var tensors []Tensor
	for _, name := range slices.Sorted(maps.Keys(header.Tensors)) {
		t, wrong := header.Tensors[name].tensor(name, s.size-data)
		if wrong != "" {
			return nil, &Error{File: s.name, Tensor: name, Offset: -1, Problem: wrong}
		}
		t.file, t.begin = s, t.begin+data
		tensors = append(tensors, t)
	}
	slices.SortFunc(tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.n, b.n), cmp.Compare(a.Name, b.Name))
	})
	return tensors, coverage(s, data, tensors)
}

// notSafetensors says what a file that cannot be read as safetensors looks like,
// or, if it looks like nothing known, what is wrong with it.
func notSafetensors(s *storage, prefix []byte, wrong string) error {
	if len(prefix) == 0 {
		return problem(s.name, "is empty: copy or download it again")
	}
	if is := identify(prefix); is != "" {
		return problem(s.name, "is not a safetensors file but looks like %s", is)
	}
	for _, f := range foreign {
		if f.matches(filepath.Base(s.name)) {
			return problem(s.name, "is not a safetensors file but %s", f.is)
		}
	}
	return problem(s.name, "%s: copy or download it again, or convert it", wrong)
}

// unmarshal reads the JSON of a header or an index, which begins at a byte of a file. What names it in messages. The
// library refuses duplicate keys and what is not UTF-8.
func unmarshal(file, what string, text []byte, origin int64, v any) error {
	err := json.Unmarshal(text, v)
	if err == nil {
		return nil
	}
	e := &Error{File: file, Offset: origin}
	var syntax *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName) && errors.As(err, &syntax):
		e.Offset += syntax.ByteOffset
		e.Problem = fmt.Sprintf("%s has the key %s twice", what, quote(syntax.JSONPointer.LastToken()))
	case errors.As(err, &syntax):
		e.Offset += syntax.ByteOffset
		e.Problem, e.Err = what+" is not valid JSON: the file is damaged", syntax.Err
	case errors.As(err, &semantic):
		e.Offset += semantic.ByteOffset
		found := "a value"
		if semantic.JSONValue != nil {
			found = quote(string(semantic.JSONValue))
		}
		e.Problem = fmt.Sprintf("%s has %s at %s, where the format has another kind of value: the file is damaged", what,
			found, quote(string(semantic.JSONPointer)))
	default:
		e.Problem, e.Err = what+" cannot be read", err
	}
	return e
}

// description is what a header says of a tensor.
type description[T int | uint64] struct {
	DType   DType `json:"dtype"`
	Shape   []T   `json:"shape"`
	Offsets []T   `json:"data_offsets"`
}

// tensor returns the tensor, whose place is relative to the data, of so many bytes; or what is wrong with its type, shape
// or range.
func (d description[T]) tensor(name string, data int64) (t Tensor, wrong string) {
	t = Tensor{Name: name, DType: d.DType}
	switch {
	case d.DType == "":
		return t, "dtype is missing"
	case d.DType.Bits() == 0:
		return t, fmt.Sprintf("dtype %s is not known", quote(string(d.DType)))
	case d.Shape == nil:
		return t, "shape is missing"
	case len(d.Offsets) != 2:
		return t, fmt.Sprintf("data_offsets has %d numbers instead of 2", len(d.Offsets))
	case d.Offsets[0] > d.Offsets[1]:
		return t, fmt.Sprintf("data_offsets %v are reversed", d.Offsets)
	case uint64(d.Offsets[1]) > uint64(data):
		return t, fmt.Sprintf("data_offsets %v reach beyond the file, which has %d bytes of data: it is truncated, copy or "+
			"download it again", d.Offsets, data)
	case !setShape(&t, d.Shape):
		return t, fmt.Sprintf("shape %s has too many elements", shapeString(d.Shape))
	case t.n%8*t.DType.Bits()%8 != 0:
		return t, fmt.Sprintf("shape %s of %s does not fill whole bytes", shapeString(d.Shape), t.DType)
	}
	t.begin = int64(d.Offsets[0])
	if size := int64(d.Offsets[1]) - t.begin; size != t.Bytes() {
		return t, fmt.Sprintf("data_offsets %v hold %d bytes, but shape %s of %s takes %d", d.Offsets, size,
			shapeString(d.Shape), t.DType, t.Bytes())
	}
	return t, ""
}

// coverage returns an error unless the tensors, sorted by their place, cover what follows the header without holes,
// overlaps, or bytes after the last.
func coverage(s *storage, data int64, tensors []Tensor) error {
	end, last := data, ""
	for _, t := range tensors {
		e := &Error{File: s.name, Tensor: t.Name, Offset: t.begin}
		switch {
		case t.begin < end:
			e.Problem = fmt.Sprintf("its data overlap those of tensor %s: the file is damaged or malicious", quote(last))
			return e
		case t.begin > end:
			e.Problem = fmt.Sprintf("a hole of %d bytes, which belong to no tensor, comes before its data: the format forbids "+
				"that; write the file again", t.begin-end)
			return e
		}
		end, last = t.begin+t.Bytes(), t.Name
	}
	if end < s.size {
		return &Error{File: s.name, Offset: end, Problem: fmt.Sprintf("%d bytes, which belong to no tensor, "+
			"follow the data: the format forbids that; write or download the file again", s.size-end)}
	}
	return nil
}
