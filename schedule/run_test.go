package schedule

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gpt2scope/ceilings"
	"gpt2scope/internal/require"
	"gpt2scope/internal/stub"
	"gpt2scope/tasks"
)

var must = require.NoError

var errGone = errors.New("the GPU is gone")

// fake is a device that does tasks at once, and fails from a call on.
type fake struct {
	truth  Predictor
	device int
	done   []atomic.Int32 // by task
	calls  atomic.Int32
	failAt int32 // 0: never
	refuse func(*Job) bool
}

func (f *fake) Run(slot int, j *Job) (Times, error) {
	if n := f.calls.Add(1); f.failAt > 0 && n >= f.failAt {
		return Times{}, errGone
	}
	if f.refuse != nil && f.refuse(j) {
		return Times{}, fmt.Errorf("no memory: %w", ErrRefused)
	}
	f.done[j.ID].Add(1)
	return f.truth(j, f.device), nil
}

func (f *fake) Held() int64 { return 0 }

// fakes is a stream on fake devices.
func fakes(m *Simulation, p Policy) (*Stream, []*fake) {
	s := &Stream{Devices: m.Devices, Jobs: slices.Clone(m.Jobs), Kinds: len(m.Kinds), Policy: p}
	var all []*fake
	done := make([]atomic.Int32, len(m.Jobs))
	for d := range m.Devices {
		all = append(all, &fake{truth: m.Truth, device: d, done: done})
		s.Executors = append(s.Executors, all[d])
	}
	return s, all
}

// Whenever a GPU is lost, and whichever tasks it refuses, each task is done once, in any order of events.
func TestRunLosesGPUs(t *testing.T) {
	lost := 0
	for seed := range 60 {
		m := stream(60, 1+seed%2, uint64(seed))
		p := ours(m)
		if seed%3 == 0 {
			p = always(m, 1)
		}
		s, all := fakes(m, p)
		all[1].failAt = int32(1 + seed)
		if seed%4 == 0 {
			all[1].refuse = func(j *Job) bool { return j.ID%5 == 0 }
		}
		r, err := s.Run(context.Background())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		once(t, m, r)
		for id := range all[0].done {
			if n := all[0].done[id].Load(); n != 1 {
				t.Fatalf("seed %d: task %d was done %d times", seed, id, n)
			}
		}
		if strings.Contains(r.Lost, errGone.Error()) {
			lost++
		}
	}
	if lost < 20 {
		t.Errorf("a GPU was lost in %d of 60 runs: this test shows little", lost)
	}
}

