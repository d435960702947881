package dispatch

import (
	"cmp"
	"math"
	"slices"
)

// load is what a device is expected to have to do: until when its copies in, its work and its
// copies out are busy.
type load struct {
	free    Times
	ends    [maxInFlight]float64 // of the last jobs, the latest first
	overlap int                  // jobs in flight, 1: no overlap
	lanes   [maxLanes]float64
	width   int // of lanes that are used
}

// maxInFlight is the most jobs that a device may take at once.
const maxInFlight = 4

// maxLanes is the most lanes of a device that plans know.
const maxLanes = 8

// take adds a job that is expected to take e and returns when it ends.
func (l *load) take(j *Job, e *Estimate) float64 {
	if j.Lane && l.width > 0 {
		at := 0
		for i, free := range l.lanes[:l.width] {
			if free < l.lanes[at] {
				at = i
			}
		}
		l.lanes[at] += e.Total()
		return l.lanes[at]
	}
	if l.overlap < 2 {
		l.free.Run += e.Total()
		return l.free.Run
	}
	l.free.In = math.Max(l.free.In, l.ends[l.overlap-1]) + e.In
	l.free.Run = math.Max(l.free.Run, l.free.In) + e.Run
	l.free.Out = math.Max(l.free.Out, l.free.Run) + e.Out
	copy(l.ends[1:], l.ends[:])
	l.ends[0] = l.free.Out
	return l.free.Out
}

// candidate is a job that a plan places.
type candidate struct {
	job       *Job
	estimates []Estimate // by device
	noRoom    bool       // a GPU had too little memory for it
	target    int
	gain      float64 // of the time on a GPU
	least     float64 // us on the fastest device
	rank      int     // by gain
}

// planner makes plans. What it plans is a copy of what the scheduler knew when the plan was begun, so that
// devices begin jobs, and jobs end and come, while it plans: see Scheduler.draft.
type planner struct {
	now     float64
	devices []Device
	usable  []bool
	begun   []load       // by device: of jobs that have begun and of jobs that stay in their queues
	jobs    []*candidate // once the plan is made, in the order of the queues

	all          []candidate
	estimates    []Estimate
	loads        []load
	order, pairs []*candidate
	costs        [][resources]float64
	worth        weights
}

func newPlanner(devices []Device) planner {
	return planner{devices: devices, usable: make([]bool, len(devices)), begun: make([]load, len(devices)), loads: make([]load, len(devices))}
}

// clear forgets what was planned, and makes room for so many jobs.
func (p *planner) clear(jobs int) {
	clear(p.all[:cap(p.all)])
	p.all, p.estimates, p.jobs = slices.Grow(p.all[:0], jobs), slices.Grow(p.estimates[:0], jobs*len(p.devices)), p.jobs[:0]
}

// add adds a job, and returns the place of its estimates.
func (p *planner) add(j *Job) *candidate {
	n := len(p.estimates)
	p.estimates = p.estimates[:n+len(p.devices)]
	p.all = append(p.all, candidate{job: j, estimates: p.estimates[n:]})
	c := &p.all[len(p.all)-1]
	p.jobs = append(p.jobs, c)
	return c
}

// loadOf returns the load of a device, of jobs that have begun and of jobs in its queue that stay there.
func (d *deviceState) loadOf(device int, now float64) load {
	b := d.busy(now)
	l := load{free: b.places, overlap: min(d.InFlight, maxInFlight), width: min(d.Lanes, maxLanes)}
	for k := range l.width {
		l.lanes[k] = d.laneUntil(k, &b)
	}
	k := 0
	for _, j := range slices.Backward(d.running) {
		if !d.inLane(j) {
			l.ends[k] = max(now, j.plan.End)
			k++
		}
	}
	for _, j := range d.queue {
		if j.probe {
			l.take(j, &j.estimates[device])
		}
	}
	return l
}

