package dispatch

import (
	"math"
	"slices"
)

// Bounds of exploration. It costs at most a share of the time that jobs have taken.
const (
	exploreShare = 0.03
	exploreMost  = 2000.0 // us that a measurement may cost
	exploreRatio = 1.5    // at most so many times as long
	exploreFirst = 200.0  // us that may be spent before any job has finished
	unusedAfter  = 12     // jobs after which a device that has run too few is measured
	unusedMost   = 100.0  // us that this may cost for each measurement
	exploreLeast = 50.0   // us that a measurement counts for at least: to hand a job over takes time too
	staleAfter   = 64     // jobs after which what was seen of a kind of task on a device is old
)

// planPower is the power of corrections by which jobs that wait are compared: a quarter of them, in logarithm. Corrections are of jobs of all sizes, of which small ones are off most, and of
// what else ran beside them. A plan that takes all of them moves jobs to and fro by chance. Where no more jobs wait than could begin at once, each counts, and all is taken.
const planPower = 0.25

// lookAgain is after how many us at least a device that idles looks again whether what others run is late, so that it could take what waits for that.
const lookAgain = 500.0

// Condition is what is known of a device beside its jobs: see Monitor.
type Condition struct {
	Refused bool    // it is lost: no job begins there
	Free    int64   // bytes of memory that a job may use; jobs that need more do not begin there; 0: not known
	Slowed  float64 // what multiplies predicted times, as throttled clocks do; 0 is 1
}

// Scheduler decides where and when jobs run. It holds no clock and no goroutine: its callers,
// Run and Simulate, say what time it is. Times are us after the start of the stream.
type Scheduler struct {
	policy    Policy
	devices   []deviceState
	refine    *Refinement // of policy.Believes
	second    *Refinement // of policy.Backup
	errors    [2]trust    // of both
	backup    bool        // the backup is believed
	learns    bool        // what is believed learns: it says other things of a job later
	ended     int         // jobs
	left      int         // jobs that have not finished
	waiting   int         // of those, in queues
	placed    int         // jobs put into queues since the last plan
	plannedAt int         // how many jobs had ended at the last plan
	held      int         // jobs that wait for the results of others

	planned [][]float64 // by device and class: planPower of the correction at the last plan

	work, explored float64 // us that jobs took; that exploration is expected to have cost
	planner        planner
	plans          int    // that were begun
	later          func() // called instead of planning when a new plan is wanted; nil: it is made at once

	// Decided counts what was decided: see Result.
	Decided Decided
}

type deviceState struct {
	Device
	queue   []*Job  // in the order in which they begin
	queued  Times   // their sum, of those that take no lane
	waiting float64 // us of those that do
	arrived []*Job  // of adopt: since the plan was drafted
	running []*Job
	ran     []*Job    // whose results are not checked
	lanes   []float64 // until when each lane is expected to be busy
	free    Times     // until when its copies in, its work and its copies out are expected to be busy, of jobs that have begun
	gone    bool
	now     Condition
}

// New makes a scheduler for jobs of so many classes.
func New(devices []Device, classes int, p Policy) *Scheduler {
	s := &Scheduler{policy: p, refine: NewRefinement(len(devices), classes), planner: newPlanner(devices)}
	_, s.learns = p.Believes.(Observer)
	if p.Backup != nil && p.Refine {
		s.second = NewRefinement(len(devices), classes)
	}
	for _, d := range devices {
		s.devices = append(s.devices, deviceState{Device: d, lanes: make([]float64, d.Lanes)})
		s.planned = append(s.planned, make([]float64, classes))
	}
	return s
}

// Left returns how many jobs have not finished.
func (s *Scheduler) Left() int { return s.left }

// Condition sets what is known of a device. What is expected of the work there is decided again
// if it changes much.
func (s *Scheduler) Condition(device int, c Condition, now float64) {
	d := &s.devices[device]
	before := d.now
	d.now = c
	var back []*Job
	if device != Host { // no policy may leave jobs where they cannot begin
		for at := 0; at < len(d.queue); {
			if j := d.queue[at]; c.Refused || !s.fits(device, j) {
				back = append(back, s.dequeue(device, at))
			} else {
				at++
			}
		}
		for _, j := range back {
			s.place(j, now)
		}
	}
	if len(back) > 0 || before.Refused != c.Refused || s.roomier(before, c) || math.Abs(math.Log(slowed(before)/slowed(c))) > drifted {
		s.want(now)
	}
}

