// Package ceilings measures what a device can do at most: the highest bandwidth and
// arithmetic rates reached by simple programs, and what a launch and a barrier
// over the whole device cost. A floor, the least time a pass could take, is made
// of them, in the same process and at the same clocks as what stands beside it.
//
// A [Set] is what was measured of one device, a GPU ([MeasureGPU]) or the CPU's
// threads ([MeasureCPU]). [Store] keeps it in a file in the user's cache folder, and
// [Load] finds it there by a key that names the device, the versions of what ran on
// it and, of a CPU, threads and kernels. [Set.Record] gives it to a trace.
package ceilings

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
)

// Ceilings are what was measured on a device.
type Ceilings struct {
	Copy    float64 `json:"copy_gb_per_s"` // bytes read and written
	Read    float64 `json:"read_gb_per_s"`
	L2Read  float64 `json:"l2_read_gb_per_s,omitempty"` // of data that stays in the L2 cache
	BF16    float64 `json:"bf16_tflop_per_s"`           // a large product by cuBLASLt, on random numbers
	F32     float64 `json:"f32_tflop_per_s"`            // the same in float32, without TF32
	Launch  float64 `json:"launch_us"`                  // an empty kernel after another, in a graph
	Barrier float64 `json:"barrier_us"`                 // all SMs meet
}

// String is one line for people.
func (c Ceilings) String() string {
	l2 := ""
	if c.L2Read > 0 {
		l2 = fmt.Sprintf("read from L2 %.0f GB/s, ", c.L2Read)
	}
	return fmt.Sprintf("copy %.0f GB/s, read %.0f GB/s, %sbf16 %.0f TFLOP/s, f32 %.1f TFLOP/s, launch in a graph %.2f us, grid barrier %.2f us",
		c.Copy, c.Read, l2, c.BF16, c.F32, c.Launch, c.Barrier)
}

// bandwidth returns the higher of the two, in bytes per second.
func (c Ceilings) bandwidth() float64 { return max(c.Copy, c.Read) * 1e9 }

// rate returns operations per second in the type whose elements have that size.
func (c Ceilings) rate(size float64) float64 {
	if size == 4 {
		return c.F32 * 1e12
	}
	return c.BF16 * 1e12
}

// Floor returns the least time for a cost: that of its bytes or of its
// operations, whichever is more.
func (c Ceilings) Floor(cost gpt2.Cost, sizes gpt2.Sizes) time.Duration {
	return seconds(max(float64(cost.Bytes(sizes))/c.bandwidth(), float64(cost.FLOPs)/c.rate(sizes.Weight)))
}

// PlanFloor returns the sum of the floors of a plan's steps.
func (c Ceilings) PlanFloor(p *gpt2.Plan, past int, sizes gpt2.Sizes) time.Duration {
	var sum time.Duration
	for _, s := range p.Steps {
		sum += c.Floor(s.Cost(past), sizes)
	}
	return sum
}

// WithBarriers adds to a plan's floor one grid barrier between steps, which
// anything that runs the steps in order on the whole device needs at least.
func (c Ceilings) WithBarriers(p *gpt2.Plan, floor time.Duration) time.Duration {
	return floor + time.Duration(float64(max(0, len(p.Steps)-1))*c.Barrier*1e3)
}

func seconds(s float64) time.Duration { return time.Duration(s * 1e9) }

// Measure measures a device that nothing else uses. It takes about a second, and
// up to 2 GiB of the device's memory.
func Measure(ctx context.Context, lib *cuda.Library, dev *cuda.Device) (Ceilings, error) {
	s, err := MeasureGPU(ctx, lib, dev)
	return s.GPU(), err
}

// MeasureGPU is [Measure] with all that was found.
func MeasureGPU(ctx context.Context, lib *cuda.Library, dev *cuda.Device) (s Set, err error) {
	b, err := NewBench(dev)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	for _, part := range []func() error{
		func() error { return b.bandwidths(&s) },
		func() error { return b.cache(&s) },
		func() error { return lib.OpenBLAS() },
		func() error { return b.product(&s, 8192, cuda.BF16) },
		func() error { return b.product(&s, 4096, cuda.F32) },
		func() error { return b.latencies(&s) },
	} {
		if ctx.Err() != nil {
			return s, context.Cause(ctx)
		}
		if err := part(); err != nil {
			return s, fmt.Errorf("the ceilings of the GPU cannot be measured: %w", err)
		}
	}
	if s.Key, err = KeyGPU(lib, dev); err != nil {
		return s, err
	}
	s.Device, s.Time = dev.Info().Name, time.Now().UTC().Truncate(time.Second)
	return s, nil
}

// Bench is a stream with what it takes to time work on it.
type Bench struct {
	Device     *cuda.Device
	Stream     *cuda.Stream
	start, end *cuda.Event
	closers    []func() error
}

