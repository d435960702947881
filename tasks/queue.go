package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
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
	pinned []*cuda.HostBuffer // the inputs of a task over arrays, where there is a GPU; the machine frees them
}

// OpenWork makes inputs, and prepares the tuned way on the CPU. Work of a machine shares memory, which the machine frees: it runs
// on the CPU one after another.
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
		for i, v := range o.in {
			h, err := m.sharedPinned(g, v.Array, i+1)
			if err != nil {
				return w, err
			}
			w.pinned = append(w.pinned, h)
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
	if w.opened != nil {
		errs = append(errs, w.opened.Close())
	}
	return errors.Join(errs...)
}

// Queue runs work on a GPU, several at once: copies in, kernels and copies out are on streams of their own, so
// that those of one work run beside those of another. A queue belongs to one locked thread. Work that does not run over arrays runs in lanes: threads of the queue's own, beside
// all that the thread of the queue does, each with one such work at a time ([Queue.OnLane], [Queue.RunLane]).
//
// Memory is taken when the queue is opened, for as large works as there is memory for. For a larger one Begin tries again: its
// error matches [cuda.ErrOutOfMemory] if there is still none, and the queue goes on.
type Queue struct {
	name   string
	g      *GPUDevice
	in     *cuda.Stream
	work   *cuda.Stream
	out    *cuda.Stream
	places []*place
	begun  []*place // those in use, in the order of Begin
	lanes  []*lane
	mu     sync.Mutex               // of ready, unchecked and hosts
	ready  map[*Work][]Ready        // what does not run over arrays, as often as it is ready, does not run and is checked
	none   map[*Work]error          // of that, what had no memory
	kept   map[*Work][]*cuda.Buffer // inputs that stay on the device; nil if none do
	held   atomic.Int64
	piece  int64 // bytes of a piece of a copy

	unchecked map[*Work]int      // how many results of what runs in lanes are not checked
	checked   sync.Cond          // one of them was
	hosts     []*cuda.HostBuffer // that no check uses, of hostBytes each
	hostBytes int64
}

// place is what work in flight occupies.
type place struct {
	buffers []*cuda.Buffer // inputs unless the queue keeps them, at last the result; nil where there was no memory
	pinned  *cuda.HostBuffer
	events  [6]*cuda.Event // around the copies in, the kernels, the copy out
	launch  map[*Work]func(*cuda.Stream) error
	close   []func() error

	holds   *Work
	begun   time.Time
	submit  float64
	copied  bool
	stage   stage
	pieces  []piece // of the copies in or of the copy out
	issued  int     // of these
	marks   [ahead]*cuda.Event
	pending bool // other work was in flight meanwhile
}

// stage is how far the thread of a queue has got with work that has large copies. Copies of both directions are issued in pieces, a few ahead of what has been copied: an engine copies
// in the order in which copies were issued, and a lane that reads some numbers would else wait until all arrays before them are copied, which takes milliseconds.
type stage int

const (
	copyingIn  stage = iota
	working          // all up to the kernels is issued
	copyingOut       // the kernels have ended
	issued           // all is
)

const (
	pieceBytes = 2 << 20 // some 40 us on a fast link
	ahead      = 3       // pieces that are issued and may not have been copied
)

// piece is a part of a copy between the host and the device.
type piece struct {
	device *cuda.Buffer
	host   *cuda.HostBuffer
	at, n  int64
}

// split divides a copy into pieces.
func (q *Queue) split(to []piece, device *cuda.Buffer, host *cuda.HostBuffer, size int64) []piece {
	for at := int64(0); at < size; at += q.piece {
		to = append(to, piece{device, host, at, min(q.piece, size-at)})
	}
	return to
}

// Ended is work that a queue has done.
type Ended struct {
	Work  *Work
	Times Times // H2D, Kernel and D2H on the device; Wall from Begin on
	Alone bool  // no other work was in flight in places from its beginning to its end
}

