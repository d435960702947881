package schedule

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"
)

// ErrRefused is matched by errors of [Executor.Run] that say that a GPU has no memory for this task now. The task goes
// to another device, and the GPU goes on.
var ErrRefused = errors.New("the device refused the task")

// Executor does tasks on a device.
type Executor interface {
	// Run does a task in a slot, and returns its times once its result has been checked. Each slot calls it on a locked
	// thread of its own.
	Run(slot int, j *Job) (Times, error)

	// Held returns how many bytes of the device's memory the executor holds for its tasks. Any goroutine may call it.
	Held() int64
}

// Stream is a stream of tasks for real devices.
type Stream struct {
	Devices   []Device
	Executors []Executor // by device
	Jobs      []Job
	Kinds     int
	Policy    Policy
	Read      func(device int) *Reading // what is known of a GPU, nil for nothing; it must not wait. nil: nothing is known
}

// running is a stream that runs. Each slot of a device has a worker that takes the next task under the lock.
type running struct {
	*Stream
	mu       sync.Mutex // guards all below
	change   sync.Cond  // a task may begin, or the stream has ended
	s        *Scheduler
	start    time.Time
	arriving int
	inFlight int // tasks that executors do
	result   *Result
	failure  error // ends the stream
	idle     []int // by device: readings since a task ran
}

func (r *running) now() float64 { return float64(time.Since(r.start).Nanoseconds()) / 1e3 }

// Run runs the stream. A GPU whose executor fails is lost, and its tasks are done on other devices, each once:
// [Result.Lost] says why. An error of the CPU ends the stream, as the end of ctx does; the result then has the tasks
// that had ended.
func (m *Stream) Run(ctx context.Context) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &running{Stream: m, s: New(m.Devices, m.Kinds, m.Policy), arriving: len(m.Jobs),
		result: newResult(m.Policy, m.Devices), idle: make([]int, len(m.Devices))}
	r.change.L = &r.mu
	defer context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.fail(context.Cause(ctx))
	})()
	var workers, helpers sync.WaitGroup
	begin := make(chan struct{})
	for d, device := range m.Devices {
		for slot := range device.Slots {
			workers.Go(func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				<-begin
				r.work(d, slot)
			})
		}
	}
	r.start = time.Now()
	close(begin)
	helpers.Go(func() { r.watch(ctx) })
	helpers.Go(func() { r.submit(ctx) })
	workers.Wait()
	cancel(nil)
	helpers.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	result := r.result.finish(r.s)
	if left := len(m.Jobs) - len(result.Done); left > 0 {
		return result, fmt.Errorf("%d of %d tasks were not run: %w", left, len(m.Jobs), r.failure)
	}
	return result, nil
}

// fail ends the stream. Its caller holds the lock.
func (r *running) fail(err error) {
	if r.failure == nil {
		r.failure = err
	}
	r.change.Broadcast()
}

// next waits for the next task of a device. It returns nil if there is none any more. Its caller holds the lock.
func (r *running) next(device int) *Job {
	for r.failure == nil && (r.arriving > 0 || r.s.left > 0) && !r.s.devices[device].lost {
		if j := r.s.Next(device, r.now()); j != nil {
			return j
		}
		if r.arriving == 0 && r.inFlight == 0 && r.s.stuck() {
			r.fail(errors.New("no device takes them"))
			break
		}
		r.change.Wait()
	}
	return nil
}

// work runs tasks in a slot of a device until nothing is left to do or the device is lost.
func (r *running) work(device, slot int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for j := r.next(device); j != nil; j = r.next(device) {
		r.inFlight++
		r.mu.Unlock()
		t, err := r.Executors[device].Run(slot, j)
		r.mu.Lock()
		r.inFlight--
		now := r.now()
		switch {
		case err == nil:
			if r.s.Finish(device, j, t) {
				r.result.add(j, device, t, now)
			}
		case device == Host:
			r.fail(err)
		case errors.Is(err, ErrRefused):
			r.s.Return(device, j, now)
		default:
			if !r.s.devices[device].lost {
				lost := fmt.Sprintf("%s: %v", r.Devices[device].Name, err)
				r.result.Lost = strings.TrimPrefix(r.result.Lost+"; "+lost, "; ")
			}
			r.s.Lose(device, j, now)
		}
		r.change.Broadcast()
	}
}

// submit lets tasks arrive at their times. Tasks that arrive at once are planned at once.
func (r *running) submit(ctx context.Context) {
	for i := 0; i < len(r.Jobs); {
		if wait := time.Duration(r.Jobs[i].Arrive*1e3) - time.Since(r.start); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
		}
		r.mu.Lock()
		for at := r.Jobs[i].Arrive; i < len(r.Jobs) && r.Jobs[i].Arrive == at; i++ {
			r.arriving--
			r.s.Submit(&r.Jobs[i], r.now())
		}
		r.change.Broadcast()
		r.mu.Unlock()
	}
}

// watch wakes idle devices, so that they take what waits for a late one, and notes what is read of GPUs.
func (r *running) watch(ctx context.Context) {
	tick := time.NewTicker(LookAgain * time.Microsecond)
	defer tick.Stop()
	var read time.Time
	for ctx.Err() == nil {
		r.mu.Lock()
		if r.Read != nil && time.Since(read) >= sampling {
			read = time.Now()
			for d := 1; d < len(r.Devices); d++ {
				r.note(d, r.Read(d))
			}
		}
		if r.s.waiting > 0 {
			r.change.Broadcast()
		}
		r.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// note notes a reading of a GPU. Its caller holds the lock.
func (r *running) note(device int, reading *Reading) {
	if r.idle[device]++; len(r.s.devices[device].running) > 0 {
		r.idle[device] = 0
	}
	c := reading.condition(r.idle[device] < settled)
	if c.Free > 0 { // so is what the executor holds
		c.Free += r.Executors[device].Held()
	}
	if c != r.s.devices[device].condition {
		r.s.SetCondition(device, c, r.now())
		r.change.Broadcast()
	}
}