// fits tells whether a device may have the memory that a job needs, as far as is known.
func (s *Scheduler) fits(device int, j *Job) bool {
	free := s.devices[device].now.Free
	return device == Host || j.refused>>device&1 == 0 && (free == 0 || j.Memory <= free)
}

// roomier tells whether work that waits and did not fit a device fits now.
func (s *Scheduler) roomier(before, now Condition) bool {
	if before.Free == 0 || now.Free > 0 && now.Free <= before.Free {
		return false
	}
	for i := range s.devices {
		if slices.ContainsFunc(s.devices[i].queue, func(j *Job) bool { return j.Memory > before.Free && (now.Free == 0 || j.Memory <= now.Free) }) {
			return true
		}
	}
	return false
}

func slowed(c Condition) float64 {
	if c.Slowed > 0 {
		return c.Slowed
	}
	return 1
}

// usable tells whether jobs may begin on a device. The host is never refused: what nothing else
// can run, it runs.
func (s *Scheduler) usable(device int) bool {
	d := &s.devices[device]
	return device == Host || !d.gone && !d.now.Refused
}

// Submit takes a job that has arrived.
func (s *Scheduler) Submit(j *Job, now float64) {
	s.left++
	j.device, j.begun, j.refused, j.waits = -1, false, 0, 0
	if cap(j.estimates) < len(s.devices) {
		j.estimates = make([]Estimate, len(s.devices))
	}
	j.estimates = j.estimates[:len(s.devices)]
	if cap(j.raw) < len(s.devices) {
		j.raw = make([]raw, len(s.devices))
	}
	j.raw = j.raw[:len(s.devices)]
	clear(j.raw)
	for _, d := range j.Reads {
		if d.writer != nil {
			d.writer.readers = append(d.writer.readers, j)
			j.waits++
		}
	}
	if j.Writes != nil {
		j.Writes.writer = j
	}
	if j.waits > 0 {
		s.held++
		return
	}
	s.place(j, now)
}

// believes returns the estimator that is believed, and refinement what corrects it.
func (s *Scheduler) believes() Estimator {
	if s.backup {
		return s.policy.Backup
	}
	return s.policy.Believes
}

func (s *Scheduler) refinement() *Refinement {
	if s.backup {
		return s.second
	}
	return s.refine
}

// estimate predicts a job on all devices, with a power of what corrects predictions. It tells whether a device has too little memory for it.
func (s *Scheduler) estimate(j *Job, estimates []Estimate, power float64) (noRoom bool) {
	for i := range s.devices {
		if !s.usable(i) {
			continue
		}
		e := s.expects(i, j, power)
		if !s.fits(i, j) {
			e.Run, noRoom = math.Inf(1), true
		}
		estimates[i] = e.finite()
	}
	return noRoom
}

// power is that of corrections of jobs that wait: see planPower.
func (s *Scheduler) power() float64 {
	slots := 0
	for i := range s.devices {
		if s.usable(i) {
			slots += s.devices[i].InFlight + s.devices[i].Lanes
		}
	}
	if s.waiting <= slots {
		return 1
	}
	return planPower
}

// expects predicts a job on a device.
func (s *Scheduler) expects(device int, j *Job, power float64) Estimate {
	e := s.predict(device, j)
	f := slowed(s.devices[device].now)
	if s.policy.Refine {
		f *= s.refinement().power(device, j.Class, power)
	}
	if f != 1 {
		e = e.times(f)
	}
	return e
}

// predict asks the estimator that is believed, which is not asked again the same of a job that has come, unless it learns.
func (s *Scheduler) predict(device int, j *Job) Estimate {
	by, in := s.believes(), j.missing(device)
	if s.learns || j.raw == nil {
		return by.Estimate(device, j, in)
	}
	r := &j.raw[device]
	if !r.known || r.in != in || r.backup != s.backup {
		*r = raw{true, s.backup, in, by.Estimate(device, j, in)}
	}
	return r.e
}

