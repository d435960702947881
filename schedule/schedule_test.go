package schedule

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/predict"
	"gpt2scope/tasks"
	"gpt2scope/tasks/samples"
)

// times is how long work takes on the devices of the tests: a CPU of 60 GB/s and 1 TFLOP/s, and GPUs of 3000 GB/s and
// 40 TFLOP/s behind links of 25 GB/s.
func times(kind string, size float64) (host, gpu Times) {
	switch kind {
	case "vector.add": // size: bytes
		return Times{Run: 3 + size/60e3}, Times{8 + size/37e3, 5 + size/3000e3, 8 + size/75e3}
	case "matmul": // size: FLOPs
		in := 8 * math.Pow(size, 2./3)
		return Times{Run: 5 + size/1e6}, Times{8 + in/25e3, 5 + size/40e6, 8 + in/50e3}
	}
	return Times{Run: 10 + size/1e6}, Times{Run: 60 + size/10e6} // gpt2.decode; size: FLOPs
}

// stream is a stream on the CPU and some GPUs, of tasks whose times lie on both sides of the crossover.
func stream(jobs, gpus int, seed uint64) *Simulation {
	random := rand.New(rand.NewPCG(seed, 1))
	m := &Simulation{Devices: []Device{{"cpu", 1}}, Kinds: []string{"vector.add", "matmul", "gpt2.decode"}}
	for i := range gpus {
		m.Devices = append(m.Devices, Device{fmt.Sprintf("cuda:%d", i), 2})
	}
	var all [][2]Times
	for i := range jobs {
		kind := random.IntN(len(m.Kinds))
		size := math.Exp2(12+12*random.Float64()) * []float64{12, 100, 50}[kind]
		host, gpu := times(m.Kinds[kind], size)
		all = append(all, [2]Times{host, gpu})
		work := make([]predict.Work, len(m.Devices))
		for d := range work {
			work[d].FLOPs, work[d].Bytes = size, size
		}
		j := Job{ID: i, Task: m.Kinds[kind], Kind: kind, Work: work, Shares: kind == 2, Memory: int64(size)}
		m.Jobs = append(m.Jobs, j)
	}
	m.Truth = func(j *Job, device int) Times { return all[j.ID][min(device, 1)] }
	return m
}

// once checks that each task of a stream was done once.
func once(t *testing.T, m *Simulation, r Result) {
	t.Helper()
	ids := make([]int, len(m.Jobs))
	for _, d := range r.Done {
		ids[d.Job.ID]++
	}
	for id, n := range ids {
		if n != 1 {
			t.Fatalf("%s: task %d was done %d times", r.Policy, id, n)
		}
	}
}

// ours is the policy of this package, which knows the times but for a factor on each device.
func ours(m *Simulation, factors ...float64) Policy {
	return Policy{Name: "ours", Plan: true, Learn: true, Predict: func(j *Job, device int) Times {
		t := m.Truth(j, device)
		if device < len(factors) {
			t = t.times(factors[device])
		}
		return t
	}}
}

// always puts all tasks on one device.
func always(m *Simulation, device int) Policy {
	return Policy{Name: "always", Predict: m.Truth, Fixed: func(*Job) int { return device }}
}

// policies are those that are compared.
func policies(m *Simulation) []Policy {
	p := Prepared{Simulation: *m, Model: m.Truth, Floors: func(j *Job, device int) Times {
		return Times{Run: m.Truth(j, device).Run}
	}}
	return p.Policies()
}