// A CPU that fails, the end of the context and tasks that no device takes end a run, before tasks that come in an hour.
func TestRunEnds(t *testing.T) {
	m := stream(60, 1, 1)
	m.Jobs[59].Arrive = 3600e6
	s, all := fakes(m, always(m, Host))
	all[Host].failAt = 5
	if r, err := s.Run(context.Background()); !errors.Is(err, errGone) || len(r.Done) != 4 {
		t.Errorf("a CPU that fails: %v, %d tasks", err, len(r.Done))
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	s, all = fakes(m, always(m, Host))
	all[Host].refuse = func(j *Job) bool {
		if j.ID == 10 {
			cancel(errors.New("enough"))
		}
		return false
	}
	r, err := s.Run(ctx)
	want := fmt.Sprintf("%d of 60 tasks were not run: enough", 60-len(r.Done))
	if err == nil || err.Error() != want || len(r.Done) < 10 {
		t.Errorf("the end of the context: %v", err)
	}
	none := &Stream{Devices: m.Devices, Kinds: 1, Executors: s.Executors, Policy: ours(m)}
	if _, err := none.Run(context.Background()); err != nil {
		t.Errorf("no tasks: %v", err)
	}
}

// A device that is read not to answer begins no more tasks.
func TestRunReads(t *testing.T) {
	for _, plan := range []bool{true, false} {
		m := stream(60, 1, 2)
		p := always(m, 1)
		if plan {
			p = ours(m)
		}
		s, all := fakes(m, p)
		first, read := make(chan struct{}), make(chan struct{})
		var began, noted sync.Once
		gone := atomic.Bool{}
		s.Read = func(device int) *Reading {
			if gone.Load() { // the reading before is noted
				noted.Do(func() { close(read) })
			}
			select {
			case <-first:
				gone.Store(true)
			default:
			}
			return &Reading{There: !gone.Load()}
		}
		all[1].refuse = func(*Job) bool {
			began.Do(func() { close(first) })
			<-read
			return false
		}
		r := require.Value(s.Run(context.Background()))(t)
		once(t, m, r)
		if n := all[1].calls.Load(); n > 2 {
			t.Errorf("%d tasks began on a GPU of two slots that does not answer", n)
		}
	}
}

// stubMachine is a machine whose GPU is the stub's.
func stubMachine(t *testing.T) (*tasks.Machine, *stub.Control) {
	t.Helper()
	c := stub.Use(t)
	m := require.Value(tasks.Open(tasks.Options{Name: "here", CPU: true, Threads: 1, GPUs: []int{0}}))(t)
	t.Cleanup(func() {
		c.Reset()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	set := ceilings.Set{Values: []ceilings.Value{
		{Name: "read", Unit: ceilings.GBs, Value: 12, Where: "memory"}, {Name: ceilings.F32, Unit: ceilings.TFLOPs, Value: 1},
	}}
	for _, d := range m.Devices() {
		m.SetCeilings(d, set)
	}
	return m, c
}

// opened is a stream of tasks over vectors, which the CPU and the stub's GPU are expected to do in the same time.
func opened(ctx context.Context, t *testing.T, m *tasks.Machine, most int64) (*Prepared, *Machine) {
	t.Helper()
	suite := tasks.All()[:3]
	samples, _, err := Measure(ctx, m, suite, 1, 40, most, 1, nil)
	must(t, err)
	rows, _, _ := tasks.Rows(samples)
	p := require.Value(Setup{Rows: rows, Devices: m.Devices(), Jobs: 24, Seed: 1}.Prepare())(t)
	p.Model = func(*Job, int) Times { return Times{Run: 10} }
	r := require.Value(p.Open(ctx, m, suite))(t)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, r
}

// A stream runs on the CPU and on a GPU. If the GPU is lost at any call of the CUDA library, each task is still done
// once, with a result that agrees with its reference, since what does not is an error. The next stream finds a GPU
// again.
func TestGPULostInMidRun(t *testing.T) {
	m, c := stubMachine(t)
	ctx := context.Background()
	p, r := opened(ctx, t, m, 1<<18)
	half := Policy{Name: "half", Predict: p.Model, Fixed: func(j *Job) int { return j.ID % 2 }}
	losses, onGPU := 0, 0
	for n := range 16 {
		policy := half
		if n%2 == 1 {
			policy = Policy{Name: "ours", Predict: p.Model, Plan: true, Learn: true}
		}
		var start sync.Once
		policy.Predict = func(j *Job, device int) Times { // asked once the queue is open
			start.Do(func() {
				if n > 0 {
					c.Fail("lost", 1+n*n)
				}
			})
			return p.Model(j, device)
		}
		result, err := r.Run(ctx, p, policy)
		c.Reset()
		if err != nil {
			t.Fatalf("run %d: %v", n, err)
		}
		once(t, &p.Simulation, result)
		for _, d := range result.Done {
			onGPU += d.Device
		}
		if result.Lost != "" {
			losses++
		}
	}
	if losses < 5 || onGPU < 20 {
		t.Errorf("the GPU was lost in %d of 16 runs and did %d tasks: this test shows nothing", losses, onGPU)
	}
}

// A queue serves several streams. On a GPU with too little memory for some tasks these run on the CPU, each once, under
// each policy, and the GPU is not lost. What NVML says to be free counts beside what the queue holds.
func TestGPUOfLittleMemory(t *testing.T) {
	m, c := stubMachine(t)
	ctx := context.Background()
	p, r := opened(ctx, t, m, 1<<18)
	var largest int64
	for _, w := range r.works {
		largest = max(largest, w.DeviceBytes)
	}
	r.Read = func(int) *Reading { return &Reading{There: true, Free: 1, Utilisation: -1} }
	for _, policy := range []Policy{p.always(1), {Name: "ours", Predict: p.Model, Plan: true, Learn: true}} {
		c.Reset()
		c.Memory(largest - 1)
		result, err := r.Run(ctx, p, policy)
		if err != nil || result.Lost != "" {
			t.Fatalf("%s: %v, %v", policy.Name, err, result.Lost)
		}
		once(t, &p.Simulation, result)
		there := 0
		for _, d := range result.Done {
			if there += d.Device; d.Device != Host && d.Job.Memory >= largest {
				t.Errorf("%s: a task of %d bytes ran on the GPU", policy.Name, d.Job.Memory)
			}
		}
		if policy.Fixed != nil && (there == 0 || result.NoRoom == 0 || result.NoRoom+there != len(p.Jobs)) {
			t.Errorf("%d of %d tasks ran on the GPU, %d had no room", there, len(p.Jobs), result.NoRoom)
		}
		if policy.Name == "ours" && strings.Contains(strings.Join(c.Calls(), " "), "gs_stream_create") {
			t.Error("the second stream opened a queue")
		}
	}
	c.Memory(0)
}

// What NVML says counts where it is a fact, or where our own tasks cannot be the cause.
func TestConditions(t *testing.T) {
	for _, c := range []struct {
		name    string
		reading *Reading
		busy    bool
		want    Condition
	}{
		{"nothing known", nil, true, Condition{}},
		{"lost", &Reading{Free: 7, Utilisation: 50}, false, Condition{Refused: true, Free: 7}},
		{"idle, low clock", &Reading{There: true, Clock: 300, Most: 1800}, false, Condition{}},
		{"throttled, idle", &Reading{There: true, Clock: 900, Most: 1800, Throttled: true}, false, Condition{}},
		{"throttled while busy", &Reading{There: true, Clock: 900, Most: 1800, Throttled: true, Utilisation: 100}, true,
			Condition{Slowed: 2}},
		{"our own work", &Reading{There: true, Clock: 1800, Most: 1800, Utilisation: 100}, true, Condition{}},
		{"others' work", &Reading{There: true, Free: 5, Utilisation: 50}, false, Condition{Slowed: 2, Free: 5}},
		{"others' work, all", &Reading{There: true, Utilisation: 100}, false, Condition{Slowed: 10}},
	} {
		got := c.reading.condition(c.busy)
		if math.Abs(got.Slowed-c.want.Slowed) < 0.01 {
			got.Slowed = c.want.Slowed
		}
		if got != c.want {
			t.Errorf("%s: %+v, expected %+v", c.name, got, c.want)
		}
	}
}

// Others' utilisation counts only once none of our tasks has run for a while.
func TestNote(t *testing.T) {
	m := stream(1, 1, 1)
	s, _ := fakes(m, always(m, 1))
	r := &running{Stream: s, s: scheduler(m, always(m, 1)), idle: make([]int, 2)}
	r.change.L = &r.mu
	reading := &Reading{There: true, Utilisation: 50}
	slowed := func() float64 { return r.s.devices[1].slowed() }
	j := r.s.Next(1, 0)
	for range 2 * settled {
		r.note(1, reading)
	}
	if slowed() != 1 {
		t.Errorf("slowed by %g while our task runs", slowed())
	}
	r.s.Finish(1, j, Times{Run: 1})
	for n := range settled {
		if r.note(1, reading); (slowed() > 1) != (n == settled-1) {
			t.Errorf("slowed by %g at reading %d without our tasks", slowed(), n+1)
		}
	}
}
