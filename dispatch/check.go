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
// sleeps in between. Lanes that have no job look at them too, without sleep.
type checker struct {
	most   int // results that are copied at once, and that may wait beside these before lanes check some themselves
	mu     sync.Mutex
	waits  []unchecked // that nobody has begun to check
	begun  []unchecked // that are being copied to the host, and that nobody looks at now
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

// first takes the first of a list of results, which only one goroutine has then.
func (c *checker) first(of *[]unchecked) (u unchecked, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
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

// help checks the result that has waited longest, and waits until that is done. ok is false if none waits.
func (c *checker) help(r *running) (ok bool) {
	u, ok := c.first(&c.begun)
	if !ok {
		u, ok = c.first(&c.waits)
	}
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

// look checks a result if it is on the host, and else keeps it.
func (c *checker) look(r *running, u unchecked) (done bool) {
	if done = r.checked(u, false); !done {
		c.mu.Lock()
		c.begun = append(c.begun, u)
		c.mu.Unlock()
	}
	return done
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
			if u, ok := c.first(&c.begun); ok && c.look(r, u) {
				progress = true
			}
		}
		for begun, _ = c.count(); begun < c.most; begun, _ = c.count() {
			u, ok := c.first(&c.waits)
			if !ok {
				break
			}
			c.look(r, u)
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