// busy is until when a device is expected to be busy with jobs that have begun.
type busy struct {
	now    float64
	places Times  // with copies in, work and copies out of jobs in its places
	lanes  uint64 // that run a job
}

// busy returns what is expected of the jobs that have begun.
func (d *deviceState) busy(now float64) busy {
	b := busy{now: now, places: Times{max(now, d.free.In), max(now, d.free.Run), max(now, d.free.Out)}}
	inPlaces := 0
	for _, r := range d.running {
		if d.inLane(r) {
			b.lanes |= 1 << r.lane
		} else {
			inPlaces++
		}
	}
	end := d.free.Run
	if d.overlap() {
		end = d.free.Out
	}
	if inPlaces > 0 && now > end {
		b.places.Run, b.places.Out = overdue(end, now), overdue(end, now)
		if inPlaces >= d.InFlight { // nothing is copied in before one has ended
			b.places.In = overdue(end, now)
		}
	}
	return b
}

// overdue returns when what should have ended is expected to end: it takes as much longer as it is late by now.
func overdue(end, now float64) float64 { return now + max(0, now-end) }

// laneUntil returns until when a lane is expected to be busy.
func (d *deviceState) laneUntil(lane int, b *busy) float64 {
	if b.lanes>>lane&1 == 0 {
		return b.now
	}
	return max(d.lanes[lane], overdue(d.lanes[lane], b.now))
}

// lanesUntil returns until when the first and the last of all lanes are.
func (d *deviceState) lanesUntil(b *busy) (first, last float64) {
	first = math.Inf(1)
	for lane := range d.lanes {
		t := d.laneUntil(lane, b)
		first, last = min(first, t), max(last, t)
	}
	return first, last
}

// expect returns when a job would start and end on a device, where it takes e, after all that is queued there:
// the later of when the device is free and when the data have arrived, and the work.
func (d *deviceState) expect(j *Job, e *Estimate, b *busy) Span {
	if d.inLane(j) {
		start, _ := d.lanesUntil(b)
		start += d.waiting / float64(d.Lanes)
		return Span{start, start + e.Total()}
	}
	ready := b.places.Run + d.queued.Run
	if !d.overlap() {
		ready += d.queued.In + d.queued.Out
		return Span{ready, ready + e.Total()}
	}
	start := b.places.In + d.queued.In
	begin := math.Max(ready, start+e.In)
	return Span{start, math.Max(begin+e.Run, b.places.Out+d.queued.Out) + e.Out}
}

// place decides the device of a job, and puts it last in its queue.
func (s *Scheduler) place(j *Job, now float64) {
	j.noRoom = s.estimate(j, j.estimates, s.power())
	to := s.best(j, now)
	j.probe = false
	if s.policy.Explore {
		if probe := s.explore(j, to); probe != to {
			to, j.probe = probe, true
		}
	}
	s.enqueue(j, to, now)
	s.Decided.Placed++
	s.placed++
}

// best returns where a job is expected to finish first.
func (s *Scheduler) best(j *Job, now float64) int {
	if s.policy.Fixed != nil {
		if d := s.policy.Fixed(j); s.usable(d) && s.fits(d, j) {
			return d
		}
		return Host
	}
	best, first := Host, math.Inf(1)
	for i := range s.devices {
		if !s.usable(i) {
			continue
		}
		b := s.devices[i].busy(now)
		if end := s.devices[i].expect(j, &j.estimates[i], &b).End; end < first {
			best, first = i, end
		}
	}
	return best
}

// explore returns the device that a job should measure, or the one it was given.
func (s *Scheduler) explore(j *Job, to int) int {
	refine := s.refinement()
	for i := range s.devices {
		if i == to || !s.usable(i) || refine.fresh(i, j.Class, staleAfter) {
			continue
		}
		a, b := j.estimates[i], j.estimates[to]
		loss := max(exploreLeast, a.Total()-b.Total(), s.devices[i].share(j, a)-s.devices[to].share(j, b))
		switch known := a.Known && b.Known && a.Low > b.High && !s.backup; {
		case s.ended >= unusedAfter && !refine.verified(i):
			// Nothing has shown that the predictions of a device hold that they keep unused.
			if loss > unusedMost {
				continue
			}
		case known || a.Total() > exploreRatio*b.Total():
			continue
		}
		if loss > exploreMost || s.explored+loss > exploreFirst+exploreShare*s.work {
			continue
		}
		s.explored += loss
		refine.seen[i][j.Class] = max(1, refine.count) // one at a time
		s.Decided.Probes++
		return i
	}
	return to
}

