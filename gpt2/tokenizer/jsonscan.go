package tokenizer

import (
	"encoding/json"
	"strings"
)

// A jsonScan reads the two large parts of tokenizer.json, an object from strings to numbers and an array of strings,
// several times faster than encoding/json, and sees keys that stand there twice. The text must be valid JSON, which
// encoding/json checks first: so here, whatever is not expected is another type and not a broken file.
type jsonScan struct {
	text string
	pos  int
}

// peek returns the first byte of what comes next, 0 at the end.
func (s *jsonScan) peek() byte {
	for ; s.pos < len(s.text); s.pos++ {
		switch c := s.text[s.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// take moves past c if it comes next.
func (s *jsonScan) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.pos++
	return true
}

// str returns the string that comes next, and false if another type does.
func (s *jsonScan) str() (string, bool) {
	if s.peek() != '"' {
		return "", false
	}
	start := s.pos
	for s.pos++; ; s.pos++ {
		n := strings.IndexAny(s.text[s.pos:], `"\`)
		if n < 0 {
			return "", false
		}
		if s.pos += n; s.text[s.pos] == '"' {
			break
		}
		s.pos++ // what is escaped
	}
	s.pos++
	literal := s.text[start:s.pos]
	if !strings.Contains(literal, `\`) {
		return literal[1 : len(literal)-1], true
	}
	var v string
	err := json.Unmarshal([]byte(literal), &v)
	return v, err == nil
}

// number returns the text of the number that comes next, and false if another type does.
func (s *jsonScan) number() (string, bool) {
	if c := s.peek(); c != '-' && (c < '0' || c > '9') {
		return "", false
	}
	start := s.pos
	for s.pos < len(s.text) && strings.IndexByte("+-.0123456789eE", s.text[s.pos]) >= 0 {
		s.pos++
	}
	return s.text[start:s.pos], true
}
