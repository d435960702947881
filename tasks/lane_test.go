package tasks

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gpt2scope/cuda"
)

// held is a task that runs until it is let go.
type held struct {
	begun, closed atomic.Int32
	let           chan error
}

func (h *held) Prepare(context.Context, Way, string, string) (Ready, error) {
	return &heldRun{held: h}, nil
}
func (h *held) Close() error { return nil }

type heldRun struct {
	*held
	runs, closes int // the first two are those of NewQueue
}

func (h *heldRun) Run(ctx context.Context) (Times, error) {
	if h.runs++; h.runs <= 2 {
		return Times{}, nil
	}
	h.begun.Add(1)
	return Times{Wall: 7}, <-h.let
}
func (h *heldRun) Check(context.Context) error { return nil }
func (h *heldRun) Close() error {
	if h.closes++; h.closes > 1 {
		return errors.New("closed twice")
	}
	h.closed.Add(1)
	return nil
}

// decodeWork is work of gpt2.decode of which o is what was opened.
func decodeWork(t *testing.T, o Opened) *Work {
	t.Helper()
	decode, err := Find(All(), []string{"gpt2.decode"})
	if err != nil {
		t.Fatal(err)
	}
	return &Work{Task: decode[0], Shape: decode[0].Sizes[0], DType: Float32, opened: o}
}

// Work that does not run over arrays runs in lanes, as often at once as it was given, while work over arrays goes on. Each lane has one thread. An error of a lane is one of
// what it ran. Close waits for what runs.
func TestQueueLanes(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx := context.Background()
	m := testMachine(t)
	stubGPU(t, m)
	arrays := testWorks(t, m, 1)
	h := &held{let: make(chan error)}
	w := decodeWork(t, h)
	q, err := m.NewQueue(ctx, "cuda:0", 1, 3, append(arrays, w, w), false)
	if err != nil {
		t.Fatal(err)
	}
	type ended struct {
		times  Times
		err    error
		thread int
	}
	ends := make(chan ended, 3)
	run := func(lane int) {
		go q.OnLane(lane, func() {
			times, u, err := q.RunLane(ctx, w)
			if err == nil {
				_, err = u.Check(ctx, false)
			}
			ends <- ended{times, err, syscall.Gettid()}
		})
	}
	for lane := range 2 {
		run(lane)
	}
	for h.begun.Load() < 2 {
		runtime.Gosched()
	}
	if _, _, err := q.RunLane(ctx, w); err == nil || !strings.Contains(err.Error(), "as often as it is ready") {
		t.Errorf("the same work more often than it was given: %v", err)
	}
	if err := q.Begin(ctx, w, true); err == nil || !strings.Contains(err.Error(), "runs in a lane") {
		t.Errorf("work of a lane in a place: %v", err)
	}
	if err := q.Begin(ctx, arrays[0], true); err != nil {
		t.Fatal(err)
	}
	for {
		e, ok, err := q.Ended(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			if e.Work != arrays[0] || !e.Alone || q.InFlight() != 0 {
				t.Errorf("work over arrays beside lanes: %+v; %d in flight", e, q.InFlight())
			}
			break
		}
	}
	h.let <- nil
	one := <-ends
	wrong := errors.New("a wrong result")
	h.let <- wrong
	two := <-ends
	if one.err != nil || one.times.Wall != 7 || !errors.Is(two.err, wrong) || one.thread == two.thread || one.thread == syscall.Gettid() {
		t.Errorf("work in two lanes: %+v and %+v", one, two)
	}
	run(2)
	for h.begun.Load() < 3 {
		runtime.Gosched()
	}
	go func() { h.let <- nil }()
	if err := q.Close(); err != nil || h.closed.Load() != 2 {
		t.Errorf("closing while work runs: %v; %d of 2 were closed", err, h.closed.Load())
	}
	if last := <-ends; last.err != nil {
		t.Error(last.err)
	}
}

// copied is a task whose result is on the host once it is told.
type copied struct {
	there  atomic.Bool
	begun  atomic.Int32
	result error
}

func (c *copied) Prepare(context.Context, Way, string, string) (Ready, error) { return c, nil }
func (c *copied) Close() error                                                { return nil }
func (c *copied) Run(context.Context) (Times, error)                          { return Times{Wall: 7}, nil }
func (c *copied) Check(context.Context) error                                 { return errors.New("waited for the copy") }
func (c *copied) checkBytes() int64                                           { return 64 }
func (c *copied) beginCheck(to *cuda.HostBuffer) (func() (bool, error), error) {
	c.begun.Add(1)
	to.Bytes()[63] = 1
	return func() (bool, error) { return c.there.Load(), c.result }, nil
}

// A result is checked once it is on the host, for which nothing waits but the same work. There is memory for as many copies as there are lanes. Errors are those of the check.
func TestQueueChecksLater(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx := context.Background()
	m := testMachine(t)
	stubGPU(t, m)
	var works []*Work
	var tasks []*copied
	for range 2 {
		c := &copied{}
		tasks = append(tasks, c)
		works = append(works, decodeWork(t, c))
	}
	q, err := m.NewQueue(ctx, "cuda:0", 1, 1, works, false)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	var wait []*Unchecked
	for _, w := range works {
		_, u, err := q.RunLane(ctx, w)
		if err != nil {
			t.Fatal(err)
		}
		wait = append(wait, u)
		if done, err := u.Check(ctx, false); done || err != nil {
			t.Fatalf("a result that is not there: %v, %v", done, err)
		}
	}
	if tasks[0].begun.Load() != 1 || tasks[1].begun.Load() != 0 {
		t.Error("memory for one copy held two")
	}
	again := make(chan error)
	go func() {
		_, _, err := q.RunLane(ctx, works[0])
		again <- err
	}()
	select {
	case <-again:
		t.Fatal("work ran again before its result was checked")
	case <-time.After(10 * time.Millisecond):
	}
	tasks[0].there.Store(true)
	if done, err := wait[0].Check(ctx, true); !done || err != nil {
		t.Errorf("a result that is there: %v, %v", done, err)
	}
	if err := <-again; err != nil {
		t.Error(err)
	}
	tasks[1].there.Store(true)
	tasks[1].result = errors.New("wrong")
	if done, err := wait[1].Check(ctx, false); !done || err != tasks[1].result || tasks[1].begun.Load() != 1 {
		t.Errorf("a wrong result: %v, %v", done, err)
	}
}
