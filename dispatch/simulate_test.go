package dispatch

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gpt2scope/predict"
)

// law is how long work takes on the devices of the tests: a host of 60 GB/s and 1 TFLOP/s, a GPU of
// 3000 GB/s and 40 TFLOP/s behind a link of 25 GB/s. Floors are the first terms; what is added
// differs by kind of task, as it does in measurements.
func law(task string, flops, bytes, in, out float64) (host, gpu Times, hostFloor, gpuFloor float64) {
	efficiency := map[string]float64{"vector.add": 1.15, "reduce.sum": 1.3, "matmul": 1.6, "gpt2.decode": 2.2}[task]
	hostFloor = math.Max(bytes/60e3, flops/1e6)
	gpuFloor = math.Max(bytes/3000e3, flops/40e6)
	steps := 1.0
	if task == "gpt2.decode" {
		steps = 30
	}
	host = Times{Run: hostFloor*efficiency + 2 + 0.5*steps}
	gpu = Times{In: 8 + in/25e3, Run: gpuFloor*efficiency*0.9 + 4 + 2*steps, Out: 8 + out/25e3}
	if in == 0 {
		gpu.In = 0
	}
	return host, gpu, hostFloor, gpuFloor
}

// cases are shapes whose times lie on both sides of the crossover, with repeats whose
// logarithms have a deviation of noise.
func cases(noise float64, seed uint64) []Case {
	random := rand.New(rand.NewPCG(seed, 1))
	var all []Case
	add := func(task, shape string, flops, bytes, in, out float64) {
		host, gpu, hf, gf := law(task, flops, bytes, in, out)
		c := Case{Task: task, Shape: shape, Repeats: make([][]Times, 2)}
		w := predict.Work{Task: task, DType: "float32", FLOPs: flops, Bytes: bytes, Steps: 1, Rows: 1}
		hw, gw := w, w
		hw.FloorUs, gw.FloorUs = hf, gf
		gw.BytesIn, gw.BytesOut, gw.Memory = in, out, predict.Pinned
		if in == 0 {
			gw.Memory = predict.Resident
		}
		c.Work = []predict.Work{hw, gw}
		for range 7 {
			c.Repeats[0] = append(c.Repeats[0], host.scaled(math.Exp(noise*random.NormFloat64())))
			c.Repeats[1] = append(c.Repeats[1], gpu.scaled(math.Exp(noise*random.NormFloat64())))
		}
		all = append(all, c)
	}
	for k := 12; k <= 24; k++ {
		n := math.Exp2(float64(k))
		add("vector.add", fmt.Sprintf("n=%d", 1<<k), n, 12*n, 8*n, 4*n)
		add("reduce.sum", fmt.Sprintf("n=%d", 1<<k), n, 4*n, 4*n, 4)
	}
	for m := 32; m <= 1024; m = m * 3 / 2 {
		n := float64(m)
		add("matmul", fmt.Sprintf("m=%d,n=%d,k=%d", m, m, m), 2*n*n*n, 12*n*n, 8*n*n, 4*n*n)
	}
	for _, past := range []float64{16, 64, 128, 256, 512, 1000} {
		add("gpt2.decode", fmt.Sprintf("past=%g,b=1,l=6", past), 30e6+past*4e4, 40e6+past*3e4, 0, 4)
	}
	return all
}

// every checks that each job of a stream was done once.
func every(t *testing.T, m *Simulation, r Result) {
	t.Helper()
	ids := map[int]int{}
	for _, d := range r.Done {
		ids[d.Job.ID]++
	}
	for i := range m.Jobs {
		if ids[i] != 1 {
			t.Fatalf("%s: job %d was done %d times", r.Policy, i, ids[i])
		}
	}
}

// rows are the repeats of cases as package predict takes them.
func rows(c []Case) []predict.Row {
	var all []predict.Row
	for i := range c {
		for d, name := range []string{"cpu", "cuda:0"} {
			for _, r := range c[i].Repeats[d] {
				all = append(all, predict.Row{Machine: "m", Device: name, Shape: c[i].Shape, Work: c[i].Work[d], Us: r.Total(), H2DUs: r.In, D2HUs: r.Out})
			}
		}
	}
	return all
}

