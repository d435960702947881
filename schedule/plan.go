package schedule

import (
	"cmp"
	"math"
	"slices"
)

// draft is a plan of all tasks that wait. It holds copies of what it needs, so that devices go on while it is made.
type draft struct {
	devices []Device
	usable  []bool
	loads   []load // by device, of the tasks that run
	jobs    []*candidate
	prices  prices
}

// candidate is a task that a plan places.
type candidate struct {
	job      *Job
	expected []Times // by device; endless where it cannot run
	to       int
	gain     float64 // what it costs on the CPU, over what it costs on the GPU where it is fastest
	fastest  int     // GPU
	least    float64 // its shortest time
}

// draft begins a plan.
func (s *Scheduler) draft(now float64) *draft {
	p := &draft{prices: s.prices}
	s.drafts++
	s.placed, s.ended = 0, 0
	for i := range s.devices {
		p.devices = append(p.devices, s.devices[i].Device)
		p.usable = append(p.usable, s.usable(i))
		p.loads = append(p.loads, s.load(i, now))
		for k, r := range s.ratios[i] {
			s.planned[i][k] = r.log
		}
	}
	all := make([]candidate, 0, s.waiting)
	times := make([]Times, s.waiting*len(s.devices))
	for i := range s.devices {
		for _, j := range s.devices[i].queue {
			c := candidate{job: j, expected: times[:len(s.devices):len(s.devices)], to: Host, least: math.Inf(1)}
			times = times[len(s.devices):]
			for d := range s.devices {
				if c.expected[d] = s.expect(j, d); !s.takes(d, j) {
					c.expected[d].Run = 1e15
				}
				if us := c.expected[d].Total(); d != Host && (c.fastest == Host || us < c.expected[c.fastest].Total()) {
					c.fastest = d
				}
				c.least = math.Min(c.least, c.expected[d].Total())
			}
			j.draft = s.drafts
			all = append(all, c)
			p.jobs = append(p.jobs, &all[len(all)-1])
		}
	}
	return p
}

// Steps of the search for prices, in the first plan and in later ones, which go on from the prices of the last.
const (
	firstSteps = 60
	laterSteps = 20
)

// plan divides the tasks between the devices and sorts them into the order of the queues. Tasks are sorted by gain; the
// CPU gets those that gain least from a GPU, as many as make CPU and GPUs end at about the same time.
func (p *draft) plan() {
	slices.SortFunc(p.jobs, func(a, b *candidate) int { return cmp.Compare(a.job.ID, b.job.ID) })
	gpus := 0
	for d := range p.devices {
		if d != Host && p.usable[d] {
			gpus++
		}
	}
	if gpus == 0 || len(p.jobs) == 0 {
		return
	}
	p.price(gpus)
	slices.SortStableFunc(p.jobs, func(a, b *candidate) int { return cmp.Compare(a.gain, b.gain) })
	byGain := slices.Clone(p.jobs)
	// The end of the CPU grows with the tasks it gets, that of the GPUs falls.
	low, high := 0, len(byGain)
	for low < high {
		n := (low + high) / 2
		if host, others := p.divide(byGain, n); host < others {
			low = n + 1
		} else {
			high = n
		}
	}
	best, first := low, math.Inf(1)
	for n := max(0, low-1); n <= low; n++ {
		if host, others := p.divide(byGain, n); math.Max(host, others) < first {
			best, first = n, math.Max(host, others)
		}
	}
	p.divide(byGain, best)
}

// price computes the gain of each task from what the resources are worth to all tasks. A copy that runs beside another
// task's kernel costs little unless all wait for copies.
func (p *draft) price(gpus int) {
	all := make([]costs, len(p.jobs))
	for i, c := range p.jobs {
		all[i] = costsOn(&p.devices[c.fastest], c.job, c.expected[c.fastest], gpus)
		all[i][onHost] = c.expected[Host].Total()
	}
	steps := laterSteps
	if p.prices == (prices{}) {
		steps = firstSteps
	}
	p.prices.search(all, steps)
	for i, c := range p.jobs {
		c.gain = p.prices[onHost] * all[i][onHost] / p.prices.gpu(&all[i])
	}
}

// divide gives the first n tasks to the CPU and the others to the GPUs, puts them into p.jobs in the order of the
// queues, and returns when the CPU and the GPUs end.
func (p *draft) divide(byGain []*candidate, n int) (host, others float64) {
	p.jobs = append(p.jobs[:0], byGain...)
	for i, c := range p.jobs {
		c.to = Host
		if i >= n {
			c.to = c.fastest
		}
	}
	p.spread(p.jobs[n:])
	slices.SortStableFunc(p.jobs, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(b.least, a.least), cmp.Compare(a.job.ID, b.job.ID))
	})
	for at := 0; at < len(p.jobs); {
		device, end := p.jobs[at].to, at
		for end < len(p.jobs) && p.jobs[end].to == device {
			end++
		}
		queue, l, last := p.jobs[at:end], p.loads[device], 0.0
		for _, c := range queue {
			last = math.Max(last, l.add(c.job, c.expected[device]).out)
		}
		if device == Host {
			host = last
		} else {
			others = math.Max(others, last)
		}
		at = end
	}
	return host, others
}

// spread divides tasks between several GPUs: the longest first, each where it is expected to end first.
func (p *draft) spread(jobs []*candidate) {
	usable := 0
	for d := range p.devices {
		if d != Host && p.usable[d] {
			usable++
		}
	}
	if usable < 2 {
		return
	}
	slices.SortStableFunc(jobs, func(a, b *candidate) int { return cmp.Compare(b.least, a.least) })
	loads := slices.Clone(p.loads)
	for _, c := range jobs {
		first := math.Inf(1)
		for d := 1; d < len(p.devices); d++ {
			l := loads[d]
			if end := l.add(c.job, c.expected[d]).out; p.usable[d] && end < first {
				c.to, first = d, end
			}
		}
		loads[c.to].add(c.job, c.expected[c.to])
	}
}

// adopt makes a plan the queues of the devices. Tasks that have begun since it was drafted stay where they are, tasks
// that have arrived since come last.
func (s *Scheduler) adopt(p *draft) {
	s.Plans++
	s.prices = p.prices
	var arrived []*Job
	for i := range s.devices {
		d := &s.devices[i]
		for _, j := range d.queue {
			if j.draft != s.drafts {
				arrived = append(arrived, j)
			}
		}
		d.queue, d.backlog, d.slotTime = nil, Times{}, 0
	}
	s.waiting = 0
	for _, c := range p.jobs {
		if j := c.job; j.queued {
			to := c.to
			if !s.takes(to, j) {
				to = j.device
			}
			if to != j.device {
				s.Moved++
			}
			s.enqueue(j, to)
		}
	}
	for _, j := range arrived {
		s.enqueue(j, j.device)
	}
}
