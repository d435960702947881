package traces

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads JSON as a stream. Its error sticks: after one, everything reads as
// nothing, so that callers ask once for each event.
type scanner struct {
	r        io.Reader
	buf      []byte
	pos, end int
	before   int64 // bytes before buf
	cut      error // why r has no more
	err      error
	key      []byte
	text     []byte // of a string with escapes, or one that spans buffers
	number   []byte
	copying  []byte // what is read is also put here, up to maxValue
	isCopy   bool
}

const (
	maxText  = 1 << 20 // bytes of a string
	maxValue = 1 << 28 // bytes of a value that is kept whole: a header
	maxDepth = 200     // of values in values
)

// errCut is the error of a file that ends too early.
var errCut = errors.New("the file ends too early")

func newScanner(r io.Reader) *scanner { return &scanner{r: r, buf: make([]byte, 1<<18)} }

// offset returns how many bytes were read.
func (s *scanner) offset() int64 { return s.before + int64(s.pos) }

func (s *scanner) fail(err error) {
	if s.err == nil {
		s.err = err
		s.before += int64(s.pos)
	}
	s.pos, s.end = 0, 0
}

func (s *scanner) failf(format string, args ...any) {
	s.fail(fmt.Errorf("it is not valid JSON at byte %d: %s", s.offset(), fmt.Sprintf(format, args...)))
}

// fill reads more. It reports whether there is any.
func (s *scanner) fill() bool {
	if s.err != nil {
		return false
	}
	s.before += int64(s.end)
	s.pos, s.end = 0, 0
	for tries := 0; s.cut == nil; tries++ {
		n, err := s.r.Read(s.buf)
		if err == nil && n == 0 && tries == 100 {
			err = io.ErrNoProgress
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the latter of a compressed file
			err = errCut
		}
		s.cut = err
		if n > 0 {
			s.end = n
			return true
		}
	}
	return false
}

// next reads a byte; 0 at the end.
func (s *scanner) next() byte {
	if s.pos == s.end && !s.fill() {
		s.fail(s.cut)
		return 0
	}
	c := s.buf[s.pos]
	s.pos++
	if s.isCopy {
		s.keep(c)
	}
	return c
}

func (s *scanner) keep(c ...byte) {
	if len(s.copying)+len(c) > maxValue {
		s.failf("a value has more than %d bytes", maxValue)
		return
	}
	s.copying = append(s.copying, c...)
}

// peek skips white space and returns the byte after it, unread.
func (s *scanner) peek() byte {
	for {
		for s.pos < s.end {
			switch c := s.buf[s.pos]; c {
			case ' ', '\n', '\r', '\t':
				s.pos++
			default:
				return c
			}
		}
		if !s.fill() {
			s.fail(s.cut)
			return 0
		}
	}
}

// is reads a byte after white space if it is c.
func (s *scanner) is(c byte) bool {
	if s.peek() != c || s.err != nil {
		return false
	}
	s.next()
	return true
}

// want reads a byte after white space, which must be c.
func (s *scanner) want(c byte) {
	switch got := s.peek(); {
	case s.err != nil:
	case got == c:
		s.next()
	default:
		s.failf("expected %q, found %q", c, got)
	}
}

// ok reports whether nothing went wrong so far.
func (s *scanner) ok() bool { return s.err == nil }

// string reads a string. The bytes are valid until the next call.
func (s *scanner) string() []byte {
	s.want('"')
	if !s.ok() {
		return nil
	}
	// Most strings lie whole in the buffer and have no escapes.
	if i := bytes.IndexByte(s.buf[s.pos:s.end], '"'); i >= 0 && bytes.IndexByte(s.buf[s.pos:s.pos+i], '\\') < 0 && i <= maxText {
		found := s.buf[s.pos : s.pos+i]
		s.pos += i + 1
		if s.isCopy {
			s.keep(found...)
			s.keep('"')
		}
		return found
	}
	s.text = s.text[:0]
	for s.ok() {
		c := s.next()
		switch {
		case c == '"':
			return s.text
		case c == '\\':
			s.escape()
		default:
			s.text = append(s.text, c)
		}
		if len(s.text) > maxText {
			s.failf("a string has more than %d bytes", maxText)
		}
	}
	return nil
}

// escape reads what follows a backslash.
func (s *scanner) escape() {
	switch c := s.next(); c {
	case '"', '\\', '/':
		s.text = append(s.text, c)
	case 'b':
		s.text = append(s.text, '\b')
	case 'f':
		s.text = append(s.text, '\f')
	case 'n':
		s.text = append(s.text, '\n')
	case 'r':
		s.text = append(s.text, '\r')
	case 't':
		s.text = append(s.text, '\t')
	case 'u':
		r := s.hex()
		if utf16.IsSurrogate(r) {
			if s.pos+1 < s.end && s.buf[s.pos] == '\\' && s.buf[s.pos+1] == 'u' {
				s.next()
				s.next()
				r = utf16.DecodeRune(r, s.hex())
			} else { // half of a character, or one that spans buffers
				r = utf8.RuneError
			}
		}
		s.text = utf8.AppendRune(s.text, r)
	default:
		if s.ok() {
			s.failf("\\%c is no escape", c)
		}
	}
}

func (s *scanner) hex() rune {
	var r rune
	for range 4 {
		c := s.next()
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			if s.ok() {
				s.failf("%q is no hexadecimal digit", c)
			}
		}
	}
	return r
}

