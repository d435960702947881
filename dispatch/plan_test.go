package dispatch

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// While a plan is made jobs begin, end, come, are refused and lost with their device. When it is adopted each job that has not begun is in one queue, none that has, none
// where it may not run, and each is done once.
func TestPlansBesideAllElse(t *testing.T) {
	adopted, begunMeanwhile, came, lost := 0, 0, 0, 0
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 7))
		m := drawn(120, 0, seed)
		m.Devices = []Device{{"cpu", 1, 0}, {"cuda:0", 2, 2}, {"cuda:1", 2, 0}}
		truth := twoGPUs{m.Truth}
		for i := range m.Jobs {
			m.Jobs[i].Work = append(m.Jobs[i].Work[:2:2], m.Jobs[i].Work[1])
		}
		s := New(m.Devices, m.Classes, Ours(Floors{25e3}, Constants{Floors{25e3}}))
		wanted, drafted, now, next := false, false, 0.0, 0
		s.later = func() { wanted = true }
		done := map[int]int{}
		refused := map[*Job]bool{}
		check := func() {
			t.Helper()
			in := map[*Job]bool{}
			waiting := 0
			for i := range s.devices {
				d := &s.devices[i]
				var queued Times
				lanes := 0.0
				for _, j := range d.queue {
					if in[j] || j.begun || j.device != i || !s.usable(i) || i != Host && j.refused>>i&1 != 0 {
						t.Fatalf("seed %d: job %d is in the queue of %s: %+v", seed, j.ID, d.Name, j)
					}
					in[j] = true
					waiting++
					if d.inLane(j) {
						lanes += j.estimates[i].Total()
					} else {
						queued.add(j.estimates[i], 1)
					}
				}
				if math.Abs(queued.Total()-d.queued.Total()) > 1e-6*(1+queued.Total()) || math.Abs(lanes-d.waiting) > 1e-6*(1+lanes) {
					t.Fatalf("seed %d: the queue of %s has %+v and %g us, expected %+v and %g", seed, d.Name, d.queued, d.waiting, queued, lanes)
				}
			}
			if waiting != s.waiting {
				t.Fatalf("seed %d: %d jobs wait, %d are counted", seed, waiting, s.waiting)
			}
		}
		for step := 0; s.Left() > 0 || next < len(m.Jobs); step++ {
			if step > 100_000 {
				t.Fatalf("seed %d: %d jobs are left", seed, s.Left())
			}
			now++
			switch random.IntN(8) {
			case 0, 1:
				if next < len(m.Jobs) {
					if drafted {
						came++
					}
					s.Submit(&m.Jobs[next], now)
					next++
				}
			case 2, 3:
				d := random.IntN(3)
				if j := s.Next(d, now); j != nil {
					if drafted {
						begunMeanwhile++
					}
					if d != Host && !refused[j] && random.IntN(10) == 0 {
						refused[j] = true
						s.Return(d, j, now)
					}
				}
			case 4, 5:
				d := random.IntN(3)
				if running := s.devices[d].running; len(running) > 0 {
					j := running[random.IntN(len(running))]
					done[j.ID]++
					s.Finish(d, j, truth.Times(d, j).scaled(1+float64(j.ID%3)), now)
				}
			case 6:
				if drafted {
					s.planner.plan()
					s.adopt(now)
					drafted = false
					adopted++
				} else if wanted {
					s.draft(now)
					wanted, drafted = false, true
				}
			case 7:
				if random.IntN(100) == 0 && !s.devices[2].gone {
					s.Lose(2, slices.Clone(s.devices[2].running), nil, now)
					lost++
				}
			}
			check()
		}
		for i := range m.Jobs {
			if done[i] != 1 {
				t.Fatalf("seed %d: job %d was done %d times", seed, i, done[i])
			}
		}
	}
	if adopted < 200 || begunMeanwhile < 500 || came < 200 || lost < 10 {
		t.Errorf("%d plans, while which %d jobs began and %d came, and %d losses: this test shows little", adopted, begunMeanwhile, came, lost)
	}
}

// blocked is a GPU of which a job in a place goes on only once all jobs in lanes have ended.
type blocked struct {
	*fake
	left  chan struct{} // an element for each job in a lane that has not ended
	begun chan struct{}
}

func (b *blocked) Begin(j *Job) error {
	close(b.begun)
	for range cap(b.left) {
		<-b.left
	}
	return b.fake.Begin(j)
}

func (b *blocked) RunLane(j *Job) (Times, Check, error) {
	<-b.begun
	defer func() { b.left <- struct{}{} }()
	return b.fake.RunLane(j)
}

// What the thread of a GPU does for a job in a place holds up no lane: each takes its next job itself.
func TestLanesTakeTheirOwnJobs(t *testing.T) {
	m := drawn(40, 0, 1)
	m.Devices[1].Lanes = 2
	inLanes := 0
	place := false
	m.Jobs = slices.DeleteFunc(m.Jobs, func(j Job) bool {
		if j.Lane {
			inLanes++
			return false
		}
		before := place
		place = true
		return before
	})
	for i := range m.Jobs {
		m.Jobs[i].ID = i
	}
	s, all := fakes(t, m, 1)
	s.Policy = Always("gpu", 1, Floors{25e3})
	s.Open[1] = func() (Executor, error) {
		return &blocked{all[1], make(chan struct{}, inLanes), make(chan struct{})}, nil
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errors.New("lanes waited for the thread of their GPU"))
	defer cancel()
	r, err := s.Run(ctx)
	if err != nil || inLanes < 4 || !place {
		t.Fatalf("%v; %d jobs in lanes", err, inLanes)
	}
	once(t, m, r, all[0].done)
}

// A plan that takes time holds up no device: streams of ours end about as soon as if plans took none, though the first plan of brief jobs takes as long as
// many of them.
func TestPlansTakeTime(t *testing.T) {
	for _, gpus := range []int{1, 2} {
		p := prepared(t, 300, 0, 1)
		if gpus == 2 {
			p.Devices = append(slices.Clone(p.Devices), Device{"cuda:1", 2, 4})
			p.Truth, p.Usual = twoGPUs{p.Truth}, twoGPUs{p.Usual}
			for i := range p.Jobs {
				p.Jobs[i].Work = append(p.Jobs[i].Work[:2:2], p.Jobs[i].Work[1])
			}
		}
		policy := func() Policy { return Ours(True{p.Usual}, nil) }
		at := *p.Simulation
		for seed := range uint64(4) {
			at.Jobs = slices.Clone(at.Jobs)
			rand.New(rand.NewPCG(seed, 8)).Shuffle(len(at.Jobs), func(i, j int) { at.Jobs[i], at.Jobs[j] = at.Jobs[j], at.Jobs[i] })
			at.PlanUs = 0
			free := at.Run(policy())
			at.PlanUs = 2
			r := at.Run(policy())
			every(t, &at, r)
			if r.Decided.Plans == 0 || r.Makespan > 1.1*free.Makespan {
				t.Errorf("%d GPUs: %d plans that take time end at %.0f us, %d that take none at %.0f", gpus, r.Decided.Plans, r.Makespan, free.Decided.Plans, free.Makespan)
			}
			t.Logf("%d GPUs: %.0f us, %.0f if plans take no time", gpus, r.Makespan, free.Makespan)
		}
	}
}
