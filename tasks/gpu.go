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
	in, work, out *cuda.Stream     // of the copies in, the kernels, and the copy out; one stream, or three
	events        [6]*cuda.Event   // before and after each of the three; on one stream, one is between two
	buffer        *cuda.Buffer     // the inputs and the result; nil for none
	result        *cuda.HostBuffer // on the host

	issue *sync.Mutex     // held while work is put on the streams
	ready map[*Work]Ready // of a queue
}

func (g *GPUDevice) newSlot(in, work, out *cuda.Stream) (s *slot, err error) {
	s = &slot{g: g, in: in, work: work, out: out, issue: &sync.Mutex{}, ready: map[*Work]Ready{}}
	for i := range s.events {
		if i > 0 && i%2 == 0 && in == out {
			s.events[i] = s.events[i-1]
		} else if s.events[i], err = g.Device.NewEvent(); err != nil {
			return s, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// grow gives the slot memory for inputs and a result of so many bytes, and as much on the host. Work over arrays that
// was ready knows another address, and has to be made ready again.
func (s *slot) grow(bytes int64) error {
	if bytes == 0 || s.buffer != nil && s.buffer.Size() >= bytes {
		return nil
	}
	defer annotate.Range("allocate on the device", nvtx.Cyan)()
	larger, err := s.g.Device.Alloc(bytes)
	if err != nil {
		return err
	}
	result, err := s.g.Device.AllocHost(bytes)
	if err != nil {
		return errors.Join(err, larger.Free())
	}
	err = s.free()
	s.buffer, s.result = larger, result
	return err
}

// free frees the memory on the device and the work over arrays that knows its address.
func (s *slot) free() (err error) {
	for w, r := range s.ready {
		if w.DeviceBytes > 0 {
			err = errors.Join(err, r.close())
			delete(s.ready, w)
		}
	}
	if s.buffer != nil {
		err = errors.Join(err, s.buffer.Free(), s.result.Free())
	}
	s.buffer, s.result = nil, nil
	return err
}

// close frees all but the streams, which must have done their work.
func (s *slot) close() error {
	err := s.free()
	for _, r := range s.ready {
		err = errors.Join(err, r.close())
	}
	for _, e := range slices.Compact(s.events[:]) {
		if e != nil {
			err = errors.Join(err, e.Close())
		}
	}
	return err
}

// gpuRun runs a task over arrays in a slot.
type gpuRun struct {
	*arrays
	slot   *slot
	memory predict.Memory
	launch Launch
}

// prepareGPU makes a way ready in a slot.
func (o *arrays) prepareGPU(w Way, s *slot, memory predict.Memory) (ready Ready, err error) {
	if err := s.grow(o.deviceBytes()); err != nil {
		return ready, err
	}
	var in []cuda.Ptr
	for i, v := range o.in {
		if memory == predict.Resident {
			if err := s.buffer.Write(o.offset(i), v.bytes()); err != nil {
				return ready, err
			}
		}
		in = append(in, s.buffer.Ptr()+cuda.Ptr(o.offset(i)))
	}
	r := &gpuRun{arrays: o, slot: s, memory: memory}
	ready.run, ready.check = r.run, r.check
	r.launch, ready.end, err = w.GPU(s.g, o.shape, in, s.buffer.Ptr()+cuda.Ptr(o.offset(len(o.in))), o.dtype)
	return ready, err
}

// host returns where the result is on the host.
func (r *gpuRun) host() []float32 {
	if r.memory == predict.Pinned {
		return floats(r.slot.result.Bytes(), r.out.Len)
	}
	return r.out.Float32()
}

// run spoils the result, and does the task once: copies, kernels, and what the host waits for. The parts of copies from
// pinned memory and of kernels are times of the device, without what they waited for. The host waits for each copy
// from pageable memory, and so measures it.
func (r *gpuRun) run(context.Context) (t Times, err error) {
	s, e, at, n := r.slot, r.slot.events, r.offset(len(r.in)), r.out.Bytes()
	pinned, pageable := r.memory == predict.Pinned, r.memory == predict.Pageable
	r.spoil(r.host())
	if s.in == s.out { // nothing runs beside it
		if err := errors.Join(s.work.Set(s.buffer, at, 0xff, n), s.work.Synchronize()); err != nil { // NaN
			return t, err
		}
	}
	defer annotate.Range("measure", nvtx.Red)()
	start := time.Now()
	s.issue.Lock()
	var errs []error
	do := func(err error) { errs = append(errs, err) }
	if !pageable {
		do(s.in.Record(e[0]))
	}
	if pinned || pageable {
		end := annotate.Range("copy to the device", nvtx.Yellow)
		for i, v := range r.in {
			if pinned {
				do(s.in.CopyToDevice(s.buffer, r.offset(i), v.pinned, 0, v.Bytes()))
			} else {
				do(s.buffer.Write(r.offset(i), v.bytes()))
			}
		}
		end()
	}
	copied := time.Now()
	do(s.in.Record(e[1]))
	if s.work != s.in {
		do(s.work.Wait(e[1]))
		do(s.work.Record(e[2]))
	}
	end := annotate.Range("launch on the GPU", nvtx.Green)
	do(r.launch(s.work))
	do(s.work.Record(e[3]))
	end()
	if pinned {
		if s.out != s.work {
			do(s.out.Wait(e[3]))
			do(s.out.Record(e[4]))
		}
		end := annotate.Range("copy to the host", nvtx.Yellow)
		do(s.out.CopyToHost(s.result, 0, s.buffer, at, n))
		end()
	}
	if !pageable {
		do(s.out.Record(e[5]))
		copied = start
	}
	t.Submit = microseconds(time.Since(copied))
	s.issue.Unlock()
	if !pageable {
		do(e[5].Synchronize())
	} else {
		do(e[3].Synchronize())
		done := time.Now()
		end := annotate.Range("copy to the host", nvtx.Yellow)
		do(s.buffer.Read(at, r.out.bytes()))
		end()
		t.H2D, t.D2H = microseconds(copied.Sub(start)), microseconds(time.Since(done))
	}
	t.Wall = microseconds(time.Since(start))
	between := func(us *float64, from, to *cuda.Event) {
		d, err := to.Since(from)
		*us = microseconds(d)
		do(err)
	}
	if pinned {
		between(&t.H2D, e[0], e[1])
		between(&t.D2H, e[4], e[5])
	}
	between(&t.Kernel, e[2], e[3])
	return t, errors.Join(errs...)
}

// check compares the result, of which it reads what it compares if the GPU has it.
func (r *gpuRun) check() error {
	if r.memory == predict.Resident {
		host, at := r.out.bytes(), r.offset(len(r.in))
		for _, i := range r.at {
			if err := r.slot.buffer.Read(at+int64(4*i), host[4*i:4*i+4]); err != nil {
				return err
			}
		}
	}
	return r.compare(r.host())
}