// prepared is a stream of sizes that its model has not seen.
func prepared(t testing.TB, jobs int, interval float64, seed uint64) *Prepared {
	t.Helper()
	s := Setup{Rows: rows(cases(0.05, 1)), Memory: predict.Pinned, HeldOut: Sizes, Jobs: jobs, Interval: interval, Seed: seed}
	p, err := s.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// again is another stream of the same work with the same model.
func (p *Prepared) again(seed uint64) *Prepared {
	d := Draw(p.stream, len(p.Jobs), p.Interval, seed)
	again := *p
	again.Simulation = &Simulation{Devices: p.Devices, Jobs: d.Jobs, Classes: d.Classes, Truth: d, Usual: d.Medians()}
	return &again
}

// Work that was measured in the asked memory and with its data on the GPU counts in the asked memory, on each GPU, in whatever
// order the samples are.
func TestCasesOfSeveralGPUs(t *testing.T) {
	one := cases(0, 1)[:3]
	var all []predict.Row
	for _, r := range rows(one) {
		all = append(all, r)
		if r.Device == "cuda:0" {
			there := r
			there.Memory, there.BytesIn, there.Us, there.H2DUs = predict.Resident, 0, r.Us/100, 0
			other := r
			other.Device = "cuda:1"
			otherThere := there
			otherThere.Device = "cuda:1"
			all = append(all, there, other, otherThere)
		}
	}
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		s := Setup{Rows: all, Memory: predict.Pinned}
		for _, c := range s.cases("m", []string{"cpu", "cuda:0", "cuda:1"}) {
			for d, repeats := range c.Repeats[1:] {
				if len(repeats) != 7 || c.Work[1+d].Memory != predict.Pinned || slices.ContainsFunc(repeats, func(t Times) bool { return t.In == 0 }) {
					t.Fatalf("seed %d: %s on cuda:%d: %d repeats %v", seed, c.Shape, d, len(repeats), repeats)
				}
			}
		}
	}
}

// drawn is a stream of all cases.
func drawn(jobs int, interval float64, seed uint64) *Simulation {
	d := Draw(cases(0.05, 1), jobs, interval, seed)
	return &Simulation{Devices: []Device{{"cpu", 1, 0}, {"cuda:0", 2, 0}}, Jobs: d.Jobs, Classes: d.Classes, Truth: d}
}

// Every policy does each job of a stream once, none beats the lower bound, and the better it knows the
// times the sooner it ends.
func TestPoliciesOnOneStream(t *testing.T) {
	p := prepared(t, 400, 0, 2)
	bound := LowerBound(p.Devices, p.Jobs, p.Truth)
	makespan, geomean := map[string]float64{}, map[string]float64{}
	for _, policy := range p.Policies(p.Truth) {
		r := p.Run(policy)
		every(t, p.Simulation, r)
		if r.Makespan < bound {
			t.Errorf("%s: makespan %.1f us is below the lower bound %.1f", policy.Name, r.Makespan, bound)
		}
		makespan[policy.Name] = r.Makespan
	}
	for _, policy := range p.Policies(p.Medians()) {
		g := p.Alone(policy)
		geomean[policy.Name] = g.GeoMean
		t.Logf("%-20s %.3f of the bound; alone %.4f, p99 %.3f, worst %.2f", policy.Name, makespan[policy.Name]/bound, g.GeoMean, g.P99, g.Worst)
	}
	if geomean["oracle"] != 1 {
		t.Errorf("the oracle takes %.4f of the best device's time, expected 1", geomean["oracle"])
	}
	if ours := geomean["ours"]; ours > 1.02 || ours > geomean["dmda on floors"] {
		t.Errorf("one at a time: geometric mean over the oracle %.4f, of dmda on floors %.4f", ours, geomean["dmda on floors"])
	}
	ours := makespan["ours"]
	if ours > 1.25*bound {
		t.Errorf("the makespan is %.3f of the bound, expected 1.25 at most", ours/bound)
	}
	for name, m := range makespan {
		if name != "oracle" && name != "ours" && m < ours/0.9 {
			t.Errorf("the makespan is %.0f us, that of %s %.0f: expected 10 %% less", ours, name, m)
		}
	}
}

