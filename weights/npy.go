package weights

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"
	"strings"
)

// WriteNPY writes a float32 array in NumPy's .npy format (version 1.0, type '<f4', C order), so that numpy.load can
// read it. The format is described at https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html. It
// returns an error if the shape has another number of elements than data, or is too large for the format.
func WriteNPY(w io.Writer, shape []int, data []float32) error {
	n := uint64(1)
	var tuple strings.Builder
	for _, dim := range shape {
		hi, lo := bits.Mul64(n, uint64(dim))
		if dim < 0 || hi != 0 || lo > maxElements {
			return problem("", "an array of shape %s cannot be written", shapeString(shape))
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
		return problem("", "an array of %d dimensions cannot be written", len(shape))
	}
	if n != uint64(len(data)) {
		return problem("", "an array of shape %s has %d elements, and %d are given", shapeString(shape), n, len(data))
	}
	b := []byte(header)
	binary.LittleEndian.PutUint16(b[8:], uint16(len(b)-prefix))
	if _, err := w.Write(b); err != nil {
		return err
	}
	_, err := w.Write(float32Bytes(data))
	return err
}
