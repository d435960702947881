package schedule

import (
	"math"
	"slices"
)

// LookAgain is how long, in us, an idle device waits before it tries to take work from a late one.
const LookAgain = 500.0

// When a plan is made anew.
const (
	learnAfter = 16  // tasks have ended since the last plan, and
	learnShare = 4   // this part of those that wait, and
	drift      = 1.5 // a ratio has changed by this factor
)

// Condition is what is known of a device beside its tasks: see [Watch].
type Condition struct {
	Refused bool    // it does not answer: no task begins there
	Free    int64   // bytes of memory that a task may use; 0: not known
	Slowed  float64 // factor on predicted times, as of throttled clocks; 0 is 1
}

func (c Condition) slowed() float64 {
	if c.Slowed > 0 {
		return c.Slowed
	}
	return 1
}

// Counts are what a scheduler decided.
type Counts struct {
	Plans  int
	Moved  int // tasks that changed their queue
	NoRoom int // tasks done on the CPU, for which a GPU had too little memory
}

// Scheduler decides where and when tasks run. Its callers hold a lock around all methods but [draft.plan], and give the
// time in us since the start of the stream.
type Scheduler struct {
	Counts

	policy  Policy
	devices []deviceState
	data    []*Data
	left    int // tasks that have not ended
	waiting int // tasks in queues
	placed  int // tasks put into queues since the last plan
	ended   int // tasks that have ended since the last plan

	ratios  [][]ratio   // by device and kind
	planned [][]float64 // the same at the last plan, as logarithms
	prices  prices      // of the last plan
	drafts  int         // plans that were begun
	later   func()      // wants a plan; nil: it is made at once
}

type deviceState struct {
	Device
	queue     []*Job // in the order in which they begin
	backlog   Times  // the sum of expected times of the queue, but for tasks that share
	slotTime  float64
	running   []*Job
	lost      bool
	condition Condition
}

// ratio is the running mean of measured / predicted time of a kind of task on a device.
type ratio struct {
	log float64
	n   int
}

// Weights of the running ratio: the prediction counts as some measurements, the last ones count most.
const (
	ratioPrior  = 1
	ratioWindow = 10
	ratioMost   = 20.0 // a measured time says at most that predictions are off by this factor
)

func (r *ratio) add(measured, predicted float64) {
	most := math.Log(ratioMost)
	r.n++
	step := 1 / float64(min(r.n+ratioPrior, ratioWindow))
	r.log += step * (math.Max(-most, math.Min(most, math.Log(measured/predicted))) - r.log)
}

// New makes a scheduler for tasks of a number of kinds.
func New(devices []Device, kinds int, p Policy) *Scheduler {
	s := &Scheduler{policy: p}
	for _, d := range devices {
		s.devices = append(s.devices, deviceState{Device: d})
		s.ratios = append(s.ratios, make([]ratio, kinds))
		s.planned = append(s.planned, make([]float64, kinds))
	}
	return s
}

// Left returns how many tasks have not ended.
func (s *Scheduler) Left() int { return s.left }

// stuck tells whether tasks are left of which none waits where it could begin.
func (s *Scheduler) stuck() bool {
	return s.left > 0 && !slices.ContainsFunc(s.devices, func(d deviceState) bool {
		return !d.lost && !d.condition.Refused && len(d.queue) > 0
	})
}

// usable tells whether a device takes tasks.
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

// expect returns the expected time of a task on a device now.
func (s *Scheduler) expect(j *Job, device int) Times {
	f := s.devices[device].condition.slowed()
	if s.policy.Learn {
		f *= math.Exp(s.ratios[device][j.Kind].log)
	}
	t := j.predicted[device].times(f)
	if j.Input != nil && j.Input.On(device) {
		t.In = 0
	}
	return t
}

// load returns when a device is free of the tasks that it runs. A task that is late is expected to take as much longer
// as it is late by now.
func (s *Scheduler) load(device int, now float64) load {
	d := &s.devices[device]
	l := load{n: d.Slots, engine: phases{now, now, now}}
	for k := range l.slots {
		l.slots[k] = now
	}
	for k, j := range d.running {
		p := j.begun
		if late := now - p.out; late > 0 {
			p.in, p.run, p.out = math.Min(p.in, now), now+late, now+late
		}
		l.slots[k] = p.out
		if !j.Shares {
			e := &l.engine
			e.in, e.run, e.out = math.Max(e.in, p.in), math.Max(e.run, p.run), math.Max(e.out, p.out)
		}
	}
	return l
}

// end returns when a device is expected to have done its queue.
func (s *Scheduler) end(device int, now float64) float64 {
	d := &s.devices[device]
	l := s.load(device, now)
	if d.Slots == 1 {
		return l.slots[0] + d.slotTime
	}
	all := d.slotTime / float64(d.Slots)
	for _, free := range l.slots {
		all += free / float64(d.Slots)
	}
	return math.Max(math.Max(l.engine.in+d.backlog.In, l.engine.run+d.backlog.Run), math.Max(l.engine.out+d.backlog.Out, all))
}

