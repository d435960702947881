package dispatch

import (
	"context"
	"slices"
	"sync"
	"testing"

	"gpt2scope/ceilings"
	"gpt2scope/internal/stub"
	"gpt2scope/predict"
	"gpt2scope/tasks"
)

// stubMachine is a machine whose GPU is the stub's.
func stubMachine(t *testing.T) (*tasks.Machine, *stub.Control) {
	t.Helper()
	c := stub.Use(t)
	m, err := tasks.Open(tasks.Options{Name: "here", CPU: true, Threads: 1, GPUs: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	set := ceilings.Set{Values: []ceilings.Value{{Name: "read", Unit: ceilings.GBs, Value: 12, Where: "memory"}, {Name: ceilings.F32, Unit: ceilings.TFLOPs, Value: 1}}}
	for _, d := range m.Devices() {
		m.SetCeilings(d, set)
	}
	return m, c
}

// openStream prepares and opens a stream of so many jobs of the first tasks of the suite, which are over vectors, of at most so many bytes.
func openStream(ctx context.Context, t *testing.T, m *tasks.Machine, first int, most int64, jobs int) (*Prepared, *Machine) {
	t.Helper()
	suite := tasks.All()[:first]
	samples, _, err := Measure(ctx, m, suite, 1, 2, most, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	rows, _ := tasks.Rows(samples)
	p, err := Setup{Rows: rows, Devices: m.Devices(), Memory: predict.Pinned, HeldOut: Nothing, Jobs: jobs, Seed: 1}.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Open(ctx, m, suite)
	if err != nil {
		t.Fatal(err)
	}
	return p, r
}

// first is an estimator that calls a function before its first estimate: when the first job of a stream has come.
type first struct {
	Estimator
	once sync.Once
	f    func()
}

func (f *first) Estimate(device int, j *Job, in int64) Estimate {
	f.once.Do(f.f)
	return f.Estimator.Estimate(device, j, in)
}

// A stream runs on the CPU and on a GPU. If the GPU is lost, at any call of the CUDA library, each task is still done
// once, with a result that agrees with its reference, since what does not is an error.
func TestGPULostInMidRun(t *testing.T) {
	m, c := stubMachine(t)
	defer func() {
		c.Reset()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx := context.Background()
	p, r := openStream(ctx, t, m, 3, 1<<18, 24)
	defer r.Close()
	// Half of the tasks on each device, whatever they take here.
	half := Policy{Name: "half", Believes: p.Model, Fixed: func(j *Job) int { return j.ID % 2 }}
	losses, onGPU := 0, 0
	for n := range 20 {
		r.Keep = n%4 == 3
		policy := half
		if n%2 == 1 {
			policy = p.Ours()
		}
		lost := false
		policy.Believes = &first{Estimator: p.Model, f: func() {
			if n > 0 { // after the queue is open
				c.Fail("lost", 1+n*n)
				lost = true
			}
		}}
		result, err := r.Run(ctx, p, policy)
		c.Reset()
		if err != nil {
			t.Fatalf("run %d: %v", n, err)
		}
		every(t, p.Simulation, result)
		for _, d := range result.Done {
			onGPU += d.Device
		}
		if result.Lost != nil {
			if losses++; !lost {
				t.Errorf("run %d: %v", n, result.Lost)
			}
		}
	}
	if losses < 5 || onGPU < 20 {
		t.Errorf("the GPU was lost in %d of 20 runs and ended %d tasks: this test shows nothing", losses, onGPU)
	}
}

// What is made for the first stream on a GPU is there for the second.
func TestStreamsShareQueues(t *testing.T) {
	m, c := stubMachine(t)
	defer m.Close()
	ctx := context.Background()
	p, r := openStream(ctx, t, m, 1, 1<<16, 10)
	for i := range 3 {
		c.Reset()
		if i == 2 {
			r.Keep = true
		}
		result, err := r.Run(ctx, p, Always("always cuda:0", 1, p.Model))
		if err != nil || result.Lost != nil {
			t.Fatal(err, result.Lost)
		}
		every(t, p.Simulation, result)
		if opened := slices.Contains(c.Calls(), "gs_stream_create"); opened == (i == 1) {
			t.Errorf("run %d opened a queue: %v", i, opened)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// A stream runs on a GPU that has too little memory for some of its tasks: they run on the CPU, each once, under every policy, and
// the GPU is not lost. What NVML says to be free counts beside what the stream holds.
func TestGPUOfLittleMemory(t *testing.T) {
	m, c := stubMachine(t)
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx := context.Background()
	p, r := openStream(ctx, t, m, 3, 1<<18, 40)
	defer r.Close()
	always := Always("always cuda:0", 1, p.Model)
	var limit int64
	for _, w := range r.all {
		limit = max(limit, w.DeviceBytes()-1)
	}
	for _, keep := range []bool{false, true} {
		r.Keep = keep
		for _, policy := range []Policy{always, p.Ours(), DMDA("dmda", p.Floors())} {
			c.Memory(limit)
			r.Watch = Watch([]func() Reading{nil, func() Reading { return Reading{There: true, Free: 1, Utilisation: -1} }})
			result, err := r.Run(ctx, p, policy)
			c.Memory(0)
			if err != nil || result.Lost != nil {
				t.Fatalf("%s: %v, %v", policy.Name, err, result.Lost)
			}
			every(t, p.Simulation, result)
			var there, refused int
			for _, d := range result.Done {
				if d.Device != Host {
					if there++; d.Job.Memory > limit {
						t.Errorf("%s: a task of %d bytes ran on the GPU", policy.Name, d.Job.Memory)
					}
				} else if d.Job.Memory > limit {
					refused++
				}
			}
			if refused == 0 || policy.Fixed != nil && (there == 0 || result.Decided.NoRoom < refused) {
				t.Errorf("%s, keep %v: %d tasks on the GPU, %d had no room, %d are counted", policy.Name, keep, there, refused, result.Decided.NoRoom)
			}
		}
	}
}

// What NVML says counts where it is a fact, or where our own jobs cannot be the cause.
func TestConditions(t *testing.T) {
	for _, c := range []struct {
		name    string
		reading Reading
		busy    bool
		want    Condition
	}{
		{"lost", Reading{}, false, Condition{Refused: true}},
		{"idle, low clocks", Reading{There: true, Clock: 300, Most: 1800, Utilisation: 0}, false, Condition{Slowed: 1}},
		{"throttled while idle", Reading{There: true, Clock: 900, Most: 1800, Throttled: true, Utilisation: -1}, false, Condition{Slowed: 1}},
		{"throttled while busy", Reading{There: true, Clock: 900, Most: 1800, Throttled: true, Utilisation: 100}, true, Condition{Slowed: 2}},
		{"our own work", Reading{There: true, Clock: 1800, Most: 1800, Utilisation: 100}, true, Condition{Slowed: 1}},
		{"others' work", Reading{There: true, Free: 5, Utilisation: 50}, false, Condition{Slowed: 2, Free: 5}},
		{"others' work, all", Reading{There: true, Utilisation: 100}, false, Condition{Slowed: 10}},
	} {
		got := ConditionOf(c.reading, c.busy)
		if got.Refused != c.want.Refused || got.Free != c.want.Free || got.Slowed < c.want.Slowed*0.999 || got.Slowed > c.want.Slowed*1.001 && !got.Refused {
			t.Errorf("%s: %+v, expected %+v", c.name, got, c.want)
		}
	}
}

// A job that needs more memory than a GPU has free runs elsewhere, and a GPU that is slowed down gets less.
func TestConditionsCount(t *testing.T) {
	m := drawn(100, 0, 3)
	gpu := func(c Condition, memory int64) (n int) {
		s := New(m.Devices, m.Classes, Ours(Floors{25e3}, nil))
		s.Condition(1, c, 0)
		for i := range m.Jobs {
			j := m.Jobs[i]
			j.Memory = memory
			if d, _ := s.Decide(&j, 0); d == 1 {
				n++
			}
		}
		return n
	}
	free := gpu(Condition{}, 100)
	if n := gpu(Condition{Free: 100}, 100); n != free {
		t.Errorf("%d jobs where the room is just enough, %d where it is not known", n, free)
	}
	if n := gpu(Condition{Free: 99}, 100); n != 0 || free == 0 {
		t.Errorf("%d jobs without room, %d with", n, free)
	}
	if n := gpu(Condition{Slowed: 4}, 100); n >= free {
		t.Errorf("%d jobs on a GPU of a quarter of the speed, %d on one of all", n, free)
	}
	if n := gpu(Condition{Refused: true}, 0); n != 0 {
		t.Errorf("%d jobs on a GPU that is lost", n)
	}
}

// Each GPU has a thread that feeds it and lanes, the CPU has the other cores but one, and no device is without a thread.
func TestThreads(t *testing.T) {
	for of, want := range map[[3]int][2]int{{16, 0, 0}: {0, 0}, {1, 1, 0}: {1, 1}, {2, 1, 0}: {1, 1}, {4, 1, 0}: {1, 1}, {8, 1, 0}: {3, 3}, {16, 1, 0}: {8, 6}, {64, 1, 0}: {56, 6}, {32, 2, 0}: {17, 6}, {16, 4, 0}: {7, 1}, {16, 1, 4}: {10, 4}, {4, 1, 8}: {1, 8}} {
		if host, lanes := Threads(of[0], of[1], of[2]); host != want[0] || lanes != want[1] {
			t.Errorf("%d cores and %d GPUs, %d lanes asked for: %d threads and %d lanes; expected %v", of[0], of[1], of[2], host, lanes, want)
		}
	}
}
