package schedule

import (
	"cmp"
	"math"
	"slices"
)

// candidate is a task that a plan places.
type candidate struct {
	*Job
	to    int     // device
	host  float64 // its time on the CPU
	gpu   float64 // its time on the GPU where it is fastest; endless if none takes it
	costs costs   // there
}

// plan divides all waiting tasks between the devices. The CPU gets those that gain least on a GPU, as many as make CPU
// and GPUs end at about the same time. Each device begins with the longest.
func (s *Scheduler) plan(now float64) {
	s.Plans++
	var all []candidate
	var gpus []int
	loads := make([]load, len(s.devices))
	for i := range s.devices {
		d := &s.devices[i]
		if loads[i] = s.load(i, now); i != Host && s.usable(i) {
			gpus = append(gpus, i)
		}
		for k := range d.ratios {
			d.ratios[k].planned = d.ratios[k].log
		}
		for _, j := range d.queue {
			all = append(all, candidate{Job: j, host: s.expect(j, Host).Total(), gpu: math.Inf(1)})
		}
		d.queue, d.backlog = nil, costs{}
	}
	share := 1 / float64(max(1, len(gpus)))
	onHost, onGPUs := loads[Host].slots[0], costs{} // when they end; the GPUs in the mean
	for _, d := range gpus {
		onGPUs = onGPUs.plus(loads[d].free(), share)
	}
	for i := range all {
		c := &all[i]
		for _, d := range gpus {
			if t := s.expect(c.Job, d); t.Total() < c.gpu && s.room(d, c.Job) {
				c.to, c.gpu, c.costs = d, t.Total(), s.devices[d].costsOf(c.Job, t)
			}
		}
		onGPUs = onGPUs.plus(c.costs, share)
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.host/a.gpu, b.host/b.gpu), cmp.Compare(a.ID, b.ID))
	})
	for i := range all {
		c := &all[i]
		rest := onGPUs.plus(c.costs, -share)
		if c.to != Host && math.Max(onHost+c.host, rest.most()) > math.Max(onHost, onGPUs.most()) {
			break
		}
		c.to, onHost, onGPUs = Host, onHost+c.host, rest
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(min(b.host, b.gpu), min(a.host, a.gpu)), cmp.Compare(a.ID, b.ID))
	})
	s.waiting = 0
	for _, c := range all {
		if first := math.Inf(1); c.to != Host {
			for _, d := range gpus {
				l := loads[d]
				if end := l.add(c.Job, s.expect(c.Job, d)).out; end < first && s.room(d, c.Job) {
					c.to, first = d, end
				}
			}
			loads[c.to].add(c.Job, s.expect(c.Job, c.to))
		}
		if c.to != c.device {
			s.Moved++
		}
		s.enqueue(c.Job, c.to)
	}
	s.changes, s.stale = 0, false
}
