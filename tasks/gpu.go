package tasks

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unsafe"

	"gpt2scope/cuda"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
	"gpt2scope/predict"
)

// kernels is the CUDA C++ of the tasks over arrays, which NVRTC compiles when one of them is first needed.
//
//go:embed kernels.cu
var kernels string

// GPUWay prepares a way on a GPU: launch queues it on a stream, and close, which may be nil,
// frees what was made for it. in and out are device memory.
type GPUWay func(g *GPUDevice, s Shape, in []cuda.Ptr, out cuda.Ptr, dtype string) (launch func(*cuda.Stream) error, close func() error, err error)

// GPUDevice is a GPU with the kernels of the tasks, and memory that they take turns to use.
type GPUDevice struct {
	Device *cuda.Device
	About  Device

	stream *cuda.Stream
	events [4]*cuda.Event
	module *cuda.Module
	device []*cuda.Buffer // of the inputs and the result, as large as was ever needed
	pinned []*cuda.HostBuffer
}

// OpenGPU makes what the tasks share on a device.
func OpenGPU(dev *cuda.Device) (g *GPUDevice, err error) {
	g = &GPUDevice{Device: dev}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	if g.stream, err = dev.NewStream(); err != nil {
		return g, err
	}
	for i := range g.events {
		if g.events[i], err = dev.NewEvent(); err != nil {
			return g, err
		}
	}
	return g, nil
}

// Function finds a kernel of kernels.cu, which NVRTC compiles at the first call.
func (g *GPUDevice) Function(name string) (*cuda.Function, error) {
	if g.module == nil {
		defer annotate.Range("compile the kernels of the tasks", nvtx.Blue)()
		var err error
		if g.module, err = g.Device.Compile("tasks/kernels.cu", kernels); err != nil {
			return nil, err
		}
	}
	return g.module.Function(name)
}

// Stream returns the stream that [Ready.Run] uses.
func (g *GPUDevice) Stream() *cuda.Stream { return g.stream }

