package schedule

import (
	"math"
	"slices"
)

// Simulation is a stream of tasks and what it meets.
type Simulation struct {
	Devices []Device
	Jobs    []Job // in the order of their arrivals; each run works on copies
	Kinds   []string
	Truth   Predictor
}

// Run runs the stream under a policy on a simulated clock. Devices work as [load] says.
func (m *Simulation) Run(p Policy) Result {
	type running struct {
		*Job
		device int
		times  Times
		end    float64
	}
	jobs := slices.Clone(m.Jobs)
	s, result := New(m.Devices, len(m.Kinds), p), newResult(p, m.Devices)
	loads := make([]load, len(m.Devices))
	for d := range loads {
		loads[d].n = m.Devices[d].Slots
	}
	var inFlight []running
	for now, arrived := 0.0, 0; !math.IsInf(now, 1); {
		for ; arrived < len(jobs) && jobs[arrived].Arrive <= now; arrived++ {
			s.Submit(&jobs[arrived], now)
		}
		inFlight = slices.DeleteFunc(inFlight, func(r running) bool {
			if r.end > now {
				return false
			}
			s.Finish(r.device, r.Job, r.times)
			result.add(r.Job, r.device, r.times, now)
			return true
		})
		for again := true; again; {
			again = false
			for d := range m.Devices {
				j := s.Next(d, now)
				if j == nil {
					continue
				}
				again = true
				l := &loads[d]
				for k := range l.slots {
					l.slots[k] = math.Max(l.slots[k], now)
				}
				t := m.Truth(j, d)
				inFlight = append(inFlight, running{j, d, t, l.add(j, t).out})
			}
		}
		next := math.Inf(1)
		if arrived < len(jobs) {
			next = jobs[arrived].Arrive
		}
		for _, r := range inFlight {
			next = math.Min(next, r.end)
		}
		if p.Plan && s.waiting > 0 {
			next = math.Min(next, now+LookAgain)
		}
		now = next
	}
	return result.finish(s)
}
