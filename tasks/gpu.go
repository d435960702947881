package tasks

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"sync"
	"time"

	"gpt2scope/cuda"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
	"gpt2scope/predict"
)

// kernels is the CUDA C++ of the tasks over arrays, which NVRTC compiles when one of them is first needed.
//
//go:embed kernels.cu
var kernels string

// GPUDevice is a GPU with the kernels of the tasks.
type GPUDevice struct {
	Device *cuda.Device
	About  Device

	name   string // "cuda:0"
	module *cuda.Module
	slot   *slot // where cases are measured, one after another
}

// OpenGPU makes what the tasks share on a device.
func OpenGPU(dev *cuda.Device, name string) (*GPUDevice, error) {
	g := &GPUDevice{Device: dev, name: name}
	s, err := dev.NewStream()
	if err == nil {
		g.slot, err = g.newSlot(s, s, s)
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
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

// Close frees what the tasks used.
func (g *GPUDevice) Close() (err error) {
	if g.slot != nil {
		err = errors.Join(g.slot.close(), closeStreams(g.slot.work))
	}
	if g.module != nil {
		err = errors.Join(err, g.module.Free())
	}
	return err
}

func closeStreams(streams ...*cuda.Stream) (err error) {
	for _, s := range streams {
		if s != nil {
			err = errors.Join(err, s.Synchronize(), s.Close())
		}
	}
	return err
}

// slot is where one work at a time runs on a GPU: streams, events, and memory that stays until more is needed.
type slot struct {
	g             *GPUDevice
	in, work, out *cuda.Stream   // of the copies in, the kernels, and the copy out; one stream, or three
	events        [6]*cuda.Event // before and after each of the three; on one stream, one is between two
	buffer        *cuda.Buffer   // the inputs and the result
	result        *cuda.HostBuffer

	ready map[*Work]Ready // of a queue
}

func (g *GPUDevice) newSlot(in, work, out *cuda.Stream) (s *slot, err error) {
	s = &slot{g: g, in: in, work: work, out: out, ready: map[*Work]Ready{}}
	for i := range s.events {
		if i > 0 && i%2 == 0 && in == out {
			s.events[i] = s.events[i-1]
		} else if s.events[i], err = g.Device.NewEvent(); err != nil {
			return s, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// grow gives the slot memory for inputs and a result of so many bytes, and for the result alone on the host. Work over
// arrays that was ready knows another address, and has to be made ready again.
func (s *slot) grow(bytes, result int64) (err error) {
	if s.result == nil || s.result.Size() < result {
		larger, err := s.g.Device.AllocHost(result)
		if err != nil {
			return err
		}
		if s.result != nil {
			err = s.result.Free()
		}
		if s.result = larger; err != nil {
			return err
		}
	}
	if s.buffer != nil && s.buffer.Size() >= bytes {
		return nil
	}
	defer annotate.Range("allocate on the device", nvtx.Cyan)()
	larger, err := s.g.Device.Alloc(bytes)
	if err != nil {
		return err
	}
	err = s.free()
	s.buffer = larger
	return err
}

// free frees the memory on the device and the work over arrays that knows its address.
func (s *slot) free() (err error) {
	for w, r := range s.ready {
		if w.arrays() != nil {
			err = errors.Join(err, r.Close())
			delete(s.ready, w)
		}
	}
	if s.buffer != nil {
		err = errors.Join(err, s.buffer.Free())
	}
	s.buffer = nil
	return err
}

// close frees all but the streams, which must have done their work.
func (s *slot) close() error {
	err := s.free()
	for _, r := range s.ready {
		err = errors.Join(err, r.Close())
	}
	if s.result != nil {
		err = errors.Join(err, s.result.Free())
	}
	for _, e := range slices.Compact(s.events[:]) {
		if e != nil {
			err = errors.Join(err, e.Close())
		}
	}
	return err
}

// gpuRun runs a task on a GPU.
type gpuRun struct {
	*openArrays
	slot   *slot
	memory predict.Memory
	launch func(*cuda.Stream) error
	end    func() error // nil if there is nothing to free
	queue  *sync.Mutex  // held while work is put on streams that several slots share; nil of one that has its own
}

// aligned rounds a size up, so that an array behind it can be read in any width.
func aligned(n int64) int64 { return (n + 255) &^ 255 }

// offset returns where on a GPU the i-th input begins; behind the inputs is the result.
func (o *openArrays) offset(i int) (n int64) {
	for _, v := range o.in[:i] {
		n += aligned(v.Bytes())
	}
	return n
}

// deviceBytes returns how many bytes of a GPU the inputs and the result take.
func (o *openArrays) deviceBytes() int64 { return o.offset(len(o.in)) + aligned(o.out.Bytes()) }

// prepareGPU makes a way ready in a slot.
func (o *openArrays) prepareGPU(w Way, s *slot, memory predict.Memory) (_ *gpuRun, err error) {
	if err := s.grow(o.deviceBytes(), o.out.Bytes()); err != nil {
		return nil, err
	}
	var in []cuda.Ptr
	for i := range o.in {
		v, at := &o.in[i], o.offset(i)
		switch memory {
		case MemoryPinned:
			err = v.pin(s.g)
		case MemoryResident:
			err = s.buffer.Write(at, v.bytes())
		}
		if err != nil {
			return nil, err
		}
		in = append(in, s.buffer.Ptr()+cuda.Ptr(at))
	}
	r := &gpuRun{openArrays: o, slot: s, memory: memory}
	result := s.buffer.Ptr() + cuda.Ptr(o.offset(len(o.in)))
	r.launch, r.end, err = o.task.Arrays.GPU[w.Variant](s.g, o.shape, in, result, o.dtype)
	return r, err
}

// host returns where the result is on the host.
func (r *gpuRun) host() []float32 {
	if r.memory == MemoryPinned {
		return floats(r.slot.result.Bytes(), r.out.Len)
	}
	return r.out.Float32()
}

// Run spoils the result, and does the task once: copies, kernels, and what the host waits for. Parts of copies from
// pinned memory and of kernels are times of the device, without what they waited for. The host waits for each copy
// from pageable memory, and so measures it.
func (r *gpuRun) Run(context.Context) (t Times, err error) {
	s, e, pageable := r.slot, r.slot.events, r.memory == MemoryPageable
	at, n := r.offset(len(r.in)), r.out.Bytes()
	r.spoil(r.host())
	if r.queue == nil {
		if err := errors.Join(s.work.Set(s.buffer, at, 0xff, n), s.work.Synchronize()); err != nil { // NaN
			return t, err
		}
	}
	defer annotate.Range("measure", nvtx.Red)()
	start := time.Now()
	if r.queue != nil {
		r.queue.Lock()
	}
	var errs []error
	if !pageable {
		errs = append(errs, s.in.Record(e[0]))
	}
	if r.memory != MemoryResident {
		end := annotate.Range("copy to the device", nvtx.Yellow)
		for i, v := range r.in {
			if pageable {
				errs = append(errs, s.buffer.Write(r.offset(i), v.bytes()))
			} else {
				errs = append(errs, s.in.CopyToDevice(s.buffer, r.offset(i), v.pinned, 0, v.Bytes()))
			}
		}
		end()
	}
	copied := time.Now()
	errs = append(errs, s.in.Record(e[1]))
	if s.work != s.in {
		errs = append(errs, s.work.Wait(e[1]), s.work.Record(e[2]))
	}
	end := annotate.Range("launch on the GPU", nvtx.Green)
	errs = append(errs, r.launch(s.work), s.work.Record(e[3]))
	end()
	last := e[3]
	if r.memory == MemoryPinned {
		if s.out != s.work {
			errs = append(errs, s.out.Wait(e[3]), s.out.Record(e[4]))
		}
		end := annotate.Range("copy to the host", nvtx.Yellow)
		errs = append(errs, s.out.CopyToHost(s.result, 0, s.buffer, at, n))
		end()
	}
	if t.Submit = microseconds(time.Since(copied)); !pageable {
		last = e[5]
		errs = append(errs, s.out.Record(last))
		t.Submit = microseconds(time.Since(start))
	}
	if r.queue != nil {
		r.queue.Unlock()
	}
	errs = append(errs, last.Synchronize())
	if done := time.Now(); pageable {
		end := annotate.Range("copy to the host", nvtx.Yellow)
		errs = append(errs, s.buffer.Read(at, r.out.bytes()))
		end()
		t.H2D, t.D2H = microseconds(copied.Sub(start)), microseconds(time.Since(done))
	}
	t.Wall = microseconds(time.Since(start))
	if err := errors.Join(errs...); err != nil {
		return t, err
	}
	if r.memory == MemoryPinned {
		t.H2D, err = between(e[0], e[1], err)
		t.D2H, err = between(e[4], e[5], err)
	}
	t.Kernel, err = between(e[2], e[3], err)
	return t, err
}

// between returns the time between two events in microseconds, unless there is an error already.
func between(from, to *cuda.Event, err error) (float64, error) {
	if err != nil {
		return 0, err
	}
	d, err := to.Since(from)
	return microseconds(d), err
}

func (r *gpuRun) Check(context.Context) error {
	if r.memory == MemoryResident {
		host, at := r.out.bytes(), r.offset(len(r.in))
		for _, i := range r.at {
			if err := r.slot.buffer.Read(at+int64(4*i), host[4*i:4*i+4]); err != nil {
				return err
			}
		}
	}
	return r.compare(r.host())
}

func (r *gpuRun) Close() error {
	if r.end != nil {
		return r.end()
	}
	return nil
}

// launchOf returns a way that launches one kernel of kernels.cu over n values, with more arguments behind them: with
// blocks of threads for so many values each, or, if perBlock is 0, with one block.
func launchOf(kernel string, threads, perBlock int, more ...any) GPUWay {
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
		arguments = append(append(arguments, int64(n)), more...)
		l := cuda.Launch{Grid: cuda.Dim{X: grid}, Block: cuda.Dim{X: threads}}
		return func(s *cuda.Stream) error { return f.Launch(s, l, arguments...) }, nil, nil
	}
}
