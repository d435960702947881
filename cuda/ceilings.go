package cuda

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gpt2scope/ceilings"
	"gpt2scope/internal/stats"
)

// CeilingsKey names the device and the versions of what runs on it, as a stored set of
// its ceilings does.
func (d *Device) CeilingsKey() (string, error) {
	driver, runtime, err := d.lib.Versions()
	if err != nil {
		return "", err
	}
	if err := d.lib.OpenBLAS(); err != nil { // its version is known only then
		return "", err
	}
	return fmt.Sprintf("%s, compute capability %d.%d, CUDA %d of the driver, %d of the library, cuBLASLt %d",
		d.info.Name, d.info.Major, d.info.Minor, driver, runtime, d.lib.BLASVersion()), nil
}

// MeasureCeilings measures what the device can do at most; nothing else should use it
// meanwhile. It takes about a second, and up to 2 GiB of the device's memory.
func (d *Device) MeasureCeilings(ctx context.Context) (s ceilings.Set, err error) {
	b, err := NewBench(d)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	for _, part := range []func() ([]ceilings.Value, error){
		b.bandwidths,
		b.cache,
		func() ([]ceilings.Value, error) { return nil, d.lib.OpenBLAS() },
		func() ([]ceilings.Value, error) { return b.product(8192, BF16, ceilings.BF16) },
		func() ([]ceilings.Value, error) { return b.product(4096, F32, ceilings.F32) },
		b.launch,
		b.barrier,
	} {
		if ctx.Err() != nil {
			return s, context.Cause(ctx)
		}
		values, err := part()
		if err != nil {
			return s, fmt.Errorf("the ceilings of the GPU cannot be measured: %w", err)
		}
		s.Values = append(s.Values, values...)
	}
	if s.Key, err = d.CeilingsKey(); err != nil {
		return s, err
	}
	s.Device, s.Time = d.info.Name, time.Now().UTC().Truncate(time.Second)
	return s, nil
}

// bandwidth fills in GB/s, of bytes that moved in each of the sorted times.
func bandwidth(v ceilings.Value, bytes int64, times []time.Duration) ceilings.Value {
	v.Unit = ceilings.GBs
	return perSecond(v, float64(bytes)/1e9, times)
}

// perSecond fills in a rate, of an amount that was done in each of the sorted times.
func perSecond(v ceilings.Value, amount float64, times []time.Duration) ceilings.Value {
	at := func(q float64) float64 { return amount / max(1, stats.Quantile(times, q)).Seconds() }
	v.Value, v.P10, v.P90 = at(0.5), at(0.9), at(0.1)
	return v
}

// bandwidths copies and reads 1 GiB, or an eighth of what is free.
func (b *Bench) bandwidths() ([]ceilings.Value, error) {
	free, _, err := b.Device.Memory()
	if err != nil {
		return nil, err
	}
	n := int64(min(1<<30, free/8)) &^ 4095
	src, err := b.Alloc(n)
	if err != nil {
		return nil, err
	}
	dst, err := b.Alloc(n)
	if err != nil {
		return nil, err
	}
	if err := b.Fill(src, BF16); err != nil {
		return nil, err
	}
	measure := func(name, how string, bytes int64, f func() error) (ceilings.Value, error) {
		times, err := b.Time(12, 1, f) // the first ones warm up
		if err != nil {
			return ceilings.Value{}, err
		}
		return bandwidth(ceilings.Value{Name: name, Where: "memory", How: how}, bytes, times), nil
	}
	copied, err := measure("copy", "a kernel", 2*n, func() error { return b.Stream.CopyKernel(dst.Ptr(), src.Ptr(), n) })
	if err != nil {
		return nil, err
	}
	byDriver, err := measure("copy", "the driver's copy", 2*n, func() error { return b.Stream.CopyOnDevice(dst, 0, src, 0, n) })
	if err != nil {
		return nil, err
	}
	if byDriver.Value > copied.Value {
		copied = byDriver
	}
	read, err := measure("read", "a kernel", n, func() error { return b.Stream.ReadKernel(src.Ptr(), n, dst.Ptr()) })
	return []ceilings.Value{copied, read}, err
}