// Each policy does each task of a stream once, no two tasks more than a device has slots for are in flight, and none
// ends before the lower bound. Ours ends near the bound, and before the policies that do not plan.
func TestPolicies(t *testing.T) {
	for _, gpus := range []int{1, 2} {
		for _, interval := range []float64{0, 40} {
			m := stream(400, gpus, 2)
			for i := range m.Jobs {
				m.Jobs[i].Arrive = float64(i) * interval
			}
			bound := LowerBound(m.Devices, m.Jobs, m.Truth)
			makespan := map[string]float64{}
			for _, p := range policies(m) {
				r := m.Run(p)
				once(t, m, r)
				makespan[p.Name] = r.MakespanUs
				if r.MakespanUs < bound {
					t.Errorf("%s ends at %g us, before the bound of %g", p.Name, r.MakespanUs, bound)
				}
				for _, a := range r.Done {
					inFlight := 0
					for _, b := range r.Done {
						if b.Device == a.Device && b.Actual.Start <= a.Actual.Start && a.Actual.Start < b.Actual.End {
							inFlight++
						}
					}
					if inFlight > m.Devices[a.Device].Slots {
						t.Fatalf("%s: %d tasks in flight on %s", p.Name, inFlight, m.Devices[a.Device].Name)
					}
				}
			}
			if makespan["ours"] > 1.1*bound && interval == 0 {
				t.Errorf("%d GPUs: ours ends at %.3f of the bound", gpus, makespan["ours"]/bound)
			}
			for name, us := range makespan {
				if name != "oracle" && name != "ours" && us < makespan["ours"] {
					t.Errorf("%d GPUs, interval %g: %s ends before ours: %v", gpus, interval, name, makespan)
				}
			}
		}
	}
}

// The bound of streams for which it is known.
func TestLowerBound(t *testing.T) {
	devices := []Device{{"cpu", 1}, {"cuda:0", 2}}
	for _, c := range []struct {
		name      string
		n         int
		host, gpu Times
		shares    bool
		want      float64
	}{
		{"as fast on both", 100, Times{Run: 10}, Times{Run: 10}, false, 500},
		{"copies beside kernels", 100, Times{Run: 1e9}, Times{10, 10, 0}, false, 1000},
		{"three engines, two slots", 100, Times{Run: 1e9}, Times{10, 10, 10}, false, 1500},
		{"two at once", 100, Times{Run: 1e9}, Times{Run: 10}, true, 500},
		{"one task", 1, Times{Run: 30}, Times{5, 10, 5}, false, 20},
	} {
		jobs := make([]Job, c.n)
		for i := range jobs {
			jobs[i].Shares = c.shares
		}
		got := LowerBound(devices, jobs, func(_ *Job, device int) Times { return []Times{c.host, c.gpu}[device] })
		if got > c.want+1e-6 || got < 0.98*c.want {
			t.Errorf("%s: bound %g us, expected %g", c.name, got, c.want)
		}
	}
}

// On the stored samples ours ends within 1.25 of the bound, and before expected finish on floors, by the model that
// ships.
func TestStoredSamples(t *testing.T) {
	all := require.Value(samples.Read())(t)
	rows, _, _ := tasks.Rows(all)
	for _, machine := range []string{"h200", "h100", "h100-2"} {
		p, err := Setup{Rows: rows, Machine: machine, Jobs: 300, Seed: 1,
			Model: func([]predict.Row) (*predict.Model, error) { return samples.Model() }}.Prepare()
		must(t, err)
		r := p.Report(p.Simulate())
		over := map[string]float64{}
		for _, p := range r.Policies {
			over[p.Policy] = p.OverBound
		}
		if over["ours"] > 1.25 || over["ours"] > over["expected finish on floors"] || over["oracle"] < 1 {
			t.Errorf("%s: makespans over the bound: %v; expected 1.25 at most for ours", machine, over)
		}
	}
}

