package weights

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// benchFile writes a file like the shipped checkpoint: 21 MB of bfloat16, or as
// many elements in another type, in tensors of a megabyte or two.
func benchFile(b *testing.B, dtype DType) string {
	b.Helper()
	var tensors []Tensor
	for i := range 12 {
		read := func(dst []float32, off int) error {
			for j := range dst {
				dst[j] = float32((off+j)%2047-1023) / 4096 // no subnormals to speak of, as in weights
			}
			return nil
		}
		tensors = append(tensors, computed(b, fmt.Sprintf("h.%d.weight", i), []int{384, 6 * 384}, read))
	}
	path := filepath.Join(b.TempDir(), SingleFile)
	if err := Write(b.Context(), path, tensors, WriteOptions{DType: dtype}); err != nil {
		b.Fatal(err)
	}
	return path
}

// BenchmarkRead reads a checkpoint of 10.6 million elements that is in the page
// cache: opened once ("warm") or each time ("cold": opening and checking included). MB/s counts bytes of the file.
func BenchmarkRead(b *testing.B) {
	for _, dtype := range []DType{F32, BF16} {
		path := benchFile(b, dtype)
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		dst := make([]float32, 384*6*384)
		for how, open := range openers {
			b.Run(fmt.Sprintf("%v/%s/warm", dtype, how), func(b *testing.B) {
				c := opened(b, open, path)
				b.SetBytes(info.Size())
				for b.Loop() {
					for x := range c.All() {
						if err := x.ReadFloat32(dst, 0); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
		b.Run(fmt.Sprintf("%v/OpenFile/cold", dtype), func(b *testing.B) {
			b.SetBytes(info.Size())
			for b.Loop() {
				c, err := OpenFile(path)
				if err != nil {
					b.Fatal(err)
				}
				for x := range c.All() {
					if err := x.ReadFloat32(dst, 0); err != nil {
						b.Fatal(err)
					}
				}
				c.Close()
			}
		})
	}
}