// Submit takes a task that has arrived.
func (s *Scheduler) Submit(j *Job, now float64) {
	s.left++
	j.refused = 0
	j.predicted = make([]Times, len(s.devices))
	for d := range s.devices {
		j.predicted[d] = s.policy.Predict(j, d).finite()
	}
	if j.Input != nil && !slices.Contains(s.data, j.Input) {
		s.data = append(s.data, j.Input)
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
	s.placed++
}

// enqueue puts a task last into a queue.
func (s *Scheduler) enqueue(j *Job, device int) {
	d := &s.devices[device]
	j.device, j.queued = device, true
	d.queue = append(d.queue, j)
	j.expected = s.expect(j, device)
	d.count(j, 1)
	s.waiting++
}

// dequeue takes a task out of a queue.
func (s *Scheduler) dequeue(device, at int) *Job {
	d := &s.devices[device]
	j := d.queue[at]
	d.queue = slices.Delete(d.queue, at, at+1)
	if d.count(j, -1); len(d.queue) == 0 {
		d.backlog, d.slotTime = Times{}, 0 // no rounding is left
	}
	s.waiting--
	j.queued = false
	return j
}

// count adds a task of the queue to its sums, or with sign -1 takes it away.
func (d *deviceState) count(j *Job, sign float64) {
	t := j.expected.times(sign)
	d.slotTime += t.Total()
	if !j.Shares {
		d.backlog = Times{d.backlog.In + t.In, d.backlog.Run + t.Run, d.backlog.Out + t.Out}
	}
}

// Next returns the task that a device begins now, nil if it has none to begin.
func (s *Scheduler) Next(device int, now float64) *Job {
	d := &s.devices[device]
	if len(d.running) == d.Slots || !s.usable(device) {
		return nil
	}
	if s.placed > 1+s.waiting/8 {
		s.want(now)
	}
	if len(d.queue) == 0 && !s.steal(device, now) {
		return nil
	}
	j := s.dequeue(device, 0)
	l := s.load(device, now)
	j.expected = s.expect(j, device)
	j.begun, j.start = l.add(j, j.expected), now
	j.copied = j.Input == nil || !j.Input.On(device)
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
			if !s.room(device, j) {
				continue
			}
			t := s.expect(j, device)
			if gain := j.expected.Total() / t.Total(); gain > most {
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
func (s *Scheduler) Finish(device int, j *Job, t Times, now float64) bool {
	d := &s.devices[device]
	if !s.stop(device, j) {
		return false
	}
	s.left--
	s.ended++
	if j.Input != nil && device != Host && !d.lost {
		j.Input.on |= 1 << device
	}
	if device == Host {
		for i := range s.devices {
			if s.usable(i) && !s.room(i, j) {
				s.NoRoom++
				break
			}
		}
	}
	if s.policy.Learn {
		s.learn(device, j, t, now)
	}
	return true
}

// learn corrects predictions by a measured time.
func (s *Scheduler) learn(device int, j *Job, t Times, now float64) {
	predicted := j.predicted[device]
	if !j.copied {
		predicted.In = 0
	}
	r := &s.ratios[device][j.Kind]
	r.add(t.finite().Total(), predicted.Total()*s.devices[device].condition.slowed())
	if s.ended >= max(learnAfter, s.waiting/learnShare) && math.Abs(r.log-s.planned[device][j.Kind]) > math.Log(drift) {
		s.want(now)
	}
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

// Lose notes that a GPU is gone with the data that it held, and that a task that it ran, unless it is nil, did not end.
// This task and those of the queue go to other devices. Other tasks that run there end, or are lost by a call of their
// own.
func (s *Scheduler) Lose(device int, j *Job, now float64) {
	s.devices[device].lost = true
	for _, data := range s.data {
		data.on &^= 1 << device
	}
	if j != nil && s.stop(device, j) {
		s.place(j, now)
	}
	s.requeue(device, now)
}

// SetCondition notes what is known of a device.
func (s *Scheduler) SetCondition(device int, c Condition, now float64) {
	d := &s.devices[device]
	before := d.condition
	d.condition = c
	if d.lost || device == Host {
		return
	}
	s.requeue(device, now)
	fits := func(j *Job) bool { return before.Free > 0 && j.Memory > before.Free && s.room(device, j) }
	if before.Refused && !c.Refused || slices.ContainsFunc(s.devices, func(o deviceState) bool { return slices.ContainsFunc(o.queue, fits) }) ||
		math.Abs(math.Log(before.slowed()/c.slowed())) > math.Log(drift) {
		s.want(now)
	}
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

// want asks for a new plan.
func (s *Scheduler) want(now float64) {
	switch {
	case !s.policy.Plan:
	case s.later != nil:
		s.later()
	default:
		d := s.draft(now)
		d.plan()
		s.adopt(d)
	}
}