// NewQueue opens a queue of so many places for work over arrays, and lanes for other work, for any of these works. What is given
// several times can run in as many lanes at once. With keep, inputs stay on the device once they were copied there.
func (m *Machine) NewQueue(ctx context.Context, device string, places, lanes int, works []*Work, keep bool) (q *Queue, err error) {
	q = &Queue{name: device, g: m.gpu(device), ready: map[*Work][]Ready{}, none: map[*Work]error{}, piece: pieceBytes, unchecked: map[*Work]int{}}
	q.checked.L = &q.mu
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
	for range lanes {
		q.lanes = append(q.lanes, newLane())
	}
	var arrays []*Work
	var result int64
	inputs := 0
	known := map[*Work]bool{}
	for _, w := range works {
		way, ok := w.Task.tuned(GPU, w.Shape, w.DType)
		if !ok {
			return q, fmt.Errorf("%s of %s in %s has no tuned way on a GPU", w.Task.Name, w.Shape, w.DType)
		}
		o, ok := w.opened.(*openArrays)
		if !ok {
			if len(q.ready[w]) < lanes {
				if err := q.prepareLane(ctx, w, way); err != nil {
					return q, err
				}
			}
			continue
		}
		if known[w] {
			continue
		}
		known[w] = true
		arrays = append(arrays, w)
		inputs, result = max(inputs, len(o.in)), max(result, o.out.Bytes())
	}
	if q.hostBytes > 0 {
		for range lanes {
			h, err := q.g.Device.AllocHost(q.hostBytes)
			if err != nil {
				return q, err
			}
			q.hosts = append(q.hosts, h)
		}
	}
	for range places {
		p := &place{launch: map[*Work]func(*cuda.Stream) error{}, buffers: make([]*cuda.Buffer, inputs+1)}
		q.places = append(q.places, p)
		if p.pinned, err = q.g.Device.AllocHost(max(result, 4)); err != nil {
			return q, err
		}
		for _, events := range [][]*cuda.Event{p.events[:], p.marks[:]} {
			for i := range events {
				if events[i], err = q.g.Device.NewEvent(); err != nil {
					return q, err
				}
			}
		}
	}
	slices.SortStableFunc(arrays, func(a, b *Work) int { return cmp.Compare(a.DeviceBytes(), b.DeviceBytes()) })
	if arrays, err = q.reserve(arrays); err != nil {
		return q, err
	}
	for _, p := range q.places {
		for _, w := range arrays {
			if err := q.prepare(p, w); err != nil && !errors.Is(err, cuda.ErrOutOfMemory) { // Begin tries again
				return q, err
			}
		}
	}
	return q, q.work.Synchronize()
}

// prepareLane makes work ready, once more, that does not run over arrays.
func (q *Queue) prepareLane(ctx context.Context, w *Work, way Way) error {
	r, err := w.opened.Prepare(ctx, way, q.name, MemoryResident)
	for n := 0; err == nil && n < 2; n++ { // the first records graphs, the next runs as all do
		_, err = r.Run(ctx)
	}
	if errors.Is(err, cuda.ErrOutOfMemory) {
		q.none[w] = err
		if r != nil {
			return r.Close()
		}
		return nil
	}
	if r != nil {
		q.ready[w] = append(q.ready[w], r)
		if later, ok := r.(checksLater); ok {
			q.hostBytes = max(q.hostBytes, later.checkBytes())
		}
	}
	return err
}

// reserve takes the memory of the places for works, the smallest first. While there is too little it leaves the largest out. It
// returns those that there is memory for.
func (q *Queue) reserve(works []*Work) ([]*Work, error) {
	for ; len(works) > 0; works = works[:len(works)-1] {
		sizes := make([]int64, len(q.places[0].buffers))
		for _, w := range works {
			for i, n := range q.sizes(w) {
				sizes[i] = max(sizes[i], n)
			}
		}
		err := func() error {
			for _, p := range q.places {
				if err := q.grow(p, sizes); err != nil {
					return err
				}
			}
			for _, w := range works {
				if _, err := q.keep(w); err != nil {
					return err
				}
			}
			return nil
		}()
		if !errors.Is(err, cuda.ErrOutOfMemory) {
			return works, err
		}
		if err := q.free(); err != nil { // what the others got is too large
			return nil, err
		}
	}
	return nil, nil
}