// share is the time that a job keeps the device from others: a lane is one of several.
func (d *deviceState) share(j *Job, e Estimate) float64 {
	if d.inLane(j) {
		return e.Total() / float64(d.Lanes)
	}
	return e.Total()
}

func (t *Times) add(e Estimate, sign float64) {
	t.In += sign * e.In
	t.Run += sign * e.Run
	t.Out += sign * e.Out
}

// enqueue puts a job last in the queue of a device.
func (s *Scheduler) enqueue(j *Job, device int, now float64) {
	d := &s.devices[device]
	j.device = device
	d.queue = append(d.queue, j)
	d.count(j, j.estimates[device], 1)
	s.waiting++
}

// count adds a job that waits, or with sign -1 takes it away.
func (d *deviceState) count(j *Job, e Estimate, sign float64) {
	if d.inLane(j) {
		d.waiting += sign * e.Total()
	} else {
		d.queued.add(e, sign)
	}
}

// lanesTaken returns how many of the jobs that run have a lane.
func (d *deviceState) lanesTaken() (n int) {
	for _, j := range d.running {
		if d.inLane(j) {
			n++
		}
	}
	return n
}

// dequeue takes a job out of the queue of a device.
func (s *Scheduler) dequeue(device, at int) *Job {
	d := &s.devices[device]
	j := d.queue[at]
	copy(d.queue[at:], d.queue[at+1:])
	d.queue[len(d.queue)-1] = nil
	d.queue = d.queue[:len(d.queue)-1]
	if len(d.queue) == 0 {
		d.queued, d.waiting = Times{}, 0 // no rounding is left
	} else {
		d.count(j, j.estimates[device], -1)
	}
	s.waiting--
	return j
}

// part is of the jobs that a device runs.
type part int

const (
	allParts part = iota
	places        // jobs that take no lane
	lanes         // those that do
)

// room returns which of a part of the jobs could begin on the device now.
func (d *deviceState) room(of part) func(*Job) bool {
	taken := d.lanesTaken()
	lane, place := of != places && taken < d.Lanes, of != lanes && len(d.running)-taken < d.InFlight
	return func(j *Job) bool {
		if d.inLane(j) {
			return lane
		}
		return place
	}
}

// Next returns the job that a device begins now, nil if it has none to begin. Callers ask
// for each device that has finished or may have got a job.
func (s *Scheduler) Next(device int, now float64) *Job { return s.next(device, allParts, now) }

// next is Next for a part of the jobs.
func (s *Scheduler) next(device int, of part, now float64) *Job {
	d := &s.devices[device]
	if len(d.running) >= d.InFlight+d.Lanes || !s.usable(device) {
		return nil
	}
	if s.policy.Plan && s.placed > 1+s.waiting/8 {
		s.want(now)
	}
	room := d.room(of)
	at := s.telling(device, room)
	if at < 0 && s.policy.Plan {
		s.steal(device, room, now)
		at = s.telling(device, room)
	}
	if at < 0 {
		return nil
	}
	j := s.dequeue(device, at)
	s.begin(j, device, now)
	return j
}

// telling returns which job of the queue of a device begins, -1 if none can: the first for which there is room, or the shortest that shows whether the
// device has changed if the last jobs leave that in doubt, since queues have runs of jobs of one kind.
func (s *Scheduler) telling(device int, room func(*Job) bool) int {
	d := &s.devices[device]
	first := slices.IndexFunc(d.queue, room)
	if first < 0 || !s.policy.Refine || !s.policy.Plan {
		return first
	}
	doubt, ok := s.refinement().doubts(device)
	if !ok {
		return first
	}
	at, least := first, math.Inf(1)
	for i, j := range d.queue {
		if us := j.estimates[device].Total(); us < least && doubt.settledBy(j, device) && room(j) {
			at, least = i, us
		}
	}
	return at
}

