package tasks

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"gpt2scope/cuda"
)

// lane is a thread that runs work which waits for its GPU again and again, as GPT-2 does for tokens. Begin and end are seen by looking, since work
// of 100 us would wait long for a thread that sleeps.
type lane struct {
	place
	state atomic.Int32
	wake  chan struct{} // something has begun, or the lane is to end
	gone  chan struct{} // closed when the thread has ended

	// Of what the lane does: the thread's between begun and ended.
	ctx   context.Context
	ready Ready
	times Times
	err   error
}

const (
	laneFree int32 = iota
	laneBegun
	laneEnded
	laneClosed
)

// laneLooks is how long a lane looks for work before it sleeps.
const laneLooks = 200 * time.Microsecond

func newLane() *lane {
	l := &lane{wake: make(chan struct{}, 1), gone: make(chan struct{})}
	l.lane = l
	go l.serve()
	return l
}

func (l *lane) serve() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(l.gone)
	for l.await() {
		if l.times, l.err = l.ready.Run(l.ctx); l.err == nil {
			l.err = l.ready.Check(l.ctx)
		}
		l.state.Store(laneEnded)
	}
}

// await waits until work has begun. It returns false once the lane is closed.
func (l *lane) await() bool {
	start := time.Now()
	for n := 1; ; n++ {
		switch l.state.Load() {
		case laneBegun:
			return true
		case laneClosed:
			return false
		}
		if cuda.Pause(); n%64 == 0 && time.Since(start) > laneLooks {
			<-l.wake
		}
	}
}

func (l *lane) set(state int32) {
	l.state.Store(state)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// begin starts work in a lane that is free.
func (l *lane) begin(ctx context.Context, r Ready) {
	l.ctx, l.ready = ctx, r
	l.set(laneBegun)
}

// ended tells whether the work has ended.
func (l *lane) ended() bool { return l.state.Load() == laneEnded }

// result returns the times of work that has ended, of which the result was checked, and makes the lane free.
func (l *lane) result() (Times, error) {
	l.state.Store(laneFree)
	return l.times, l.err
}

// close ends the thread, after the work that it does, and returns that if nobody has taken it back.
func (l *lane) close() Ready {
	for l.state.Load() == laneBegun {
		time.Sleep(laneLooks)
	}
	l.set(laneClosed)
	<-l.gone
	return l.ready
}
