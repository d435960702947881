package dispatch

import (
	"context"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"gpt2scope/internal/stats"
	"gpt2scope/predict"
	"gpt2scope/tasks"
	"gpt2scope/tasks/samples"
)

// clocked is a device that waits as long as jobs take, and so shows what handing over and planning cost. A GPU copies in, works and copies out
// for different jobs at once.
type clocked struct {
	truth  Truth
	device int
	begin  time.Duration // that Begin takes on the thread of the device: calls of the driver
	check  time.Duration // from the end of a job in a lane until its result is on the host

	start  time.Time
	free   Times
	queue  []*Job
	ends   []time.Duration
	mu     sync.Mutex
	inLane float64 // us of jobs in lanes
}

// wait sleeps in the system, which wakes a thread sooner than the runtime does.
func wait(d time.Duration) {
	t := syscall.NsecToTimespec(d.Nanoseconds())
	syscall.Nanosleep(&t, nil)
}

func (c *clocked) Begin(j *Job) error {
	for start := time.Now(); time.Since(start) < c.begin; {
	}
	now := float64(time.Since(c.start).Nanoseconds()) / 1e3
	t := c.truth.Times(c.device, j)
	c.free.In = max(now, c.free.In) + t.In
	c.free.Run = max(c.free.In, c.free.Run) + t.Run
	c.free.Out = max(c.free.Run, c.free.Out) + t.Out
	c.queue, c.ends = append(c.queue, j), append(c.ends, time.Duration(c.free.Out*1e3))
	return nil
}

func (c *clocked) Ended() (*Job, Times, error) {
	if left := c.ends[0] - time.Since(c.start); left > 0 {
		wait(min(left, 100*time.Microsecond))
		return nil, Times{}, nil
	}
	j := c.queue[0]
	c.queue, c.ends = c.queue[1:], c.ends[1:]
	return j, c.truth.Times(c.device, j), nil
}

func (c *clocked) RunLane(j *Job) (Times, Check, error) {
	t := c.truth.Times(c.device, j)
	wait(time.Duration(t.Total() * 1e3))
	c.mu.Lock()
	c.inLane += t.Total()
	c.mu.Unlock()
	there := time.Now().Add(c.check)
	return t, func(wait bool) (bool, error) {
		for wait && time.Now().Before(there) {
		}
		return !time.Now().Before(there), nil
	}, nil
}

func (c *clocked) Held() int64  { return 0 }
func (c *clocked) Close() error { return nil }

// BenchmarkStream is a stream of the stored samples on devices that wait as long as its jobs take: how much longer than in a simulation, in which plans take no
// time. A second GPU is as the first.
func BenchmarkStream(b *testing.B) {
	all, err := samples.Read()
	if err != nil {
		b.Fatal(err)
	}
	rows, _ := tasks.Rows(slices.DeleteFunc(all, func(s tasks.Sample) bool { return s.Machine != "h200" }))
	for _, kind := range []struct {
		name    string
		jobs    int
		longest float64
		most    int64
		brief   bool
		gpus    int
	}{{"mixed", 300, 20e3, 256 << 20, false, 1}, {"brief", 600, 8e3, 64 << 20, true, 2}} {
		suite := tasks.All()
		if kind.brief {
			if suite, err = tasks.Find(suite, []string{"vector", "reduce", "matmul", "gpt2.decode"}); err != nil {
				b.Fatal(err)
			}
		}
		rows := Within(slices.Clone(rows), tasks.All(), kind.longest, kind.most)
		rows = slices.DeleteFunc(rows, func(r predict.Row) bool {
			return !slices.ContainsFunc(suite, func(t *tasks.Task) bool { return t.Name == r.Task })
		})
		for _, r := range rows {
			if r.Device == "cuda:0" && kind.gpus > 1 {
				r.Device = "cuda:1"
				rows = append(rows, r)
			}
		}
		p, err := Setup{Rows: rows, Memory: predict.Pinned, HeldOut: Sizes, Jobs: kind.jobs, Seed: 1}.Prepare()
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range []string{"oracle", "dmda on floors", "ours"} {
			policy := func() Policy {
				for _, policy := range p.Policies(p.Medians()) {
					if policy.Name == name {
						return policy
					}
				}
				panic(name)
			}
			b.Run(kind.name+"/"+name, func(b *testing.B) {
				var makespans, idle, plans []float64
				for b.Loop() {
					s := Stream{Devices: p.Devices, Jobs: slices.Clone(p.Jobs), Classes: p.Classes, Policy: policy()}
					var gpus []*clocked
					for d := range p.Devices {
						c := &clocked{truth: p.Medians(), device: d, start: time.Now()}
						if d != Host {
							c.begin, c.check = 60*time.Microsecond, 100*time.Microsecond
							gpus = append(gpus, c)
						}
						s.Open = append(s.Open, func() (Executor, error) { return c, nil })
					}
					r, err := s.Run(context.Background())
					if err != nil {
						b.Fatal(err)
					}
					makespans, plans = append(makespans, r.Makespan/1e3), append(plans, float64(r.Decided.Plans))
					for d, c := range gpus {
						until := 0.0
						for _, x := range r.Done {
							if x.Device == d+1 && x.Job.Lane {
								until = max(until, x.Actual.End)
							}
						}
						idle = append(idle, 100*(1-c.inLane/float64(p.Devices[d+1].Lanes)/until))
					}
				}
				b.ReportMetric(p.Run(policy()).Makespan/1e3, "simulated-ms")
				planned := *p.Simulation
				planned.PlanUs = 2
				b.ReportMetric(planned.Run(policy()).Makespan/1e3, "simulated-ms-planning-2us-a-job")
				b.ReportMetric(stats.MedianOf(makespans), "makespan-ms")
				b.ReportMetric(stats.MedianOf(idle), "%-lanes-idle")
				b.ReportMetric(stats.MedianOf(plans), "plans")
			})
		}
	}
}
