package dispatch

import (
	"math"
	"slices"

	"gpt2scope/internal/stats"
)

// Choice is where a policy ran a job that was alone, and what that cost.
type Choice struct {
	Job         *Job
	Device      int
	Us, BestUs  float64 // there, and on the best device
	PredictedUs float64
}

// Grade says how good choices are.
type Grade struct {
	Policy  string
	N       int
	GeoMean float64 // of time over the best device's
	P99     float64 // of the same ratio
	Worst   float64
	Regret  float64 // time lost against the best devices, as a share of their time: cost-weighted
	Right   float64 // share of choices of the best device
	Choices []Choice
}

// Alone runs the jobs of a stream one after another, each with the machine to itself, and grades
// where they ran, by what they usually take: a repeat that was disturbed makes no choice wrong. Only the time of the
// chosen device is told to the policy.
func (m *Simulation) Alone(p Policy) Grade {
	s := New(m.Devices, m.Classes, p)
	g := Grade{Policy: p.Name, N: len(m.Jobs)}
	var ratios []float64
	logs, lost, all, right := 0.0, 0.0, 0.0, 0
	now := 0.0
	jobs := slices.Clone(m.Jobs)
	for i := range jobs {
		j := &jobs[i]
		best := math.Inf(1)
		times, usual := make([]Times, len(m.Devices)), make([]float64, len(m.Devices))
		for d := range m.Devices {
			times[d] = m.Truth.Times(d, j)
			usual[d] = times[d].Total()
			if m.Usual != nil {
				usual[d] = m.Usual.Times(d, j).Total()
			}
			best = math.Min(best, usual[d])
		}
		s.Submit(j, now)
		c := Choice{Job: j, BestUs: best}
		for d := range m.Devices {
			if s.Next(d, now) == nil {
				continue
			}
			c.Device, c.Us, c.PredictedUs = d, usual[d], j.estimates[d].Total()
			now += times[d].Total()
			s.Finish(d, j, times[d], now)
			break
		}
		g.Choices = append(g.Choices, c)
		ratio := c.Us / best
		ratios = append(ratios, ratio)
		logs += math.Log(ratio)
		lost += c.Us - best
		all += best
		if c.Us == best {
			right++
		}
	}
	if g.N == 0 {
		return g
	}
	slices.Sort(ratios)
	g.GeoMean = math.Exp(logs / float64(g.N))
	g.P99, g.Worst = stats.Quantile(ratios, 0.99), ratios[len(ratios)-1]
	g.Regret, g.Right = lost/all, float64(right)/float64(g.N)
	return g
}

// Recovered returns after how many jobs that a device ran, of the from-th job and later ones, its predictions
// hold again: the median error of the next window jobs on it is within a tolerance, such as 0.1, and stays
// there for as many more. It returns the number of all that the device ran if they never do.
func (g Grade) Recovered(device, from, window int, tolerance float64) int {
	var errors []float64
	for _, c := range g.Choices[min(from, len(g.Choices)):] {
		if c.Device == device {
			errors = append(errors, math.Abs(math.Log(c.PredictedUs/c.Us)))
		}
	}
	holds := func(k int) bool {
		if k+window > len(errors) {
			return false
		}
		return stats.MedianOf(errors[k:k+window]) <= tolerance
	}
	for k := range errors {
		if holds(k) && holds(k+window) {
			return k
		}
	}
	return len(errors)
}

// BestThreshold returns the bound of a size, in hindsight, with which choosing between host and a
// device by it alone takes the least time for the jobs of a stream.
func (m *Simulation) BestThreshold(device int, size func(*Job) float64, truth Truth) float64 {
	type job struct{ size, host, away float64 }
	var jobs []job
	total := 0.0
	for i := range m.Jobs {
		j := &m.Jobs[i]
		jobs = append(jobs, job{size(j), truth.Times(Host, j).Total(), truth.Times(device, j).Total()})
		total += jobs[i].away
	}
	slices.SortFunc(jobs, func(a, b job) int {
		switch {
		case a.size < b.size:
			return -1
		case a.size > b.size:
			return 1
		}
		return 0
	})
	bound, least := math.Inf(-1), total
	for i, j := range jobs {
		total += j.host - j.away
		if i+1 < len(jobs) && jobs[i+1].size == j.size {
			continue
		}
		if total < least {
			least, bound = total, math.Inf(1)
			if i+1 < len(jobs) {
				bound = jobs[i+1].size
			}
		}
	}
	return bound
}