// A GPU that is lost at any moment loses no job, and none is done twice.
func TestLostGPU(t *testing.T) {
	two := []Device{{"cpu", 1, 0}, {"cuda:0", 2, 0}, {"cuda:1", 2, 0}}
	for seed := range uint64(60) {
		m := *drawn(60, float64(seed%3)*20, seed)
		if seed%2 == 0 {
			m.Devices = two
			m.Truth = twoGPUs{m.Truth}
			for i := range m.Jobs {
				m.Jobs[i].Work = append(m.Jobs[i].Work[:2:2], m.Jobs[i].Work[1])
			}
			m.Losses = append(m.Losses, Loss{2, float64(seed%7) * 500})
		}
		m.Losses = append(m.Losses, Loss{1, float64(seed) * 37})
		policy := Ours(Floors{25e3}, nil)
		if seed%5 == 0 {
			policy = DMDA("dmda", Floors{25e3})
		}
		r := m.Run(policy)
		every(t, &m, r)
		for _, d := range r.Done {
			if d.Device == 1 && d.Actual.End > float64(seed)*37 {
				t.Fatalf("seed %d: job %d ended on a GPU that was lost", seed, d.Job.ID)
			}
		}
	}
}

// A job that reads the result of another begins after it, also if the GPU that has the result is lost, and where the result is
// it copies nothing.
func TestResultsOfOthers(t *testing.T) {
	copied, there := 0, 0
	for seed := range uint64(30) {
		m := *drawn(60, float64(seed%3)*20, seed)
		for i := 1; i < len(m.Jobs); i += 2 {
			d := &Data{Bytes: 1 << 20}
			m.Jobs[i-1].Writes, m.Jobs[i].Reads = d, []*Data{d}
		}
		if seed%2 == 1 {
			m.Losses = []Loss{{1, float64(seed) * 50}}
		}
		r := m.Run(Ours(Floors{25e3}, nil))
		every(t, &m, r)
		of := make([]Done, len(m.Jobs))
		for _, d := range r.Done {
			of[d.Job.ID] = d
		}
		for i := 1; i < len(of); i += 2 {
			writer, reader := of[i-1], of[i]
			if reader.Actual.Start < writer.Actual.End {
				t.Fatalf("seed %d: job %d began at %g, and what it reads was there at %g", seed, i, reader.Actual.Start, writer.Actual.End)
			}
			if m.Losses != nil || reader.Device == Host {
				continue
			}
			if writer.Device == reader.Device {
				if there++; reader.Times.In != 0 {
					t.Errorf("seed %d: job %d copied for %g us what was there", seed, i, reader.Times.In)
				}
			} else if m.Truth.Times(1, reader.Job).In > 0 {
				if copied++; reader.Times.In == 0 {
					t.Errorf("seed %d: job %d copied nothing to the GPU", seed, i)
				}
			}
		}
	}
	if copied == 0 || there == 0 {
		t.Errorf("%d results were copied, %d were there: this test shows nothing", copied, there)
	}
}

// twoGPUs gives a third device the times of the second.
type twoGPUs struct{ Truth }

func (t twoGPUs) Times(device int, j *Job) Times { return t.Truth.Times(min(device, 1), j) }

// The bound is that of the best fractional assignment, found here by trying all assignments of
// small streams: none ends sooner, and the best is not far.
func TestLowerBound(t *testing.T) {
	serial := []Device{{"cpu", 1, 0}, {"cuda:0", 1, 0}}
	closest := 0.0
	for seed := range uint64(20) {
		p := drawn(12, 0, seed)
		bound := LowerBound(serial, p.Jobs, p.Truth)
		best := math.Inf(1)
		for mask := range 1 << len(p.Jobs) {
			var sum [2]float64
			for i := range p.Jobs {
				d := mask >> i & 1
				sum[d] += p.Truth.Times(d, &p.Jobs[i]).Total()
			}
			best = math.Min(best, math.Max(sum[0], sum[1]))
		}
		if bound > best*(1+1e-9) {
			t.Fatalf("seed %d: the bound is %.2f us, and an assignment takes %.2f", seed, bound, best)
		}
		closest = math.Max(closest, bound/best)
	}
	if closest < 0.99 {
		t.Errorf("the bound is at most %.3f of the best assignment", closest)
	}
}

