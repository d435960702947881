package tasks

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gpt2scope/cuda"
	"gpt2scope/internal/require"
	"gpt2scope/internal/stub"
	"gpt2scope/predict"
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
			w := require.Value(m.OpenWork(context.Background(), task, shape, Float32))(t)
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

// testQueue opens a queue of two slots on the stub's GPU, for works of so many shapes of each task.
func testQueue(ctx context.Context, t *testing.T, shapes int) (*Machine, *stub.Control, []*Work, *Queue) {
	t.Helper()
	m := testMachine(t)
	c := stubGPU(t, m)
	works := testWorks(t, m, shapes)
	q := require.Value(m.NewQueue(ctx, "cuda:0", 2, works))(t)
	return m, c, works, q
}

// Two slots run work at once with results that are checked and all times.
func TestQueue(t *testing.T) {
	ctx := context.Background()
	_, _, works, q := testQueue(ctx, t, 2)
	for _, w := range works {
		if _, alone, err := q.Run(ctx, 0, w); err != nil || !alone {
			t.Fatalf("%s of %s: alone: %v, %v", w.Task.Name, w.Shape, alone, err)
		}
	}
	var both sync.WaitGroup
	for slot := range 2 {
		both.Go(func() {
			for _, w := range works {
				times, _, err := q.Run(ctx, slot, w)
				if err != nil || !(times.Wall > 0) || !(times.Kernel > 0) || !(times.H2D > 0) || !(times.D2H > 0) {
					t.Errorf("%s of %s: %+v, %v", w.Task.Name, w.Shape, times, err)
				}
			}
		})
	}
	both.Wait()
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// waits is work of GPT-2 that runs until it is let go, but for the runs of NewQueue.
type waits struct {
	begun  chan struct{}
	let    chan error
	runs   atomic.Int32
	closed atomic.Int32
}

func (w *waits) Close() error { return nil }
func (w *waits) prepare(context.Context, Way, *slot, predict.Memory) (Ready, error) {
	return Ready{run: w.run, check: func() error { return nil }, end: func() error { w.closed.Add(1); return nil }}, nil
}
func (w *waits) run(context.Context) (Times, error) {
	if w.runs.Add(1) <= 4 { // two in each slot
		return Times{}, nil
	}
	w.begun <- struct{}{}
	return Times{Wall: 7}, <-w.let
}

// GPT-2 runs in a slot beside work over arrays in the other, which then is not alone. An error is one of what ran.
func TestQueueBesideGPT2(t *testing.T) {
	ctx := context.Background()
	m := testMachine(t)
	stubGPU(t, m)
	decode := require.Value(Find(All(), []string{"gpt2.decode"}))(t)
	slow := &waits{begun: make(chan struct{}), let: make(chan error)}
	gpt2 := &Work{Task: decode[0], Shape: decode[0].Sizes[0], DType: Float32, opened: slow}
	vectors := testWorks(t, m, 1)
	q := require.Value(m.NewQueue(ctx, "cuda:0", 2, append(vectors, gpt2)))(t)
	wrong := errors.New("a wrong result")
	for _, want := range []error{nil, wrong} {
		ended := make(chan error)
		go func() {
			times, alone, err := q.Run(ctx, 1, gpt2)
			if alone || times.Wall != 7 {
				t.Errorf("alone: %v, %+v", alone, times)
			}
			ended <- err
		}()
		<-slow.begun
		if _, alone, err := q.Run(ctx, 0, vectors[0]); err != nil || alone {
			t.Errorf("beside GPT-2: alone: %v, %v", alone, err)
		}
		slow.let <- want
		if err := <-ended; err != want {
			t.Errorf("%v, expected %v", err, want)
		}
	}
	if err := q.Close(); err != nil || slow.closed.Load() != 2 {
		t.Errorf("%v; %d of 2 were closed", err, slow.closed.Load())
	}
}

// A launch that fails and a wrong result are errors of one run. A lost GPU fails all.
func TestQueueFails(t *testing.T) {
	ctx := context.Background()
	m, c, works, q := testQueue(ctx, t, 1)
	run := func() error {
		_, _, err := q.Run(ctx, 0, works[0])
		return err
	}
	c.Fail("launch", 1)
	if err := run(); err == nil {
		t.Error("a launch that failed: no error")
	}
	if err := run(); err != nil {
		t.Errorf("after a launch that failed: %v", err)
	}
	o := works[0].opened.(*arrays)
	o.want[0]++
	if err := run(); err == nil || !strings.Contains(err.Error(), "element 0 of") {
		t.Errorf("a wrong result: %v", err)
	}
	o.want[0]--
	for n := 1; n <= 8; n++ {
		c.Fail("lost", n)
		if err := run(); err == nil {
			t.Errorf("a GPU that is lost at call %d: no error", n)
		}
		c.Reset()
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	if _, err := m.NewQueue(ctx, "cuda:7", 2, works); err == nil {
		t.Error("a queue of a GPU that is not open: no error")
	}
}

// A queue takes memory for what fits. It refuses what does not fit, runs the others, and runs that too once there is
// memory.
func TestQueueOfLittleMemory(t *testing.T) {
	ctx := context.Background()
	m := testMachine(t)
	c := stubGPU(t, m)
	works := testWorks(t, m, 2)
	bytes := func(a, b *Work) int { return cmp.Compare(a.DeviceBytes, b.DeviceBytes) }
	large, small := slices.MaxFunc(works, bytes), slices.MinFunc(works, bytes)
	for _, limit := range []int64{1, 3 * small.DeviceBytes, 2*large.DeviceBytes - 1000} {
		c.Memory(limit)
		q, err := m.NewQueue(ctx, "cuda:0", 2, works)
		if err != nil {
			t.Fatalf("%d bytes: %v", limit, err)
		}
		if held := q.Held(); held > limit || limit > 1 && held == 0 {
			t.Errorf("of %d bytes %d are held", limit, held)
		}
		refused := 0
		for _, w := range works {
			switch _, _, err := q.Run(ctx, 0, w); {
			case errors.Is(err, cuda.ErrOutOfMemory):
				refused++
			case err != nil:
				t.Fatal(err)
			case limit == 1:
				t.Errorf("%s of %s ran without memory", w.Task.Name, w.Shape)
			}
		}
		if _, _, err := q.Run(ctx, 1, small); refused == 0 || limit > 1 && err != nil {
			t.Errorf("%d bytes: %d of %d works were refused; the smallest: %v", limit, refused, len(works), err)
		}
		c.Memory(0)
		for _, w := range works {
			for slot := range 2 {
				if _, _, err := q.Run(ctx, slot, w); err != nil {
					t.Errorf("%s of %s, with memory: %v", w.Task.Name, w.Shape, err)
				}
			}
		}
		if q.Held() < large.DeviceBytes {
			t.Errorf("%d bytes are held, and work of %d ran", q.Held(), large.DeviceBytes)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}