func (s *Scheduler) begin(j *Job, device int, now float64) {
	d := &s.devices[device]
	e := s.expects(device, j, 1).finite()
	j.estimates[device] = e
	j.begun, j.device, j.moved = true, device, 1
	if all := j.inputs(); all > 0 && len(j.Reads) > 0 {
		j.moved = float64(j.missing(device)) / float64(all)
	}
	if d.inLane(j) {
		j.lane = d.freeLane()
		d.lanes[j.lane] = math.Max(now, d.lanes[j.lane]) + e.Total()
		j.plan = Span{now, d.lanes[j.lane]}
	} else if d.overlap() {
		d.free.In = math.Max(now, d.free.In) + e.In
		d.free.Run = math.Max(d.free.Run, d.free.In) + e.Run
		d.free.Out = math.Max(d.free.Out, d.free.Run) + e.Out
		j.plan = Span{now, d.free.Out}
	} else {
		d.free.Run = math.Max(now, d.free.Run) + e.Total()
		j.plan = Span{now, d.free.Run}
	}
	d.running = append(d.running, j)
	j.brought = 0
	for i, data := range j.Reads {
		if !data.On(device) {
			j.brought |= 1 << i
		}
		data.reach(device)
	}
}

// freeLane returns a lane that no job that runs has taken.
func (d *deviceState) freeLane() int {
	for lane := range d.lanes {
		if !slices.ContainsFunc(d.running, func(r *Job) bool { return d.inLane(r) && r.lane == lane }) {
			return lane
		}
	}
	return 0 // not reached: there is room
}

// steal gives a device without work that could begin the job of another's queue that gains most there, if it is
// expected to finish sooner than it would where it is.
func (s *Scheduler) steal(device int, room func(*Job) bool, now float64) {
	d := &s.devices[device]
	own := d.busy(now)
	from, at, most := -1, -1, 0.0
	for i := range s.devices {
		o := &s.devices[i]
		if i == device {
			continue
		}
		// The last of a queue ends when all of it has.
		b := o.busy(now)
		last := max(b.places.Run+o.queued.Run, b.places.In+o.queued.In, b.places.Out+o.queued.Out)
		if !o.overlap() {
			last = b.places.Run + o.queued.In + o.queued.Run + o.queued.Out
		}
		_, lastLane := o.lanesUntil(&b)
		for k, j := range o.queue {
			if j.probe || !room(j) || !s.fits(device, j) { // its estimates may be of a plan that was drafted when there was memory
				continue
			}
			last := last
			if o.inLane(j) {
				last = lastLane + o.waiting/float64(o.Lanes)
			}
			end := d.expect(j, &j.estimates[device], &own).End
			if end >= last {
				continue
			}
			if gain := j.estimates[i].Total() / j.estimates[device].Total(); gain > most {
				from, at, most = i, k, gain
			}
		}
	}
	if from >= 0 {
		j := s.dequeue(from, at)
		s.enqueue(j, device, now)
		s.Decided.Moved++
	}
}

// want asks for a new plan.
func (s *Scheduler) want(now float64) {
	switch {
	case !s.policy.Plan:
	case s.later != nil:
		s.later()
	default:
		s.draft(now)
		s.planner.plan()
		s.adopt(now)
	}
}

// draft begins a plan of all work that has not begun: it copies what the planner needs to know. [planner.plan], which takes long, may then run beside all else;
// adopt ends the plan.
func (s *Scheduler) draft(now float64) {
	p := &s.planner
	s.plans++
	s.placed, s.plannedAt = 0, s.ended
	power := s.power()
	p.now = now
	p.clear(s.waiting)
	if s.policy.Refine {
		for i, factors := range s.planned {
			for class := range factors {
				factors[class] = s.refinement().power(i, class, planPower)
			}
		}
	}
	for i := range s.devices {
		d := &s.devices[i]
		p.usable[i] = s.usable(i)
		for _, j := range d.queue {
			if j.probe && s.usable(i) {
				d.count(j, j.estimates[i], -1)
				j.noRoom = s.estimate(j, j.estimates, 1)
				d.count(j, j.estimates[i], 1)
				continue
			}
			c := p.add(j)
			c.noRoom = s.estimate(j, c.estimates, power)
			j.probe, j.planned = false, s.plans
		}
		p.begun[i] = d.loadOf(i, now)
	}
}

