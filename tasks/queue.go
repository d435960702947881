package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
	"unsafe"

	"gpt2scope/cuda"
)

// Work is a task of one shape with its inputs. It can run many times, on the CPU and through a [Queue] on GPUs, also
// at once.
type Work struct {
	Task  *Task
	Shape Shape
	DType string
	Cost  Cost

	opened Opened
	cpu    Ready
	pinned []*cuda.HostBuffer // the inputs of a task over arrays, where there is a GPU; the machine frees them
}

// OpenWork makes the inputs and prepares the tuned way on the CPU. All work of a machine shares memory, which the
// machine frees, so that work runs on the CPU one after another.
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
	if t.Arrays == nil {
		w.opened, err = t.Open(ctx, m, s, dtype)
	} else {
		w.opened, err = t.Arrays.open(ctx, m, t, s, dtype, true)
	}
	if err != nil {
		return w, err
	}
	way, err := w.tuned(CPU)
	if err != nil {
		return w, err
	}
	if w.cpu, err = w.opened.Prepare(ctx, way, CPU, MemoryHost); err != nil {
		return w, err
	}
	at := slices.IndexFunc(m.GPUs, func(g *GPUDevice) bool { return g != nil })
	if o := w.arrays(); o != nil && at >= 0 { // any GPU reads what one has pinned
		for i, v := range o.in {
			h, err := m.sharedPinned(m.GPUs[at], v.Array, i+1)
			if err != nil {
				return w, err
			}
			w.pinned = append(w.pinned, h)
		}
	}
	return w, nil
}

// tuned returns the tuned way on a kind of device.
func (w *Work) tuned(device string) (Way, error) {
	way, ok := w.Task.tuned(device, w.Shape, w.DType)
	if !ok {
		return way, fmt.Errorf("%s of %s in %s has no tuned way on %s", w.Task.Name, w.Shape, w.DType, device)
	}
	return way, nil
}

// tuned returns the tuned way on a kind of device.
func (t *Task) tuned(device string, s Shape, dtype string) (Way, bool) {
	at := slices.IndexFunc(t.Ways, func(w Way) bool { return w.Device == device && w.Variant == Tuned && w.fits(s, dtype) })
	if at < 0 {
		return Way{}, false
	}
	return t.Ways[at], true
}

// arrays returns the arrays of the work, nil if it runs GPT-2.
func (w *Work) arrays() *openArrays {
	o, _ := w.opened.(*openArrays)
	return o
}

// Run does the task once on the CPU and checks the result.
func (w *Work) Run(ctx context.Context) (Times, error) {
	t, err := w.cpu.Run(ctx)
	if err == nil {
		err = w.cpu.Check(ctx)
	}
	return t, err
}

// inputBytes returns how many bytes the inputs take on a GPU, each aligned.
func (w *Work) inputBytes() (n int64) {
	if o := w.arrays(); o != nil {
		for _, v := range o.in {
			n += aligned(v.Bytes())
		}
	}
	return n
}

// DeviceBytes returns how many bytes of a GPU's memory the inputs and the result take: 0 for GPT-2, whose weights are
// there already.
func (w *Work) DeviceBytes() int64 {
	if o := w.arrays(); o != nil {
		return w.inputBytes() + aligned(o.out.Bytes())
	}
	return 0
}

// aligned rounds a size up, so that an array behind it can be read in any width.
func aligned(n int64) int64 { return (n + 255) &^ 255 }

// Close frees the inputs.
func (w *Work) Close() error {
	var errs []error
	if w.cpu != nil {
		errs = append(errs, w.cpu.Close())
	}
	if w.opened != nil {
		errs = append(errs, w.opened.Close())
	}
	return errors.Join(errs...)
}

