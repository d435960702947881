package cuda

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gpt2scope/ceilings"
)

// CeilingsKey names the device and the versions of what runs on it, as a stored set of its ceilings does.
func (d *Device) CeilingsKey() (string, error) {
	driver, runtime := d.lib.Versions()
	if err := d.lib.OpenBLAS(); err != nil { // its version is known only then
		return "", err
	}
	return fmt.Sprintf("%s, compute capability %d.%d, CUDA %d of the driver, %d of the library, cuBLASLt %d",
		d.info.Name, d.info.Major, d.info.Minor, driver, runtime, d.lib.BLASVersion()), nil
}

// ceilingRounds is how often each ceiling is measured.
var ceilingRounds = ceilings.Rounds{Least: 3, Most: 8}

// MeasureCeilings measures what the device can do at most; nothing else should use it meanwhile. It takes about a
// second, and up to 3 GiB of the device's memory.
func (d *Device) MeasureCeilings(ctx context.Context) (s ceilings.Set, err error) {
	b, err := NewBench(d)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	var all []ceilings.Quantity
	for _, part := range []func() ([]ceilings.Quantity, error){
		b.bandwidths,
		b.cache,
		func() ([]ceilings.Quantity, error) { return nil, d.lib.OpenBLAS() },
		func() ([]ceilings.Quantity, error) { return b.product(8192, BF16, ceilings.BF16) },
		func() ([]ceilings.Quantity, error) { return b.product(4096, F32, ceilings.F32) },
		b.launch,
		func() ([]ceilings.Quantity, error) { return b.hop(2) },
		func() ([]ceilings.Quantity, error) { return b.hop(4) },
	} {
		if ctx.Err() != nil {
			return s, context.Cause(ctx)
		}
		quantities, err := part()
		if err != nil {
			return s, fmt.Errorf("the ceilings of the GPU cannot be measured: %w", err)
		}
		all = append(all, quantities...)
	}
	if s.Values, err = ceilings.Measure(ctx, ceilingRounds, all); err != nil {
		if ctx.Err() != nil {
			return s, context.Cause(ctx)
		}
		return s, fmt.Errorf("the ceilings of the GPU cannot be measured: %w", err)
	}
	if s.Key, err = d.CeilingsKey(); err != nil {
		return s, err
	}
	s.Device, s.Time = d.info.Name, time.Now().UTC().Truncate(time.Second)
	s.Judge()
	return s, nil
}

// way measures work on the device, as an amount per second: f does the amount.
func (b *Bench) way(name string, amount float64, f func() error) ceilings.Way {
	return ceilings.Way{Name: name, Round: func() ([]float64, error) {
		if err := f(); err != nil { // warms up
			return nil, err
		}
		times, err := b.Time(11, 1, f)
		if err != nil {
			return nil, err
		}
		rates := make([]float64, len(times))
		for i, d := range times {
			rates[i] = amount / max(1, d).Seconds()
		}
		return rates, nil
	}}
}

// bandwidths copies and reads 1 GiB, or an eighth of what is free.
func (b *Bench) bandwidths() ([]ceilings.Quantity, error) {
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
	memory := func(name string, ways ...ceilings.Way) ceilings.Quantity {
		return ceilings.Quantity{Value: ceilings.Value{Name: name, Unit: ceilings.GBs, Where: "memory"}, Ways: ways}
	}
	gigabytes := float64(n) / 1e9
	return []ceilings.Quantity{
		memory(ceilings.Copy,
			b.way("a kernel", 2*gigabytes, func() error { return b.Stream.CopyKernel(dst.Ptr(), src.Ptr(), n) }),
			b.way("the driver's copy", 2*gigabytes, func() error { return b.Stream.CopyOnDevice(dst, 0, src, 0, n) })),
		memory(ceilings.Read,
			b.way("a kernel", gigabytes, func() error { return b.Stream.ReadKernel(src.Ptr(), n, dst.Ptr()) })),
	}, nil
}

// cacheReads is how many bytes a measurement of the L2 cache reads: so many that the start of the kernel is a small
// part of its time.
const cacheReads = 4 << 30

