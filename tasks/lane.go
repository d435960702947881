package tasks

import (
	"context"
	"fmt"
	"runtime"

	"gpt2scope/cuda"
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

// RunLane does work that does not run over arrays, and returns its times. It is called on the threads of lanes, by several at once. Its result is still to be checked, until when
// the memory that holds it is not used again: work of which all results wait to be checked waits for one. If the GPU had no memory for the work, the error matches
// [cuda.ErrOutOfMemory].
func (q *Queue) RunLane(ctx context.Context, w *Work) (t Times, u *Unchecked, err error) {
	q.mu.Lock()
	for len(q.ready[w]) == 0 && q.unchecked[w] > 0 {
		q.checked.Wait()
	}
	ready := q.ready[w]
	if len(ready) == 0 {
		err := q.none[w]
		q.mu.Unlock()
		if err != nil {
			return t, nil, err
		}
		return t, nil, fmt.Errorf("%s runs %s of %s as often as it is ready", q.name, w.Task.Name, w.Shape)
	}
	r := ready[len(ready)-1]
	q.ready[w] = ready[:len(ready)-1]
	q.mu.Unlock()
	t, err = r.Run(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.ready[w] = append(q.ready[w], r)
		return t, nil, err
	}
	q.unchecked[w]++
	return t, &Unchecked{q: q, w: w, r: r}, nil
}

// checksLater is a Ready whose result is copied to pinned memory while its caller does something else.
type checksLater interface {
	// checkBytes returns how much memory beginCheck needs, 0 if it cannot be called. A run was before.
	checkBytes() int64

	// beginCheck begins the copy. ended tells whether the result was there and checked, and the error of the check. The next run must wait until then.
	beginCheck(to *cuda.HostBuffer) (ended func() (bool, error), err error)
}

// Unchecked is work that ran in a lane, whose result was not checked. One goroutine at a time may use it.
type Unchecked struct {
	q     *Queue
	w     *Work
	r     Ready
	host  *cuda.HostBuffer
	ended func() (bool, error) // nil before the copy of the result has begun
}

// Relax pauses between two questions whether a GPU has ended something, each of which keeps other threads out of the driver.
func Relax() {
	for range 16 {
		cuda.Pause()
	}
}

// Check compares the result with the reference. If wait is not set, it waits for no copy: done is then false if it is to be called again.
func (u *Unchecked) Check(ctx context.Context, wait bool) (done bool, err error) {
	if u.ended == nil {
		var bytes int64 // of the copy, 0 if there can be none
		later, ok := u.r.(checksLater)
		if ok && !wait {
			bytes = later.checkBytes()
		}
		if bytes == 0 || bytes > u.q.hostBytes {
			return true, u.done(u.r.Check(ctx))
		}
		u.q.mu.Lock()
		if n := len(u.q.hosts); n > 0 {
			u.host, u.q.hosts = u.q.hosts[n-1], u.q.hosts[:n-1]
		}
		u.q.mu.Unlock()
		if u.host == nil {
			return false, nil
		}
		if u.ended, err = later.beginCheck(u.host); err != nil {
			return true, u.done(err)
		}
	}
	for {
		if done, err = u.ended(); done || err != nil {
			return true, u.done(err)
		}
		if !wait {
			return false, nil
		}
		Relax()
	}
}

// done gives back what held the result.
func (u *Unchecked) done(err error) error {
	q := u.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if u.host != nil {
		q.hosts = append(q.hosts, u.host)
	}
	q.ready[u.w] = append(q.ready[u.w], u.r)
	q.unchecked[u.w]--
	q.checked.Broadcast() // who waits may wait for other work
	return err
}