// The running ratio finds predictions that are wrong for a device: the last tasks of each kind are expected about
// right, and the stream does not end later than without it.
func TestLearns(t *testing.T) {
	for device := range 2 {
		m := stream(600, 1, 3)
		factors := []float64{1, 1}
		factors[device] = 3
		wrong := ours(m, factors...)
		fixed := wrong
		fixed.Learn = false
		learnt, not := m.Run(wrong), m.Run(fixed)
		once(t, m, learnt)
		if learnt.MakespanUs > 1.01*not.MakespanUs {
			t.Errorf("device %d is predicted wrong: with the ratio %g us, without %g", device, learnt.MakespanUs, not.MakespanUs)
		}
		for kind := range m.Kinds {
			var of []Done
			for _, d := range learnt.Done {
				if d.Device == device && d.Job.Kind == kind {
					of = append(of, d)
				}
			}
			if len(of) < 12 {
				continue
			}
			if d := of[len(of)-1]; math.Abs(d.Expected.Total()/d.Times.Total()-1) > 0.2 {
				t.Errorf("device %d: the last %s: expected %+v, took %+v", device, m.Kinds[kind], d.Expected, d.Times)
			}
		}
	}
}

// A single time that cannot be, as of a process that was stopped, changes predictions by a bounded factor.
func TestRatioIsBounded(t *testing.T) {
	var r ratio
	r.add(1e9, 1)
	if f := math.Exp(r.log); f > math.Sqrt(20)*1.001 {
		t.Errorf("factor %g", f)
	}
}

// scheduler returns one with tasks that all came at 0.
func scheduler(m *Simulation, p Policy) *Scheduler {
	s := New(m.Devices, len(m.Kinds), p)
	for i := range m.Jobs {
		s.Submit(&m.Jobs[i], 0)
	}
	return s
}

// The tasks of a lost GPU go to the others: those that wait at once, one that runs when it fails. One that still ends
// there has ended, and none begins there.
func TestLose(t *testing.T) {
	m := stream(6, 1, 1)
	s := scheduler(m, always(m, 1))
	a, b := s.Next(1, 0), s.Next(1, 0)
	s.Lose(1, a, 2)
	if n := len(s.devices[Host].queue); n != 5 || len(s.devices[1].queue) > 0 || s.Next(1, 3) != nil {
		t.Errorf("%d tasks are in the CPU's queue; expected 5", n)
	}
	if s.Finish(1, a, Times{Run: 1}) || !s.Finish(1, b, Times{Run: 1}) || s.left != 5 {
		t.Errorf("%d tasks are left; expected 5", s.left)
	}
}

// A task that needs more memory than a GPU has waits elsewhere, and a plan brings it back once memory is free. One that
// the GPU refused does not come back.
func TestMemory(t *testing.T) {
	m := stream(60, 1, 2)
	var sizes []int64
	for _, j := range m.Jobs {
		sizes = append(sizes, j.Memory)
	}
	slices.Sort(sizes)
	s := scheduler(m, ours(m))
	large := func() (n int) {
		for _, j := range s.devices[1].queue {
			if j.Memory > sizes[30] {
				n++
			}
		}
		return n
	}
	s.SetCondition(1, Condition{Free: sizes[30]}, 0)
	if s.plan(0); large() > 0 || len(s.devices[1].queue) == 0 {
		t.Errorf("%d of %d tasks in the GPU's queue are too large for it", large(), len(s.devices[1].queue))
	}
	s.SetCondition(1, Condition{Free: sizes[59]}, 0)
	j := s.Next(1, 0) // plans anew
	if large() == 0 {
		t.Error("no task came back to the GPU when memory was free")
	}
	s.Return(1, j, 0)
	if s.plan(0); j.device != Host || slices.Contains(s.devices[1].queue, j) {
		t.Errorf("a task that the GPU refused is in the queue of device %d", j.device)
	}
}

// A GPU that NVML does not find gets nothing, and one that is slowed down gets less.
func TestConditionCounts(t *testing.T) {
	on := func(c Condition) int {
		m := stream(100, 1, 3)
		s := scheduler(m, ours(m))
		s.SetCondition(1, c, 0)
		s.plan(0)
		return len(s.devices[1].queue)
	}
	all, slow, none := on(Condition{}), on(Condition{Slowed: 4}), on(Condition{Refused: true})
	if slow >= all || none != 0 {
		t.Errorf("%d tasks go to a GPU, %d to one of a quarter of the speed, %d to one that does not answer", all, slow, none)
	}
}

