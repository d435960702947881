package schedule

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// candidate is a task that a plan places.
type candidate struct {
	*Job
	to       int     // device
	expected []Times // by device
	gain     float64 // its time on the CPU over what it takes of all resources of the GPU where it is fastest
	least    float64 // its least time
	rank     int     // in the order of gains
}

// plan divides all waiting tasks between the devices. The CPU gets those that gain least on a GPU, as many as make CPU
// and GPUs end at about the same time. Each device begins with the longest.
func (s *Scheduler) plan(now float64) {
	s.Plans++
	var all []candidate
	var gpus []int
	for i := range s.devices {
		d := &s.devices[i]
		if i != Host && s.usable(i) {
			gpus = append(gpus, i)
		}
		for k := range d.ratios {
			d.ratios[k].planned = d.ratios[k].log
		}
		for _, j := range d.queue {
			all = append(all, candidate{Job: j})
		}
		d.queue, d.backlog = nil, costs{}
	}
	expected := make([]Times, len(all)*len(s.devices))
	for i := range all {
		c := &all[i]
		c.expected, expected = expected[:len(s.devices)], expected[len(s.devices):]
		c.expected[Host] = s.expect(c.Job, Host)
		host, fastest := c.expected[Host].Total(), math.Inf(1)
		for _, d := range gpus {
			c.expected[d] = s.expect(c.Job, d)
			if us := c.expected[d].Total(); us < fastest && s.room(d, c.Job) {
				costs := s.devices[d].costsOf(c.Job, c.expected[d])
				fastest, c.gain = us, host/(costs[0]+costs[1]+costs[2]+costs[3])
			}
		}
		c.least = math.Min(host, fastest)
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.gain, b.gain), cmp.Compare(a.ID, b.ID))
	})
	for i := range all {
		all[i].rank = i
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.least, a.least), cmp.Compare(a.ID, b.ID))
	})
	// divide gives the first n by gain to the CPU and the others to GPUs, and returns when both end.
	divide := func(n int) (onHost, onGPUs float64) {
		loads := make([]load, len(s.devices))
		for d := range loads {
			loads[d] = s.load(d, now)
		}
		for i := range all {
			c, first := &all[i], math.Inf(1)
			next := loads[Host]
			next.add(c.Job, c.expected[Host])
			c.to = Host
			for _, d := range gpus {
				if c.rank < n || !s.room(d, c.Job) {
					continue
				}
				l := loads[d]
				if end := l.add(c.Job, c.expected[d]).out; end < first {
					c.to, first, next = d, end, l
				}
			}
			loads[c.to] = next
			if c.to != Host {
				onGPUs = math.Max(onGPUs, first)
			}
		}
		return loads[Host].slots[0], onGPUs
	}
	n := sort.Search(len(all), func(n int) bool { host, gpus := divide(n); return host >= gpus })
	before, _ := divide(n)
	if _, fewer := divide(n - 1); before > fewer {
		n--
	}
	divide(n)
	s.waiting = 0
	for _, c := range all {
		if c.to != c.device {
			s.Moved++
		}
		s.enqueue(c.Job, c.to)
	}
	s.changes, s.stale = 0, false
}