// sizes returns the bytes of the buffers that work over arrays needs in a place.
func (q *Queue) sizes(w *Work) []int64 {
	o := w.opened.(*openArrays)
	sizes := make([]int64, len(q.places[0].buffers))
	if q.kept == nil {
		for i, v := range o.in {
			sizes[i] = v.Bytes()
		}
	}
	sizes[len(sizes)-1] = o.out.Bytes()
	return sizes
}

// grow gives a place that is free buffers of at least these sizes. If there is no memory the place is as it was.
func (q *Queue) grow(p *place, sizes []int64) (err error) {
	larger := make([]*cuda.Buffer, len(sizes))
	grown := false
	for i, size := range sizes {
		if size == 0 || p.buffers[i] != nil && p.buffers[i].Size() >= size {
			continue
		}
		if larger[i], err = q.g.Device.Alloc(size); err != nil {
			return errors.Join(err, free(larger))
		}
		grown = true
	}
	if !grown {
		return nil
	}
	errs := []error{p.forget()}
	for i, b := range larger {
		if b != nil {
			errs = append(errs, free(p.buffers[i:i+1]))
			p.buffers[i] = b
		}
	}
	q.count()
	return errors.Join(errs...)
}

// free frees buffers, of which some may be nil, and makes all nil.
func free(buffers []*cuda.Buffer) error {
	var errs []error
	for i, b := range buffers {
		if b != nil {
			errs = append(errs, b.Free())
		}
		buffers[i] = nil
	}
	return errors.Join(errs...)
}

// forget ends the launches of a place, which know the addresses of its buffers.
func (p *place) forget() error {
	var errs []error
	for _, f := range p.close {
		errs = append(errs, f())
	}
	p.close = nil
	clear(p.launch)
	return errors.Join(errs...)
}

// free frees what the queue holds for work over arrays on the device.
func (q *Queue) free() error {
	var errs []error
	for _, p := range q.places {
		errs = append(errs, p.forget(), free(p.buffers))
	}
	for _, inputs := range q.kept {
		errs = append(errs, free(inputs))
	}
	clear(q.kept)
	q.count()
	return errors.Join(errs...)
}

// count counts what is held.
func (q *Queue) count() {
	var held int64
	for _, p := range q.places {
		var n int64
		for _, b := range p.buffers {
			if b != nil {
				n += b.Size()
			}
		}
		held = max(held, n)
	}
	for _, inputs := range q.kept {
		for _, b := range inputs {
			held += b.Size()
		}
	}
	q.held.Store(held)
}

// Held returns how many bytes of the device's memory the queue holds for one work: those of its largest place, and of all
// inputs that it keeps. It may be called from any goroutine.
func (q *Queue) Held() int64 { return q.held.Load() }

// prepare makes work over arrays ready for a place that is free, and launches it once, since the first launch of a kernel
// loads it. If there is no memory the place is as it was.
func (q *Queue) prepare(p *place, w *Work) error {
	if err := q.grow(p, q.sizes(w)); err != nil {
		return err
	}
	o := w.opened.(*openArrays)
	in, err := q.keep(w)
	if err != nil {
		return err
	}
	if q.kept == nil {
		in = p.buffers[:len(o.in)]
	}
	var from []cuda.Ptr
	for _, b := range in {
		from = append(from, b.Ptr())
	}
	launch, end, err := o.of.GPU[Tuned](q.g, w.Shape, from, p.buffers[len(p.buffers)-1].Ptr(), w.DType)
	if err != nil {
		return err
	}
	if end != nil {
		p.close = append(p.close, end)
	}
	if err := launch(q.work); err != nil {
		return err
	}
	p.launch[w] = launch
	return nil
}