// A decision allocates nothing, nor does the way of a job through the scheduler once it has run a while.
func TestDecisionsAllocateNothing(t *testing.T) {
	p := prepared(t, 256, 0, 3)
	s := New(p.Devices, p.Classes, p.Ours())
	jobs := p.Jobs
	now, i := 0.0, 0
	step := func() {
		j := &jobs[i%len(jobs)]
		i++
		s.Submit(j, now)
		for d := range p.Devices {
			for k := s.Next(d, now); k != nil; k = s.Next(d, now) {
				times := p.Truth.Times(d, k)
				now += times.Total()
				s.Finish(d, k, times, now)
			}
		}
	}
	for range 512 {
		step()
	}
	if n := testing.AllocsPerRun(500, step); n != 0 {
		t.Errorf("a job allocates %v times", n)
	}
	if n := testing.AllocsPerRun(500, func() { s.Decide(&jobs[i%256], now); i++ }); n != 0 {
		t.Errorf("a decision allocates %v times", n)
	}
}

func BenchmarkDecision(b *testing.B) {
	p := prepared(b, 1024, 0, 3)
	s := New(p.Devices, p.Classes, p.Ours())
	for i := range p.Jobs {
		s.Decide(&p.Jobs[i], 0)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Decide(&p.Jobs[i%1024], 0)
	}
}

// Copies of some jobs run beside the work of others: the order of a queue ends little later than its busiest resource must.
func TestPairHidesCopies(t *testing.T) {
	p := newPlanner([]Device{{"cpu", 1, 0}, {"cuda:0", 2, 0}})
	mean := 0.0
	for seed := range uint64(5) {
		random := rand.New(rand.NewPCG(seed, 9))
		var jobs []*candidate
		var sum Times
		for i := range 400 {
			e := Estimate{Run: math.Exp(1.5 * random.NormFloat64())}
			if i%2 == 0 { // half of them have copies, of which some take long
				e.In = math.Exp(1.5 * random.NormFloat64())
				e.Out = e.In / 2
			}
			sum.add(e, 1)
			jobs = append(jobs, &candidate{job: &Job{ID: i}, target: 1, estimates: []Estimate{{}, e}})
		}
		least := math.Max(math.Max(sum.In, sum.Run), sum.Total()/2)
		p.pair(jobs, load{overlap: 2})
		seen, l, end := map[int]bool{}, load{overlap: 2}, 0.0
		for _, j := range jobs {
			seen[j.job.ID] = true
			end = l.take(j.job, &j.estimates[1])
		}
		t.Logf("%.3f of the busiest resource", end/least)
		if len(seen) != 400 {
			t.Fatalf("%d of 400 jobs are in the order", len(seen))
		}
		mean += end / least / 5
	}
	if mean > 1.15 { // in the order of the nearest copies 1.26
		t.Errorf("queues end at %.3f of the busiest resource, expected 1.15 at most", mean)
	}
}

// Constants know that a launch takes time, however small the work.
func TestConstants(t *testing.T) {
	j := &Job{Work: []predict.Work{{FloorUs: 0.01, Steps: 1}, {FloorUs: 0.001, Steps: 2, BytesIn: 100, BytesOut: 100, Memory: predict.Pinned}}}
	floors, constants := Floors{25e3}, Constants{Floors{25e3}}
	if e := floors.Estimate(1, j, 100); e.Total() > 1 {
		t.Errorf("by floors %+v", e)
	}
	host, gpu := constants.Estimate(Host, j, 0), constants.Estimate(1, j, 100)
	if host.Total() > 3 || gpu.Total() < 20 || gpu.In < 5 || gpu.Out < 5 || !(gpu.Low <= gpu.Total()) {
		t.Errorf("host %+v, GPU %+v", host, gpu)
	}
	j.Work[1].FloorUs = 1e4
	if e := constants.Estimate(1, j, 100); e.Run < 1e4 || e.Run > 2e4 {
		t.Errorf("large work takes %+v", e)
	}
}