// cache reads data that the L2 cache holds over and over in one kernel. The data are as many turns for each SM as its
// threads can read at once, as long as they take no more than a quarter of the cache: half of the caches of recent GPUs
// is farther from an SM than the other half, and is slower.
func (b *Bench) cache() ([]ceilings.Quantity, error) {
	info := b.Device.Info()
	l2, turns := int64(info.L2Bytes), info.Processors
	q := ceilings.Quantity{Value: ceilings.Value{Name: ceilings.Read, Unit: ceilings.GBs, Where: "L2 cache", Size: l2}}
	var n int
	for n = 0; n < 4 && int64(n+1)*int64(turns)*CacheTurn <= l2/4; n++ {
	}
	if n == 0 {
		return nil, nil
	}
	src, err := b.Alloc(int64(n) * int64(turns) * CacheTurn)
	if err != nil {
		return nil, err
	}
	out, err := b.Alloc(256)
	if err != nil {
		return nil, err
	}
	if err := b.Fill(src, BF16); err != nil {
		return nil, err
	}
	for ; n > 0; n-- {
		bytes := int64(n) * int64(turns) * CacheTurn
		passes := int(cacheReads / bytes)
		q.Ways = append(q.Ways, b.way(fmt.Sprintf("a kernel, %.1f MiB again and again", float64(bytes)/(1<<20)),
			float64(bytes)*float64(passes)/1e9,
			func() error { return b.Stream.ReadAgain(src.Ptr(), int(bytes/CacheTurn), passes, out.Ptr()) }))
	}
	return []ceilings.Quantity{q}, nil
}

// product multiplies two square matrices of random numbers, by the fastest of some algorithms.
func (b *Bench) product(n int64, t DType, name string) ([]ceilings.Quantity, error) {
	free, _, err := b.Device.Memory()
	if err != nil {
		return nil, err
	}
	for n > 1024 && uint64(3*n*n*int64(t.Size())) > free/8 { // of a GPU that others fill
		n /= 2
	}
	var p [3]*Buffer
	for i := range p {
		if p[i], err = b.Alloc(n * n * int64(t.Size())); err != nil {
			return nil, err
		}
		if err := b.Fill(p[i], t); err != nil {
			return nil, err
		}
	}
	d := int32(n)
	a := LinearArgs{X: p[0].Ptr(), W: p[1].Ptr(), Y: p[2].Ptr(), M: d, N: d, K: d, LDX: d, LDY: d, DType: t, YType: t}
	if err := b.Stream.TuneLinear(a, 16); err != nil {
		return nil, err
	}
	return []ceilings.Quantity{{Value: ceilings.Value{Name: name, Unit: ceilings.TFLOPs}, Ways: []ceilings.Way{
		b.way(fmt.Sprintf("a product of %d x %d x %d by cuBLASLt", n, n, n), 2*float64(n)*float64(n)*float64(n)/1e12,
			func() error { return b.Stream.Linear(a) })}}}, nil
}

// launch times empty launches in a graph.
func (b *Bench) launch() ([]ceilings.Quantity, error) {
	if err := errors.Join(b.Stream.EmptyKernel(), b.Stream.Synchronize()); err != nil { // loads the kernel
		return nil, err
	}
	round := func() ([]float64, error) {
		times, err := b.TimeGraph(11, 200, func(int) error { return b.Stream.EmptyKernel() })
		return micros(times), err
	}
	return []ceilings.Quantity{{Value: ceilings.Value{Name: "launch", Unit: ceilings.Micro},
		Ways: []ceilings.Way{{Name: "an empty kernel after another, in a graph", Round: round}}}}, nil
}

// hop times the exchange of a vector of which each SM writes so many packets. It measures nothing if the device has no
// kernel for that.
func (b *Bench) hop(packets int) ([]ceilings.Quantity, error) {
	processors := b.Device.Info().Processors
	work, err := b.Alloc(HopBytes(packets, processors))
	if err != nil {
		return nil, err
	}
	if err := work.Write(0, make([]byte, work.Size())); err != nil {
		return nil, err
	}
	times := func(rounds int) ([]float64, error) {
		times, err := b.Time(11, 1, func() error { return b.Stream.Hops(work, packets, rounds) })
		if err != nil {
			return nil, err
		}
		return micros(times), HopsCompleted(work)
	}
	if _, err := times(1); errors.Is(err, ErrNoKernel) {
		return nil, nil
	} else if err != nil { // it loads the kernel
		return nil, err
	}
	round := func() ([]float64, error) { // what a thousand more of them add to the time of a kernel
		few, err := times(100)
		if err != nil {
			return nil, err
		}
		many, err := times(1100)
		for i, us := range many {
			many[i] = max(0, us-few[len(few)/2]) / 1000
		}
		return many, err
	}
	how := fmt.Sprintf("every SM reads 12 bytes x %d of every other, in one kernel", packets)
	return []ceilings.Quantity{{Value: ceilings.Value{Name: "hop", Unit: ceilings.Micro,
		Size: int64(12 * packets * processors)}, Ways: []ceilings.Way{{Name: how, Round: round}}}}, nil
}

func micros(times []time.Duration) []float64 {
	us := make([]float64, len(times))
	for i, d := range times {
		us[i] = float64(d) / 1e3
	}
	return us
}
