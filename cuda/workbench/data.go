package workbench

import (
	"cmp"
	"encoding/binary"
	"math"

	"gpt2scope/cuda"
)

// array is numbers on the device, in several copies.
type array struct {
	host   []float32 // what copy 0 held first, rounded to the type; nil of an output
	copies []*cuda.Buffer
	dtype  cuda.DType
}

// ptr returns the address of a copy; an array may have fewer than there are sets.
func (a *array) ptr(set int) cuda.Ptr { return a.copies[set%len(a.copies)].Ptr() }

// restore writes into copy 0 what it held first.
func (a *array) restore() error { return a.copies[0].Write(0, cuda.Encode(a.host, a.dtype)) }

// numbers makes an array of n random numbers from -scale to scale.
func (b *bench) numbers(n int, t cuda.DType, copies int, scale float32) *array {
	x := make([]float32, n)
	for i := range x {
		x[i] = scale * (2*b.random.Float32() - 1)
	}
	data := cuda.Encode(x, t)
	a := &array{host: cuda.Decode(data, t), dtype: t}
	for range copies {
		p := b.alloc(int64(len(data)))
		if b.err != nil {
			return a
		}
		if a.copies = append(a.copies, p); p == a.copies[0] {
			b.err = p.Write(0, data)
		} else {
			b.err = b.Stream.CopyOnDevice(p, 0, a.copies[0], 0, int64(len(data)))
		}
	}
	b.err = cmp.Or(b.err, b.Stream.Synchronize())
	return a
}

// output makes an array to be written, one copy for each set.
func (b *bench) output(n int, t cuda.DType) *array {
	a := &array{dtype: t}
	for range b.sets {
		a.copies = append(a.copies, b.alloc(int64(n*t.Size())))
	}
	return a
}

func (b *bench) ints(x []int32) *cuda.Buffer {
	p := b.alloc(int64(4 * len(x)))
	if b.err == nil {
		data, err := binary.Append(nil, binary.LittleEndian, x)
		b.err = cmp.Or(err, p.Write(0, data))
	}
	return p
}

// positions are the tokens in the cache of each sequence.
func (b *bench) positions() *cuda.Buffer {
	x := make([]int32, b.B)
	for i := range x {
		x[i] = int32(b.Past)
	}
	return b.ints(x)
}

func (b *bench) alloc(bytes int64) (p *cuda.Buffer) {
	if b.err == nil {
		p, b.err = b.Alloc(bytes)
	}
	return p
}

// zeroed allocates memory that starts as zeros, at least 256 bytes.
func (b *bench) zeroed(bytes int64) (*cuda.Buffer, error) {
	p, err := b.Alloc(max(256, bytes))
	if err != nil {
		return nil, err
	}
	return p, b.Stream.Set(p, 0, 0, p.Size())
}

// poison fills copy 0 with NaN, so that an element that no kernel writes is found.
func (b *bench) poison(a *array) error {
	return cmp.Or(b.Stream.Set(a.copies[0], 0, 0xff, a.copies[0].Size()), b.Stream.Synchronize())
}

// compare checks up to 8 rows of copy 0 of y (rows, width), the first and the last among them: want gives a row by the
// formula. It returns max |difference| / max |value|, infinite where an element is not a number.
func (b *bench) compare(y *array, rows, width int, want func(row int) []float64) (float64, error) {
	off, peak, n := 0.0, 0.0, min(rows, 8)
	data := make([]byte, width*y.dtype.Size())
	for i := range n {
		row := i * (rows - 1) / max(1, n-1)
		if err := y.copies[0].Read(int64(row*len(data)), data); err != nil {
			return 0, err
		}
		got := cuda.Decode(data, y.dtype)
		for j, v := range want(row) {
			d := math.Abs(float64(got[j]) - v)
			if math.IsNaN(d) {
				return math.Inf(1), nil
			}
			off, peak = max(off, d), max(peak, math.Abs(v))
		}
	}
	return off / peak, nil
}
