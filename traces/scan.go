package traces

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// scanner reads JSON as a stream. Its error sticks: after one, everything reads as
// nothing, so that callers ask once for each event.
type scanner struct {
	json *jsontext.Decoder
	from *bounded
	err  error
	key  []byte
	text []byte // of a string with escapes
}

const maxValue = 1 << 25 // bytes of a header, or of an event

// errCut is the error of a file that ends too early.
var errCut = errors.New("the file ends too early")

// bounded is a reader that gives no more than left bytes. The decoder keeps a whole value in memory.
type bounded struct {
	io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("a value has more than %d bytes", maxValue)
	}
	n, err := b.Reader.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

func newScanner(r io.Reader) *scanner {
	from := &bounded{r, maxValue}
	return &scanner{json: jsontext.NewDecoder(from, jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true)), from: from}
}

// fail keeps the first error.
func (s *scanner) fail(err error) {
	var syntax *jsontext.SyntacticError
	switch {
	case s.err != nil:
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // the latter also of a compressed file
		s.err = errCut
	case errors.As(err, &syntax):
		text := strings.TrimPrefix(syntax.Error(), "jsontext: ")
		if strings.Contains(text, "after object value") || strings.Contains(text, "after array element") {
			text += "; a text with a quote that is not escaped does this, which some versions of PyTorch's profiler write: " +
				"escape it at this byte, or record without record_shapes and with_stack"
		}
		s.err = fmt.Errorf("it is not valid JSON: %s", text)
	default:
		s.err = err
	}
}

// ok reports whether nothing went wrong so far.
func (s *scanner) ok() bool { return s.err == nil }

// peek returns the kind of the next token: '{', '}', '[', ']', '"', '0', 't', 'f' or 'n'; 0 for none.
func (s *scanner) peek() byte {
	if s.err != nil {
		return 0
	}
	return byte(s.json.PeekKind())
}

func (s *scanner) want(kind byte) {
	if s.err != nil {
		return
	}
	token, err := s.json.ReadToken()
	switch {
	case err != nil:
		s.fail(err)
	case byte(token.Kind()) != kind:
		s.fail(fmt.Errorf("expected %q, found %s", kind, token))
	}
}

// is reads the next token if it is of a kind.
func (s *scanner) is(kind byte) bool {
	if s.peek() != kind {
		return false
	}
	s.want(kind)
	return s.ok()
}

// raw reads a value and returns its text, which is valid until the next call.
func (s *scanner) raw() []byte {
	if s.err != nil {
		return nil
	}
	v, err := s.json.ReadValue()
	if err != nil {
		s.fail(err)
	}
	return v
}

func (s *scanner) skip() {
	if s.err == nil {
		if err := s.json.SkipValue(); err != nil {
			s.fail(err)
		}
	}
}

// string returns the text of a string, and that of another value as it stands. The bytes are valid until the next call.
func (s *scanner) string() []byte {
	v := s.raw()
	if len(v) < 2 || v[0] != '"' {
		return v
	}
	if bytes.IndexByte(v, '\\') >= 0 {
		s.text, _ = jsontext.AppendUnquote(s.text[:0], v)
		return s.text
	}
	return v[1 : len(v)-1]
}

// int reads an integer, also one in a string; 0 for another value.
func (s *scanner) int() int64 { return parseInt(s.string()) }

// uint is int for ids, which may use all 64 bits.
func (s *scanner) uint() uint64 { return parseUint(s.string()) }

// float reads a number; 0 for another value.
func (s *scanner) float() float64 {
	v, err := strconv.ParseFloat(string(s.raw()), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

func parseUint(b []byte) uint64 {
	if v, err := strconv.ParseUint(string(b), 10, 64); err == nil {
		return v
	}
	return uint64(parseInt(b))
}

// parseInt reads an integer, or the whole part of another number.
func parseInt(b []byte) int64 {
	if v, err := strconv.ParseInt(string(b), 10, 64); err == nil {
		return v
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || !(math.Abs(f) < 1<<63) {
		return 0
	}
	return int64(f)
}

// object reads an object, or skips another value. It calls value to read each value; the key is valid until value
// reads.
func (s *scanner) object(value func(key []byte)) {
	if s.peek() != '{' {
		s.skip()
		return
	}
	s.want('{')
	for s.ok() && s.peek() == '"' {
		s.key = append(s.key[:0], s.string()...) // reading on overwrites the buffer
		value(s.key)
	}
	s.want('}')
}

// array reads an array, or skips another value. It calls value to read each value.
func (s *scanner) array(value func()) {
	if s.peek() != '[' {
		s.skip()
		return
	}
	s.want('[')
	for s.ok() && s.peek() != ']' && s.peek() != 0 {
		value()
	}
	s.want(']')
}

// micros parses microseconds as nanoseconds: exactly, unless they are written with an exponent. What is finer than a
// nanosecond is rounded, as programs that compute with times write 0.3 as 0.29999999999998.
func micros(b []byte) (ns int64, ok bool) {
	whole, part, _ := bytes.Cut(b, point)
	notDigit := func(c byte) bool { return c < '0' || c > '9' }
	isExact := !slices.ContainsFunc(part, notDigit)
	if len(part) == 0 {
		isExact = len(whole) > 0 && !notDigit(whole[len(whole)-1])
	}
	if isExact {
		var digits [32]byte
		exact := append(append(digits[:0], whole...), part[:min(len(part), 3)]...)
		exact = append(exact, "000"[min(len(part), 3):]...)
		if v, err := strconv.ParseInt(string(exact), 10, 64); err == nil {
			if len(part) > 3 && part[3] >= '5' && b[0] == '-' {
				v--
			} else if len(part) > 3 && part[3] >= '5' {
				v++
			}
			return v, -MaxTime <= v && v <= MaxTime
		}
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || !(math.Abs(f) <= MaxTime/1000) {
		return 0, false
	}
	return int64(math.Round(f * 1000)), true
}

var point = []byte{'.'}
