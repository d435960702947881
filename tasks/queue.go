package tasks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
	"unsafe"

	"gpt2scope/cuda"
)

// Work is a task of one shape with its inputs, which can run many times, on the CPU and through a [Queue] on
// GPUs, also at once.
type Work struct {
	Task  *Task
	Shape Shape
	DType string
	Cost  Cost

	opened Opened
	cpu    Ready
	pinned []*cuda.HostBuffer // the inputs of a task over arrays, where there is a GPU
}

// OpenWork makes inputs, and prepares the tuned way on the CPU.
func (m *Machine) OpenWork(ctx context.Context, t *Task, s Shape, dtype string) (w *Work, err error) {
	w = &Work{Task: t, Shape: s, DType: dtype}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if w.Cost, err = t.Cost(s, dtype); err != nil {
		return w, err
	}
	if w.opened, err = t.Open(ctx, m, s, dtype); err != nil {
		return w, err
	}
	way, ok := t.tuned(CPU, s, dtype)
	if !ok {
		return w, fmt.Errorf("%s of %s in %s has no tuned way on the CPU", t.Name, s, dtype)
	}
	if w.cpu, err = w.opened.Prepare(ctx, way, CPU, MemoryHost); err != nil {
		return w, err
	}
	o, ok := w.opened.(*openArrays)
	if !ok {
		return w, nil
	}
	for _, g := range m.GPUs {
		if g == nil {
			continue
		}
		for _, v := range o.in {
			h, err := g.Device.AllocHost(v.Bytes())
			if err != nil {
				return w, err
			}
			w.pinned = append(w.pinned, h)
			copy(h.Bytes(), v.Memory.Bytes()[:v.Bytes()])
		}
		break // any GPU reads it
	}
	return w, nil
}

// tuned returns the tuned way on a device.
func (t *Task) tuned(device string, s Shape, dtype string) (Way, bool) {
	for _, w := range t.Ways {
		if w.Device == device && w.Variant == Tuned && w.fits(s, dtype) {
			return w, true
		}
	}
	return Way{}, false
}

// Run does the task once on the CPU, and checks the result.
func (w *Work) Run(ctx context.Context) (Times, error) {
	t, err := w.cpu.Run(ctx)
	if err == nil {
		err = w.cpu.Check(ctx)
	}
	return t, err
}

// DeviceBytes returns the memory that the inputs and the result take on a GPU.
func (w *Work) DeviceBytes() (n int64) {
	if o, ok := w.opened.(*openArrays); ok {
		for _, v := range append(o.in[:len(o.in):len(o.in)], o.out) {
			n += v.Bytes()
		}
	}
	return n
}

// Close frees the inputs.
func (w *Work) Close() error {
	var errs []error
	if w.cpu != nil {
		errs = append(errs, w.cpu.Close())
	}
	for _, h := range w.pinned {
		errs = append(errs, h.Free())
	}
	if w.opened != nil {
		errs = append(errs, w.opened.Close())
	}
	return errors.Join(errs...)
}

// Queue runs work on a GPU, several at once: copies in, kernels and copies out are on streams of their own, so
// that those of one work run beside those of another. Work that does not run over arrays runs alone, and its
// Begin returns when it has ended. A queue belongs to one locked thread.
type Queue struct {
	m      *Machine
	name   string
	g      *GPUDevice
	in     *cuda.Stream
	work   *cuda.Stream
	out    *cuda.Stream
	places []*place
	first  int // of the places in use, in the order of Begin
	used   int
	alone  map[*Work]Ready          // what does not run over arrays
	kept   map[*Work][]*cuda.Buffer // inputs that stay on the device
	sizes  []int64                  // of the largest input each, and of the largest result
}

// place is what work in flight occupies.
type place struct {
	buffers []*cuda.Buffer // inputs, at last the result
	pinned  *cuda.HostBuffer
	events  [6]*cuda.Event // around the copies in, the kernels, the copy out
	launch  map[*Work]func(*cuda.Stream) error
	close   []func() error

	holds   *Work
	begun   time.Time
	submit  float64
	copied  bool
	pending bool  // other work was in flight meanwhile
	times   Times // of what ran alone
}

