package dispatch

import (
	"container/heap"
	"math"
	"slices"
)

// Truth is what jobs take: a measured time, drawn once for each job and device.
type Truth interface {
	Times(device int, j *Job) Times
}

// Load is other work on a device: from a moment of the stream on, jobs take Factor times as long
// there.
type Load struct {
	Device      int
	After       int     // jobs that have ended before
	From, Until float64 // us after the start of the stream; Until 0 is its end
	Factor      float64

	// SliceUs, if not 0, makes jobs and the other work take turns: after so many us of jobs these wait, Factor-1 times as long. Most short jobs then take no longer
	// than without load, and some many times as long.
	SliceUs float64
}

// takes returns what a job takes under the load that takes so long without it. worked is how long jobs have run under it before, in us.
func (l *Load) takes(t Times, worked float64) Times {
	if l.SliceUs == 0 {
		return Times{t.In * l.Factor, t.Run * l.Factor, t.Out * l.Factor}
	}
	waits := math.Floor((worked+t.Total())/l.SliceUs) - math.Floor(worked/l.SliceUs)
	t.Run += waits * l.SliceUs * (l.Factor - 1)
	return t
}

// Done is what became of a job.
type Done struct {
	Job     *Job
	Device  int
	Probe   bool
	Plan    Span // from when it began to its end as expected then
	Actual  Span
	Checked float64 // when its result was checked: with its end, or later beside other jobs of the device
	Times   Times
	Decided Estimate // on the device it ran on
}

// Result is what a policy made of a stream.
type Result struct {
	Policy   string
	Devices  []Device
	Done     []Done // as their results were checked
	Makespan float64
	Busy     []float64 // by device: us in which it did at least one job
	Decided  Decided
	Lost     error // which devices were lost, and why
}

// Decided counts what a scheduler decided.
type Decided struct {
	Placed int // jobs
	Moved  int // to another device than decided before
	Probes int // jobs placed for a measurement
	Plans  int
	Drifts int
	NoRoom int // jobs done on the host, for which a GPU had too little memory
}

// event is something that happens in a simulation.
type event struct {
	at     float64
	order  int  // of events at one time
	job    *Job // that arrives, or ends if device >= 0
	device int
	times  Times
	begun  float64
	stage  int  // of a job on a device that takes several: 1 copied in, 2 worked
	lost   bool // the device is
	plan   bool // a plan has been made
	look   bool // devices that idle look again
}