// keep returns the buffers in which the inputs of work stay, none if the queue keeps no inputs.
func (q *Queue) keep(w *Work) ([]*cuda.Buffer, error) {
	if q.kept == nil || q.kept[w] != nil {
		return q.kept[w], nil
	}
	var in []*cuda.Buffer
	for _, v := range w.opened.(*openArrays).in {
		b, err := q.g.Device.Alloc(v.Bytes())
		if err != nil {
			return nil, errors.Join(err, free(in))
		}
		in = append(in, b)
	}
	q.kept[w] = in
	q.count()
	return in, nil
}

// InFlight returns how many works over arrays have begun and were not returned by Ended.
func (q *Queue) InFlight() int { return len(q.begun) }

// Begin starts work over arrays. copyIn tells whether the inputs must be copied to the device; it is always so
// unless the queue keeps them. There must be a free place. What fails to begin is not in flight.
func (q *Queue) Begin(ctx context.Context, w *Work, copyIn bool) error {
	if _, ok := w.opened.(*openArrays); !ok {
		return fmt.Errorf("%s of %s is not over arrays: it runs in a lane", w.Task.Name, w.Shape)
	}
	at := slices.IndexFunc(q.places, func(p *place) bool { return p.holds == nil && p.launch[w] != nil })
	if at < 0 {
		at = slices.IndexFunc(q.places, func(p *place) bool { return p.holds == nil })
	}
	if at < 0 {
		return fmt.Errorf("%s has %d works in flight, which is the most", q.name, len(q.begun))
	}
	p := q.places[at]
	if err := q.begin(ctx, p, w, copyIn); err != nil {
		p.holds = nil
		return err
	}
	p.pending = false
	for _, other := range q.begun {
		p.pending, other.pending = true, true
	}
	q.begun = append(q.begun, p)
	return nil
}