// Ended is work that a queue has done.
type Ended struct {
	Work  *Work
	Times Times // H2D, Kernel and D2H on the device; Wall from Begin on
	Alone bool  // nothing else was in flight from its beginning to its end
}

// NewQueue opens a queue of so many places, for any of these works. With keep, inputs stay on the device
// once they were copied there.
func (m *Machine) NewQueue(ctx context.Context, device string, places int, works []*Work, keep bool) (q *Queue, err error) {
	q = &Queue{m: m, name: device, g: m.gpu(device), alone: map[*Work]Ready{}}
	if q.g == nil {
		return q, fmt.Errorf("GPU %s is not open", device)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, q.Close())
		}
	}()
	for _, s := range []**cuda.Stream{&q.in, &q.work, &q.out} {
		if *s, err = q.g.Device.NewStream(); err != nil {
			return q, err
		}
	}
	if keep {
		q.kept = map[*Work][]*cuda.Buffer{}
	}
	var result int64
	for _, w := range works {
		way, ok := w.Task.tuned(GPU, w.Shape, w.DType)
		if !ok {
			return q, fmt.Errorf("%s of %s in %s has no tuned way on a GPU", w.Task.Name, w.Shape, w.DType)
		}
		o, ok := w.opened.(*openArrays)
		if !ok {
			r, err := w.opened.Prepare(ctx, way, device, MemoryResident)
			if err != nil {
				return q, err
			}
			q.alone[w] = r
			for range 2 { // the first records graphs, the next runs as all do
				if _, err := r.Run(ctx); err != nil {
					return q, err
				}
			}
			continue
		}
		for i, v := range o.in {
			if i == len(q.sizes) {
				q.sizes = append(q.sizes, 0)
			}
			q.sizes[i] = max(q.sizes[i], v.Bytes())
		}
		result = max(result, o.out.Bytes())
	}
	for range places {
		p := &place{launch: map[*Work]func(*cuda.Stream) error{}}
		q.places = append(q.places, p)
		for _, size := range append(q.sizes[:len(q.sizes):len(q.sizes)], max(result, 4)) {
			b, err := q.g.Device.Alloc(max(size, 4))
			if err != nil {
				return q, err
			}
			p.buffers = append(p.buffers, b)
		}
		if p.pinned, err = q.g.Device.AllocHost(max(result, 4)); err != nil {
			return q, err
		}
		for i := range p.events {
			if p.events[i], err = q.g.Device.NewEvent(); err != nil {
				return q, err
			}
		}
		for _, w := range works {
			if err := q.prepare(p, w, keep); err != nil {
				return q, err
			}
		}
	}
	return q, q.work.Synchronize()
}

// prepare makes work over arrays ready for a place, and launches it once, since the first launch of a kernel
// loads it.
func (q *Queue) prepare(p *place, w *Work, keep bool) (err error) {
	o, ok := w.opened.(*openArrays)
	if !ok {
		return nil
	}
	in := p.buffers[:len(o.in)]
	if keep {
		if q.kept[w] == nil {
			for _, v := range o.in {
				b, err := q.g.Device.Alloc(v.Bytes())
				if err != nil {
					return err
				}
				q.kept[w] = append(q.kept[w], b)
			}
		}
		in = q.kept[w]
	}
	var from []cuda.Ptr
	for _, b := range in {
		from = append(from, b.Ptr())
	}
	launch, end, err := o.of.GPU[Tuned](q.g, w.Shape, from, p.buffers[len(p.buffers)-1].Ptr(), w.DType)
	if err != nil {
		return err
	}
	p.launch[w] = launch
	if end != nil {
		p.close = append(p.close, end)
	}
	return launch(q.work)
}

// InFlight returns how many works have begun and were not returned by Ended.
func (q *Queue) InFlight() int { return q.used }

