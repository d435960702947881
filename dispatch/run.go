package dispatch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gpt2scope/cuda"
)

// ErrRefused is matched by errors of Executor.Begin that say that the device cannot run this job
// now, as for lack of memory. The job goes to another device, this one goes on.
var ErrRefused = errors.New("the device refused the job")

// Executor runs jobs on a device. Its methods are called on one locked thread, unless they say otherwise.
type Executor interface {
	// Begin starts a job. It may return before the job has ended, if the device takes several, or only
	// then.
	Begin(j *Job) error

	// Ended returns a job that has ended since the last call, with its times, or nil.
	Ended() (*Job, Times, error)

	// Held returns how many bytes of the device's memory are held for its jobs, beside what is free. Any goroutine may call it.
	Held() int64

	Close() error
}

// Laned is an Executor of a device that has lanes.
type Laned interface {
	Executor

	// RunLane does a job that takes a lane, and returns its times when it has ended, and what checks its result. Each lane calls it on a locked thread of its own. A job that the
	// device cannot run now is refused as by Begin. It may wait for a result to be checked.
	RunLane(j *Job) (Times, Check, error)
}

// Check checks the result of a job that has ended in a lane. Any goroutine may call it, one at a time, until done is set. If wait is not set it returns soon, with done not set
// if the result is not on the host yet. The result comes there by itself: no other job has to run first, since none does once the device is lost. An error is one of the device.
type Check func(wait bool) (done bool, err error)

// Watcher reports what it finds out about devices until ctx ends, and returns then. busy tells whether jobs run on a device.
type Watcher func(ctx context.Context, busy func(device int) bool, report func(device int, c Condition))

// Stream is what Run runs.
type Stream struct {
	Devices []Device
	Open    []func() (Executor, error) // by device; called on the thread of the device

	// On, if not nil, runs f on the thread of a device, which is locked to a thread of the system, and returns when f has. Without
	// it each device gets a thread for this run.
	On func(device int, f func())

	// OnLane does the same on the thread of a lane of a device. It is called once the device is open.
	OnLane func(device, lane int, f func())

	Jobs    []Job
	Classes int
	Policy  Policy

	Watch Watcher // called in a goroutine of its own; nil: nothing is reported

	// Ended, if not nil, is called for each job that has ended, one at a time. Other devices go on meanwhile.
	Ended func(Done)
}

// running is a stream that runs.
//
// Each device has a worker on its thread, and one for each lane on a thread of that. A worker that is free takes the next job of the device's queue under a lock that is held
// shortly. Plans are made in a goroutine of their own from a copy of what the scheduler knows, without the lock, and no worker waits for them.
type running struct {
	*Stream
	telling  sync.Mutex // held during Stream.Ended, never together with mu: what Ended waits for may need mu
	mu       sync.Mutex // of all below, but for changes
	changes  atomic.Uint64
	s        *Scheduler
	start    time.Time
	arriving int
	workers  []*worker
	spins    bool          // there are cores for workers that look for changes instead of sleeping
	end      chan struct{} // closed once nothing is left to do
	result   Result
	last     []float64 // by device: when a job ended there
	devices  []Executor
	failure  error // of the host: it ends the run
	lost     []error
}

// worker begins jobs on a device: those that take a lane, or those that take a place.
type worker struct {
	device int
	part   part
	waits  bool // jobs wait that it may take later, though nothing changes
	asleep atomic.Bool
	wake   chan struct{}
}

func (r *running) now() float64 { return float64(time.Since(r.start).Nanoseconds()) / 1e3 }

// over ends the run if nothing is left to do. Its caller holds the lock.
func (r *running) over() {
	if r.failure == nil && (r.arriving > 0 || r.s.Left() > 0) {
		return
	}
	select {
	case <-r.end:
	default:
		close(r.end)
	}
}

// lockLooks is how often the thread of a worker looks whether the lock is free before it sleeps, which takes longer than the lock is held.
const lockLooks = 200

// lock takes the lock on the thread of a worker.
func (r *running) lock() {
	for n := 0; r.spins && n < lockLooks; n++ {
		if r.mu.TryLock() {
			return
		}
		cuda.Pause()
	}
	r.mu.Lock()
}