// plan sets the target of each job, and sorts jobs into the order in which they should be queued.
//
// Two schedules are made, and the one that is expected to end first is used. The first is
// that of the fractional lower bound (see LowerBound): jobs are sorted by what a GPU gains, the
// GPUs get those from one end, the host those from the other, and they meet where both end
// at once. The second places the longest jobs first, each where it ends first (Graham's
// rule), which is better for few jobs of unequal length.
func (p *planner) plan() {
	jobs := p.jobs
	gpus := 0
	for i := 1; i < len(p.devices); i++ {
		if p.usable[i] {
			gpus++
		}
	}
	if gpus == 0 {
		for _, j := range jobs {
			j.target = Host
		}
		slices.SortFunc(jobs, byID)
		return
	}
	p.price(jobs, gpus)
	for _, j := range jobs {
		e := &j.estimates[p.fastest(j)]
		j.gain, j.least = p.gain(j, e), math.Min(j.estimates[Host].Total(), e.Total())
	}
	slices.SortFunc(jobs, byGain)
	for i, j := range jobs {
		j.rank = i
	}
	// The host's end grows with the jobs it gets, that of the GPUs falls. The best division is near the one at which both are about equal.
	best := p.balance(jobs, gpus)
	slices.SortFunc(jobs, longest)
	host, others := p.divided(jobs, best)
	end := math.Max(host, others)
	for step := (len(jobs) + 15) / 16; step > 0; step /= 2 {
		at := best - step
		if host < others {
			at = best + step
		}
		if at < 0 || at > len(jobs) {
			continue
		}
		if h, o := p.divided(jobs, at); math.Max(h, o) < end {
			best, end, host, others = at, math.Max(h, o), h, o
		}
	}
	p.order = append(p.order[:0], jobs...)
	p.spread(p.order, Host)
	if host, others := p.ends(p.order); math.Max(host, others) < end {
		copy(jobs, p.order)
	} else {
		p.divided(jobs, best)
		copy(jobs, p.order)
	}
	clear(p.order)
}

// usualWait is how much later the queue of a GPU ends, as pair orders it, than its busiest resource must.
const usualWait = 1.12

// balance returns how many of the jobs that gain least have to go to the host for it to end about when the GPUs do, by sums. jobs are
// sorted by gain.
func (p *planner) balance(jobs []*candidate, gpus int) int {
	copy(p.loads, p.begun)
	host, free, freeLanes := math.Max(p.now, p.loads[Host].free.Run), 0.0, 0.0
	var sum Times
	lanes := 0.0
	add := func(j *candidate, sign float64) {
		i := p.fastest(j)
		if d := &p.devices[i]; d.inLane(j.job) {
			lanes += sign * j.estimates[i].Total() / float64(d.Lanes) / float64(gpus)
		} else {
			sum.add(j.estimates[i], sign/float64(gpus))
		}
	}
	for i := 1; i < len(p.devices); i++ {
		if !p.usable[i] {
			continue
		}
		l := &p.loads[i]
		free += math.Max(0, math.Max(l.free.In, math.Max(l.free.Run, l.free.Out))-p.now) / float64(gpus)
		for _, until := range l.lanes[:l.width] {
			freeLanes += (until - p.now) / float64(l.width) / float64(gpus)
		}
	}
	for _, j := range jobs {
		add(j, 1)
	}
	for n, j := range jobs {
		busiest := math.Max(math.Max(sum.In, sum.Run), math.Max(sum.Out, sum.Total()/2))
		if host += j.estimates[Host].Total(); host >= p.now+math.Max(free+usualWait*busiest, freeLanes+lanes) {
			return n
		}
		add(j, -1)
	}
	return len(jobs)
}

// divided gives the n jobs that gain least to the host and the others to the GPUs, and returns when these end. jobs are sorted, the longest
// first. The jobs, in the order of the queues, are in p.order.
func (p *planner) divided(jobs []*candidate, n int) (host, others float64) {
	p.order = p.order[:0]
	for _, j := range jobs {
		if j.rank < n {
			j.target = Host
			p.order = append(p.order, j)
		}
	}
	for _, j := range jobs {
		if j.rank >= n {
			p.order = append(p.order, j)
		}
	}
	p.spread(p.order[n:], Host+1)
	return p.ends(p.order)
}

// spread places jobs in their order where each is expected to end first, of the devices from one on.
func (p *planner) spread(jobs []*candidate, from int) {
	copy(p.loads, p.begun)
	for _, j := range jobs {
		to, first := -1, math.Inf(1)
		for i := from; i < len(p.devices); i++ {
			if !p.usable[i] {
				continue
			}
			l := p.loads[i]
			if end := l.take(j.job, &j.estimates[i]); end < first {
				to, first = i, end
			}
		}
		j.target = to
		p.loads[to].take(j.job, &j.estimates[to])
	}
}

// ends sorts jobs into the order of the queues of their targets, and returns when the last ends on the
// host and on the GPUs. Those of one target are sorted, the longest first.
func (p *planner) ends(jobs []*candidate) (host, others float64) {
	if !slices.IsSortedFunc(jobs, p.byTarget) {
		slices.SortStableFunc(jobs, p.byTarget)
	}
	copy(p.loads, p.begun)
	for len(jobs) > 0 {
		n, device := 1, jobs[0].target
		for n < len(jobs) && jobs[n].target == device {
			n++
		}
		if p.devices[device].overlap() {
			lanes := 0
			for lanes < n && p.devices[device].inLane(jobs[lanes].job) {
				lanes++
			}
			p.pair(jobs[lanes:n], p.loads[device])
		}
		end := 0.0
		for _, j := range jobs[:n] {
			end = math.Max(end, p.loads[device].take(j.job, &j.estimates[device]))
		}
		if device == Host {
			host = end
		} else {
			others = math.Max(others, end)
		}
		jobs = jobs[n:]
	}
	return host, others
}

