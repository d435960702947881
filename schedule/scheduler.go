package schedule

import (
	"cmp"
	"math"
	"slices"
)

// LookAgain is how long, in us, an idle device waits before it tries to take work from a late one.
const LookAgain = 500.0

// drift is the factor by which a ratio changes before a plan is made anew.
const drift = 1.5

// Policy is how a scheduler decides.
type Policy struct {
	Name    string
	Predict Predictor

	Fixed func(*Job) int // the device of each task; nil: the one with the earliest expected finish
	Plan  bool           // divide waiting tasks anew, and let idle devices steal
	Learn bool           // correct predictions by measured times
}

// Condition is what is known of a device beside its tasks: see [Reading].
type Condition struct {
	Refused bool    // it does not answer: no task begins there
	Free    int64   // bytes of memory that a task may use; 0: not known
	Slowed  float64 // factor on predicted times, as of throttled clocks; 0 is 1
}

// Counts are what a scheduler decided.
type Counts struct {
	Plans  int `json:"plans"`
	Moved  int `json:"moved"`         // tasks that changed their queue
	NoRoom int `json:"no_gpu_memory"` // tasks done on the CPU, for which a GPU had too little memory
}

// Scheduler decides where and when tasks run. Its callers hold a lock around all methods, and give the time in us since
// the start of the stream.
type Scheduler struct {
	Counts

	policy  Policy
	devices []deviceState
	left    int  // tasks that have not ended
	waiting int  // tasks in queues
	changes int  // tasks that have come or ended since the last plan
	stale   bool // tasks have come, or predictions have changed, since the last plan
}

type deviceState struct {
	Device
	queue     []*Job // in the order in which they begin
	backlog   costs  // of the queue
	running   []*Job
	ratios    []ratio // by kind
	lost      bool
	condition Condition
}

// ratio is the running mean of measured / predicted time of a kind of task on a device.
type ratio struct {
	log     float64
	n       int
	planned float64 // log at the last plan
}

func (r *ratio) add(measured, predicted float64) {
	const (
		prior  = 1    // the prediction counts as so many measurements
		window = 10   // the last ones count most
		most   = 20.0 // a measured time says at most that predictions are off by this factor
	)
	r.n++
	miss := math.Max(-math.Log(most), math.Min(math.Log(most), math.Log(measured/predicted)))
	r.log += (miss - r.log) / float64(min(r.n+prior, window))
}

// New makes a scheduler for tasks of a number of kinds.
func New(devices []Device, kinds int, p Policy) *Scheduler {
	s := &Scheduler{policy: p}
	for _, d := range devices {
		s.devices = append(s.devices, deviceState{Device: d, ratios: make([]ratio, kinds)})
	}
	return s
}

// stuck tells whether tasks are left of which none waits where it could begin.
func (s *Scheduler) stuck() bool {
	for d := range s.devices {
		if s.usable(d) && len(s.devices[d].queue) > 0 {
			return false
		}
	}
	return s.left > 0
}

func (s *Scheduler) usable(device int) bool {
	d := &s.devices[device]
	return !d.lost && (device == Host || !d.condition.Refused)
}

// room tells whether a device has memory for a task, as far as is known.
func (s *Scheduler) room(device int, j *Job) bool {
	free := s.devices[device].condition.Free
	return device == Host || j.refused>>device&1 == 0 && (free == 0 || j.Memory <= free)
}

// takes tells whether a task may run on a device.
func (s *Scheduler) takes(device int, j *Job) bool { return s.usable(device) && s.room(device, j) }

// slowed returns the factor on predicted times of a device.
func (d *deviceState) slowed() float64 { return cmp.Or(d.condition.Slowed, 1) }

// expect returns the expected time of a task on a device now.
func (s *Scheduler) expect(j *Job, device int) Times {
	d := &s.devices[device]
	return j.predicted[device].times(d.slowed() * math.Exp(d.ratios[j.Kind].log))
}

// load returns when a device is free of the tasks that it runs. A task that is late is expected to take as much longer
// as it is late by now.
func (s *Scheduler) load(device int, now float64) load {
	d := &s.devices[device]
	l := load{[maxSlots]float64{now, now}, d.Slots, phases{now, now, now}}
	for k, j := range d.running {
		p := j.begun
		if late := now - p.out; late > 0 {
			p = phases{math.Min(p.in, now), now + late, now + late}
		}
		l.slots[k] = p.out
		if e := &l.engine; !j.Shares {
			e.in, e.run, e.out = math.Max(e.in, p.in), math.Max(e.run, p.run), math.Max(e.out, p.out)
		}
	}
	return l
}

// end returns when a device is expected to have done its queue.
func (s *Scheduler) end(device int, now float64) float64 {
	l := s.load(device, now)
	return l.free().plus(s.devices[device].backlog, 1).most()
}

// Submit takes a task that has arrived.
func (s *Scheduler) Submit(j *Job, now float64) {
	s.left++
	j.refused, j.predicted = 0, make([]Times, len(s.devices))
	for d := range s.devices {
		j.predicted[d] = s.policy.Predict(j, d).finite()
	}
	s.place(j, now)
}