// Begin starts work. copyIn tells whether the inputs must be copied to the device; it is always so
// unless the queue keeps them. There must be a free place. What fails to begin is not in flight.
func (q *Queue) Begin(ctx context.Context, w *Work, copyIn bool) error {
	if q.used == len(q.places) {
		return fmt.Errorf("%s has %d works in flight, which is the most", q.name, q.used)
	}
	p := q.places[(q.first+q.used)%len(q.places)]
	p.holds, p.begun, p.copied, p.pending = w, time.Now(), copyIn || q.kept == nil, q.used > 0
	for i := range q.used {
		q.places[(q.first+i)%len(q.places)].pending = true
	}
	q.used++
	if r := q.alone[w]; r != nil {
		t, err := r.Run(ctx)
		if err == nil {
			err = r.Check(ctx)
		}
		if p.times = t; err != nil {
			q.used--
		}
		return err
	}
	o, n := w.opened.(*openArrays), len(p.buffers)-1
	to := p.buffers[:len(o.in)]
	if q.kept != nil {
		to = q.kept[w]
	}
	size, host := o.out.Bytes(), p.pinned.Bytes()
	for _, i := range o.at {
		*(*float32)(unsafe.Pointer(&host[4*i])) = float32(math.NaN())
	}
	e := p.events
	errs := []error{q.in.Record(e[0])}
	if p.copied {
		for i, b := range to {
			errs = append(errs, q.in.CopyToDevice(b, 0, w.pinned[i], 0, o.in[i].Bytes()))
		}
	}
	errs = append(errs, q.in.Record(e[1]), q.work.Wait(e[1]), q.work.Record(e[2]), p.launch[w](q.work), q.work.Record(e[3]),
		q.out.Wait(e[3]), q.out.Record(e[4]), q.out.CopyToHost(p.pinned, 0, p.buffers[n], 0, size), q.out.Record(e[5]))
	p.submit = microseconds(time.Since(p.begun))
	err := errors.Join(errs...)
	if err != nil {
		q.used--
	}
	return err
}

// Ended returns the work that began first, if it has ended, with its result checked. ok is false if it has
// not.
func (q *Queue) Ended(ctx context.Context) (e Ended, ok bool, err error) {
	if q.used == 0 {
		return e, false, nil
	}
	p := q.places[q.first]
	w := p.holds
	if q.alone[w] != nil {
		e.Times = p.times
	} else {
		if ok, err = p.events[5].Query(); err != nil || !ok {
			return e, false, err
		}
		e.Times = Times{Submit: p.submit, Wall: microseconds(time.Since(p.begun))}
		for i, us := range []*float64{&e.Times.H2D, &e.Times.Kernel, &e.Times.D2H} {
			if *us, err = between(p.events[2*i], p.events[2*i+1]); err != nil {
				return e, false, err
			}
		}
		if !p.copied {
			e.Times.H2D = 0
		}
		host := p.pinned.Bytes()
		err = w.opened.(*openArrays).compare(func(i int) (float64, error) { return float64(*(*float32)(unsafe.Pointer(&host[4*i]))), nil })
		if err != nil {
			return e, false, err
		}
	}
	e.Work, e.Alone = w, !p.pending
	p.holds = nil
	q.first, q.used = (q.first+1)%len(q.places), q.used-1
	return e, true, nil
}

// Close frees what the queue holds.
func (q *Queue) Close() error {
	var errs []error
	for _, s := range []*cuda.Stream{q.in, q.work, q.out} {
		if s != nil {
			errs = append(errs, s.Synchronize())
		}
	}
	for _, p := range q.places {
		for _, f := range p.close {
			errs = append(errs, f())
		}
		for _, b := range p.buffers {
			errs = append(errs, b.Free())
		}
		if p.pinned != nil {
			errs = append(errs, p.pinned.Free())
		}
		for _, e := range p.events {
			if e != nil {
				errs = append(errs, e.Close())
			}
		}
	}
	for _, buffers := range q.kept {
		for _, b := range buffers {
			errs = append(errs, b.Free())
		}
	}
	for _, r := range q.alone {
		errs = append(errs, r.Close())
	}
	for _, s := range []*cuda.Stream{q.in, q.work, q.out} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}