// cache reads, over and over in a graph, data of half the size of the L2 cache. That
// takes a few microseconds, of which the start of a kernel is a part: so the time
// that the second half of the data adds counts too, and the higher rate is taken.
func (b *Bench) cache() ([]ceilings.Value, error) {
	l2 := int64(b.Device.Info().L2Bytes)
	n := l2 / 2 &^ 4095
	if n == 0 {
		return nil, nil
	}
	src, err := b.Alloc(n)
	if err != nil {
		return nil, err
	}
	out, err := b.Alloc(256)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(b.Fill(src, BF16), b.Stream.ReadKernel(src.Ptr(), n, out.Ptr()), b.Stream.Synchronize()); err != nil {
		return nil, err
	}
	read := func(bytes int64) ([]time.Duration, error) {
		return b.TimeGraph(21, 200, func(int) error { return b.Stream.ReadKernel(src.Ptr(), bytes, out.Ptr()) })
	}
	half, err := read(n / 2 &^ 4095)
	if err != nil {
		return nil, err
	}
	whole, err := read(n)
	if err != nil {
		return nil, err
	}
	v := l2Rate(n/2&^4095, half, n, whole)
	v.Size, v.Where = l2, "L2 cache"
	return []ceilings.Value{v}, nil
}

// l2Rate is the higher of two rates: of reading all, and of what all takes more than
// half of it. The second counts only up to twice the first: beyond that it is noise.
func l2Rate(halfBytes int64, half []time.Duration, bytes int64, whole []time.Duration) ceilings.Value {
	v := bandwidth(ceilings.Value{Name: "read", How: "a kernel, again and again in a graph"}, bytes, whole)
	more := stats.Median(whole) - stats.Median(half)
	if added := float64(bytes-halfBytes) / more.Seconds() / 1e9; more > 0 && added > v.Value && added < 2*v.Value {
		v.Value, v.P90, v.How = added, max(added, v.P90), "what the second half of the data adds to a kernel's time"
	}
	return v
}

// product multiplies two square matrices of random numbers, by the fastest of
// some algorithms.
func (b *Bench) product(n int64, t DType, name string) ([]ceilings.Value, error) {
	var p [3]*Buffer
	for i := range p {
		var err error
		if p[i], err = b.Alloc(n * n * int64(t.Size())); err != nil {
			return nil, err
		}
		if err := b.Fill(p[i], t); err != nil {
			return nil, err
		}
	}
	d := int32(n)
	a := LinearArgs{X: p[0].Ptr(), W: p[1].Ptr(), Y: p[2].Ptr(), M: d, N: d, K: d, LDX: d, LDY: d, DType: t, YType: t}
	if _, err := b.Stream.TuneLinear(a, 16); err != nil {
		return nil, err
	}
	times, err := b.Time(12, 1, func() error { return b.Stream.Linear(a) })
	if err != nil {
		return nil, err
	}
	v := ceilings.Value{Name: name, Unit: ceilings.TFLOPs, How: fmt.Sprintf("a product of %d x %d x %d by cuBLASLt", n, n, n)}
	return []ceilings.Value{perSecond(v, 2*float64(n)*float64(n)*float64(n)/1e12, times)}, nil
}

// launch times empty launches in a graph.
func (b *Bench) launch() ([]ceilings.Value, error) {
	if err := errors.Join(b.Stream.Nothing(), b.Stream.Synchronize()); err != nil { // loads the kernel
		return nil, err
	}
	times, err := b.TimeGraph(21, 200, func(int) error { return b.Stream.Nothing() })
	if err != nil {
		return nil, err
	}
	at := func(q float64) float64 { return micro(stats.Quantile(times, q)) }
	return []ceilings.Value{{Name: "launch", Unit: ceilings.Micro, Value: at(0.5), P10: at(0.1), P90: at(0.9), How: "an empty kernel after another, in a graph"}}, nil
}

// barrier times barriers over the device: what a thousand more of them add to a kernel.
func (b *Bench) barrier() ([]ceilings.Value, error) {
	counter, err := b.Alloc(256)
	if err != nil {
		return nil, err
	}
	rounds := func(n int) ([]time.Duration, error) {
		return b.Time(11, 1, func() error {
			return errors.Join(b.Stream.Set(counter, 0, 0, 4), b.Stream.Barriers(counter.Ptr(), n))
		})
	}
	if _, err := rounds(1); err != nil {
		return nil, err
	}
	few, err := rounds(100)
	if err != nil {
		return nil, err
	}
	many, err := rounds(1100)
	if err != nil {
		return nil, err
	}
	at := func(q float64) float64 { return max(0, micro(stats.Quantile(many, q)-stats.Median(few))/1000) }
	return []ceilings.Value{{Name: "barrier", Unit: ceilings.Micro, Value: at(0.5), P10: at(0.1), P90: at(0.9), How: "all SMs meet, in one kernel"}}, nil
}

func micro(d time.Duration) float64 { return float64(d) / 1e3 }
