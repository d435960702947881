package tasks

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
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

// Work that does not run over arrays runs in lanes, as often at once as it was given, while work over arrays goes on. An error of a lane is one of the queue.
// Close waits for what runs.
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
	for range 2 {
		if err := q.Begin(ctx, w, true); err != nil {
			t.Fatal(err)
		}
	}
	for h.begun.Load() < 2 {
		runtime.Gosched()
	}
	if err := q.Begin(ctx, w, true); err == nil || !strings.Contains(err.Error(), "as often as it is ready") {
		t.Errorf("the same work more often than it was given: %v", err)
	}
	ended := func() (Ended, error) {
		for {
			if e, ok, err := q.Ended(ctx); ok || err != nil {
				return e, err
			}
		}
	}
	if err := q.Begin(ctx, arrays[0], true); err != nil {
		t.Fatal(err)
	}
	if e, err := ended(); err != nil || e.Work != arrays[0] || !e.Alone || q.InFlight() != 2 {
		t.Errorf("work over arrays beside lanes: %+v, %v; %d in flight", e, err, q.InFlight())
	}
	h.let <- nil
	if e, err := ended(); err != nil || e.Work != w || e.Times.Wall != 7 {
		t.Errorf("work in a lane: %+v, %v", e, err)
	}
	wrong := errors.New("a wrong result")
	h.let <- wrong
	if _, err := ended(); !errors.Is(err, wrong) {
		t.Errorf("work that fails in a lane: %v", err)
	}
	if err := q.Begin(ctx, w, true); err != nil { // in the third lane
		t.Fatal(err)
	}
	for h.begun.Load() < 3 {
		runtime.Gosched()
	}
	go func() { h.let <- nil }()
	if err := q.Close(); err != nil || h.closed.Load() != 2 {
		t.Errorf("closing while work runs: %v; %d of 2 were closed", err, h.closed.Load())
	}
}
