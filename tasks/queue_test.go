package tasks

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/internal/stub"
)

// works opens the smallest shapes of the tasks over arrays.
func testWorks(t *testing.T, m *Machine, shapes int) []*Work {
	t.Helper()
	var works []*Work
	for _, task := range All() {
		if task.Arrays == nil {
			continue
		}
		for _, shape := range task.Sizes[:shapes] {
			w, err := m.OpenWork(context.Background(), task, shape, Float32)
			if err != nil {
				t.Fatal(err)
			}
			works = append(works, w)
		}
	}
	t.Cleanup(func() {
		for _, w := range works {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return works
}

// testQueue opens a queue of two places on the stub's GPU, for works of so many shapes of each task.
func testQueue(ctx context.Context, t *testing.T, shapes int) (*Machine, *stub.Control, []*Work, *Queue) {
	t.Helper()
	m := testMachine(t)
	c := stubGPU(t, m)
	works := testWorks(t, m, shapes)
	q, err := m.NewQueue(ctx, "cuda:0", 2, 0, works, false)
	if err != nil {
		t.Fatal(err)
	}
	return m, c, works, q
}

// A queue runs several works at once, ends them in order with checked results and all times, and with inputs that
// stay on the device copies them once.
func TestQueue(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m := testMachine(t)
	stubGPU(t, m)
	works := testWorks(t, m, 2)
	ctx := context.Background()
	for _, keep := range []bool{false, true} {
		q, err := m.NewQueue(ctx, "cuda:0", 2, 0, works, keep)
		if err != nil {
			t.Fatal(err)
		}
		began, ended, full := 0, 0, false
		for round := range 2 {
			for i := 0; i < len(works); {
				if q.InFlight() < 2 {
					if err := q.Begin(ctx, works[i], !keep || round == 0); err != nil {
						t.Fatal(err)
					}
					i++
					began++
					continue
				}
				if !full {
					if err := q.Begin(ctx, works[0], true); err == nil || !strings.Contains(err.Error(), "in flight") {
						t.Errorf("a third work: %v", err)
					}
					full = true
				}
				e, ok, err := q.Ended(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					continue
				}
				if e.Work != works[ended%len(works)] {
					t.Fatalf("%s ended out of order", e.Work.Task.Name)
				}
				ended++
				if !(e.Times.Wall > 0) || !(e.Times.Kernel > 0) || (e.Times.H2D == 0) != (keep && ended > len(works)) {
					t.Errorf("%+v", e.Times)
				}
			}
		}
		for q.InFlight() > 0 {
			if _, ok, err := q.Ended(ctx); err != nil {
				t.Fatal(err)
			} else if ok {
				ended++
			}
		}
		if began != ended {
			t.Errorf("%d began, %d ended", began, ended)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Large copies are issued in pieces, a few ahead of what has been copied, so that what other threads copy waits for these at most. Results are right, and of two works that which
// began first is copied in first.
func TestQueueCopiesInPieces(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx := context.Background()
	for _, keep := range []bool{false, true} {
		m := testMachine(t)
		c := stubGPU(t, m)
		works := testWorks(t, m, 2)
		q, err := m.NewQueue(ctx, "cuda:0", 2, 0, works, keep)
		if err != nil {
			t.Fatal(err)
		}
		q.piece = 64
		large := slices.MaxFunc(works, func(a, b *Work) int { return cmp.Compare(a.Cost.In+a.Cost.Out, b.Cost.In+b.Cost.Out) })
		if large.Cost.Out < 8*q.piece {
			t.Fatalf("the result has %d bytes", large.Cost.Out)
		}
		copies := func() (n int) {
			for _, call := range c.Calls() {
				if strings.HasPrefix(call, "gs_copy") {
					n++
				}
			}
			return n
		}
		before := copies()
		c.Pending(1 << 30) // no copy ends
		if err := q.Begin(ctx, large, true); err != nil {
			t.Fatal(err)
		}
		if n := copies() - before; n != ahead || !q.Copying() {
			t.Errorf("%d pieces were issued while none was copied, expected %d", n, ahead)
		}
		if err := q.Begin(ctx, works[0], true); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := q.Ended(ctx); ok || err != nil {
			t.Fatal(ok, err)
		}
		c.Pending(0)
		for q.InFlight() > 0 {
			e, ok, err := q.Ended(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if ok && e.Work == large && e.Alone {
				t.Error("large work was alone")
			}
		}
		if n, least := copies()-before, int((large.Cost.In+large.Cost.Out)/q.piece); n < least || q.Copying() {
			t.Errorf("%d pieces, expected %d at least", n, least)
		}
		for round := range 2 { // at last with inputs that stay
			for _, w := range works {
				if err := q.Begin(ctx, w, !keep || round == 0); err != nil {
					t.Fatal(err)
				}
				for ok := false; !ok; {
					if _, ok, err = q.Ended(ctx); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A wrong result and a lost device are errors.
func TestQueueFails(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx := context.Background()
	m, c, works, q := testQueue(ctx, t, 1)
	run := func() error {
		err := q.Begin(ctx, works[0], true)
		for n := 0; err == nil && n < 100; n++ {
			ok := false
			if _, ok, err = q.Ended(ctx); ok {
				return err
			}
		}
		return err
	}
	c.Fail("launch", 1)
	if err := q.Begin(ctx, works[0], true); err == nil || q.InFlight() != 0 {
		t.Errorf("work that did not begin: %v, and %d in flight", err, q.InFlight())
	}
	if err := run(); err != nil || q.InFlight() != 0 {
		t.Errorf("after work that did not begin: %v, and %d in flight", err, q.InFlight())
	}
	o := works[0].opened.(*openArrays)
	right := o.want[0]
	o.want[0]++
	if err := run(); err == nil || !strings.Contains(err.Error(), "element 0 of") {
		t.Errorf("a wrong result: %v", err)
	}
	o.want[0] = right
	c.Fail("lost", 1)
	q.begun, q.places[0].holds, q.places[1].holds = nil, nil, nil
	if err := run(); err == nil {
		t.Error("a lost device: no error")
	}
	c.Reset()
	if err := q.Close(); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := m.NewQueue(ctx, "cuda:7", 2, 0, works, false); err == nil {
		t.Error("a queue of a GPU that is not open: no error")
	}
}

// Work that ends before other work that began earlier makes its place free at once.
func TestQueueEndsInAnyOrder(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx := context.Background()
	_, c, works, q := testQueue(ctx, t, 2)
	defer q.Close()
	for _, w := range works[:2] {
		if err := q.Begin(ctx, w, true); err != nil {
			t.Fatal(err)
		}
	}
	c.Pending(1) // the first has not ended
	e, ok, err := q.Ended(ctx)
	if err != nil || !ok || e.Work != works[1] || q.InFlight() != 1 {
		t.Fatalf("%v, %v, %v; %d in flight", e.Work == works[0], ok, err, q.InFlight())
	}
	if err := q.Begin(ctx, works[2], true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []*Work{works[0], works[2]} {
		e, ok, err := q.Ended(ctx)
		if err != nil || !ok || e.Work != want || e.Alone {
			t.Errorf("%+v, %v, %v", e, ok, err)
		}
	}
}

// A queue takes memory for what fits. What does not is refused when it is to begin, the others run, and it runs too once there
// is memory.
func TestQueueOfLittleMemory(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m := testMachine(t)
	c := stubGPU(t, m)
	works := testWorks(t, m, 2)
	large := slices.MaxFunc(works, func(a, b *Work) int { return cmp.Compare(a.DeviceBytes(), b.DeviceBytes()) })
	small := slices.MinFunc(works, func(a, b *Work) int { return cmp.Compare(a.DeviceBytes(), b.DeviceBytes()) })
	ctx := context.Background()
	run := func(q *Queue, w *Work) error {
		t.Helper()
		if err := q.Begin(ctx, w, true); err != nil {
			if q.InFlight() != 0 {
				t.Errorf("%d in flight of work that did not begin", q.InFlight())
			}
			return err
		}
		for {
			if _, ok, err := q.Ended(ctx); ok || err != nil {
				return err
			}
		}
	}
	for _, keep := range []bool{false, true} {
		for _, limit := range []int64{1, 3 * small.DeviceBytes(), 2*large.DeviceBytes() - 1000} {
			c.Memory(limit)
			q, err := m.NewQueue(ctx, "cuda:0", 2, 0, works, keep)
			if err != nil {
				t.Fatalf("%d bytes: %v", limit, err)
			}
			held := q.Held()
			if held > limit || limit > 1 && held == 0 {
				t.Errorf("of %d bytes %d are held", limit, held)
			}
			var none []*Work
			for _, w := range works {
				switch err := run(q, w); {
				case errors.Is(err, cuda.ErrOutOfMemory):
					none = append(none, w)
				case err != nil:
					t.Fatal(err)
				case limit == 1:
					t.Errorf("%s of %s ran without memory", w.Task.Name, w.Shape)
				}
			}
			if len(none) == 0 || limit > 1 && slices.Contains(none, small) {
				t.Errorf("%d bytes, keep %v: %d of %d works were refused", limit, keep, len(none), len(works))
			}
			c.Memory(0)
			for _, w := range works {
				for range 2 {
					if err := run(q, w); err != nil {
						t.Errorf("%s of %s, with memory: %v", w.Task.Name, w.Shape, err)
					}
				}
			}
			if q.Held() < large.DeviceBytes() {
				t.Errorf("%d bytes are held, and work of %d ran", q.Held(), large.DeviceBytes())
			}
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// preparing is a backend that counts how often it got weights ready.
type preparing struct {
	gpt2.Backend
	n atomic.Int32
}

func (p *preparing) Prepare(ctx context.Context, m *gpt2.Model, o gpt2.Options) (gpt2.Runner, error) {
	p.n.Add(1)
	return p.Backend.Prepare(ctx, m, o)
}

// Queues of several GPUs are opened at once, each of which asks for backends. Weights are made ready once for each.
func TestBackendsAtOnce(t *testing.T) {
	m := testMachine(t)
	keys := []backendKey{{CPU, Float32, ""}, {CPU, BFloat16, ""}}
	for _, k := range keys {
		m.backends[k] = &preparing{Backend: m.backends[k]}
	}
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			if _, err := m.backend(context.Background(), keys[i%len(keys)]); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, k := range keys {
		if n := m.backends[k].(*preparing).n.Load(); n != 1 {
			t.Errorf("weights of %v were made ready %d times; expected once", k, n)
		}
	}
}