// adopt makes a plan that was drafted the queues of the devices. What has begun since stays where it is, and so does what no longer may run where it was
// planned; what has come since is last.
func (s *Scheduler) adopt(now float64) {
	s.Decided.Plans++
	waits := func(j *Job) bool { return j.planned == s.plans && !j.begun && !j.probe }
	for i := range s.devices {
		d := &s.devices[i]
		d.arrived = d.arrived[:0]
		kept := d.queue[:0]
		d.queued, d.waiting = Times{}, 0
		for _, j := range d.queue {
			switch {
			case waits(j):
			case j.probe:
				kept = append(kept, j)
				d.count(j, j.estimates[i], 1)
			default:
				d.arrived = append(d.arrived, j)
			}
		}
		clear(d.queue[len(kept):])
		d.queue = kept
	}
	put := func(j *Job, device int) {
		d := &s.devices[device]
		d.queue = append(d.queue, j)
		d.count(j, j.estimates[device], 1)
		j.device = device
	}
	for _, c := range s.planner.jobs {
		j, to := c.job, c.target
		if !waits(j) {
			continue
		}
		if s.usable(to) && s.fits(to, j) {
			copy(j.estimates, c.estimates)
			j.noRoom = c.noRoom
			for i := range s.devices {
				j.noRoom = j.noRoom || s.usable(i) && !s.fits(i, j)
			}
		} else {
			to = j.device
		}
		if to != j.device {
			s.Decided.Moved++
		}
		put(j, to)
	}
	for i := range s.devices {
		for _, j := range s.devices[i].arrived {
			put(j, i)
		}
		clear(s.devices[i].arrived)
	}
}

// Ran takes note that a device has run a job, which took so long, and has room for another. [Scheduler.Finish] follows once its result is checked.
func (s *Scheduler) Ran(device int, j *Job, t Times, now float64) {
	d := &s.devices[device]
	at := slices.Index(d.running, j)
	if at < 0 {
		return // it was taken away: Lose
	}
	d.running = slices.Delete(d.running, at, at+1)
	d.ran = append(d.ran, j)
	s.ended++
	s.work += t.Total()
	switch {
	case d.inLane(j):
		d.lanes[j.lane] = now
	case len(d.running) == d.lanesTaken():
		d.free = Times{now, now, now}
	default: // the others are as much later
		late := now - j.plan.End
		d.free.Run = math.Max(now, d.free.Run+late)
		d.free.Out = math.Max(now, d.free.Out+late)
	}
	if o, ok := s.policy.Believes.(Observer); ok {
		o.Observe(device, j, t)
	}
	drift := s.policy.Refine && s.learn(device, j, t)
	switch {
	case drift:
		s.Decided.Drifts++
		s.want(now)
	case s.policy.Plan && s.policy.Refine && s.ended-s.plannedAt >= max(learntAfter, s.waiting/learntShare) && s.learnt(device, j.Class):
		s.want(now)
	}
}

// Finish takes note that a job ended on a device, after so long, and that its result is there. Of a job of which [Scheduler.Ran] was not told it does that too.
func (s *Scheduler) Finish(device int, j *Job, t Times, now float64) {
	s.Ran(device, j, t, now)
	d := &s.devices[device]
	at := slices.Index(d.ran, j)
	if at < 0 {
		return // it was taken away: Lose
	}
	d.ran = slices.Delete(d.ran, at, at+1)
	s.left--
	if j.noRoom && device == Host {
		s.Decided.NoRoom++
	}
	if j.Writes != nil {
		if j.Writes.made(device); d.gone {
			j.Writes.lose(device)
		}
		if j.Writes.writer == j {
			j.Writes.writer = nil
		}
	}
	for _, r := range j.readers {
		if r.waits--; r.waits == 0 {
			s.held--
			s.place(r, now)
		}
	}
	j.readers = nil
}