// Tasks that wait behind a late one are done by the idle device, though nothing else happens meanwhile.
func TestLateTaskIsNotWaitedFor(t *testing.T) {
	for late := range 2 {
		m := &Simulation{Devices: []Device{{"cpu", 1}, {"cuda:0", 2}}, Kinds: []string{""}, Jobs: make([]Job, 8)}
		for i := range m.Jobs {
			m.Jobs[i].ID = i
		}
		m.Truth = func(_ *Job, device int) Times {
			if device == late {
				return Times{Run: 50e3}
			}
			return Times{Run: 1000}
		}
		p := Policy{Plan: true, Predict: func(_ *Job, device int) Times {
			if device == late {
				return Times{Run: 100}
			}
			return Times{Run: 1000}
		}}
		r := m.Run(p)
		once(t, m, r)
		for _, d := range r.Done {
			if d.Device != late && d.Actual.End > 20e3 {
				t.Errorf("device %d is late: task %d ended elsewhere at %g us", late, d.Job.ID, d.Actual.End)
			}
		}
		if n := len(slices.DeleteFunc(r.Done, func(d Done) bool { return d.Device != late })); n > m.Devices[late].Slots {
			t.Errorf("device %d is late and did %d tasks", late, n)
		}
	}
}

// Expected times that no time can be do not break the schedule.
func TestBrokenPredictions(t *testing.T) {
	m := stream(100, 1, 6)
	broken := []float64{math.NaN(), math.Inf(1), -5, 0, 1e300}
	p := ours(m)
	p.Predict = func(j *Job, device int) Times { v := broken[(j.ID+device)%len(broken)]; return Times{v, v, v} }
	r := m.Run(p)
	once(t, m, r)
}

// Of work that was measured in the asked memory and with its data on the GPU the former counts, on each GPU, in any
// order of the rows. Of each task every second size is in the stream, and none of those is in what is fitted.
func TestSetup(t *testing.T) {
	var all []predict.Row
	for k := range 6 {
		for repeat := range 3 {
			w := predict.Work{Task: "vector.add", DType: "float32", FloorUs: float64(k + 1), BytesIn: 100}
			add := func(device string, memory predict.Memory, us, h2d float64) {
				w.Memory = memory
				all = append(all, predict.Row{Machine: "m", Device: device, Shape: fmt.Sprintf("n=%d", 1000<<k), Work: w,
					Us: us + float64(repeat), H2DUs: h2d})
			}
			add("cpu", predict.Host, 50, 0)
			for _, gpu := range []string{"cuda:0", "cuda:1"} {
				add(gpu, predict.Pinned, 20, 10)
				add(gpu, predict.Resident, 1, 0)
			}
		}
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	fitted, drawn := map[string]bool{}, map[string]bool{}
	p, err := Setup{Rows: all, Jobs: 50, Chosen: tasks.All(), Most: 12 * 16000,
		Model: func(rows []predict.Row) (*predict.Model, error) {
			for _, r := range rows {
				fitted[r.Shape] = true
			}
			return &predict.Model{}, nil
		}}.Prepare()
	must(t, err)
	for i := range p.Jobs {
		j := &p.Jobs[i]
		drawn[j.Shape] = true
		for d := 1; d < 3; d++ {
			if m := p.Truth(j, d); m != (Times{In: 10, Run: 11}) || j.Work[d].Memory != predict.Pinned {
				t.Fatalf("%s takes %+v on %s", j.Shape, m, p.Devices[d].Name)
			}
		}
	}
	// n = 1000 to 16000 have at most the bytes; every second of them is drawn.
	if fmt.Sprint(drawn) != "map[n=2000:true n=8000:true]" || fitted["n=2000"] || fitted["n=8000"] || !fitted["n=1000"] {
		t.Errorf("drawn: %v, fitted: %v", drawn, fitted)
	}
	if _, err := (Setup{Rows: all, Machine: "other"}).Prepare(); err == nil {
		t.Error("a machine that is not in the samples: no error")
	}
}
