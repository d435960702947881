package tasks

import (
	"context"
	"fmt"
	"runtime"
)

// lane is a thread of a queue that runs work which waits for its GPU again and again, as GPT-2 does for tokens.
type lane struct {
	calls chan func()
}

func newLane() *lane {
	l := &lane{calls: make(chan func())}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for f := range l.calls {
			f()
		}
	}()
	return l
}

// do runs f on the thread of the lane.
func (l *lane) do(f func()) {
	ended := make(chan struct{})
	l.calls <- func() { defer close(ended); f() }
	<-ended
}

// close ends the thread, after what it does.
func (l *lane) close() {
	l.do(func() {})
	close(l.calls)
}

// OnLane runs f on the thread of a lane, and returns when f has. Each lane has one thread from the beginning of the queue to its end.
func (q *Queue) OnLane(lane int, f func()) { q.lanes[lane].do(f) }

// RunLane does work that does not run over arrays, checks its result, and returns its times. It is called on the threads of lanes, by several at once. If the GPU had no
// memory for the work, the error matches [cuda.ErrOutOfMemory].
func (q *Queue) RunLane(ctx context.Context, w *Work) (t Times, err error) {
	q.mu.Lock()
	ready := q.ready[w]
	if len(ready) == 0 {
		err := q.none[w]
		q.mu.Unlock()
		if err != nil {
			return t, err
		}
		return t, fmt.Errorf("%s runs %s of %s as often as it is ready", q.name, w.Task.Name, w.Shape)
	}
	r := ready[len(ready)-1]
	q.ready[w] = ready[:len(ready)-1]
	q.mu.Unlock()
	if t, err = r.Run(ctx); err == nil {
		err = r.Check(ctx)
	}
	q.mu.Lock()
	q.ready[w] = append(q.ready[w], r)
	q.mu.Unlock()
	return t, err
}
