package dispatch

import (
	"sync"
	"sync/atomic"
	"time"
)

// unchecked is a job that ran in a lane.
type unchecked struct {
	Done
	check Check
}

// checker checks the results of the lanes of a device beside their next jobs. Its goroutine has no core of its own: it looks at all results that are being copied to the host, and
// sleeps in between.
type checker struct {
	most   int // results that are copied at once, and that may wait beside these before lanes check some themselves
	mu     sync.Mutex
	waits  []unchecked // that nobody has begun to check
	asleep atomic.Bool
	wake   chan struct{}
	end    chan struct{} // closed once no lane adds results
}

func newChecker(most int) *checker {
	return &checker{most: most, wake: make(chan struct{}, 1), end: make(chan struct{})}
}

// add gives the checker a result. It tells whether more wait than should.
func (c *checker) add(u unchecked) (full bool) {
	c.mu.Lock()
	c.waits = append(c.waits, u)
	full = len(c.waits) > c.most
	c.mu.Unlock()
	if c.asleep.Swap(false) {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
	return full
}

// take takes the result that has waited longest.
func (c *checker) take() (u unchecked, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waits) == 0 {
		return u, false
	}
	u = c.waits[0]
	n := copy(c.waits, c.waits[1:])
	c.waits[n] = unchecked{}
	c.waits = c.waits[:n]
	return u, true
}

// help checks the result that has waited longest, and waits until that is done. ok is false if none waits.
func (c *checker) help(r *running) (ok bool) {
	u, ok := c.take()
	if ok {
		r.checked(u, true)
	}
	return ok
}

// checked checks a result as far as that can be done now. It returns false if it is to be called again.
func (r *running) checked(u unchecked, wait bool) bool {
	done, err := u.check(wait)
	switch {
	case err != nil:
		r.fail(u.Device, []*Job{u.Job}, err)
		return true
	case done:
		r.lock()
		u.Checked = r.now()
		r.finish(u.Done)
	}
	return done
}

// checkLook is how long the checker means to sleep while results are copied. Where the program has nothing else to do, time.Sleep takes about a
// millisecond on Linux.
const checkLook = 20 * time.Microsecond

// close lets the checker end once all results are checked.
func (c *checker) close() { close(c.end) }

// work checks results until all are, after close.
func (c *checker) work(r *running) {
	var begun []unchecked // to be copied to the host
	for {
		before := len(begun)
		left := begun[:0]
		for _, u := range begun {
			if !r.checked(u, false) {
				left = append(left, u)
			}
		}
		progress := len(left) < before
		clear(begun[len(left):])
		begun = left
		for len(begun) < c.most {
			u, ok := c.take()
			if !ok {
				break
			}
			progress = true
			if !r.checked(u, false) {
				begun = append(begun, u)
			}
		}
		switch {
		case progress:
		case len(begun) > 0:
			time.Sleep(checkLook)
		default:
			c.asleep.Store(true)
			c.mu.Lock()
			some := len(c.waits) > 0
			c.mu.Unlock()
			if some {
				continue
			}
			select {
			case <-c.wake:
			case <-c.end:
				c.mu.Lock()
				some := len(c.waits) > 0
				c.mu.Unlock()
				if !some {
					return
				}
			}
		}
	}
}