// Queue runs work on a GPU in slots, one work in each at a time. Each slot is used by one goroutine at a time, several
// slots at once. Copies in, kernels and copies out of work over arrays are on three streams that all slots share, so
// that the copies of one work run beside the kernels of another. GPT-2 runs on streams of its own.
//
// A queue takes its memory when it opens, for the largest work for which all slots have room. Larger work tries again
// when it runs: without room its error matches [cuda.ErrOutOfMemory], and the queue goes on.
type Queue struct {
	name          string
	g             *GPUDevice
	in, work, out *cuda.Stream
	slots         []*slot

	mu   sync.Mutex             // held while a slot issues work; also guards what follows and the slots' buffers
	kept map[*Work]*cuda.Buffer // inputs that stay on the GPU; nil if none do
	busy int                    // slots that run work
}

// slot has what one work in flight needs.
type slot struct {
	buffer *cuda.Buffer     // the inputs, unless the queue keeps them, and the result
	pinned *cuda.HostBuffer // the result on the host
	events [6]*cuda.Event   // before and after the copies in, the kernels and the copy out
	launch map[*Work]func(*cuda.Stream) error
	close  []func() error // of launches, which hold addresses in the buffer
	ready  map[*Work]Ready
	alone  bool // no other work was in flight since this one began
}

// NewQueue opens a queue with a number of slots for these works. With keep, inputs stay on the GPU once they were
// copied there.
func (m *Machine) NewQueue(ctx context.Context, device string, slots int, works []*Work, keep bool) (q *Queue, err error) {
	q = &Queue{name: device, g: m.gpu(device)}
	if q.g == nil {
		return q, fmt.Errorf("GPU %s is not open", device)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, q.Close())
		}
	}()
	if keep {
		q.kept = map[*Work]*cuda.Buffer{}
	}
	for _, s := range []**cuda.Stream{&q.in, &q.work, &q.out} {
		if *s, err = q.g.Device.NewStream(); err != nil {
			return q, err
		}
	}
	result := int64(4)
	for _, w := range works {
		if o := w.arrays(); o != nil {
			result = max(result, o.out.Bytes())
		}
	}
	for range slots {
		s := &slot{launch: map[*Work]func(*cuda.Stream) error{}, ready: map[*Work]Ready{}}
		q.slots = append(q.slots, s)
		if s.pinned, err = q.g.Device.AllocHost(result); err != nil {
			return q, err
		}
		for i := range s.events {
			if s.events[i], err = q.g.Device.NewEvent(); err != nil {
				return q, err
			}
		}
	}
	works = slices.Clone(works)
	slices.SortStableFunc(works, func(a, b *Work) int { return cmp.Compare(a.DeviceBytes(), b.DeviceBytes()) })
	if works, err = q.reserve(works); err != nil {
		return q, err
	}
	for _, s := range q.slots {
		for _, w := range works {
			if err := q.prepare(ctx, s, w); err != nil && !errors.Is(err, cuda.ErrOutOfMemory) { // Run tries again
				return q, err
			}
		}
	}
	return q, q.work.Synchronize()
}

