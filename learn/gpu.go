package learn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gpt2scope/cuda"
)

// gpu is what an experiment on a GPU works with. Close frees all that was made by it.
type gpu struct {
	*cuda.Bench
	start, end *cuda.Event // of timeUs
	modules    []*cuda.Module
	err        error // the first of kernels, elements, buffers, host and spin: what they return is not to be used then
}

// onGPU makes a Run of an experiment that works with a gpu, which is closed after it.
func onGPU(run func(ctx context.Context, e *Env, g *gpu) (Data, error)) func(ctx context.Context, e *Env) (Data, error) {
	return func(ctx context.Context, e *Env) (Data, error) {
		if e.Device == nil {
			return nil, fmt.Errorf("%w: %s", errNotHere, e.NoGPU)
		}
		g, err := newGPU(e.Device)
		if err != nil {
			return nil, err
		}
		d, err := run(ctx, e, g)
		return d, errors.Join(err, g.close())
	}
}

// newGPU makes a stream and what times it.
func newGPU(dev *cuda.Device) (*gpu, error) {
	b, err := cuda.NewBench(dev)
	if err != nil {
		return nil, err
	}
	g := &gpu{Bench: b}
	for _, event := range []**cuda.Event{&g.start, &g.end} {
		if *event, err = dev.NewEvent(); err != nil {
			return nil, errors.Join(err, g.close())
		}
	}
	return g, nil
}

// close waits for the stream and frees all.
func (g *gpu) close() error {
	errs := []error{g.Stream.Synchronize()}
	for _, m := range g.modules {
		errs = append(errs, m.Free())
	}
	for _, event := range []*cuda.Event{g.start, g.end} {
		if event != nil {
			errs = append(errs, event.Close())
		}
	}
	return errors.Join(append(errs, g.Bench.Close())...)
}

// fail keeps the first error.
func (g *gpu) fail(err error) {
	if g.err == nil {
		g.err = err
	}
}

// kernels compiles a source and finds kernels of it.
func (g *gpu) kernels(s Source, names ...string) []*cuda.Function {
	out := make([]*cuda.Function, len(names))
	if g.err != nil {
		return out
	}
	m, err := g.Device.Compile(s.Name, s.Text)
	if err != nil {
		g.fail(err)
		return out
	}
	g.modules = append(g.modules, m)
	for i, name := range names {
		out[i], err = m.Function(name)
		g.fail(err)
	}
	return out
}

// elements returns a number of elements of so many bytes each: n, or what takes a quarter of the memory that is free,
// if that is less.
func (g *gpu) elements(n, bytes int) int {
	free, _, err := g.Device.Memory()
	g.fail(err)
	n = int(min(uint64(n), free/4/uint64(bytes)))
	if n < 1 {
		g.fail(fmt.Errorf("%w: the GPU has %d bytes of free memory", errNotHere, free))
	}
	return max(1, n)
}

// buffers allocates so many buffers of so many bytes and clears them.
func (g *gpu) buffers(count int, bytes int64) []*cuda.Buffer {
	out := make([]*cuda.Buffer, count)
	for i := range out {
		if g.err != nil {
			return out
		}
		var err error
		if out[i], err = g.Alloc(bytes); err == nil {
			err = g.Stream.Set(out[i], 0, 0, bytes)
		}
		g.fail(err)
	}
	g.fail(g.Stream.Synchronize())
	return out
}

// host allocates pinned memory and touches it.
func (g *gpu) host(bytes int64) *cuda.HostBuffer {
	if g.err != nil {
		return nil
	}
	b, err := g.AllocHost(bytes)
	if err == nil {
		clear(b.Bytes())
	}
	g.fail(err)
	return b
}

// timeUs returns the microseconds that what f queues takes on the device, by events.
func (g *gpu) timeUs(f func() error) (float64, error) {
	if err := errors.Join(g.Stream.Record(g.start), f(), g.Stream.Record(g.end), g.end.Synchronize()); err != nil {
		return 0, err
	}
	d, err := g.end.Since(g.start)
	return us(d), err
}

// repeated returns n measurements after one that warms up.
func repeated(ctx context.Context, n int, measure func() (us float64, err error)) ([]float64, error) {
	times := make([]float64, n+1)
	for i := range times {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		var err error
		if times[i], err = measure(); err != nil {
			return nil, err
		}
	}
	return times[1:], nil
}

// line is a launch of one-dimensional blocks.
func line(blocks, threads int) cuda.Launch {
	return cuda.Launch{Grid: cuda.Dim{X: blocks}, Block: cuda.Dim{X: threads}}
}

// us returns a duration in microseconds.
func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
