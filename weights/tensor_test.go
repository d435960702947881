package weights

import (
	"bytes"
	"testing"
)

// TestReadParallel: any number of workers gives the bytes of ReadBytes, and is told of each of them once.
func TestReadParallel(t *testing.T) {
	values := make([]float32, 7*1<<14+3) // two are left out: of seven workers the last has an element more than whole units
	for i := range values {
		values[i] = float32(i)
	}
	tensor := tensorOf(t, "x", []int{len(values)}, values)
	want := make([]byte, tensor.Bytes()-8)
	must(t, tensor.ReadBytes(want, 4))
	for _, workers := range []int{1, 2, 3, 7, 64} {
		got, told := make([]byte, len(want)), make([]byte, len(want))
		must(t, tensor.ReadParallel(got, 4, workers, func(from int, part []byte) {
			if from%4 != 0 || len(part)%4 != 0 {
				t.Errorf("%d workers: a part of %d bytes from %d on cuts elements", workers, len(part), from)
			}
			copy(told[from:], part)
		}))
		if !bytes.Equal(got, want) || !bytes.Equal(told, want) {
			t.Errorf("%d workers read other bytes", workers)
		}
		if err := tensor.ReadParallel(got, tensor.Bytes(), workers, nil); err == nil {
			t.Errorf("%d workers read past the end", workers)
		}
	}
}