// begin starts work in a place.
func (q *Queue) begin(ctx context.Context, p *place, w *Work, copyIn bool) error {
	p.holds, p.begun, p.copied = w, time.Now(), copyIn || q.kept == nil
	if p.launch[w] == nil {
		if err := q.prepare(p, w); err != nil {
			return err
		}
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
	defer func() { p.submit = microseconds(time.Since(p.begun)) }()
	var in int64
	p.pieces, p.issued = p.pieces[:0], 0
	if p.copied {
		for i, b := range to {
			in += o.in[i].Bytes()
			p.pieces = q.split(p.pieces, b, w.pinned[i], o.in[i].Bytes())
		}
	}
	if p.stage = copyingIn; in > q.piece || size > q.piece {
		return q.advance(p)
	}
	p.stage = issued
	e := p.events
	errs := []error{q.in.Record(e[0])}
	for _, c := range p.pieces {
		errs = append(errs, q.in.CopyToDevice(c.device, c.at, c.host, c.at, c.n))
	}
	errs = append(errs, q.launch(p), q.out.Wait(e[3]), q.out.Record(e[4]), q.out.CopyToHost(p.pinned, 0, p.buffers[n], 0, size), q.out.Record(e[5]))
	return errors.Join(errs...)
}

// launch issues the kernels of work whose copies in were issued.
func (q *Queue) launch(p *place) error {
	e := p.events
	return errors.Join(q.in.Record(e[1]), q.work.Wait(e[1]), q.work.Record(e[2]), p.launch[p.holds](q.work), q.work.Record(e[3]))
}

// advance issues what can be issued now of work with large copies. Work that began first is copied in first; the result of one work is copied out at a time.
func (q *Queue) advance(p *place) error {
	switch p.stage {
	case copyingIn:
		for _, other := range q.begun {
			if other == p {
				break
			}
			if other.stage == copyingIn {
				return nil
			}
		}
		if all, err := q.issue(p, q.in, p.events[0], func(c piece) error { return q.in.CopyToDevice(c.device, c.at, c.host, c.at, c.n) }); err != nil || !all {
			return err
		}
		p.stage = working
		return q.launch(p)
	case working:
		if slices.ContainsFunc(q.begun, func(other *place) bool { return other.stage == copyingOut }) {
			return nil
		}
		if ended, err := p.events[3].Query(); err != nil || !ended {
			return err
		}
		p.pieces, p.issued = q.split(p.pieces[:0], p.buffers[len(p.buffers)-1], p.pinned, p.holds.opened.(*openArrays).out.Bytes()), 0
		p.stage = copyingOut
		fallthrough
	case copyingOut:
		if all, err := q.issue(p, q.out, p.events[4], func(c piece) error { return q.out.CopyToHost(c.host, c.at, c.device, c.at, c.n) }); err != nil || !all {
			return err
		}
		p.stage = issued
		return q.out.Record(p.events[5])
	}
	return nil
}

// issue issues pieces of a copy until enough are ahead. It tells whether all are issued.
func (q *Queue) issue(p *place, s *cuda.Stream, start *cuda.Event, copy func(piece) error) (all bool, err error) {
	if p.issued == 0 {
		if err := s.Record(start); err != nil {
			return false, err
		}
	}
	for ; p.issued < len(p.pieces); p.issued++ {
		mark := p.marks[p.issued%ahead]
		if p.issued >= ahead {
			if copied, err := mark.Query(); err != nil || !copied {
				return false, err
			}
		}
		if err := errors.Join(copy(p.pieces[p.issued]), s.Record(mark)); err != nil {
			return false, err
		}
	}
	return true, nil
}

// Copying tells whether copies are left to be issued, by Ended: whoever calls it should do so soon.
func (q *Queue) Copying() bool {
	return slices.ContainsFunc(q.begun, func(p *place) bool { return p.stage != issued })
}

// Ended returns work that has ended, that which began first if several have, with its result checked. ok is false if none
// has. It goes on with copies that are issued in pieces. Work may end before other work that began earlier, as where that has long copies.
func (q *Queue) Ended(ctx context.Context) (e Ended, ok bool, err error) {
	for i, p := range q.begun {
		if p.stage != issued {
			if err := q.advance(p); err != nil {
				return e, false, err
			}
			if p.stage != issued {
				continue
			}
		}
		if ok, err = p.events[5].Query(); err != nil {
			return e, false, err
		} else if !ok {
			continue
		}
		if e, err = q.end(p); err != nil {
			return e, false, err
		}
		p.holds = nil
		q.begun = slices.Delete(q.begun, i, i+1)
		return e, true, nil
	}
	return e, false, nil
}

// end returns the times of work that has ended, and checks its result.
func (q *Queue) end(p *place) (e Ended, err error) {
	w := p.holds
	e.Work, e.Alone = w, !p.pending
	e.Times = Times{Submit: p.submit, Wall: microseconds(time.Since(p.begun))}
	for i, us := range []*float64{&e.Times.H2D, &e.Times.Kernel, &e.Times.D2H} {
		if *us, err = between(p.events[2*i], p.events[2*i+1]); err != nil {
			return e, err
		}
	}
	if !p.copied {
		e.Times.H2D = 0
	}
	host := p.pinned.Bytes()
	return e, w.opened.(*openArrays).compare(func(i int) (float64, error) { return float64(*(*float32)(unsafe.Pointer(&host[4*i]))), nil })
}

// Close frees what the queue holds.
func (q *Queue) Close() error {
	var errs []error
	for _, s := range []*cuda.Stream{q.in, q.work, q.out} {
		if s != nil {
			errs = append(errs, s.Synchronize())
		}
	}
	errs = append(errs, q.free())
	for _, p := range q.places {
		if p.pinned != nil {
			errs = append(errs, p.pinned.Free())
		}
		for _, e := range slices.Concat(p.events[:], p.marks[:]) {
			if e != nil {
				errs = append(errs, e.Close())
			}
		}
	}
	for _, l := range q.lanes {
		l.close()
	}
	for _, ready := range q.ready {
		for _, r := range ready {
			errs = append(errs, r.Close())
		}
	}
	for _, h := range q.hosts {
		errs = append(errs, h.Free())
	}
	for _, s := range []*cuda.Stream{q.in, q.work, q.out} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}
