package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gpt2scope/predict"
)

// fake is a device that does nothing but count, and fails if told to.
type fake struct {
	device   int
	truth    Truth
	mu       *sync.Mutex
	done     []int // by job: how often it was done
	queue    []*Job
	calls    int
	failAt   int // the call from which on all fail; 0: never
	refuse   func(*Job) bool
	failure  error
	closed   bool
	held     int64
	random   *rand.Rand
	inFlight int
	lanes    int
	inLanes  int // at this time

	unchecked int
	t         *testing.T
}

func (f *fake) call() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls++; f.failAt > 0 && f.calls >= f.failAt {
		return f.failure
	}
	return nil
}

func (f *fake) Begin(j *Job) error {
	if err := f.call(); err != nil {
		return err
	}
	if f.refuse != nil && f.refuse(j) {
		return fmt.Errorf("no memory: %w", ErrRefused)
	}
	f.queue = append(f.queue, j)
	if len(f.queue) > f.inFlight {
		f.t.Errorf("device %d has %d jobs in flight", f.device, len(f.queue))
	}
	return nil
}

func (f *fake) Ended() (*Job, Times, error) {
	if err := f.call(); err != nil {
		return nil, Times{}, err
	}
	if len(f.queue) == 0 || f.random.IntN(3) == 0 {
		return nil, Times{}, nil
	}
	j := f.queue[0]
	f.queue = f.queue[1:]
	f.mu.Lock()
	f.done[j.ID]++
	f.mu.Unlock()
	return j, f.truth.Times(f.device, j), nil
}

func (f *fake) RunLane(j *Job) (Times, Check, error) {
	if err := f.call(); err != nil {
		return Times{}, nil, err
	}
	if f.refuse != nil && f.refuse(j) {
		return Times{}, nil, fmt.Errorf("no memory: %w", ErrRefused)
	}
	f.mu.Lock()
	if f.inLanes++; f.inLanes > f.lanes || !j.Lane {
		f.t.Errorf("device %d has %d jobs in lanes; job %d takes one: %v", f.device, f.inLanes, j.ID, j.Lane)
	}
	f.mu.Unlock()
	runtime.Gosched()
	err := f.call()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.inLanes--; err != nil {
		return Times{}, nil, err
	}
	if f.unchecked++; f.unchecked > 4*f.lanes {
		f.t.Errorf("device %d holds %d results that are not checked", f.device, f.unchecked)
	}
	looks := j.ID % 3 // until it is copied
	return f.truth.Times(f.device, j), func(wait bool) (bool, error) {
		if looks--; looks >= 0 && !wait {
			return false, nil
		}
		err := f.call()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.unchecked--; err != nil {
			return true, err
		}
		f.done[j.ID]++
		return true, nil
	}, nil
}

func (f *fake) Held() int64 { return f.held }

func (f *fake) Close() error { f.closed = true; return nil }

var errGone = errors.New("the GPU is gone")

// stream runs a stream on fake devices.
func fakes(t *testing.T, m *Simulation, seed uint64) (*Stream, []*fake) {
	s := &Stream{Devices: m.Devices, Jobs: m.Jobs, Classes: m.Classes, Policy: Ours(Floors{25e3}, nil)}
	var all []*fake
	var mu sync.Mutex
	done := make([]int, len(m.Jobs))
	for d := range m.Devices {
		f := &fake{device: d, truth: m.Truth, mu: &mu, done: done, failure: errGone, random: rand.New(rand.NewPCG(seed, uint64(d))), inFlight: m.Devices[d].InFlight, lanes: m.Devices[d].Lanes, t: t}
		all = append(all, f)
		s.Open = append(s.Open, func() (Executor, error) { return f, nil })
	}
	return s, all
}

// inLanes is a stream of jobs that all take a lane of the GPU, which has some.
func inLanes(jobs, lanes int) *Simulation {
	m := drawn(200, 0, 3)
	m.Jobs = slices.DeleteFunc(m.Jobs, func(j Job) bool { return !j.Lane })[:jobs]
	for i := range m.Jobs {
		m.Jobs[i].ID = i
	}
	m.Devices[1].Lanes = lanes
	return m
}

// once checks that each job was done once.
func once(t *testing.T, m *Simulation, r Result, done []int) {
	t.Helper()
	every(t, m, r)
	for id, n := range done {
		if n != 1 {
			t.Fatalf("job %d was done %d times", id, n)
		}
	}
}