// wakeAll lets all workers look for jobs.
func (r *running) wakeAll() {
	r.changes.Add(1)
	for _, w := range r.workers {
		if w.asleep.Swap(false) {
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
	}
}

// idleLooks is how long a worker without jobs looks for changes before it sleeps: to wake a thread takes some 50 us.
const idleLooks = 200 * time.Microsecond

// await waits until something has changed since there were so many changes, or until it is time to look again. It returns false once the run has ended.
func (r *running) await(ctx context.Context, w *worker, seen uint64) bool {
	start := time.Now()
	var again <-chan time.Time
	for n := 1; r.changes.Load() == seen; n++ {
		if r.spins {
			if cuda.Pause(); n%64 != 0 {
				continue
			}
			if ctx.Err() != nil {
				return false
			}
			if time.Since(start) < idleLooks {
				continue
			}
		}
		if w.asleep.Store(true); r.changes.Load() != seen {
			break
		}
		if w.waits && again == nil {
			t := time.NewTimer(lookAgain * time.Microsecond)
			defer t.Stop()
			again = t.C
		}
		select {
		case <-w.wake:
		case <-again:
			return ctx.Err() == nil
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// Run runs a stream on devices, each on a locked thread. A device whose executor fails is lost: the jobs
// that it had not ended are done on others, each once. An error of the host ends the run, as the end of ctx
// does; the result is then of the jobs that have ended. A lane begins its next job while the result of the last is checked; a job ends when its result is. Result.Lost says which devices were lost, and why.
func (m *Stream) Run(ctx context.Context) (Result, error) {
	r := &running{Stream: m, s: New(m.Devices, m.Classes, m.Policy), arriving: len(m.Jobs), devices: make([]Executor, len(m.Devices)), last: make([]float64, len(m.Devices)), end: make(chan struct{})}
	r.result = Result{Policy: m.Policy.Name, Devices: m.Devices, Busy: make([]float64, len(m.Devices)), Done: make([]Done, 0, len(m.Jobs))}
	planned := make(chan struct{}, 1)
	r.s.later = func() {
		select {
		case planned <- struct{}{}:
		default: // the next plan has not begun
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var opened, ended sync.WaitGroup
	ready := make(chan struct{})
	errs := make([]error, len(m.Devices))
	on, onLane := m.On, m.OnLane
	if on == nil {
		on = func(_ int, f func()) { locked(f) }
	}
	if onLane == nil {
		onLane = func(_, _ int, f func()) { locked(f) }
	}
	hire := func(d int, of part) *worker {
		w := &worker{device: d, part: of, wake: make(chan struct{}, 1)}
		r.workers = append(r.workers, w)
		return w
	}
	for d := range m.Devices {
		w := hire(d, places)
		var inLanes []*worker
		for range m.Devices[d].Lanes {
			inLanes = append(inLanes, hire(d, lanes))
		}
		opened.Add(1 + len(inLanes))
		ended.Go(func() {
			on(d, func() {
				e, err := m.Open[d]()
				laned, ok := e.(Laned)
				if err == nil && len(inLanes) > 0 && !ok {
					err = errors.Join(fmt.Errorf("%s runs no jobs in lanes", m.Devices[d].Name), e.Close())
				}
				errs[d], r.devices[d] = err, e
				opened.Done()
				if err != nil {
					for range inLanes {
						opened.Done()
					}
					return
				}
				var running, checking sync.WaitGroup
				c := newChecker(len(inLanes))
				if len(inLanes) > 0 {
					checking.Go(func() { c.work(r) })
				}
				for lane, w := range inLanes {
					running.Go(func() {
						onLane(d, lane, func() {
							opened.Done()
							<-ready
							r.serveLane(ctx, w, laned, c)
						})
					})
				}
				<-ready
				r.serve(ctx, w, e)
				running.Wait()
				c.close()
				checking.Wait()
				errs[d] = e.Close()
			})
		})
	}
	opened.Wait()
	r.spins = len(r.workers) < runtime.GOMAXPROCS(0)
	failed := errors.Join(errs...)
	if failed != nil {
		cancel()
	}
	r.start = time.Now()
	close(ready)
	if failed == nil {
		if m.Watch != nil {
			ended.Go(func() { m.Watch(ctx, r.busy, r.report) })
		}
		ended.Go(func() { r.plan(ctx, planned) })
		r.submit(ctx)
		select {
		case <-r.end:
		case <-ctx.Done():
		}
		cancel()
	}
	ended.Wait()
	if failed != nil {
		return r.result, failed
	}
	r.result.Decided = r.s.Decided
	for d, err := range errs { // that a device does not close is news only if it was not lost before
		if err != nil && !r.s.devices[d].gone {
			r.lost = append(r.lost, fmt.Errorf("closing %s: %w", m.Devices[d].Name, err))
		}
	}
	r.result.Lost = errors.Join(r.lost...)
	for _, d := range r.result.Done {
		r.result.Makespan = max(r.result.Makespan, d.Checked)
	}
	if r.failure != nil {
		return r.result, r.failure
	}
	if left := len(m.Jobs) - len(r.result.Done); left > 0 {
		return r.result, fmt.Errorf("%d of %d tasks were not run: %w", left, len(m.Jobs), context.Cause(ctx))
	}
	return r.result, nil
}

// locked runs f on a thread of the system that nothing else runs on meanwhile.
func locked(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f()
}

// plan makes plans when they are wanted, until the run ends.
func (r *running) plan(ctx context.Context, wanted <-chan struct{}) {
	for {
		select {
		case <-wanted:
		case <-ctx.Done():
			return
		}
		r.mu.Lock()
		r.s.draft(r.now())
		r.mu.Unlock()
		r.s.planner.plan()
		r.mu.Lock()
		r.s.adopt(r.now())
		r.mu.Unlock()
		r.wakeAll()
	}
}

// submit lets jobs arrive at their times.
func (r *running) submit(ctx context.Context) {
	r.mu.Lock()
	r.over() // a stream may have no jobs
	r.mu.Unlock()
	for i := range r.Jobs {
		j := &r.Jobs[i]
		if wait := time.Duration(j.Arrive*1e3) - time.Since(r.start); wait > 0 {
			select {
			case <-time.After(wait):
			case <-r.end: // the host failed
				return
			case <-ctx.Done():
				return
			}
		}
		r.mu.Lock()
		r.s.Submit(j, r.now())
		r.arriving--
		later := r.arriving == 0 || r.Jobs[i+1].Arrive > j.Arrive // those that come at once are planned at once
		r.mu.Unlock()
		if later {
			r.wakeAll()
		}
	}
}

func (r *running) busy(device int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.s.devices[device].running) > 0
}

// report takes note of the condition of a device, whose free memory is that for others' work too.
func (r *running) report(device int, c Condition) {
	if c.Free > 0 {
		c.Free += r.devices[device].Held()
	}
	r.mu.Lock()
	r.s.Condition(device, c, r.now())
	r.mu.Unlock()
	r.wakeAll()
}

// rarely is after how many looks at jobs in flight the thread of a device lets others run.
const rarely = 1000

// next returns the job that a worker begins, nil if there is none now.
func (r *running) next(ctx context.Context, w *worker) *Job {
	r.lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil || r.failure != nil {
		return nil
	}
	j := r.s.next(w.device, w.part, r.now())
	w.waits = r.s.policy.Plan && r.s.waiting > 0
	return j
}

// refused gives a job back that a device cannot run now.
func (r *running) refused(device int, j *Job) {
	r.lock()
	r.s.Return(device, j, r.now())
	r.mu.Unlock()
	r.wakeAll()
}

// serveLane runs jobs in a lane until nothing is left to do or the device is lost. It checks results only if it has no job to run, or if more wait to be checked than c holds.
func (r *running) serveLane(ctx context.Context, w *worker, e Laned, c *checker) {
	for {
		seen := r.changes.Load()
		j := r.next(ctx, w)
		if j == nil {
			if !c.help(r) && !r.await(ctx, w, seen) {
				return
			}
			continue
		}
		switch t, check, err := e.RunLane(j); {
		case errors.Is(err, ErrRefused):
			r.refused(w.device, j)
		case err != nil:
			r.fail(w.device, []*Job{j}, err)
			return
		default:
			if full := c.add(unchecked{r.ran(w.device, j, t), check}); full {
				c.help(r)
			}
		}
	}
}

// serve runs jobs in the places of a device until nothing is left to do or the device is lost.
func (r *running) serve(ctx context.Context, w *worker, e Executor) {
	var inFlight []*Job
	asked := 0
	look, seen := true, uint64(0) // whether something has changed since there was nothing to begin
	for {
		if now := r.changes.Load(); now != seen {
			look, seen = true, now
		}
		var j *Job
		if look && len(inFlight) < r.Devices[w.device].InFlight {
			j = r.next(ctx, w)
			look = j != nil
		}
		if j != nil {
			switch err := e.Begin(j); {
			case errors.Is(err, ErrRefused) && w.device != Host:
				r.refused(w.device, j)
			case err != nil:
				r.fail(w.device, append(inFlight, j), err)
				return
			default:
				inFlight = append(inFlight, j)
			}
			continue
		}
		if len(inFlight) == 0 {
			if !r.await(ctx, w, seen) {
				return
			}
			look = true
			continue
		}
		done, times, err := e.Ended()
		if err != nil {
			r.fail(w.device, inFlight, err)
			return
		}
		if done == nil {
			// A locked goroutine that yields wakes another thread of the system, and that one this: they would take two cores
			// from the host's jobs.
			if asked++; asked%rarely == 0 {
				runtime.Gosched()
			}
			continue
		}
		at := slices.Index(inFlight, done)
		inFlight = slices.Delete(inFlight, at, at+1)
		look = true
		r.ended(w.device, done, times)
	}
}

// ended notes that a job has ended with its result checked, and tells of it.
func (r *running) ended(device int, j *Job, t Times) {
	r.lock()
	d := r.note(device, j, t)
	r.finish(d)
}

// ran notes that a device has run a job and may begin another. Its result is still to be checked.
func (r *running) ran(device int, j *Job, t Times) Done {
	r.lock()
	defer r.mu.Unlock()
	return r.note(device, j, t)
}

// note is ran with the lock.
func (r *running) note(device int, j *Job, t Times) Done {
	now := r.now()
	d := Done{Job: j, Device: device, Probe: j.probe, Plan: j.plan, Actual: Span{j.plan.Start, now}, Checked: now, Times: t, Decided: j.estimates[device]}
	r.result.Busy[device] += now - max(d.Actual.Start, r.last[device])
	r.last[device] = now
	r.s.Ran(device, j, t, now)
	return d
}

// finish notes that the result of a job that ran was checked, gives the lock back, and tells of the job.
func (r *running) finish(d Done) {
	r.result.Done = append(r.result.Done, d)
	r.s.Finish(d.Device, d.Job, d.Times, d.Checked)
	r.over()
	r.mu.Unlock()
	r.wakeAll() // before Stream.Ended, which may take long
	if r.Stream.Ended != nil {
		r.telling.Lock()
		defer r.telling.Unlock()
		r.Stream.Ended(d)
	}
}

// fail notes that a device is lost, with the jobs that one of its workers had begun. Each other worker there ends what it has begun, or fails too. Results of jobs that ran are still
// checked if they can be.
func (r *running) fail(device int, begun []*Job, err error) {
	r.lock()
	defer r.mu.Unlock()
	err = fmt.Errorf("%s: %w", r.Devices[device].Name, err)
	if device == Host {
		r.failure = err
	} else {
		var data []*Data
		for i := range r.Jobs {
			for _, d := range r.Jobs[i].Reads {
				if !slices.Contains(data, d) {
					data = append(data, d)
				}
			}
		}
		if !r.s.devices[device].gone {
			r.lost = append(r.lost, err)
		}
		r.s.Lose(device, begun, data, r.now())
	}
	r.over()
	r.wakeAll()
}