// NewBench makes a stream and its events.
func NewBench(dev *cuda.Device) (*Bench, error) {
	b := &Bench{Device: dev}
	var err error
	if b.Stream, err = dev.NewStream(); err != nil {
		return nil, err
	}
	b.closers = append(b.closers, b.Stream.Close)
	for _, e := range []**cuda.Event{&b.start, &b.end} {
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

// Alloc allocates device memory, which Close frees.
func (b *Bench) Alloc(bytes int64) (*cuda.Buffer, error) {
	p, err := b.Device.Alloc(bytes)
	if err == nil {
		b.closers = append(b.closers, p.Free)
	}
	return p, err
}

// AllocHost allocates pinned host memory, which Close frees.
func (b *Bench) AllocHost(bytes int64) (*cuda.HostBuffer, error) {
	p, err := b.Device.AllocHost(bytes)
	if err == nil {
		b.closers = append(b.closers, p.Free)
	}
	return p, err
}

// Time returns, sorted, how long launches of f take on the device: repeat times,
// each divided by the number of passes that f holds.
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

// TimeGraph records n calls of f, which is told which call it is, in a graph, and
// returns the sorted times of one call over repeat replays after two more.
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

// Median returns the middle of sorted times.
func Median[T cmp.Ordered](sorted []T) T { return sorted[len(sorted)/2] }

// rate makes a value of sorted times in which an amount was done: bytes as GB/s,
// operations as TFLOP/s, each in units of scale.
func rate(name, unit, how string, amount, scale float64, times []time.Duration) Value {
	of := func(q float64) float64 { return amount / quantile(times, q).Seconds() / scale }
	return Value{Name: name, Unit: unit, Value: of(0.5), P10: of(0.9), P90: of(0.1), How: how}
}

// quantile returns a quantile of sorted times, never 0.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return max(1, sorted[int(q*float64(len(sorted)-1)+0.5)])
}

// bandwidths copies and reads 1 GiB, or an eighth of what is free.
func (b *Bench) bandwidths(s *Set) error {
	free, _, err := b.Device.Memory()
	if err != nil {
		return err
	}
	n := int64(min(1<<30, free/8)) &^ 4095
	src, err := b.Alloc(n)
	if err != nil {
		return err
	}
	dst, err := b.Alloc(n)
	if err != nil {
		return err
	}
	if err := b.Fill(src, cuda.BF16); err != nil {
		return err
	}
	measure := func(name, how string, bytes int64, f func() error) (Value, error) {
		times, err := b.Time(12, 1, f) // the first ones warm up
		if err != nil {
			return Value{}, err
		}
		return rate(name, gbs, how, float64(bytes), 1e9, times), nil
	}
	copied, err := measure("copy", "a kernel", 2*n, func() error { return b.Stream.CopyKernel(dst.Ptr(), src.Ptr(), n) })
	if err != nil {
		return err
	}
	byDriver, err := measure("copy", "the driver's copy", 2*n, func() error { return b.Stream.CopyOnDevice(dst, 0, src, 0, n) })
	if err != nil {
		return err
	}
	if byDriver.Value > copied.Value {
		copied = byDriver
	}
	read, err := measure("read", "a kernel", n, func() error { return b.Stream.ReadKernel(src.Ptr(), n, dst.Ptr()) })
	copied.Where, read.Where = "memory", "memory"
	s.Values = append(s.Values, copied, read)
	return err
}

// cache reads, over and over in a graph, data of half the size of the L2 cache. That
// takes a few microseconds, of which the start of a kernel is a part: so the time
// that the second half of the data adds counts too, and the higher rate is taken.
func (b *Bench) cache(s *Set) error {
	l2 := int64(b.Device.Info().L2Bytes)
	n := l2 / 2 &^ 4095
	if n == 0 {
		return nil
	}
	src, err := b.Alloc(n)
	if err != nil {
		return err
	}
	out, err := b.Alloc(256)
	if err != nil {
		return err
	}
	if err := errors.Join(b.Fill(src, cuda.BF16), b.Stream.ReadKernel(src.Ptr(), n, out.Ptr()), b.Stream.Synchronize()); err != nil {
		return err
	}
	read := func(bytes int64) ([]time.Duration, error) {
		return b.TimeGraph(21, 200, func(int) error { return b.Stream.ReadKernel(src.Ptr(), bytes, out.Ptr()) })
	}
	half, err := read(n / 2 &^ 4095)
	if err != nil {
		return err
	}
	whole, err := read(n)
	if err != nil {
		return err
	}
	v := l2Rate(n/2&^4095, half, n, whole)
	v.Size, v.Where = l2, "L2 cache"
	s.Values = append(s.Values, v)
	return nil
}

// l2Rate is the higher of two rates: of reading all, and of what all takes more than
// half of it. The second is not taken where it is more than twice the first: then
// noise is what it shows.
func l2Rate(halfBytes int64, half []time.Duration, bytes int64, whole []time.Duration) Value {
	v := rate("read", gbs, "a kernel, again and again in a graph", float64(bytes), 1e9, whole)
	more := Median(whole) - Median(half)
	if added := float64(bytes-halfBytes) / more.Seconds() / 1e9; more > 0 && added > v.Value && added < 2*v.Value {
		v = Value{Name: v.Name, Unit: v.Unit, Value: added, P10: v.P10, P90: max(added, v.P90), How: "what the second half of the data adds to a kernel's time"}
	}
	return v
}

// product multiplies two square matrices of random numbers, by the fastest of
// some algorithms.
func (b *Bench) product(s *Set, n int64, t cuda.DType) error {
	var p [3]*cuda.Buffer
	for i := range p {
		var err error
		if p[i], err = b.Alloc(n * n * int64(t.Size())); err != nil {
			return err
		}
		if err := b.Fill(p[i], t); err != nil {
			return err
		}
	}
	d := int32(n)
	a := cuda.LinearArgs{X: p[0].Ptr(), W: p[1].Ptr(), Y: p[2].Ptr(), M: d, N: d, K: d, LDX: d, LDY: d, DType: t, YType: t}
	if _, err := b.Stream.TuneLinear(a, 16); err != nil {
		return err
	}
	times, err := b.Time(12, 1, func() error { return b.Stream.Linear(a) })
	if err != nil {
		return err
	}
	name := map[cuda.DType]string{cuda.BF16: "bf16", cuda.F32: "f32"}[t]
	s.Values = append(s.Values, rate(name, tflops, fmt.Sprintf("a product of %d x %d x %d by cuBLASLt", n, n, n), 2*float64(n)*float64(n)*float64(n), 1e12, times))
	return nil
}

// latencies times empty launches in a graph, and barriers over the device.
func (b *Bench) latencies(s *Set) error {
	if err := errors.Join(b.Stream.Nothing(), b.Stream.Synchronize()); err != nil { // loads the kernel
		return err
	}
	times, err := b.TimeGraph(21, 200, func(int) error { return b.Stream.Nothing() })
	if err != nil {
		return err
	}
	s.Values = append(s.Values, Value{Name: "launch", Unit: us, Value: micro(Median(times)), P10: micro(quantile(times, 0.1)), P90: micro(quantile(times, 0.9)),
		How: "an empty kernel after another, in a graph"})
	counter, err := b.Alloc(256)
	if err != nil {
		return err
	}
	rounds := func(n int) ([]time.Duration, error) {
		return b.Time(11, 1, func() error {
			return errors.Join(b.Stream.Set(counter, 0, 0, 4), b.Stream.Barriers(counter.Ptr(), n))
		})
	}
	if _, err := rounds(1); err != nil {
		return err
	}
	few, err := rounds(100)
	if err != nil {
		return err
	}
	many, err := rounds(1100)
	if err != nil {
		return err
	}
	each := func(q float64) float64 { return max(0, micro(quantile(many, q)-Median(few))/1000) }
	s.Values = append(s.Values, Value{Name: "barrier", Unit: us, Value: each(0.5), P10: each(0.1), P90: each(0.9), How: "all SMs meet, in one kernel"})
	return nil
}

func micro(d time.Duration) float64 { return float64(d) / 1e3 }

// Fill writes random numbers from -1 to 1, the same ones each time, repeating
// after 2^22 elements. Zeros would run faster than real numbers do.
func (b *Bench) Fill(p *cuda.Buffer, t cuda.DType) error {
	random := rand.New(rand.NewPCG(3, 4))
	x := make([]float32, min(1<<22, p.Size()/int64(t.Size())))
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
func Encode(x []float32, t cuda.DType) []byte {
	data := make([]byte, 0, len(x)*t.Size())
	for _, v := range x {
		if t == cuda.F32 {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		} else {
			data = binary.LittleEndian.AppendUint16(data, uint16(roundBF16(v)>>16))
		}
	}
	return data
}

// Decode converts numbers of the device's type, F32 or BF16.
func Decode(data []byte, t cuda.DType) []float32 {
	x := make([]float32, len(data)/t.Size())
	for i := range x {
		if t == cuda.F32 {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		} else {
			x[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16)
		}
	}
	return x
}

// roundBF16 rounds to the nearest bfloat16, ties to even; the low half is 0. v is
// finite.
func roundBF16(v float32) uint32 {
	u := math.Float32bits(v)
	return (u + 0x7fff + u>>16&1) &^ 0xffff
}