// Every job is done once, whenever GPUs are lost or refuse jobs; what a lost GPU had not ended is done on
// another device.
func TestRunLosesGPUs(t *testing.T) {
	lost := 0
	for seed := range uint64(80) {
		m := drawn(60, float64(seed%4), seed)
		if seed%3 == 0 {
			m.Devices = []Device{{"cpu", 1, 0}, {"cuda:0", 2, 0}, {"cuda:1", 2, 0}}
			m.Truth = twoGPUs{m.Truth}
			for i := range m.Jobs {
				m.Jobs[i].Work = append(m.Jobs[i].Work[:2:2], m.Jobs[i].Work[1])
			}
		}
		for d := 1; d < len(m.Devices); d++ {
			m.Devices[d].Lanes = int(seed % 4)
		}
		s, all := fakes(t, m, seed)
		all[1].failAt = 1 + int(seed)
		if seed%2 == 0 {
			all[1].refuse = func(j *Job) bool { return j.ID%5 == 0 }
		}
		r, err := s.Run(context.Background())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		once(t, m, r, all[0].done)
		if errors.Is(r.Lost, errGone) {
			lost++
		}
		for _, f := range all {
			if !f.closed {
				t.Errorf("seed %d: device %d was not closed", seed, f.device)
			}
		}
		for _, d := range r.Done {
			if d.Device == 1 && all[1].refuse != nil && all[1].refuse(d.Job) {
				t.Errorf("seed %d: job %d ran on the device that refused it", seed, d.Job.ID)
			}
		}
	}
	if lost < 20 {
		t.Errorf("a GPU was lost in %d of 80 runs, expected 20 at least", lost)
	}
}

// A host that fails ends the run with its error, and so does the end of the context; what had ended is kept.
func TestRunEnds(t *testing.T) {
	m := drawn(60, 0, 1)
	s, all := fakes(t, m, 1)
	all[0].failAt = 5
	if _, err := s.Run(context.Background()); !errors.Is(err, errGone) {
		t.Errorf("a host that fails: %v", err)
	}
	s, _ = fakes(t, m, 1)
	ctx, cancel := context.WithCancelCause(context.Background())
	n := 0
	s.Ended = func(Done) {
		if n++; n == 10 {
			cancel(errors.New("enough"))
		}
	}
	r, err := s.Run(ctx)
	if err == nil || err.Error() != fmt.Sprintf("%d of 60 tasks were not run: enough", 60-len(r.Done)) || len(r.Done) < 10 {
		t.Errorf("%d tasks had ended: %v", len(r.Done), err)
	}
	s, _ = fakes(t, m, 1)
	s.Open[1] = func() (Executor, error) { return nil, errGone }
	if _, err := s.Run(context.Background()); !errors.Is(err, errGone) {
		t.Errorf("a device that does not open: %v", err)
	}
}

// A device of which the watch says that it is lost or full begins no more jobs, and what waits for it runs elsewhere, under
// policies that do not plan too. The watch asks and reports while Stream.Ended runs, which may wait for it.
func TestRunWatches(t *testing.T) {
	for _, policy := range []Policy{Ours(Floors{25e3}, nil), DMDA("dmda", Floors{25e3}), Always("gpu", 1, Floors{25e3})} {
		t.Run(policy.Name, func(t *testing.T) {
			m := drawn(60, 0, 2)
			s, all := fakes(t, m, 2)
			s.Policy = policy
			first, reported := make(chan struct{}), make(chan struct{})
			s.Watch = func(ctx context.Context, busy func(int) bool, report func(int, Condition)) {
				<-first
				busy(1)
				report(1, Condition{Refused: true})
				close(reported)
				<-ctx.Done()
			}
			begun := 0
			var start sync.Once
			s.Ended = func(d Done) {
				start.Do(func() { close(first) })
				<-reported
				if d.Device == 1 {
					begun++
				}
			}
			ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errors.New("jobs waited for a device that was refused"))
			defer cancel()
			r, err := s.Run(ctx)
			if err != nil {
				t.Fatal(err)
			}
			once(t, m, r, all[0].done)
			if begun > 3 {
				t.Errorf("%d jobs ended on a device that was refused before the first had", begun)
			}
		})
	}
}

