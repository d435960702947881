package tasks

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
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
		q, err := m.NewQueue(ctx, "cuda:0", 2, works, keep)
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

// A wrong result and a lost device are errors.
func TestQueueFails(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	m := testMachine(t)
	c := stubGPU(t, m)
	works := testWorks(t, m, 1)
	ctx := context.Background()
	q, err := m.NewQueue(ctx, "cuda:0", 2, works, false)
	if err != nil {
		t.Fatal(err)
	}
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
	o := works[0].opened.(*openArrays)
	right := o.want[0]
	o.want[0]++
	if err := run(); err == nil || !strings.Contains(err.Error(), "element 0 of") {
		t.Errorf("a wrong result: %v", err)
	}
	o.want[0] = right
	c.Fail("lost", 1)
	q.first, q.used = 0, 0
	if err := run(); err == nil {
		t.Error("a lost device: no error")
	}
	c.Reset()
	if err := q.Close(); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := m.NewQueue(ctx, "cuda:7", 2, works, false); err == nil {
		t.Error("a queue of a GPU that is not open: no error")
	}
}
