package schedule

import (
	"container/heap"
	"math"
	"slices"
)

// Span is a part of a stream's time, in us.
type Span struct{ Start, End float64 }

// Done is a task that has ended.
type Done struct {
	Job      *Job
	Device   int
	Plan     Span // from its begin to its end as expected then
	Actual   Span
	Times    Times
	Expected Times
}

// Result is what a policy made of a stream.
type Result struct {
	Policy   string
	Devices  []Device
	Done     []Done // in the order in which they ended
	Makespan float64
	Busy     []float64 // by device: us in which it did at least one task
	Counts   Counts
	Lost     error // which GPUs were lost, and why

	until []float64 // by device: when its last task ended
}

func newResult(p Policy, devices []Device) Result {
	return Result{Policy: p.Name, Devices: devices, Busy: make([]float64, len(devices)), until: make([]float64, len(devices))}
}

// add notes that a task has ended now.
func (r *Result) add(j *Job, device int, t Times, now float64) {
	r.Done = append(r.Done, Done{j, device, Span{j.start, j.begun.out}, Span{j.start, now}, t, j.expected})
	r.Busy[device] += now - math.Max(j.start, r.until[device])
	r.until[device] = now
	r.Makespan = math.Max(r.Makespan, now)
}

// Loss is a GPU that is lost in a simulation.
type Loss struct {
	Device int
	At     float64 // us
}

// Simulation is a stream of tasks and what it meets.
type Simulation struct {
	Devices []Device
	Jobs    []Job // each run works on copies
	Kinds   []string
	Truth   Truth
	Losses  []Loss
}

// copies returns the tasks as a run may change them, with inputs that only the host has.
func copies(jobs []Job) []Job {
	data := map[*Data]*Data{nil: nil}
	all := slices.Clone(jobs)
	for i := range all {
		j := &all[i]
		if data[j.Input] == nil && j.Input != nil {
			data[j.Input] = &Data{Bytes: j.Input.Bytes}
		}
		j.Input = data[j.Input]
	}
	return all
}

// event is something that happens in a simulation: a task arrives or ends, a GPU is lost, or idle devices look again.
type event struct {
	at     float64
	order  int  // of events at one time
	job    *Job // that arrives, or that ends on a device
	device int  // -1: none
	times  Times
}

type events []event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e *events) Push(x any) { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// Run runs the stream under a policy on a simulated clock. Devices work as [load] says.
func (m *Simulation) Run(p Policy) Result {
	jobs := copies(m.Jobs)
	s, result := New(m.Devices, len(m.Kinds), p), newResult(p, m.Devices)
	var queue events
	order := 0
	push := func(e event) {
		order++
		e.order = order
		heap.Push(&queue, e)
	}
	for i := range jobs {
		push(event{at: jobs[i].Arrive, job: &jobs[i], device: -1})
	}
	for _, l := range m.Losses {
		push(event{at: l.At, device: l.Device})
	}
	loads := make([]load, len(m.Devices))
	for d := range loads {
		loads[d].n = m.Devices[d].Slots
	}
	for queue.Len() > 0 {
		e := heap.Pop(&queue).(event)
		now := e.at
		switch {
		case e.job != nil && e.device < 0:
			s.Submit(e.job, now)
		case e.job != nil:
			if s.Finish(e.device, e.job, e.times, now) {
				result.add(e.job, e.device, e.times, now)
			}
		case e.device >= 0:
			for _, j := range slices.Clone(s.devices[e.device].running) {
				s.Lose(e.device, j, now)
			}
			s.Lose(e.device, nil, now)
		}
		if queue.Len() > 0 && queue[0].at == now {
			continue // devices choose once all that happens now has happened
		}
		for again := true; again; {
			again = false
			for d := range m.Devices {
				j := s.Next(d, now)
				if j == nil {
					continue
				}
				again = true
				t := m.Truth(j, d)
				if !j.copied {
					t.In = 0
				}
				l := &loads[d]
				for k := range l.slots {
					l.slots[k] = math.Max(l.slots[k], now)
				}
				push(event{at: l.add(j, t).out, job: j, device: d, times: t})
			}
		}
		if p.Plan && s.waiting > 0 && queue.Len() > 0 && queue[0].at > now+LookAgain {
			push(event{at: now + LookAgain, device: -1})
		}
	}
	result.Counts = s.Counts
	return result
}
