package weights

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxHeader bounds the JSON that is parsed, a file's header or an index. It is the
// limit of the reference implementation.
const maxHeader = 100_000_000

// metadataKey is the header's one key that is not a tensor's name.
const metadataKey = "__metadata__"

// readHeader checks a safetensors file completely, short of its elements, and returns its tensors and metadata.
func readHeader(s *storage) ([]Tensor, map[string]string, error) {
	// The longest prefix that messages can make use of.
	prefix := make([]byte, min(s.size, 64))
	if err := s.read(prefix, 0); err != nil {
		return nil, nil, err
	}
	if len(prefix) < 8 {
		return nil, nil, notSafetensors(s, prefix, fmt.Sprintf("is %d bytes long, too short for a safetensors file", s.size))
	}
	n := binary.LittleEndian.Uint64(prefix)
	switch {
	case n > maxHeader:
		return nil, nil, notSafetensors(s, prefix, fmt.Sprintf("is not a safetensors file: its first 8 bytes would mean a "+
			"header of %d bytes, and the most is %d", n, maxHeader))
	case n > uint64(s.size-8):
		return nil, nil, notSafetensors(s, prefix, fmt.Sprintf("is truncated: it says that its header has %d bytes, but "+
			"only %d follow", n, s.size-8))
	case n < 2 || prefix[8] != '{':
		return nil, nil, notSafetensors(s, prefix, "is not a safetensors file: no header, a JSON object, begins at byte 8")
	}
	header := make([]byte, n)
	if err := s.read(header, 8); err != nil {
		return nil, nil, err
	}
	p := newParser(s.name, "the header", header, 8)
	p.data = s.size - 8 - int64(n)
	tensors, metadata, err := p.header()
	if err != nil {
		return nil, nil, err
	}
	for i := range tensors {
		tensors[i].file = s
		tensors[i].begin += 8 + int64(n)
	}
	return tensors, metadata, nil
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

// parser reads the JSON of a header or an index. The decoder refuses duplicate keys and what is not UTF-8.
type parser struct {
	file, what string
	text       []byte
	dec        *jsontext.Decoder
	origin     int64 // byte of the file at which text begins
	data       int64 // length of the data, for a header
}

// newParser makes a parser; what names the text in messages.
func newParser(file, what string, text []byte, origin int64) *parser {
	return &parser{file: file, what: what, text: text, dec: jsontext.NewDecoder(bytes.NewBuffer(text)), origin: origin}
}

// fail makes an Error at the place that the parser has reached.
func (p *parser) fail(tensor, format string, args ...any) error {
	return &Error{File: p.file, Tensor: tensor, Offset: p.origin + p.dec.InputOffset(),
		Problem: fmt.Sprintf(format, args...)}
}

// broken makes an Error of one of the decoder.
func (p *parser) broken(err error) error {
	e := &Error{File: p.file, Offset: p.origin}
	var syntax *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName) && errors.As(err, &syntax):
		e.Offset += syntax.ByteOffset
		e.Problem = fmt.Sprintf("%s has the key %s twice", p.what, quote(syntax.JSONPointer.LastToken()))
	case errors.As(err, &syntax):
		e.Offset += syntax.ByteOffset
		e.Problem, e.Err = p.what+" is not valid JSON: the file is damaged", syntax.Err
	case errors.As(err, &semantic):
		e.Offset += semantic.ByteOffset
		found := "a value"
		if semantic.JSONValue != nil {
			found = quote(string(semantic.JSONValue))
		}
		e.Problem = fmt.Sprintf("%s has %s at %s, where the format has another kind of value: the file is damaged", p.what,
			found, quote(string(semantic.JSONPointer)))
	default:
		e.Problem, e.Err = p.what+" cannot be read", err
	}
	return e
}

