package weights

import (
	"fmt"
	"io"
)

// WriteNPY writes a float32 matrix in NumPy's .npy format (version 1.0, type '<f4', C order), so that numpy.load can
// read it. The format is described at https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
func WriteNPY(w io.Writer, rows, width int, data []float32) error {
	shape := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", rows, width)
	// A header of 118 bytes: the data begin at byte 128, a multiple of 64.
	if _, err := fmt.Fprintf(w, "\x93NUMPY\x01\x00\x76\x00%-117s\n", shape); err != nil {
		return err
	}
	_, err := w.Write(float32Bytes(data))
	return err
}
