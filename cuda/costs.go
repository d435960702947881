package cuda

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gpt2scope/ceilings"
)

// Copies that are measured.
const (
	rateBytes    = 64 << 20 // of a copy whose rate is measured, at most
	latencyBytes = 4        // of a copy whose latency is measured
	roundCopies  = 5        // of one round
)

// measureCosts measures what work on the device costs besides its kernels: copies from and to pinned and pageable host
// memory, and a compilation by NVRTC. Times are those of the host, from the call until the data are there. What cannot
// be measured is left out; err says why.
func (d *Device) measureCosts(ctx context.Context) (values []ceilings.Value, err error) {
	b, err := NewBench(d)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	measured, err := b.transfers()
	if err == nil {
		values, err = ceilings.Measure(ctx, ceilings.Rounds{Least: 3, Most: 3}, measured)
	}
	compiled, failed := ceilings.Measure(ctx, ceilings.Rounds{Least: 1, Most: 1}, []ceilings.Quantity{d.compiling()})
	return append(values, compiled...), errors.Join(err, failed)
}

// transfers are copies in both directions: their rate, and the time of a few bytes.
func (b *Bench) transfers() ([]ceilings.Quantity, error) {
	free, _, err := b.Device.Memory()
	if err != nil {
		return nil, err
	}
	n := int64(min(rateBytes, free/8)) &^ 4095
	if n < latencyBytes {
		return nil, fmt.Errorf("%d bytes of the device's memory are free, too few for a copy", free)
	}
	device, err := b.Alloc(n)
	if err != nil {
		return nil, err
	}
	pinned, err := b.AllocHost(n)
	if err != nil {
		return nil, err
	}
	pageable := make([]byte, n)
	for i := range pageable { // its pages are there before the first copy
		pageable[i], pinned.Bytes()[i] = byte(i), byte(i)
	}
	var out []ceilings.Quantity
	for _, c := range []struct {
		name, where string
		copy        func(n int64) error
	}{
		{ceilings.H2D, "pinned memory", func(n int64) error {
			return errors.Join(b.Stream.CopyToDevice(device, 0, pinned, 0, n), b.Stream.Synchronize())
		}},
		{ceilings.D2H, "pinned memory", func(n int64) error {
			return errors.Join(b.Stream.CopyToHost(pinned, 0, device, 0, n), b.Stream.Synchronize())
		}},
		{ceilings.H2D, "pageable memory", func(n int64) error { return device.Write(0, pageable[:n]) }},
		{ceilings.D2H, "pageable memory", func(n int64) error { return device.Read(0, pageable[:n]) }},
	} {
		round := func(n int64, value func(time.Duration) float64) func() ([]float64, error) {
			return func() ([]float64, error) {
				var values []float64
				for i := range roundCopies + 1 {
					start := time.Now()
					if err := c.copy(n); err != nil {
						return nil, err
					}
					if i > 0 { // the first warms up
						values = append(values, value(max(1, time.Since(start))))
					}
				}
				return values, nil
			}
		}
		out = append(out,
			ceilings.Quantity{Value: ceilings.Value{Name: c.name, Unit: ceilings.GBs, Where: c.where},
				Ways: []ceilings.Way{{Name: fmt.Sprintf("copies of %d MiB", n>>20),
					Round: round(n, func(t time.Duration) float64 { return float64(n) / float64(t) })}}},
			ceilings.Quantity{Value: ceilings.Value{Name: c.name, Unit: ceilings.Micro, Where: c.where},
				Ways: []ceilings.Way{{Name: fmt.Sprintf("copies of %d bytes", latencyBytes),
					Round: round(latencyBytes, func(t time.Duration) float64 { return float64(t) / 1e3 })}}})
	}
	return out, nil
}

// compiling is a compilation by NVRTC of a kernel that does nothing, and its loading. The source differs each time, so
// that no cache has it.
func (d *Device) compiling() ceilings.Quantity {
	return ceilings.Quantity{Value: ceilings.Value{Name: ceilings.NVRTC, Unit: ceilings.Micro},
		Ways: []ceilings.Way{{Name: "a kernel that does nothing, compiled and loaded", Round: func() ([]float64, error) {
			var values []float64
			for i := range 4 {
				source := fmt.Sprintf("extern \"C\" __global__ void nothing%d_%d() {}\n", time.Now().UnixNano(), i)
				start := time.Now()
				m, err := d.Compile("nothing.cu", source)
				took := time.Since(start)
				if err != nil {
					return nil, err
				}
				if err := m.Free(); err != nil {
					return nil, err
				}
				if i > 0 { // the first opens NVRTC
					values = append(values, float64(max(1, took))/1e3)
				}
			}
			return values, nil
		}}}}
}