// Close frees what the tasks used.
func (g *GPUDevice) Close() error {
	var errs []error
	if g.stream != nil {
		errs = append(errs, g.stream.Synchronize())
	}
	errs = append(errs, g.freeMemory())
	for _, e := range g.events {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	if g.stream != nil {
		errs = append(errs, g.stream.Close())
	}
	if g.module != nil {
		errs = append(errs, g.module.Free())
	}
	return errors.Join(errs...)
}

func (g *GPUDevice) freeMemory() error {
	var errs []error
	for _, b := range g.device {
		errs = append(errs, b.Free())
	}
	for _, h := range g.pinned {
		errs = append(errs, h.Free())
	}
	g.device, g.pinned = nil, nil
	return errors.Join(errs...)
}

// memory returns device memory of these sizes, which stays until more is needed.
func (g *GPUDevice) memory(sizes []int64) ([]*cuda.Buffer, error) {
	for i, size := range sizes {
		if i < len(g.device) && g.device[i].Size() >= size {
			continue
		}
		end := annotate.Range("allocate on the device", nvtx.Cyan)
		b, err := g.Device.Alloc(size)
		end()
		if err != nil {
			return nil, err
		}
		if i == len(g.device) {
			g.device = append(g.device, b)
			continue
		}
		err = g.device[i].Free()
		if g.device[i] = b; err != nil {
			return nil, err
		}
	}
	return g.device[:len(sizes)], nil
}

// pinnedMemory is memory in pinned host memory.
func (g *GPUDevice) pinnedMemory(sizes []int64) ([]*cuda.HostBuffer, error) {
	for i, size := range sizes {
		if i < len(g.pinned) && g.pinned[i].Size() >= size {
			continue
		}
		end := annotate.Range("allocate pinned memory", nvtx.Cyan)
		h, err := g.Device.AllocHost(size)
		end()
		if err != nil {
			return nil, err
		}
		if i == len(g.pinned) {
			g.pinned = append(g.pinned, h)
			continue
		}
		err = g.pinned[i].Free()
		if g.pinned[i] = h; err != nil {
			return nil, err
		}
	}
	return g.pinned[:len(sizes)], nil
}

// gpuRun runs a task on a GPU.
type gpuRun struct {
	*openArrays
	g      *GPUDevice
	memory predict.Memory
	launch func(*cuda.Stream) error
	close  func() error
	in     []*cuda.Buffer
	out    *cuda.Buffer
	pinned []*cuda.HostBuffer // of the inputs and the result
}

// prepareGPU makes a way ready on a GPU.
func (o *openArrays) prepareGPU(w Way, device string, memory predict.Memory) (Ready, error) {
	g := o.m.gpu(device)
	if g == nil {
		return nil, fmt.Errorf("GPU %s is not open", device)
	}
	var sizes []int64
	for _, v := range append(slices.Clone(o.in), o.out) {
		sizes = append(sizes, v.Bytes())
	}
	buffers, err := g.memory(sizes)
	if err != nil {
		return nil, err
	}
	r := &gpuRun{openArrays: o, g: g, memory: memory, in: buffers[:len(o.in)], out: buffers[len(o.in)]}
	if memory == MemoryPinned {
		if r.pinned, err = g.pinnedMemory(sizes); err != nil {
			return nil, err
		}
		for i, v := range o.in {
			copy(r.pinned[i].Bytes(), v.Memory.Bytes()[:v.Bytes()])
		}
	}
	for i, v := range o.in {
		if err := r.in[i].Write(0, v.Memory.Bytes()[:v.Bytes()]); err != nil {
			return nil, err
		}
	}
	var in []cuda.Ptr
	for _, b := range r.in {
		in = append(in, b.Ptr())
	}
	if r.launch, r.close, err = o.of.GPU[w.Variant](g, o.shape, in, r.out.Ptr(), o.dtype); err != nil {
		return nil, err
	}
	return r, nil
}

// Run spoils the result, and does the task once: copies, kernels, and what the host waits for.
func (r *gpuRun) Run(context.Context) (Times, error) {
	g, s, n := r.g, r.g.stream, r.openArrays.out.Bytes()
	host := r.openArrays.out.Memory.Bytes()[:n]
	if r.memory == MemoryPinned {
		host = r.pinned[len(r.in)].Bytes()[:n]
	}
	for _, i := range r.at {
		*(*float32)(unsafe.Pointer(&host[4*i])) = float32(math.NaN())
	}
	if err := errors.Join(s.Set(r.out, 0, 0xff, n), s.Synchronize()); err != nil { // NaN
		return unknown(), err
	}
	defer annotate.Range("measure", nvtx.Red)()
	if r.memory == MemoryPageable {
		return r.pageable(host)
	}
	times := unknown()
	e := g.events
	start := time.Now()
	errs := []error{s.Record(e[0])}
	if r.memory == MemoryPinned {
		end := annotate.Range("copy to the device", nvtx.Yellow)
		for i, b := range r.in {
			errs = append(errs, s.CopyToDevice(b, 0, r.pinned[i], 0, r.openArrays.in[i].Bytes()))
		}
		end()
	}
	errs = append(errs, s.Record(e[1]), r.launchRange(s), s.Record(e[2]))
	if r.memory == MemoryPinned {
		end := annotate.Range("copy to the host", nvtx.Yellow)
		errs = append(errs, s.CopyToHost(r.pinned[len(r.in)], 0, r.out, 0, n))
		end()
	}
	errs = append(errs, s.Record(e[3]))
	times.Submit = microseconds(time.Since(start))
	errs = append(errs, s.Synchronize())
	times.Wall = microseconds(time.Since(start))
	if err := errors.Join(errs...); err != nil {
		return times, err
	}
	var err error
	if times.Kernel, err = between(e[1], e[2]); err != nil || r.memory != MemoryPinned {
		return times, err
	}
	if times.H2D, err = between(e[0], e[1]); err != nil {
		return times, err
	}
	times.D2H, err = between(e[2], e[3])
	return times, err
}

// launchRange launches the way's kernels.
func (r *gpuRun) launchRange(s *cuda.Stream) error {
	defer annotate.Range("launch on the GPU", nvtx.Green)()
	return r.launch(s)
}

// pageable is Run with copies from and to ordinary memory, each of which the host waits for.
func (r *gpuRun) pageable(host []byte) (Times, error) {
	s, e, times := r.g.stream, r.g.events, unknown()
	start := time.Now()
	end := annotate.Range("copy to the device", nvtx.Yellow)
	for i, v := range r.openArrays.in {
		if err := r.in[i].Write(0, v.Memory.Bytes()[:v.Bytes()]); err != nil {
			return times, err
		}
	}
	end()
	copied := time.Now()
	errs := []error{s.Record(e[1]), r.launchRange(s), s.Record(e[2])}
	times.Submit = microseconds(time.Since(copied))
	errs = append(errs, s.Synchronize())
	done := time.Now()
	if err := errors.Join(errs...); err != nil {
		return times, err
	}
	end = annotate.Range("copy to the host", nvtx.Yellow)
	err := r.out.Read(0, host)
	end()
	now := time.Now()
	if err != nil {
		return times, err
	}
	times.H2D, times.D2H, times.Wall = microseconds(copied.Sub(start)), microseconds(now.Sub(done)), microseconds(now.Sub(start))
	times.Kernel, err = between(e[1], e[2])
	return times, err
}

// between returns the time between two events in microseconds.
func between(from, to *cuda.Event) (float64, error) {
	d, err := to.Since(from)
	return microseconds(d), err
}

func (r *gpuRun) Check(context.Context) error {
	switch r.memory {
	case MemoryPinned:
		bytes := r.pinned[len(r.in)].Bytes()
		return r.compare(func(i int) (float64, error) { return float64(*(*float32)(unsafe.Pointer(&bytes[4*i]))), nil })
	case MemoryPageable:
		return r.compare(func(i int) (float64, error) { return r.openArrays.out.At(i), nil })
	}
	word := make([]byte, 4)
	return r.compare(func(i int) (float64, error) {
		err := r.out.Read(int64(4*i), word)
		return float64(cuda.Decode(word, cuda.F32)[0]), err
	})
}

func (r *gpuRun) Close() error {
	if r.close != nil {
		return r.close()
	}
	return nil
}

// launchOf returns a way that launches one kernel of kernels.cu over n values: with blocks of
// threads for so many values each, or, if perBlock is 0, with one block.
func launchOf(kernel string, threads, perBlock int) GPUWay {
	return func(g *GPUDevice, s Shape, in []cuda.Ptr, out cuda.Ptr, _ string) (func(*cuda.Stream) error, func() error, error) {
		f, err := g.Function(kernel)
		if err != nil {
			return nil, nil, err
		}
		n, grid := s.Get("n"), 1
		if perBlock > 0 {
			grid = (n + perBlock - 1) / perBlock
		}
		arguments := []any{out}
		for _, p := range in {
			arguments = append(arguments, p)
		}
		arguments = append(arguments, int64(n))
		l := cuda.Launch{Grid: cuda.Dim{X: grid}, Block: cuda.Dim{X: threads}}
		return func(s *cuda.Stream) error { return f.Launch(s, l, arguments...) }, nil, nil
	}
}
