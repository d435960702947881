package tasks

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
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
	decode, err := Find(All(), []string{"gpt2.decode"})
	if err != nil {
		t.Fatal(err)
	}
	w := &Work{Task: decode[0], Shape: decode[0].Sizes[0], DType: Float32, opened: h}
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
			times, err := q.RunLane(ctx, w)
			ends <- ended{times, err, syscall.Gettid()}
		})
	}
	for lane := range 2 {
		run(lane)
	}
	for h.begun.Load() < 2 {
		runtime.Gosched()
	}
	if _, err := q.RunLane(ctx, w); err == nil || !strings.Contains(err.Error(), "as often as it is ready") {
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
