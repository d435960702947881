package weights

import (
	"cmp"
	"math/bits"
	"os"
	"sync"
	"unsafe"
)

// Tensor is a named tensor: its type and shape, and the source of its elements. It is small and may be copied; the
// elements stay in their file until they are read. Its methods may be called from several goroutines at once.
type Tensor struct {
	Name  string
	DType DType // as stored; F32 for tensors made by NewTensor, and for Q8_0 of a GGUF file
	Shape []int // row-major; empty for a scalar. Not to be modified

	n     int      // number of elements
	file  *storage // the file that holds the elements,
	begin int64    // and their first byte in it;
	read  ReadFunc // or the function that computes them

	turned *Tensor // of which this is the transpose; nil for other tensors
	packed *packed // how a GGUF file stores them; nil for other tensors, see packing
}

// A ReadFunc fills dst with the elements [off, off+len(dst)) of a tensor, in row-major order. The range lies in the
// tensor. Which elements are read together must not change their values, and calls may come from several goroutines at
// once.
type ReadFunc func(dst []float32, off int) error

// NewTensor returns a tensor of type F32 whose elements are computed by read, each time they are read. It returns an
// error if shape has more elements than an int can count, as one with a negative dimension has.
func NewTensor(name string, shape []int, read ReadFunc) (Tensor, error) {
	t := Tensor{Name: name, DType: F32, read: read}
	if !setShape(&t, shape) {
		return Tensor{}, t.problem("shape %s has too many elements", shapeString(shape))
	}
	return t, nil
}

// setShape sets the shape of a tensor and the number of its elements. It is false if these are more than maxElements, as
// of a negative dimension.
func setShape[T int | uint64](t *Tensor, shape []T) bool {
	n := uint64(1)
	t.Shape = make([]int, len(shape))
	for i, dim := range shape {
		hi, lo := bits.Mul64(n, uint64(dim))
		if hi != 0 || lo > maxElements || uint64(dim) > maxElements {
			return false
		}
		n, t.Shape[i] = lo, int(dim)
	}
	t.n = int(n)
	return true
}

// maxElements bounds the elements of a tensor so that their bytes, in any type,
// can be counted in an int64, and they in an int.
const maxElements = min(1<<59, uint64(^uint(0)>>1))

// Elements returns the number of elements: the product of the shape.
func (t Tensor) Elements() int { return t.n }

// Bytes returns the size of the elements as they are stored.
func (t Tensor) Bytes() int64 { return byteSize(t.n, t.DType) }

// byteSize returns the size of n elements. A header has been checked to hold whole bytes of a packed type.
func byteSize(n int, d DType) int64 { return int64(n)/8*int64(d.Bits()) + int64(n)%8*int64(d.Bits())/8 }

// ReadFloat32 fills dst with the elements [off, off+len(dst)), converted to float32: exactly, but for F64. It
// returns an error, and leaves dst undefined, if the tensor's type is no float, if the range leaves the tensor, if the
// checkpoint has been closed, or if its file has changed or cannot be read.
func (t Tensor) ReadFloat32(dst []float32, off int) error {
	if err := t.checkRange(int64(off), int64(len(dst)), int64(t.n)); err != nil {
		return err
	}
	if t.read != nil {
		return t.wrap(t.read(dst, off))
	}
	if t.DType == F32 { // as it is stored
		return t.wrap(t.file.read(float32Bytes(dst), t.begin+4*int64(off)))
	}
	p := t.packing()
	if p == nil {
		return t.notFloat()
	}
	return t.wrap(p.read(dst, off))
}

// ReadBytes fills dst with the bytes [off, off+len(dst)) of the tensor as it is stored: little-endian, row-major, of
// any type. Its errors are those of ReadFloat32, except that every type can be read. Of a tensor that is computed they
// must be whole elements, in memory where float32 may lie.
func (t Tensor) ReadBytes(dst []byte, off int64) error {
	if err := t.checkRange(off, int64(len(dst)), t.Bytes()); err != nil {
		return err
	}
	if t.read == nil {
		return t.wrap(t.file.read(dst, t.begin+off))
	}
	if off%4 != 0 || len(dst)%4 != 0 {
		return t.problem("is computed, and read in whole elements")
	}
	return t.wrap(t.read(unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(dst))), len(dst)/4), int(off/4)))
}

// File returns the file that stores the elements and where they begin in it, nil if none does. It may be read in Hold.
func (t Tensor) File() (f *os.File, begin int64) {
	if t.file != nil {
		f, _ = t.file.file.(*os.File)
	}
	return f, t.begin
}

// Hold calls read, during which File stays open. Its errors are those of ReadBytes.
func (t Tensor) Hold(read func()) error {
	return t.wrap(t.file.hold(func() error {
		read()
		return nil
	}))
}

// ReadParallel is ReadBytes by several goroutines, because computing weights takes longer than copying them. Stored bytes
// of up to 2 MiB are copied sooner than goroutines start. If each is not nil, it is called with every part as soon as
// that is read, from several goroutines: the byte of dst at which the part begins, and its bytes. Parts are whole
// elements if off is a multiple of an element. The error returned is the first in the order of dst.
func (t Tensor) ReadParallel(dst []byte, off int64, workers int, each func(from int, part []byte)) error {
	const unit, few = 1 << 16, 2 << 20
	if t.read == nil && len(dst) <= few {
		workers = 1
	}
	size := (len(dst) + workers*unit - 1) / (workers * unit) * unit
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for i := range workers {
		from, to := i*size, min((i+1)*size, len(dst))
		if from >= to {
			break
		}
		read := func() {
			if errs[i] = t.ReadBytes(dst[from:to], off+int64(from)); errs[i] == nil && each != nil {
				each(from, dst[from:to])
			}
		}
		if to-from == len(dst) { // all of it: no goroutine is needed
			read()
		} else {
			wg.Go(read)
		}
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// Float32 returns the tensor with the type F32, to which its elements are converted when they are read.
func (t Tensor) Float32() (Tensor, error) {
	if !t.DType.IsFloat() {
		return Tensor{}, t.notFloat()
	}
	f, err := NewTensor(t.Name, t.Shape, t.ReadFloat32)
	f.packed = t.packing()
	return f, err
}

// checkRange returns an error unless [off, off+n) lies in [0, all).
func (t Tensor) checkRange(off, n, all int64) error {
	if off < 0 || off > all || n > all-off {
		return t.problem("cannot read %d from offset %d of %d", n, off, all)
	}
	return nil
}

// notFloat is the error for reading other types as floats.
func (t Tensor) notFloat() error {
	return t.problem("is of type %s, but only F32, F16, BF16 and F64 can be read as floats: convert the checkpoint to one "+
		"of these", t.DType)
}

func (t Tensor) problem(format string, args ...any) *Error {
	e := problem("", format, args...)
	e.Tensor = t.Name
	if t.file != nil {
		e.File = t.file.name
	}
	return e
}

// wrap adds the tensor's name to an error.
func (t Tensor) wrap(err error) error {
	switch e := err.(type) {
	case nil:
		return nil
	case *Error:
		if e.Tensor == "" {
			named := *e
			named.Tensor = t.Name
			return &named
		}
		return e
	}
	return t.problem("its elements cannot be computed").of(err)
}
