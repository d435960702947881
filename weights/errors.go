package weights

import (
	"fmt"
	"strconv"
	"strings"
)

// Error says what is wrong with a file or a tensor, in one sentence.
type Error struct {
	File    string // path of the file, or the name it was given; "" if the tensor has no file
	Tensor  string // name of the tensor; "" if the problem is not about one
	Offset  int64  // byte of the file at which the problem was found; -1 if that says nothing
	Problem string // what is wrong, and what to do about it
	Err     error  // cause, for errors.Is and errors.As; nil if there is none

	said bool // Problem already says what Err says
}

// Error returns file, tensor, problem, place and cause, as far as they are known.
func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File + ": ")
	}
	if e.Tensor != "" {
		b.WriteString("tensor " + quote(e.Tensor) + ": ")
	}
	b.WriteString(e.Problem)
	if e.Offset >= 0 {
		fmt.Fprintf(&b, " (at byte %d)", e.Offset)
	}
	if e.Err != nil && !e.said {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// problem makes an Error about a file as a whole.
func problem(file, format string, args ...any) *Error {
	return &Error{File: file, Offset: -1, Problem: fmt.Sprintf(format, args...)}
}

// quote returns s in Go syntax, on one line and shortened: names come from files that nobody has checked.
func quote(s string) string {
	const most = 120
	if len(s) > most {
		return strconv.Quote(s[:most]) + "..."
	}
	return strconv.Quote(s)
}

// shapeString returns a shape as [2 3], shortened if it is long.
func shapeString[T int | uint64](shape []T) string {
	const most = 8
	if len(shape) > most {
		return strings.TrimSuffix(fmt.Sprint(shape[:most]), "]") + " ...]"
	}
	return fmt.Sprint(shape)
}

// because adds a cause that the problem already tells.
func (e *Error) because(err error) *Error {
	e.Err, e.said = err, true
	return e
}

// of adds a cause that is said after the problem.
func (e *Error) of(err error) *Error {
	e.Err = err
	return e
}