func byID(a, b *candidate) int { return cmp.Compare(a.job.ID, b.job.ID) }

// The steps of the search for the worth of resources in the first plan, and in those that go on from the last plan'p.
const (
	priceSteps = 60
	nextSteps  = 20
)

// price finds what each resource is worth to the jobs: see LowerBound.
func (p *planner) price(jobs []*candidate, gpus int) {
	p.costs = p.costs[:0]
	for _, j := range jobs {
		i := p.fastest(j)
		c := costsOn(&p.devices[i], j.job, Times{j.estimates[i].In, j.estimates[i].Run, j.estimates[i].Out}, gpus)
		c[0] = j.estimates[Host].Total()
		p.costs = append(p.costs, c)
	}
	steps := nextSteps
	if p.worth == (weights{}) {
		steps = priceSteps
	}
	p.worth.search(p.costs, steps)
}

// fastest returns the usable GPU on which a job takes the least time, Host if there is none.
func (p *planner) fastest(j *candidate) int {
	best := Host
	for i := 1; i < len(p.devices); i++ {
		if p.usable[i] && (best == Host || j.estimates[i].Total() < j.estimates[best].Total()) {
			best = i
		}
	}
	return best
}

// gain is what a job costs on the host over what it costs on the fastest GPU, where it is expected to take e: the time, or once there
// was a plan, the time of each resource by its worth. A copy that runs beside the work of
// other jobs costs little unless copies are what all wait for.
func (p *planner) gain(j *candidate, e *Estimate) float64 {
	if w := &p.worth; *w != (weights{}) {
		c := costsOn(&p.devices[p.fastest(j)], j.job, Times{e.In, e.Run, e.Out}, 1)
		return w[0] * j.estimates[Host].Total() / w.onGPU(&c)
	}
	return j.estimates[Host].Total() / e.Total()
}

// byGain orders jobs by what a GPU gains, the least first.
func byGain(a, b *candidate) int { return cmp.Or(cmp.Compare(a.gain, b.gain), byID(a, b)) }

// longest orders jobs by the least time they can take, the longest first.
func longest(a, b *candidate) int { return cmp.Or(cmp.Compare(b.least, a.least), byID(a, b)) }

// byTarget orders jobs by the device, those that take a lane there first.
func (p *planner) byTarget(a, b *candidate) int {
	if a.target != b.target {
		return cmp.Compare(a.target, b.target)
	}
	switch d := &p.devices[a.target]; {
	case d.inLane(a.job) == d.inLane(b.job):
		return 0
	case d.inLane(a.job):
		return -1
	}
	return 1
}

// How pair weighs time: the device would wait for a copy; a copy could have run beside the work of other jobs, but none
// does; a job has long work, which later copies could run beside. On the stored samples of an H200 the work of a stream, of which half the time
// is that of copies, then ends 1.12 to 1.18 times as late as if nothing waited; 1.25 to 1.3 if the job with the nearest copy follows.
const (
	pairWait   = 2.5
	pairUnused = 1.5
	pairLong   = 0.5
	pairWindow = 16 // jobs of shorter and of longer copies that are looked at
)

// pair orders the jobs of a device that takes several at once, and which has a load, so that copies in run
// beside the work of other jobs. With two jobs in flight the copy of one begins when the one before the last has ended, and has as
// long as the work of the last one, as in a flow shop with a buffer of one job (Papadimitriou and Kanellakis,
// "Flowshop scheduling with limited temporary storage", 1980). Each job is followed by the one that fits best.
func (p *planner) pair(jobs []*candidate, l load) {
	e := func(j *candidate) *Estimate { return &j.estimates[j.target] }
	slices.SortFunc(jobs, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(e(a).In, e(b).In), cmp.Compare(e(b).Run, e(a).Run), byID(a, b))
	})
	p.pairs = append(p.pairs[:0], jobs...)
	left := p.pairs
	for i := range jobs {
		room := l.free.Run - math.Max(l.free.In, l.ends[l.overlap-1]) // of the next copy in
		next, least := 0, math.Inf(1)
		look := func(k int) {
			over := e(left[k]).In - room
			cost := pairWait*math.Max(0, over) + pairUnused*math.Max(0, -over) - pairLong*e(left[k]).Run
			if cost < least {
				next, least = k, cost
			}
		}
		at, _ := slices.BinarySearchFunc(left, room, func(j *candidate, v float64) int { return cmp.Compare(e(j).In, v) })
		look(0) // the longest work of those without a copy
		for k := max(0, at-pairWindow); k < min(len(left), at+pairWindow); k++ {
			look(k)
		}
		jobs[i] = left[next]
		l.take(left[next].job, e(left[next]))
		left = slices.Delete(left, next, next+1)
	}
	clear(p.pairs)
}
