package weights

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"
	"strings"
)

// NPYWriter writes one float32 array in NumPy's .npy format (version 1.0, type
// '<f4', C order), a piece at a time, so that numpy.load can read it. The format
// is described at https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
type NPYWriter struct {
	w    io.Writer
	left uint64 // elements not yet written
	buf  []byte
	err  error // the first, which sticks
}

// NewNPYWriter writes the header of an array of the given shape to w. The array's
// elements follow by Write, in row-major order. It returns an error if a
// dimension is negative, or the shape is too large for the format.
func NewNPYWriter(w io.Writer, shape []int) (*NPYWriter, error) {
	n := uint64(1)
	var tuple strings.Builder
	for _, dim := range shape {
		hi, lo := bits.Mul64(n, uint64(dim))
		if dim < 0 || hi != 0 || lo > maxElements {
			return nil, problem("", "an array of shape %s cannot be written", shapeString(shape))
		}
		n = lo
		fmt.Fprintf(&tuple, "%d, ", dim)
	}
	dims := strings.TrimSuffix(tuple.String(), " ")
	if len(shape) > 1 { // as Python prints tuples: (), (2,), (2, 3)
		dims = strings.TrimSuffix(dims, ",")
	}
	header := "\x93NUMPY\x01\x00--{'descr': '<f4', 'fortran_order': False, 'shape': (" + dims + "), }"
	// Spaces and a newline make the data begin at a multiple of 64 bytes.
	const prefix = 10
	header += strings.Repeat(" ", 63-len(header)%64) + "\n"
	if len(header)-prefix > math.MaxUint16 {
		return nil, problem("", "an array of %d dimensions cannot be written", len(shape))
	}
	b := []byte(header)
	binary.LittleEndian.PutUint16(b[8:], uint16(len(b)-prefix))
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	return &NPYWriter{w: w, left: n}, nil
}

// Write writes the next elements. It returns an error if there are more than the
// shape has, or if writing fails.
func (a *NPYWriter) Write(x []float32) error {
	if a.err != nil {
		return a.err
	}
	if uint64(len(x)) > a.left {
		a.err = problem("", "%d elements more than its shape has were written to an array", uint64(len(x))-a.left)
		return a.err
	}
	const piece = 16384 // elements
	if a.buf == nil {
		a.buf = make([]byte, 4*piece)
	}
	for len(x) > 0 {
		n := min(piece, len(x))
		f32FromFloat32(a.buf[:4*n], x[:n])
		if _, a.err = a.w.Write(a.buf[:4*n]); a.err != nil {
			return a.err
		}
		a.left -= uint64(n)
		x = x[n:]
	}
	return nil
}

// Close returns an error if an earlier Write failed, or if elements are missing.
// It does not close the underlying writer.
func (a *NPYWriter) Close() error {
	if a.err == nil && a.left > 0 {
		a.err = problem("", "an array was left with %d elements missing", a.left)
	}
	return a.err
}