// BenchmarkPlan is a plan of 300 jobs.
func BenchmarkPlan(b *testing.B) {
	p := prepared(b, 300, 0, 3)
	s := New(p.Devices, p.Classes, p.Ours())
	for i := range p.Jobs {
		s.Submit(&p.Jobs[i], 0)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.want(0)
	}
}

// BenchmarkSubmit is the way of 300 jobs into the queues.
func BenchmarkSubmit(b *testing.B) {
	p := prepared(b, 300, 0, 3)
	for b.Loop() {
		s := New(p.Devices, p.Classes, p.Ours())
		for i := range p.Jobs {
			s.Submit(&p.Jobs[i], 0)
		}
	}
}

// Jobs that take lanes run beside those over arrays, as many at once as there are lanes: a stream with lanes ends sooner than one without, and neither beats its bound.
func TestLanes(t *testing.T) {
	for seed := range uint64(4) {
		ends := map[int]float64{}
		for _, lanes := range []int{0, 1, 3} {
			m := drawn(200, 0, seed)
			m.Devices = []Device{{"cpu", 1, 0}, {"cuda:0", 2, lanes}}
			bound := LowerBound(m.Devices, m.Jobs, m.Truth)
			for _, policy := range []Policy{Oracle(True{m.Truth}), Ours(True{m.Truth}, nil), DMDA("dmda", True{m.Truth}), Always("gpu", 1, True{m.Truth})} {
				r := m.Run(policy)
				every(t, m, r)
				if r.Makespan < bound {
					t.Errorf("seed %d, %d lanes: %s takes %.0f us, less than the bound of %.0f", seed, lanes, policy.Name, r.Makespan, bound)
				}
				if policy.Name == "gpu" {
					ends[lanes] = r.Makespan
				}
				for _, d := range r.Done {
					inLanes, others := 0, 0
					for _, o := range r.Done {
						if o.Device != 1 || o.Actual.Start > d.Actual.Start || o.Actual.End <= d.Actual.Start {
							continue
						}
						if o.Job.Lane && lanes > 0 {
							inLanes++
						} else {
							others++
						}
					}
					if inLanes > lanes || others > 2 {
						t.Fatalf("seed %d: %s has %d jobs in %d lanes, and %d others in flight", seed, policy.Name, inLanes, lanes, others)
					}
				}
			}
		}
		if !(ends[3] <= ends[1] && ends[1] < ends[0]) {
			t.Errorf("seed %d: on the GPU alone the stream takes %.0f us without lanes, %.0f with one, %.0f with three", seed, ends[0], ends[1], ends[3])
		}
	}
}

// A correction that changes makes a new plan only once many jobs have ended since the last: all devices wait for a plan.
func TestPlansAreRare(t *testing.T) {
	s := New([]Device{{"cpu", 1, 0}, {"cuda:0", 2, 0}}, 1, Policy{Believes: Constants{Floors{25e3}}, Plan: true, Refine: true})
	jobs := make([]Job, 400)
	for i := range jobs {
		f := 100 * (1 + float64(i%7))
		jobs[i] = Job{ID: i, Work: []predict.Work{{FloorUs: f}, {FloorUs: f, Memory: predict.Resident}}}
		s.Submit(&jobs[i], 0)
	}
	now, ended, last, plans := 0.0, 0, 0, 0
	for s.Left() > 0 {
		for d := range 2 {
			j := s.Next(d, now)
			if j == nil {
				continue
			}
			us := j.estimates[d].Total() / s.refine.Factor(d, 0) * math.Exp(0.008*float64(ended)) // longer and longer
			now += us
			before, drifts := s.Decided.Plans, s.Decided.Drifts
			waiting := s.waiting
			s.Finish(d, j, Times{Run: us}, now)
			ended++
			if s.Decided.Plans > before {
				if plans++; s.Decided.Drifts == drifts && ended-last < max(learntAfter, waiting/learntShare) {
					t.Errorf("a plan after %d jobs, with %d waiting", ended-last, waiting)
				}
				last = ended
			}
		}
	}
	if plans < 2 {
		t.Errorf("%d plans: corrections did not change", plans)
	}
}

