package dispatch

import (
	"runtime"
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
// sleeps in between. A lane that has no job any more looks at them too, without sleep.
type checker struct {
	most   int // results that are copied at once, and that may wait beside these before lanes check some themselves
	mu     sync.Mutex
	waits  []unchecked // that nobody has begun to check
	begun  []unchecked // that are being copied to the host, and that nobody looks at now
	looks  bool        // the checker looks at one that is in neither list
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

// pop takes the first of a list of results, which only its caller has then. The caller holds the lock.
func pop(of *[]unchecked) (u unchecked, ok bool) {
	all := *of
	if len(all) == 0 {
		return u, false
	}
	u = all[0]
	n := copy(all, all[1:])
	all[n] = unchecked{}
	*of = all[:n]
	return u, true
}

// help checks a result, and waits until that is done. ok is false if there is none.
func (c *checker) help(r *running) (ok bool) {
	c.mu.Lock()
	u, ok := pop(&c.begun)
	if !ok {
		u, ok = pop(&c.waits)
	}
	looks := c.looks
	c.mu.Unlock()
	switch {
	case ok:
		r.checked(u, true)
	case looks: // it may be in a list at once
		runtime.Gosched()
		return true
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

// look takes a result from a list, and checks it if it is on the host. Else it keeps it. ok is false if there is none.
func (c *checker) look(r *running, of *[]unchecked) (done, ok bool) {
	c.mu.Lock()
	u, ok := pop(of)
	c.looks = ok
	c.mu.Unlock()
	if !ok {
		return false, false
	}
	done = r.checked(u, false)
	c.mu.Lock()
	c.looks = false
	if !done {
		c.begun = append(c.begun, u)
	}
	c.mu.Unlock()
	return done, true
}

// count returns how many results are being copied, and how many wait for that.
func (c *checker) count() (begun, waits int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.begun), len(c.waits)
}

// work checks results until all are, after close.
func (c *checker) work(r *running) {
	for {
		progress := false
		begun, _ := c.count()
		for range begun {
			if done, _ := c.look(r, &c.begun); done {
				progress = true
			}
		}
		for begun, _ = c.count(); begun < c.most; begun, _ = c.count() {
			if _, ok := c.look(r, &c.waits); !ok {
				break
			}
			progress = true
		}
		switch {
		case progress:
		case begun > 0:
			time.Sleep(checkLook)
		default:
			c.asleep.Store(true)
			if _, waits := c.count(); waits > 0 {
				continue
			}
			select {
			case <-c.wake:
			case <-c.end:
				if _, waits := c.count(); waits == 0 {
					return
				}
			}
		}
	}
}