// place puts a task last into the queue of the device where it is expected to finish first.
func (s *Scheduler) place(j *Job, now float64) {
	best, first := Host, math.Inf(1)
	for d := range s.devices {
		if !s.takes(d, j) {
			continue
		}
		if s.policy.Fixed != nil {
			if s.policy.Fixed(j) == d {
				best = d
			}
			continue
		}
		if end := s.end(d, now) + s.expect(j, d).Total(); end < first {
			best, first = d, end
		}
	}
	s.enqueue(j, best)
	s.changes, s.stale = s.changes+1, true
}

// enqueue puts a task last into a queue.
func (s *Scheduler) enqueue(j *Job, device int) {
	d := &s.devices[device]
	j.device, j.expected = device, s.expect(j, device)
	d.queue, d.backlog = append(d.queue, j), d.backlog.plus(d.costsOf(j, j.expected), 1)
	s.waiting++
}

func (s *Scheduler) dequeue(device, at int) *Job {
	d := &s.devices[device]
	j := d.queue[at]
	d.queue, d.backlog = slices.Delete(d.queue, at, at+1), d.backlog.plus(d.costsOf(j, j.expected), -1)
	if len(d.queue) == 0 {
		d.backlog = costs{} // no rounding is left
	}
	s.waiting--
	return j
}

// Next returns the task that a device begins now, nil if it has none to begin.
func (s *Scheduler) Next(device int, now float64) *Job {
	d := &s.devices[device]
	if len(d.running) == d.Slots || !s.usable(device) {
		return nil
	}
	if s.policy.Plan && s.stale && s.changes > 1+s.waiting/8 {
		s.plan(now)
	}
	if len(d.queue) == 0 && !s.steal(device, now) {
		return nil
	}
	j := s.dequeue(device, 0)
	l := s.load(device, now)
	j.start, j.expected = now, s.expect(j, device)
	j.begun = l.add(j, j.expected)
	d.running = append(d.running, j)
	return j
}

// steal gives an idle device the task of another queue that gains most there, of those that it is expected to end
// before the other device has done its queue.
func (s *Scheduler) steal(device int, now float64) bool {
	if !s.policy.Plan {
		return false
	}
	own := s.load(device, now)
	from, at, most := -1, -1, 0.0
	for i := range s.devices {
		if i == device || len(s.devices[i].queue) == 0 {
			continue
		}
		end := s.end(i, now)
		for k, j := range s.devices[i].queue {
			t := s.expect(j, device)
			if gain := j.expected.Total() / t.Total(); gain > most && s.room(device, j) {
				if l := own; l.add(j, t).out < end {
					from, at, most = i, k, gain
				}
			}
		}
	}
	if from < 0 {
		return false
	}
	s.enqueue(s.dequeue(from, at), device)
	s.Moved++
	return true
}

// Finish notes that a device has done a task, whose result is right. It reports false for a task that the device was no
// longer to do.
func (s *Scheduler) Finish(device int, j *Job, t Times) bool {
	if !s.stop(device, j) {
		return false
	}
	s.left--
	s.changes++
	lacks := false
	for i := range s.devices {
		lacks = lacks || s.usable(i) && !s.room(i, j)
	}
	if device == Host && lacks {
		s.NoRoom++
	}
	if s.policy.Learn {
		d := &s.devices[device]
		r := &d.ratios[j.Kind]
		r.add(t.finite().Total(), j.predicted[device].Total()*d.slowed())
		s.stale = s.stale || math.Abs(r.log-r.planned) > math.Log(drift)
	}
	return true
}

// stop takes a task from those that a device runs.
func (s *Scheduler) stop(device int, j *Job) bool {
	d := &s.devices[device]
	at := slices.Index(d.running, j)
	if at < 0 {
		return false
	}
	d.running = slices.Delete(d.running, at, at+1)
	return true
}

// Return notes that a device had no memory for a task that it was to begin. The task goes to another device.
func (s *Scheduler) Return(device int, j *Job, now float64) {
	if s.stop(device, j) {
		j.refused |= 1 << device
		s.place(j, now)
	}
}

// Lose notes that a GPU is gone, and that a task that it ran did not end. This task and those of the queue go to other
// devices. Other tasks that run there end, or are lost by a call of their own.
func (s *Scheduler) Lose(device int, j *Job, now float64) {
	s.devices[device].lost = true
	if s.stop(device, j) {
		s.place(j, now)
	}
	s.requeue(device, now)
}

// SetCondition notes what is known of a device.
func (s *Scheduler) SetCondition(device int, c Condition, now float64) {
	s.devices[device].condition = c
	s.requeue(device, now)
	s.changes, s.stale = s.changes+s.waiting, true
}

// requeue moves tasks that a device no longer takes to other queues.
func (s *Scheduler) requeue(device int, now float64) {
	for at := 0; at < len(s.devices[device].queue); {
		if j := s.devices[device].queue[at]; s.takes(device, j) {
			at++
		} else {
			s.place(s.dequeue(device, at), now)
		}
	}
}
