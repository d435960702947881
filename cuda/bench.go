package cuda

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"gpt2scope/weights"
)

// Bench is a stream with two events that time work on it, and the memory of that work.
type Bench struct {
	Device     *Device
	Stream     *Stream
	start, end *Event
	closers    []func() error
}

// NewBench makes a stream and its events.
func NewBench(dev *Device) (*Bench, error) {
	b := &Bench{Device: dev}
	var err error
	if b.Stream, err = dev.NewStream(); err != nil {
		return nil, err
	}
	b.closers = append(b.closers, b.Stream.Close)
	for _, e := range []**Event{&b.start, &b.end} {
		if *e, err = dev.NewEvent(); err != nil {
			return nil, errors.Join(err, b.Close())
		}
		b.closers = append(b.closers, (*e).Close)
	}
	return b, nil
}

// Close waits for the stream and frees all that the bench allocated.
func (b *Bench) Close() error {
	errs := []error{b.Stream.Synchronize()}
	for _, c := range slices.Backward(b.closers) {
		errs = append(errs, c())
	}
	b.closers = nil
	return errors.Join(errs...)
}

// OnClose has Close call a function before those that it was given earlier.
func (b *Bench) OnClose(f func() error) { b.closers = append(b.closers, f) }

// Alloc allocates device memory, which Close frees.
func (b *Bench) Alloc(bytes int64) (*Buffer, error) {
	p, err := b.Device.Alloc(bytes)
	if err == nil {
		b.closers = append(b.closers, p.Free)
	}
	return p, err
}

// AllocHost allocates pinned host memory, which Close frees.
func (b *Bench) AllocHost(bytes int64) (*HostBuffer, error) {
	p, err := b.Device.AllocHost(bytes)
	if err == nil {
		b.closers = append(b.closers, p.Free)
	}
	return p, err
}

// Time runs f so many times and returns the sorted times that its work took on the device, each divided by the number
// of passes that f consists of.
func (b *Bench) Time(repeat, passes int, f func() error) ([]time.Duration, error) {
	times := make([]time.Duration, repeat)
	for i := range times {
		if err := errors.Join(b.Stream.Record(b.start), f(), b.Stream.Record(b.end), b.end.Synchronize()); err != nil {
			return nil, err
		}
		d, err := b.end.Since(b.start)
		if err != nil {
			return nil, err
		}
		times[i] = d / time.Duration(passes)
	}
	slices.Sort(times)
	return times, nil
}

// TimeGraph captures n calls of f, which gets the number of the call, in a graph, and returns the sorted times of one
// call over repeat launches of it, after two for warm-up.
func (b *Bench) TimeGraph(repeat, n int, f func(i int) error) (times []time.Duration, err error) {
	g, err := b.Stream.Capture(func() error {
		for i := range n {
			if err := f(i); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Stream.Synchronize(), g.Free()) }()
	launch := func() error { return g.Launch(b.Stream) }
	if err := errors.Join(launch(), launch(), b.Stream.Synchronize()); err != nil {
		return nil, err
	}
	return b.Time(repeat, n, launch)
}

// Fill writes random numbers from -1 to 1, the same each time, which repeat after 2^20 elements. On zeros products
// would run faster than on the numbers of a model.
func (b *Bench) Fill(p *Buffer, t DType) error {
	random := rand.New(rand.NewPCG(3, 4))
	x := make([]float32, min(1<<20, p.Size()/int64(t.Size())))
	for i := range x {
		x[i] = 2*random.Float32() - 1
	}
	data := Encode(x, t)
	for at := int64(0); at < p.Size(); at += int64(len(data)) {
		if err := p.Write(at, data[:min(int64(len(data)), p.Size()-at)]); err != nil {
			return err
		}
	}
	return nil
}

// Encode converts numbers to the device's type, F32 or BF16.
func Encode(x []float32, t DType) []byte {
	data := make([]byte, 0, len(x)*t.Size())
	for _, v := range x {
		if t == F32 {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		} else {
			data = binary.LittleEndian.AppendUint16(data, weights.Float32ToBFloat16(v))
		}
	}
	return data
}

// Decode converts numbers of the device's type, F32 or BF16.
func Decode(data []byte, t DType) []float32 {
	x := make([]float32, len(data)/t.Size())
	DecodeInto(x, data, t)
	return x
}

// DecodeInto is [Decode] into a slice, all of which it fills.
func DecodeInto(dst []float32, data []byte, t DType) {
	data = data[:len(dst)*t.Size()]
	for i := range dst {
		if t == F32 {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		} else {
			dst[i] = weights.BFloat16ToFloat32(binary.LittleEndian.Uint16(data[2*i:]))
		}
	}
}