// A job over arrays that a device refused does not keep it busy, whether or not jobs run in its lanes.
func TestReturnBesideLanes(t *testing.T) {
	truth := truthOf(func(int, *Job) Times { return Times{In: 10, Run: 100, Out: 10} })
	s := New([]Device{{"cpu", 1, 0}, {"cuda:0", 2, 1}}, 1, Always("", 1, True{truth}))
	jobs := []Job{{ID: 0, Work: make([]predict.Work, 2), Lane: true}, {ID: 1, Work: make([]predict.Work, 2)}}
	for i := range jobs {
		s.Submit(&jobs[i], 0)
		if j := s.Next(1, 0); j != &jobs[i] {
			t.Fatalf("the GPU begins %+v; expected job %d", j, i)
		}
	}
	s.Return(1, &jobs[1], 0)
	if free := s.devices[1].free; free != (Times{}) {
		t.Errorf("the GPU is expected to be busy until %+v with a job that it refused", free)
	}
}

// atWorkNoise is a truth in which devices that work together slow jobs, each by chance: on the CPU caches are cold and threads have to wake, lanes slow each other.
type atWorkNoise struct {
	Truth
	seed uint64
}

func (n atWorkNoise) Times(device int, j *Job) Times {
	t := n.Truth.Times(device, j)
	r := rand.New(rand.NewPCG(n.seed, uint64(j.ID)<<8|uint64(device)))
	f, wake := 1.2*math.Exp(0.2*r.NormFloat64()), 0.0
	switch {
	case device == Host:
		f, wake = 1.7*math.Exp(0.25*r.NormFloat64()), 60*math.Exp(0.6*r.NormFloat64())
	case j.Lane:
		f = 2.5 * math.Exp(0.35*r.NormFloat64())
	}
	return Times{t.In * f, t.Run*f + wake, t.Out * f}
}

// What is learnt of jobs that all take longer than alone, each by chance, hardly makes a stream longer: nothing has to be learnt there.
func TestLearningCostsLittle(t *testing.T) {
	first := stored(t, 300, 1)
	const seeds = 32
	sum := 0.0
	for seed := range uint64(seeds) {
		p := first.again(seed)
		m := *p.Simulation
		m.Truth, m.PlanUs = atWorkNoise{p.Usual, seed}, 1
		unlearning := p.Ours()
		unlearning.Refine, unlearning.Backup, unlearning.Explore = false, nil, false
		sum += math.Log(m.Run(p.Ours()).Makespan / m.Run(unlearning).Makespan)
	}
	mean := math.Exp(sum / seeds)
	t.Logf("with what is learnt streams take %.3f times as long", mean)
	if mean > 1.05 {
		t.Errorf("with what is learnt streams take %.3f times as long, expected 1.05 at most", mean)
	}
}

// Jobs that wait behind one that is late are done by a device that idles, though nothing else happens meanwhile: behind one on the host, and behind one that a GPU has copied in.
func TestLateJobIsNotWaitedFor(t *testing.T) {
	for slow := range 2 {
		floors := []float64{1000, 1000}
		floors[slow] = 100
		m := Simulation{Devices: []Device{{"cpu", 1, 0}, {"cuda:0", 2, 0}}, Classes: 1, Truth: truthOf(func(device int, j *Job) Times {
			if device == slow {
				return Times{In: 50, Run: 50e3}
			}
			return Times{Run: 1000}
		})}
		for i := range 8 {
			m.Jobs = append(m.Jobs, Job{ID: i, Work: []predict.Work{{FloorUs: floors[Host]}, {FloorUs: floors[1], Memory: predict.Resident}}})
		}
		r := m.Run(Policy{Believes: Floors{}, Plan: true})
		every(t, &m, r)
		most := m.Devices[slow].InFlight
		for _, d := range r.Done {
			if d.Device != slow {
				if d.Actual.End > 15e3 {
					t.Errorf("job %d ended on the free device after %g us", d.Job.ID, d.Actual.End)
				}
			} else if most--; most < 0 {
				t.Errorf("job %d ran on device %d, which is late, from %g us on", d.Job.ID, d.Device, d.Actual.Start)
			}
		}
	}
}