// How many jobs end at least between a plan and one that is made since corrections have changed, and as a share of those that wait: all devices wait for a plan, which takes
// the longer the more jobs there are.
const (
	learntAfter = 16
	learntShare = 4
)

// learnt tells whether what plans of many jobs take of the correction of a kind of task on a device has changed much since the last plan.
func (s *Scheduler) learnt(device, class int) bool {
	now, before := s.refinement().power(device, class, planPower), s.planned[device][class]
	return before > 0 && math.Abs(math.Log(now/before)) > changed
}

// Lose takes note that a device is gone, with some of the jobs that it runs or whose results are not checked, and with what it held of data. These jobs and those of its queue are decided
// again. Of others the caller knows more later: that they have ended ([Scheduler.Finish]), or that they are lost too.
func (s *Scheduler) Lose(device int, running []*Job, lost []*Data, now float64) {
	d := &s.devices[device]
	if device == Host {
		return
	}
	var back []*Job
	for _, j := range running {
		if at := slices.Index(d.running, j); at >= 0 {
			d.running = slices.Delete(d.running, at, at+1)
			back = append(back, j)
		} else if at := slices.Index(d.ran, j); at >= 0 {
			d.ran = slices.Delete(d.ran, at, at+1)
			back = append(back, j)
		}
	}
	back = append(back, d.queue...)
	s.waiting -= len(d.queue)
	d.queue, d.queued, d.waiting, d.gone = nil, Times{}, 0, true
	for _, data := range lost {
		data.lose(device)
	}
	for _, j := range back {
		j.begun, j.probe, j.device = false, false, -1
		s.place(j, now)
	}
	s.want(now)
}

// learn refines what is believed by the times of a job, and tells whether work that has not begun should
// be decided again.
func (s *Scheduler) learn(device int, j *Job, t Times) (drift bool) {
	observe := func(e Estimator, r *Refinement, off *trust) bool {
		in := j.missingAt(device)
		predicted := e.Estimate(device, j, in).finite().Total() * slowed(s.devices[device].now)
		if r.seen[device][j.Class] > 0 { // the first may have loaded and warmed up
			off.add(t.Total(), predicted*r.Factor(device, j.Class))
		}
		return r.Observe(device, j.Class, j.Work[device].FloorUs, t.Total(), predicted)
	}
	drift = observe(s.policy.Believes, s.refine, &s.errors[0])
	if s.second == nil {
		return drift
	}
	second := observe(s.policy.Backup, s.second, &s.errors[1])
	if s.backup {
		drift = second
	}
	first, other := &s.errors[0], &s.errors[1]
	switch off := first.n > runAll && first.error > 2*drifted && first.error > 2*other.error; {
	case off && !s.backup:
		s.backup, drift = true, true
	case s.backup && first.error < other.error:
		s.backup, drift = false, true
	}
	return drift
}

// Return takes note that a device refused a job that it was to begin. The job goes to another device.
func (s *Scheduler) Return(device int, j *Job, now float64) {
	d := &s.devices[device]
	if at := slices.Index(d.running, j); at >= 0 {
		d.running = slices.Delete(d.running, at, at+1)
		if d.inLane(j) {
			d.lanes[j.lane] = now
		} else if len(d.running) == d.lanesTaken() {
			d.free = Times{}
		}
		for i, data := range j.Reads { // which it has not copied
			if j.brought>>i&1 != 0 {
				data.lose(device)
			}
		}
		j.begun, j.probe = false, false
		j.refused |= 1 << device
		s.place(j, now)
	}
}

// Decide returns where a job would run if it came now, and when it is expected to start and end
// there. It changes nothing.
func (s *Scheduler) Decide(j *Job, now float64) (device int, expected Span) {
	if cap(j.estimates) < len(s.devices) {
		j.estimates = make([]Estimate, len(s.devices))
	}
	j.estimates = j.estimates[:len(s.devices)]
	j.noRoom = s.estimate(j, j.estimates, 1)
	device = s.best(j, now)
	b := s.devices[device].busy(now)
	return device, s.devices[device].expect(j, &j.estimates[device], &b)
}