type events []event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e events) Less(i, j int) bool {
	if e[i].at != e[j].at {
		return e[i].at < e[j].at
	}
	return e[i].order < e[j].order
}
func (e *events) Push(x any) { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// Loss is a device that is lost in a simulation.
type Loss struct {
	Device int
	At     float64 // us after the start of the stream
}

// Simulation is a stream of jobs, and what it meets.
type Simulation struct {
	Devices []Device
	Jobs    []Job // each simulation works on copies
	Classes int
	Truth   Truth
	Usual   Truth // what jobs take usually, by which choices are graded; nil: Truth
	Loads   []Load
	Losses  []Loss

	// PlanUs is how long a plan takes for each job that it places, in us, while devices go on with the queues that they have. 0: it takes no time.
	PlanUs float64
}

// Run runs the stream under a policy. A GPU of two jobs in flight copies in, works and copies out
// for different jobs at once; a job whose inputs are there
// does not wait for one whose inputs are not.
func (m *Simulation) Run(p Policy) Result {
	jobs := slices.Clone(m.Jobs)
	data := map[*Data]*Data{}
	fresh := func(d *Data) *Data {
		if d != nil && data[d] == nil {
			data[d] = &Data{Bytes: d.Bytes}
		}
		return data[d]
	}
	s := New(m.Devices, m.Classes, p)
	var queue events
	order := 0
	push := func(e event) {
		order++
		e.order = order
		heap.Push(&queue, e)
	}
	for i := range jobs {
		j := &jobs[i]
		j.Reads = slices.Clone(j.Reads)
		for k, d := range j.Reads {
			j.Reads[k] = fresh(d)
		}
		j.Writes = fresh(j.Writes)
		push(event{at: j.Arrive, job: j, device: -1})
	}
	for _, l := range m.Losses {
		push(event{at: l.At, device: l.Device, lost: true})
	}
	wanted, planning := false, false
	if m.PlanUs > 0 {
		s.later = func() { wanted = true }
	}
	result := Result{Policy: p.Name, Devices: m.Devices, Busy: make([]float64, len(m.Devices))}
	free := make([]Times, len(m.Devices))    // when the copies in, the work and the copies out of a device end
	ready := make([][]event, len(m.Devices)) // jobs whose inputs are there and that wait for others' work
	until := make([]float64, len(m.Devices))
	gone := make([]bool, len(m.Devices))
	worked := make([]float64, len(m.Loads)) // us of jobs under each load
	work := func(e event, now float64) {
		free[e.device].Run = now + e.times.Run
		e.at, e.stage = free[e.device].Run, 2
		push(e)
	}
	now := 0.0
	for queue.Len() > 0 {
		if p.Plan && s.waiting > 0 && queue[0].at > now+lookAgain {
			push(event{at: now + lookAgain, device: -1, look: true})
		}
		e := heap.Pop(&queue).(event)
		now = e.at
		switch {
		case e.look:
		case e.plan:
			s.adopt(now)
			planning = false
		case e.lost:
			gone[e.device] = true
			var all []*Data
			for _, d := range data {
				all = append(all, d)
			}
			s.Lose(e.device, slices.Clone(s.devices[e.device].running), all, now)
		case e.device < 0:
			s.Submit(e.job, now)
		case gone[e.device]:
			continue
		case e.stage == 1 && now < free[e.device].Run:
			ready[e.device] = append(ready[e.device], e)
			continue
		case e.stage == 1:
			work(e, now)
			continue
		case e.stage == 2:
			f := &free[e.device]
			f.Out = math.Max(now, f.Out) + e.times.Out
			after := e
			after.at, after.stage = f.Out, 0
			push(after)
			if r := ready[e.device]; len(r) > 0 {
				ready[e.device] = r[1:]
				work(r[0], now)
			}
			continue
		default:
			result.Done = append(result.Done, Done{Job: e.job, Device: e.device, Probe: e.job.probe, Plan: e.job.plan, Actual: Span{e.begun, now}, Checked: now, Times: e.times, Decided: e.job.estimates[e.device]})
			result.Busy[e.device] += now - math.Max(e.begun, until[e.device])
			until[e.device] = now
			result.Makespan = math.Max(result.Makespan, now)
			s.Finish(e.device, e.job, e.times, now)
		}
		if queue.Len() > 0 && queue[0].at == now {
			continue // all that happens at one time, before devices choose
		}
		for again := true; again; {
			again = false
			for d := range m.Devices {
				j := s.Next(d, now)
				if j == nil {
					continue
				}
				again = true
				t := m.Truth.Times(d, j)
				if len(j.Reads) > 0 {
					t.In *= j.moved
				}
				for i := range m.Loads {
					l := &m.Loads[i]
					if l.Device == d && len(result.Done) >= l.After && now >= l.From && (l.Until == 0 || now < l.Until) {
						own := t.Total()
						t = l.takes(t, worked[i])
						worked[i] += own
					}
				}
				f := &free[d]
				e := event{job: j, device: d, times: t, begun: now}
				if m.Devices[d].inLane(j) {
					e.at = now + t.Total()
				} else if m.Devices[d].InFlight > 1 {
					f.In = math.Max(now, f.In) + t.In
					e.at, e.stage = f.In, 1
				} else {
					f.Out = math.Max(now, f.Out) + t.Total()
					e.at = f.Out
				}
				push(e)
			}
		}
		if wanted && !planning && s.waiting > 0 {
			s.draft(now)
			s.planner.plan()
			wanted, planning = false, true
			push(event{at: now + m.PlanUs*float64(len(s.planner.jobs)), device: -1, plan: true})
		}
	}
	result.Decided = s.Decided
	return result
}