// object reads the object that the text must be, and that nothing follows it. It calls member for each key; member
// takes the value.
func (p *parser) object(member func(key string) error) error {
	if t, err := p.dec.ReadToken(); err != nil {
		return p.broken(err)
	} else if t.Kind() != '{' {
		return p.fail("", "%s is not a JSON object", p.what)
	}
	for {
		t, err := p.dec.ReadToken()
		if err != nil {
			return p.broken(err)
		}
		if t.Kind() == '}' {
			break
		}
		if err := member(t.String()); err != nil {
			return err
		}
	}
	_, err := p.dec.ReadToken()
	switch {
	case err == nil:
		return p.fail("", "%s is not valid JSON: another value follows", p.what)
	case err != io.EOF:
		return p.broken(err)
	}
	return nil
}

// value reads a value into v.
func (p *parser) value(v any) error {
	if err := json.UnmarshalDecode(p.dec, v); err != nil {
		return p.broken(err)
	}
	return nil
}

// header reads the header of a safetensors file, and checks that its tensors cover the data exactly. The tensors begin
// relative to the data, and are in the order of the data.
func (p *parser) header() ([]Tensor, map[string]string, error) {
	var tensors []Tensor
	metadata := map[string]string{}
	err := p.object(func(key string) error {
		if key == metadataKey {
			return p.value(&metadata)
		}
		t, err := p.tensor(key)
		tensors = append(tensors, t)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.n, b.n), cmp.Compare(a.Name, b.Name))
	})
	return tensors, metadata, p.coverage(tensors)
}

// description is what a header says of a tensor.
type description[T int | uint64] struct {
	DType   DType `json:"dtype"`
	Shape   []T   `json:"shape"`
	Offsets []T   `json:"data_offsets"`
}

// tensor reads the description of one tensor, and checks that its type, shape and
// range agree and that the range lies in the data.
func (p *parser) tensor(name string) (Tensor, error) {
	var d description[uint64]
	if err := p.value(&d); err != nil {
		return Tensor{}, err
	}
	switch {
	case d.DType == "":
		return Tensor{}, p.fail(name, "dtype is missing")
	case d.DType.Bits() == 0:
		return Tensor{}, p.fail(name, "dtype %s is not known", quote(string(d.DType)))
	case d.Shape == nil:
		return Tensor{}, p.fail(name, "shape is missing")
	case len(d.Offsets) != 2:
		return Tensor{}, p.fail(name, "data_offsets has %d numbers instead of 2", len(d.Offsets))
	case d.Offsets[0] > d.Offsets[1]:
		return Tensor{}, p.fail(name, "data_offsets %v are reversed", d.Offsets)
	case d.Offsets[1] > uint64(p.data):
		return Tensor{}, p.fail(name, "data_offsets %v reach beyond the file, which has %d bytes of data: it is truncated, "+
			"copy or download it again", d.Offsets, p.data)
	}
	t := Tensor{Name: name, DType: d.DType, begin: int64(d.Offsets[0])}
	if !setShape(&t, d.Shape) {
		return Tensor{}, p.fail(name, "shape %s has too many elements", shapeString(d.Shape))
	}
	if t.n%8*t.DType.Bits()%8 != 0 {
		return Tensor{}, p.fail(name, "shape %s of %s does not fill whole bytes", shapeString(d.Shape), t.DType)
	}
	if size := int64(d.Offsets[1]) - t.begin; size != t.Bytes() {
		return Tensor{}, p.fail(name, "data_offsets %v hold %d bytes, but shape %s of %s takes %d", d.Offsets, size,
			shapeString(d.Shape), t.DType, t.Bytes())
	}
	return t, nil
}

// coverage returns an error unless the tensors, sorted by their place, cover the
// data without holes, overlaps, or bytes after the last.
func (p *parser) coverage(tensors []Tensor) error {
	origin := p.origin + int64(len(p.text))
	end, last := int64(0), ""
	for _, t := range tensors {
		e := &Error{File: p.file, Tensor: t.Name, Offset: origin + t.begin}
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
	if end < p.data {
		return &Error{File: p.file, Offset: origin + end, Problem: fmt.Sprintf("%d bytes, which belong to no tensor, "+
			"follow the data: the format forbids that; write or download the file again", p.data-end)}
	}
	return nil
}