// literal reads a number, true, false or null. The bytes are valid until the
// next call.
func (s *scanner) literal() []byte {
	s.peek()
	s.number = s.number[:0]
	for s.ok() {
		if s.pos == s.end && !s.fill() {
			break
		}
		c := s.buf[s.pos]
		if c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			s.next()
			s.number = append(s.number, c)
			if len(s.number) > 400 {
				s.failf("a number has more than 400 digits")
			}
			continue
		}
		break
	}
	if len(s.number) == 0 && s.ok() { // peek saw a byte
		s.failf("%q begins no value", s.buf[s.pos])
	}
	return s.number
}

// int reads an integer, also one in a string; 0 for another value.
func (s *scanner) int() int64 {
	switch s.peek() {
	case '"':
		return parseInt(s.string())
	case '{', '[':
		s.skip(0)
		return 0
	}
	return parseInt(s.literal())
}

// uint is int for ids, which may use all 64 bits.
func (s *scanner) uint() uint64 {
	switch s.peek() {
	case '"':
		return parseUint(s.string())
	case '{', '[':
		s.skip(0)
		return 0
	}
	return parseUint(s.literal())
}

// bool reads true; false for another value.
func (s *scanner) bool() bool {
	switch s.peek() {
	case '{', '[', '"':
		s.skip(0)
		return false
	}
	return string(s.literal()) == "true"
}

// float reads a number; 0 for another value.
func (s *scanner) float() float64 {
	switch s.peek() {
	case '{', '[', '"':
		s.skip(0)
		return 0
	}
	v, err := strconv.ParseFloat(string(s.literal()), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

func parseUint(b []byte) uint64 {
	if len(b) > 0 && b[0] == '-' {
		return uint64(parseInt(b))
	}
	var v uint64
	for _, c := range b {
		if c < '0' || c > '9' || v > (math.MaxUint64-9)/10 {
			v, _ = strconv.ParseUint(string(b), 10, 64)
			return v
		}
		v = v*10 + uint64(c-'0')
	}
	return v
}

func parseInt(b []byte) int64 {
	if len(b) < 18 {
		var v int64
		digits := b
		if len(b) > 0 && b[0] == '-' {
			digits = b[1:]
		}
		for i, c := range digits {
			if c < '0' || c > '9' {
				if i == 0 {
					return 0
				}
				f, err := strconv.ParseFloat(string(b), 64)
				if err != nil || math.Abs(f) >= 1<<63 {
					return 0
				}
				return int64(f)
			}
			v = v*10 + int64(c-'0')
		}
		if len(digits) < len(b) {
			return -v
		}
		return v
	}
	v, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// micros parses microseconds as nanoseconds: exactly, unless they are written with an
// exponent.
func micros(b []byte) (ns int64, ok bool) {
	digits := b
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		digits = b[1:]
	}
	decimals, seen := -1, false
	for _, c := range digits {
		switch {
		case c == '.' && decimals < 0:
			decimals = 0
		case c >= '0' && c <= '9':
			seen = true
			if decimals == 3 { // finer than a nanosecond
				continue
			}
			if decimals >= 0 {
				decimals++
			}
			if ns > MaxTime {
				return 0, false
			}
			ns = ns*10 + int64(c-'0')
		default:
			f, err := strconv.ParseFloat(string(b), 64)
			if err != nil || math.Abs(f) > MaxTime/1000 || math.IsNaN(f) {
				return 0, false
			}
			return int64(math.Round(f * 1000)), true
		}
	}
	for d := max(decimals, 0); d < 3; d++ {
		if ns > MaxTime/10 {
			return 0, false
		}
		ns *= 10
	}
	if ns > MaxTime || !seen {
		return 0, false
	}
	if negative {
		ns = -ns
	}
	return ns, true
}

// skip reads a value and forgets it.
func (s *scanner) skip(depth int) {
	if depth > maxDepth {
		s.failf("values lie %d deep in others", depth)
		return
	}
	switch s.peek() {
	case '"':
		s.string()
	case '{':
		s.object(func([]byte) { s.skip(depth + 1) })
	case '[':
		s.array(func() { s.skip(depth + 1) })
	default:
		s.literal()
	}
}

// raw reads a value and returns its text.
func (s *scanner) raw() []byte {
	s.peek()
	s.isCopy, s.copying = true, nil
	s.skip(0)
	s.isCopy = false
	return s.copying
}

// object reads an object. It calls value to read each value; the key is valid until value
// reads.
func (s *scanner) object(value func(key []byte)) {
	s.want('{')
	if s.is('}') {
		return
	}
	for s.ok() {
		s.key = append(s.key[:0], s.string()...) // reading on overwrites the buffer
		s.want(':')
		if !s.ok() {
			return
		}
		value(s.key)
		if s.is(',') {
			continue
		}
		s.want('}')
		return
	}
}

// objectOrOther is object, or skips a value that is no object.
func (s *scanner) objectOrOther(value func(key []byte)) {
	if s.peek() != '{' {
		s.skip(0)
		return
	}
	s.object(value)
}

// array reads an array. It calls value to read each value.
func (s *scanner) array(value func()) {
	s.want('[')
	if s.is(']') {
		return
	}
	for s.ok() {
		value()
		if s.is(',') {
			continue
		}
		s.want(']')
		return
	}
}

// arrayOrOther is array, or skips a value that is no array.
func (s *scanner) arrayOrOther(value func()) {
	if s.peek() != '[' {
		s.skip(0)
		return
	}
	s.array(value)
}