// reserve takes the memory of works, the smallest first, in all slots. While there is too little it leaves the largest
// out. It returns the works that have room.
func (q *Queue) reserve(works []*Work) ([]*Work, error) {
	for ; len(works) > 0; works = works[:len(works)-1] {
		var size int64
		for _, w := range works {
			size = max(size, q.slotBytes(w))
		}
		var err error
		for _, s := range q.slots {
			if err == nil {
				err = q.grow(s, size)
			}
		}
		for _, w := range works {
			if err == nil {
				err = q.keepInputs(w)
			}
		}
		if !errors.Is(err, cuda.ErrOutOfMemory) {
			return works, err
		}
		if err := q.free(); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// free frees what the queue holds for work over arrays.
func (q *Queue) free() error {
	var errs []error
	for _, s := range q.slots {
		errs = append(errs, s.free())
	}
	for _, b := range q.kept {
		errs = append(errs, b.Free())
	}
	clear(q.kept)
	return errors.Join(errs...)
}

// keepInputs takes the memory in which the inputs of a work stay, if the queue keeps them.
func (q *Queue) keepInputs(w *Work) (err error) {
	if q.kept == nil || q.kept[w] != nil || w.arrays() == nil {
		return nil
	}
	b, err := q.g.Device.Alloc(w.inputBytes())
	if err == nil {
		q.kept[w] = b
	}
	return err
}

// slotBytes returns how many bytes of a slot's buffer a work needs.
func (q *Queue) slotBytes(w *Work) int64 {
	if q.kept != nil {
		return w.DeviceBytes() - w.inputBytes()
	}
	return w.DeviceBytes()
}

// grow gives a slot a buffer of at least a size.
func (q *Queue) grow(s *slot, size int64) error {
	if size == 0 || s.buffer != nil && s.buffer.Size() >= size {
		return nil
	}
	larger, err := q.g.Device.Alloc(size)
	if err != nil {
		return err
	}
	err = s.free()
	s.buffer = larger
	return err
}

// free frees the buffer of a slot and the launches that know its address.
func (s *slot) free() error {
	var errs []error
	for _, f := range s.close {
		errs = append(errs, f())
	}
	if s.buffer != nil {
		errs = append(errs, s.buffer.Free())
	}
	clear(s.launch)
	s.buffer, s.close = nil, nil
	return errors.Join(errs...)
}

// prepare makes a slot ready for a work and runs it without copies, since the first launch of a kernel loads it and
// the first passes of GPT-2 record graphs.
func (q *Queue) prepare(ctx context.Context, s *slot, w *Work) error {
	if s.launch[w] != nil || s.ready[w] != nil {
		return nil
	}
	way, err := w.tuned(GPU)
	if err != nil {
		return err
	}
	o := w.arrays()
	if o == nil {
		r, err := w.opened.Prepare(ctx, way, q.name, MemoryResident)
		for n := 0; err == nil && n < 2; n++ {
			_, err = r.Run(ctx)
		}
		if err != nil {
			if r != nil {
				err = errors.Join(err, r.Close())
			}
			return err
		}
		s.ready[w] = r
		return nil
	}
	if err := q.grow(s, q.slotBytes(w)); err != nil {
		return err
	}
	if err := q.keepInputs(w); err != nil {
		return err
	}
	inputs, result := q.places(s, w)
	var from []cuda.Ptr
	for i := range o.in {
		from = append(from, inputs.Ptr()+cuda.Ptr(o.offset(i)))
	}
	launch, end, err := o.of.GPU[Tuned](q.g, w.Shape, from, s.buffer.Ptr()+cuda.Ptr(result), w.DType)
	if err != nil {
		return err
	}
	if end != nil {
		s.close = append(s.close, end)
	}
	s.launch[w] = launch
	return launch(q.work)
}

// places returns the buffer that holds the inputs, and where in the slot's buffer the result is.
func (q *Queue) places(s *slot, w *Work) (inputs *cuda.Buffer, result int64) {
	if q.kept != nil {
		return q.kept[w], 0
	}
	return s.buffer, w.inputBytes()
}

// offset returns where in a buffer of inputs one of them begins.
func (o *openArrays) offset(input int) (n int64) {
	for _, v := range o.in[:input] {
		n += aligned(v.Bytes())
	}
	return n
}

// Run does a work in a slot and returns once its result has been checked. copyIn tells whether the inputs are copied
// to the GPU, as they always are unless the queue keeps them. alone tells whether no other work was in flight
// meanwhile. H2D, Kernel and D2H are times of the device without what the work waited for; Wall has that too.
func (q *Queue) Run(ctx context.Context, at int, w *Work, copyIn bool) (t Times, alone bool, err error) {
	s, start := q.slots[at], time.Now()
	q.mu.Lock()
	q.busy++
	s.alone = q.busy == 1
	if q.busy > 1 {
		for _, other := range q.slots {
			other.alone = false
		}
	}
	err = q.prepare(ctx, s, w)
	if err == nil && w.arrays() != nil {
		err = q.issue(s, w, copyIn || q.kept == nil)
	}
	q.mu.Unlock()
	if err == nil {
		t, err = s.wait(ctx, w)
	}
	if w.arrays() != nil {
		t.Wall = microseconds(time.Since(start))
		if !copyIn && q.kept != nil {
			t.H2D = 0
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy--
	return t, s.alone, err
}

// issue puts the copies and kernels of a work over arrays on the streams.
func (q *Queue) issue(s *slot, w *Work, copyIn bool) error {
	o, e := w.arrays(), s.events
	inputs, result := q.places(s, w)
	host := s.pinned.Bytes()
	for _, i := range o.at { // a result that is not copied cannot pass the check
		*(*float32)(unsafe.Pointer(&host[4*i])) = float32(math.NaN())
	}
	errs := []error{q.in.Record(e[0])}
	for i, v := range o.in {
		if copyIn {
			errs = append(errs, q.in.CopyToDevice(inputs, o.offset(i), w.pinned[i], 0, v.Bytes()))
		}
	}
	errs = append(errs, q.in.Record(e[1]),
		q.work.Wait(e[1]), q.work.Record(e[2]), s.launch[w](q.work), q.work.Record(e[3]),
		q.out.Wait(e[3]), q.out.Record(e[4]), q.out.CopyToHost(s.pinned, 0, s.buffer, result, o.out.Bytes()), q.out.Record(e[5]))
	return errors.Join(errs...)
}

// wait waits until the work of a slot has ended, and checks its result. It runs GPT-2 itself.
func (s *slot) wait(ctx context.Context, w *Work) (t Times, err error) {
	o := w.arrays()
	if o == nil {
		if t, err = s.ready[w].Run(ctx); err == nil {
			err = s.ready[w].Check(ctx)
		}
		return t, err
	}
	if err := s.events[5].Synchronize(); err != nil {
		return t, err
	}
	for i, us := range []*float64{&t.H2D, &t.Kernel, &t.D2H} {
		if *us, err = between(s.events[2*i], s.events[2*i+1]); err != nil {
			return t, err
		}
	}
	host := s.pinned.Bytes()
	return t, o.compare(func(i int) (float64, error) { return float64(*(*float32)(unsafe.Pointer(&host[4*i]))), nil })
}

// Held returns how many bytes of the GPU's memory the queue holds that a work may use: the largest buffer of a slot
// and all inputs that stay.
func (q *Queue) Held() (held int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.slots {
		if s.buffer != nil {
			held = max(held, s.buffer.Size())
		}
	}
	for _, b := range q.kept {
		held += b.Size()
	}
	return held
}

// Close frees what the queue holds. No slot may run work.
func (q *Queue) Close() error {
	var errs []error
	streams := slices.DeleteFunc([]*cuda.Stream{q.in, q.work, q.out}, func(s *cuda.Stream) bool { return s == nil })
	for _, s := range streams {
		errs = append(errs, s.Synchronize())
	}
	errs = append(errs, q.free())
	for _, s := range q.slots {
		for _, r := range s.ready {
			errs = append(errs, r.Close())
		}
		if s.pinned != nil {
			errs = append(errs, s.pinned.Free())
		}
		for _, e := range s.events {
			if e != nil {
				errs = append(errs, e.Close())
			}
		}
	}
	for _, s := range streams {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// LeavesRoom tells whether the kernels of a task leave most of a GPU to other work: those of GPT-2 do.
func LeavesRoom(name string) bool {
	return slices.ContainsFunc(All(), func(t *Task) bool { return t.Name == name && t.Arrays == nil })
}

// PCI returns the PCI addresses of the devices, in the order of [Machine.Devices]; "" for the CPU.
func (m *Machine) PCI() []string {
	var all []string
	for _, name := range m.Devices() {
		at := ""
		if g := m.gpu(name); g != nil {
			at = g.Device.Info().PCI
		}
		all = append(all, at)
	}
	return all
}
