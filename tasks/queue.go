package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"gpt2scope/cuda"
	"gpt2scope/predict"
)

// Work is a task of one shape with its inputs. It can run many times, on the CPU and through a [Queue] on GPUs, also
// at once.
type Work struct {
	Task  *Task
	Shape Shape
	DType string
	Cost  Cost

	// DeviceBytes is how many bytes of a GPU's memory the inputs and the result take: 0 for GPT-2, whose weights are
	// there already.
	DeviceBytes int64

	opened Opened
	cpu    Ready
}

// OpenWork makes the inputs and prepares the tuned way on the CPU.
func (m *Machine) OpenWork(ctx context.Context, t *Task, s Shape, dtype string) (w *Work, err error) {
	w = &Work{Task: t, Shape: s, DType: dtype}
	if w.Cost, err = t.Cost(s, dtype); err != nil {
		return w, err
	}
	if w.opened, err = t.open(ctx, m, s, dtype); err != nil {
		return w, err
	}
	if o, ok := w.opened.(*arrays); ok {
		w.DeviceBytes = o.deviceBytes()
	}
	if w.cpu, err = w.prepare(ctx, CPU, nil); err != nil {
		err = errors.Join(err, w.opened.Close())
	}
	return w, err
}

// prepare makes the tuned way on a kind of device ready.
func (w *Work) prepare(ctx context.Context, device string, s *slot) (Ready, error) {
	for _, way := range w.Task.Ways {
		if way.Device == device && way.Variant == Tuned && way.fits(w.Shape, w.DType) {
			return w.opened.prepare(ctx, way, s, predict.Pinned)
		}
	}
	return Ready{}, fmt.Errorf("%s of %s in %s has no tuned way on %s", w.Task.Name, w.Shape, w.DType, device)
}

// Run does the task once on the CPU and checks the result.
func (w *Work) Run(ctx context.Context) (Times, error) { return w.cpu.checked(ctx) }

// Close frees the inputs.
func (w *Work) Close() error { return errors.Join(w.cpu.close(), w.opened.Close()) }

// Queue runs work on a GPU in slots, one work in each at a time. Each slot is used by one goroutine at a time, several
// slots at once. Copies in, kernels and copies out of work over arrays are on three streams that all slots share, so
// that the copies of one work run beside the kernels of another. GPT-2 runs on streams of its own.
//
// A queue takes its memory when it opens, for the largest work for which all slots have room. Larger work tries again
// when it runs: without room its error matches [cuda.ErrOutOfMemory], and the queue goes on.
type Queue struct {
	g       *GPUDevice
	streams [3]*cuda.Stream
	slots   []*slot
	issue   sync.Mutex // held while a slot puts work on the streams

	mu          sync.Mutex // guards what follows, and the memory of slots
	busy, begun int        // works that run, and that ever began
}

// NewQueue opens a queue with a number of slots for these works.
func (m *Machine) NewQueue(ctx context.Context, device string, slots int, works []*Work) (q *Queue, err error) {
	q = &Queue{g: m.gpu(device)}
	if q.g == nil {
		return q, fmt.Errorf("GPU %s is not open", device)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, q.Close())
		}
	}()
	for i := range q.streams {
		if q.streams[i], err = q.g.Device.NewStream(); err != nil {
			return q, err
		}
	}
	for range slots {
		s, err := q.g.newSlot(q.streams[0], q.streams[1], q.streams[2])
		if err != nil {
			return q, err
		}
		s.issue = &q.issue
		q.slots = append(q.slots, s)
	}
	works = slices.Clone(works)
	slices.SortStableFunc(works, func(a, b *Work) int { return cmp.Compare(b.DeviceBytes, a.DeviceBytes) })
	for _, w := range works {
		if err := q.reserve(w); errors.Is(err, cuda.ErrOutOfMemory) { // Run tries again
			continue
		} else if err != nil {
			return q, err
		}
		for _, s := range q.slots {
			if _, err := q.prepare(ctx, s, w); err != nil && !errors.Is(err, cuda.ErrOutOfMemory) {
				return q, err
			}
		}
	}
	return q, nil
}

// reserve takes the memory for a work in all slots, or in none.
func (q *Queue) reserve(w *Work) (err error) {
	for _, s := range q.slots {
		if err == nil {
			err = s.grow(w.DeviceBytes)
		}
	}
	for _, s := range q.slots {
		if err != nil {
			err = errors.Join(err, s.free())
		}
	}
	return err
}

// prepare returns a work that is ready in a slot. A new one runs twice, since the first launch of a kernel loads it and
// the first passes of GPT-2 record graphs.
func (q *Queue) prepare(ctx context.Context, s *slot, w *Work) (Ready, error) {
	if r, ok := s.ready[w]; ok {
		return r, nil
	}
	r, err := w.prepare(ctx, GPU, s)
	if err != nil {
		return r, err
	}
	for range 2 {
		if _, err := r.run(ctx); err != nil {
			return r, errors.Join(err, r.close())
		}
	}
	s.ready[w] = r
	return r, nil
}

// Run does a work in a slot and returns once its result has been checked. alone tells whether no other work was in
// flight meanwhile.
func (q *Queue) Run(ctx context.Context, at int, w *Work) (t Times, alone bool, err error) {
	q.mu.Lock()
	q.busy++
	q.begun++
	first, begun := q.busy == 1, q.begun
	r, err := q.prepare(ctx, q.slots[at], w)
	q.mu.Unlock()
	if err == nil {
		t, err = r.checked(ctx)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy--
	return t, first && q.begun == begun, err
}

// Held returns how many bytes of the GPU's memory the queue holds that a work may use: the largest buffer of a slot.
func (q *Queue) Held() (held int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.slots {
		if s.buffer != nil {
			held = max(held, s.buffer.Size())
		}
	}
	return held
}

// Close frees what the queue holds. No slot may run work.
func (q *Queue) Close() error {
	err := closeStreams(q.streams[:]...)
	for _, s := range q.slots {
		err = errors.Join(err, s.close())
	}
	return err
}

// LeavesRoom tells whether the kernels of a task leave most of a GPU to other work: those of GPT-2 do.
func LeavesRoom(name string) bool { return strings.HasPrefix(name, "gpt2.") }
