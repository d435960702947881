package dispatch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// ErrRefused is matched by errors of Executor.Begin that say that the device cannot run this job
// now, as for lack of memory. The job goes to another device, this one goes on.
var ErrRefused = errors.New("the device refused the job")

// Executor runs jobs on a device. All its methods are called on one locked thread.
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

// Watcher reports what it finds out about devices until ctx ends, and returns then. busy tells whether jobs run on a device.
type Watcher func(ctx context.Context, busy func(device int) bool, report func(device int, c Condition))

// Stream is what Run runs.
type Stream struct {
	Devices []Device
	Open    []func() (Executor, error) // by device; called on the thread of the device

	// On, if not nil, runs f on the thread of a device, which is locked to a thread of the system, and returns when f has. Without
	// it each device gets a thread for this run.
	On func(device int, f func())

	Jobs    []Job
	Classes int
	Policy  Policy

	Watch Watcher // called in a goroutine of its own; nil: nothing is reported

	// Ended, if not nil, is called for each job that has ended, one at a time. Other devices go on meanwhile.
	Ended func(Done)
}

// running is a stream that runs.
type running struct {
	*Stream
	telling  sync.Mutex // held during Stream.Ended, never together with mu: what Ended waits for may need mu
	mu       sync.Mutex
	s        *Scheduler
	start    time.Time
	arriving int
	wake     []chan struct{}
	end      chan struct{} // closed once nothing is left to do
	result   Result
	begun    map[*Job]float64
	devices  []Executor
	failure  error // of the host: it ends the run
	lost     []error
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

// wakeAll lets all devices look for jobs.
func (r *running) wakeAll() {
	for _, c := range r.wake {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Run runs a stream on devices, each on a locked thread. A device whose executor fails is lost: the jobs
// that it had not ended are done on others, each once. An error of the host ends the run, as the end of ctx
// does; the result is then of the jobs that have ended. Result.Lost says which devices were lost, and why.
func (m *Stream) Run(ctx context.Context) (Result, error) {
	r := &running{Stream: m, s: New(m.Devices, m.Classes, m.Policy), arriving: len(m.Jobs), begun: map[*Job]float64{}, devices: make([]Executor, len(m.Devices)), end: make(chan struct{})}
	r.result = Result{Policy: m.Policy.Name, Devices: m.Devices, Busy: make([]float64, len(m.Devices))}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var opened, ended sync.WaitGroup
	ready := make(chan struct{})
	errs := make([]error, len(m.Devices))
	on := m.On
	if on == nil {
		on = func(_ int, f func()) { locked(f) }
	}
	for d := range m.Devices {
		r.wake = append(r.wake, make(chan struct{}, 1))
		opened.Add(1)
		ended.Go(func() {
			on(d, func() {
				e, err := m.Open[d]()
				errs[d], r.devices[d] = err, e
				opened.Done()
				if err != nil {
					return
				}
				<-ready
				if ctx.Err() == nil {
					r.serve(ctx, d, e)
				}
				errs[d] = e.Close()
			})
		})
	}
	opened.Wait()
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
		r.result.Makespan = max(r.result.Makespan, d.Actual.End)
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
			case <-ctx.Done():
				return
			}
		}
		r.mu.Lock()
		r.s.Submit(j, r.now())
		r.arriving--
		later := r.arriving == 0 || r.Jobs[i+1].Arrive > j.Arrive // those that come at once are planned at once
		stop := r.failure != nil
		r.mu.Unlock()
		if stop {
			return
		}
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

// serve runs jobs on a device until nothing is left to do or the device is lost.
func (r *running) serve(ctx context.Context, device int, e Executor) {
	inFlight, asked := 0, 0
	look := true // something has happened since the device last had nothing to begin
	for {
		select {
		case <-r.wake[device]:
			look = true
		default:
		}
		var j *Job
		if look {
			r.mu.Lock()
			if ctx.Err() == nil && r.failure == nil {
				now := r.now()
				if j = r.s.Next(device, now); j != nil {
					r.begun[j] = now
				}
			}
			r.mu.Unlock()
			look = j != nil
		}
		if j != nil {
			switch err := e.Begin(j); {
			case errors.Is(err, ErrRefused) && device != Host:
				r.mu.Lock()
				r.s.Return(device, j, r.now())
				r.mu.Unlock()
				r.wakeAll()
			case err != nil:
				r.fail(device, err)
				return
			default:
				inFlight++
			}
			continue
		}
		if inFlight == 0 {
			select {
			case <-r.wake[device]:
				look = true
			case <-ctx.Done():
				return
			}
			continue
		}
		done, times, err := e.Ended()
		if err != nil {
			r.fail(device, err)
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
		inFlight--
		look = true
		r.ended(device, done, times)
	}
}

// ended notes that a job has ended, and tells of it.
func (r *running) ended(device int, j *Job, t Times) {
	d := r.finish(device, j, t)
	r.wakeAll() // before Stream.Ended, which may take long
	if r.Stream.Ended != nil {
		r.telling.Lock()
		defer r.telling.Unlock()
		r.Stream.Ended(d)
	}
}

// finish notes that a job has ended.
func (r *running) finish(device int, j *Job, t Times) Done {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	d := Done{Job: j, Device: device, Probe: j.probe, Plan: j.plan, Actual: Span{r.begun[j], now}, Times: t, Decided: j.estimates[device]}
	delete(r.begun, j)
	last := 0.0
	for i := len(r.result.Done) - 1; i >= 0; i-- {
		if r.result.Done[i].Device == device {
			last = r.result.Done[i].Actual.End
			break
		}
	}
	r.result.Busy[device] += now - max(d.Actual.Start, last)
	r.result.Done = append(r.result.Done, d)
	r.s.Finish(device, j, t, now)
	r.over()
	return d
}

// fail notes that a device is lost.
func (r *running) fail(device int, err error) {
	r.mu.Lock()
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
		r.lost = append(r.lost, err)
		r.s.Lose(device, data, r.now())
	}
	r.over()
	r.wakeAll()
}