// While NVML says that a GPU has too little memory, beside what its executor holds, jobs that need more do not begin there, and others do.
// Those that waited there run elsewhere, and come back once there is memory.
func TestRunVetoesMemory(t *testing.T) {
	for _, policy := range []Policy{Ours(Floors{25e3}, nil), DMDA("dmda", Floors{25e3}), Always("gpu", 1, Floors{25e3})} {
		for _, held := range []int64{0, 1} {
			m := drawn(60, 0, 2)
			for i := range m.Jobs {
				m.Jobs[i].Memory = 1 + int64(i%2)*100
			}
			s, all := fakes(t, m, 2)
			s.Policy = policy
			s.Open[Host] = func() (Executor, error) { return &lateHost{fake: all[Host], each: 300 * time.Microsecond}, nil }
			all[1].held = held
			first, reported := make(chan struct{}), make(chan struct{})
			s.Watch = func(ctx context.Context, busy func(int) bool, report func(int, Condition)) {
				<-first
				report(1, Condition{Free: 100})
				close(reported)
				<-ctx.Done()
			}
			large, small := 0, 0
			var start sync.Once
			s.Ended = func(d Done) {
				start.Do(func() { close(first) })
				<-reported
				if d.Device == 1 && d.Job.Memory > 100 {
					large++
				} else if d.Device == 1 {
					small++
				}
			}
			r, err := s.Run(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			once(t, m, r, all[0].done)
			if held == 0 && (large > 3 || r.Decided.NoRoom < 10) || held == 1 && (large < 4 || r.Decided.NoRoom > 0) || small == 0 {
				t.Errorf("%s: %d bytes are held: %d jobs that need more than is free and %d others ended on the GPU, %d had no room", policy.Name, held, large, small, r.Decided.NoRoom)
			}
		}
	}
}

// later is a GPU whose lanes run jobs at once, and whose results are there once so many jobs have run, or once one of them was wrong: then no more run.
type later struct {
	*fake
	ran       atomic.Int32
	of, wrong int32 // the number of the job that has a wrong result; 0: none
	found     atomic.Bool
}

func (l *later) RunLane(j *Job) (Times, Check, error) {
	n := l.ran.Add(1)
	return Times{Run: 1}, func(wait bool) (bool, error) {
		switch {
		case l.ran.Load() < min(n+3, l.of) && !l.found.Load() && !wait:
			return false, nil
		case n == l.wrong:
			l.found.Store(true)
			return true, fmt.Errorf("the result of job %d is wrong", j.ID)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.done[j.ID]++
		return true, nil
	}, nil
}

// A lane begins its next job while results are copied to the host. The stream ends when the last of them is checked. A wrong one is reported with its job, which is done
// elsewhere.
func TestRunChecksBesideLanes(t *testing.T) {
	for _, wrong := range []int32{0, 5, 20} { // 20 is the last
		m := inLanes(20, 1)
		s, all := fakes(t, m, 3)
		l := &later{fake: all[1], of: int32(len(m.Jobs)), wrong: wrong}
		s.Open[1] = func() (Executor, error) { return l, nil }
		s.Policy = Always("gpu", 1, Floors{25e3})
		r, err := s.Run(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		once(t, m, r, l.done)
		if wrong > 0 {
			if r.Lost == nil || !strings.Contains(r.Lost.Error(), "is wrong") {
				t.Errorf("a wrong result of %d: %v", wrong, r.Lost)
			}
			continue
		}
		beside := 0
		for _, d := range r.Done {
			if d.Checked < d.Actual.End || d.Checked > r.Makespan {
				t.Errorf("job %d ended at %g us, was checked at %g; the stream ended at %g", d.Job.ID, d.Actual.End, d.Checked, r.Makespan)
			}
			for _, o := range r.Done {
				if o.Actual.Start >= d.Actual.End && o.Actual.Start < d.Checked {
					beside++
					break
				}
			}
		}
		if last := r.Done[len(r.Done)-1]; r.Lost != nil || beside < len(r.Done)/2 || r.Makespan != last.Checked {
			t.Errorf("%v; beside %d of %d checks a job began; the stream ended at %g, the last check at %g", r.Lost, beside, len(r.Done), r.Makespan, last.Checked)
		}
	}
}

// twoResults is a GPU that runs two jobs. The result of the first is wrong, which is found once a check of the second has begun, whose result is there after that.
type twoResults struct {
	*fake
	ran          atomic.Int32
	begun, found chan struct{}
	start        sync.Once
	right        int // the job of which the result is right
}

func (b *twoResults) RunLane(j *Job) (Times, Check, error) {
	first := b.ran.Add(1) == 1
	return Times{Run: 1}, func(wait bool) (bool, error) {
		there := b.begun
		if !first {
			b.start.Do(func() { close(b.begun) })
			there = b.found
		}
		select {
		case <-there:
		default:
			if !wait {
				return false, nil
			}
			<-there
		}
		if first {
			close(b.found)
			return true, errGone
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.right = j.ID
		b.done[j.ID]++
		return true, nil
	}, nil
}

// A GPU is lost by a wrong result while another result is being copied, without jobs that run there later: that one still counts.
func TestRunChecksOfLostGPU(t *testing.T) {
	m := inLanes(2, 2)
	s, all := fakes(t, m, 3)
	b := &twoResults{fake: all[1], begun: make(chan struct{}), found: make(chan struct{})}
	s.Open[1] = func() (Executor, error) { return b, nil }
	s.Policy = Always("gpu", 1, Floors{25e3})
	r, err := s.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	once(t, m, r, b.done)
	for _, d := range r.Done {
		if want := d.Job.ID == b.right; (d.Device == 1) != want {
			t.Errorf("job %d, of which the result is right: %v, ended on device %d", d.Job.ID, want, d.Device)
		}
	}
	if !errors.Is(r.Lost, errGone) {
		t.Errorf("lost: %v", r.Lost)
	}
}

// waited is a GPU whose results are there only for those who wait for them. The second job runs until the checker has looked at the result of the first.
type waited struct {
	*fake
	ran    atomic.Int32
	look   sync.Once
	looked chan struct{}
}

func (b *waited) RunLane(j *Job) (Times, Check, error) {
	if b.ran.Add(1) > 1 {
		<-b.looked
	}
	return Times{Run: 1}, func(wait bool) (bool, error) {
		if !wait {
			b.look.Do(func() { close(b.looked) })
			return false, nil
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.done[j.ID]++
		return true, nil
	}, nil
}

// A lane without jobs waits for a result that is being copied, so that a stream does not end later by the checker's sleep.
func TestRunLanesWaitForResults(t *testing.T) {
	m := inLanes(20, 1)
	s, all := fakes(t, m, 3)
	s.Open[1] = func() (Executor, error) { return &waited{fake: all[1], looked: make(chan struct{})}, nil }
	s.Policy = Always("gpu", 1, Floors{25e3})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := s.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	once(t, m, r, all[1].done)
}

// The end of a stream whose host failed does not wait for the jobs that have not come.
func TestRunEndsWithHost(t *testing.T) {
	m := drawn(20, 0, 3)
	m.Jobs[19].Arrive = 60e6
	s, all := fakes(t, m, 3)
	all[Host].failAt, all[Host].failure = 3, errGone
	s.Policy = Always("cpu", Host, Floors{25e3})
	start := time.Now()
	if _, err := s.Run(context.Background()); !errors.Is(err, errGone) {
		t.Errorf("%v; expected %v", err, errGone)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("the stream ended %v after it began", took)
	}
}

// lateHost is a host of which jobs take some time, the first longer.
type lateHost struct {
	*fake
	began       sync.Once
	first, each time.Duration
}

func (b *lateHost) Begin(j *Job) error {
	b.began.Do(func() { time.Sleep(b.first) })
	time.Sleep(b.each)
	return b.fake.Begin(j)
}

// A device that idles looks again, though nothing happens that would wake it: jobs that wait behind one that is late are done there.
func TestRunLooksAgain(t *testing.T) {
	work := []predict.Work{{FloorUs: 100}, {FloorUs: 1000, Memory: predict.Resident}}
	m := &Simulation{Devices: []Device{{"cpu", 1, 0}, {"cuda:0", 1, 0}}, Classes: 1, Truth: truthOf(func(int, *Job) Times { return Times{Run: 1000} })}
	for i := range 8 {
		m.Jobs = append(m.Jobs, Job{ID: i, Work: work})
	}
	s, all := fakes(t, m, 1)
	s.Open[Host] = func() (Executor, error) { return &lateHost{fake: all[Host], first: 300 * time.Millisecond}, nil }
	s.Policy = Policy{Believes: Floors{}, Plan: true}
	r, err := s.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	once(t, m, r, all[Host].done)
	for _, d := range r.Done {
		if d.Actual.Start > 200e3 {
			t.Errorf("job %d waited %g us for one that is late, and then ran on device %d", d.Job.ID, d.Actual.Start, d.Device)
		}
	}
}
