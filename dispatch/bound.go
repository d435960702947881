package dispatch

import (
	"math"
	"slices"
)

// resources are what jobs share: the host; of the GPUs the copies in, the work and the copies out, the places of jobs in flight,
// and the lanes.
const resources = 6

// costsOn returns what a job that takes these times on a GPU costs of each resource, if there are so many.
func costsOn(d *Device, j *Job, t Times, gpus int) (c [resources]float64) {
	n := float64(gpus)
	if d.inLane(j) {
		c[5] = t.Total() / n / float64(d.Lanes)
		return c
	}
	return [resources]float64{1: t.In / n, t.Run / n, t.Out / n, t.Total() / n / float64(d.InFlight)}
}

// LowerBound returns a time that no schedule of the jobs can beat, in us: the greater of
//
//   - the fractional assignment: the least T such that jobs, each cut into parts that run on the
//     host and on the GPUs, fit into T on the host, and on the GPUs into T for the copies in, the
//     work, the copies out, and for the places of jobs in flight, or into T for the lanes;
//   - the longest job, on the device where it is shortest, after it has arrived.
//
// The first is a linear program. By duality it is the greatest value, over weights of the
// resources that add up to 1, of the sum over jobs of the lesser of
//
//	w_host host    and    (w_in in + w_work work + w_out out + w_flight (in + work + out) / jobs in flight) / GPUs
//
// of which the second is w_lane (in + work + out) / lanes / GPUs for a job that takes a lane.
// Any weights give a bound, so that an inexact search only gives a lower one. With several GPUs, the
// least times of any count for all.
func LowerBound(devices []Device, jobs []Job, truth Truth) float64 {
	longest := 0.0
	gpus := len(devices) - 1
	costs := make([][resources]float64, len(jobs)) // of the host; of a GPU
	for i := range jobs {
		j := &jobs[i]
		c := &costs[i]
		c[0] = truth.Times(Host, j).Total()
		least := c[0]
		for r := 1; r < resources; r++ {
			c[r] = math.Inf(1)
		}
		for d := 1; d < len(devices); d++ {
			t := truth.Times(d, j)
			if len(j.Reads) > 0 { // another job may have brought all of it
				t.In = 0
			}
			least = math.Min(least, t.Total())
			for r, v := range costsOn(&devices[d], j, t, gpus) {
				if r > 0 {
					c[r] = math.Min(c[r], v)
				}
			}
		}
		longest = math.Max(longest, j.Arrive+least)
	}
	if gpus == 0 {
		sum := 0.0
		for _, c := range costs {
			sum += c[0]
		}
		return math.Max(sum, longest)
	}
	var w weights
	return math.Max(w.search(costs, 2000), longest)
}

// SerialBound is LowerBound if no device had lanes: if a GPU ran one job's kernels at a time.
func SerialBound(devices []Device, jobs []Job, truth Truth) float64 {
	serial := slices.Clone(devices)
	for i := range serial {
		serial[i].Lanes = 0
	}
	return LowerBound(serial, jobs, truth)
}

// weights are what a unit of time of each resource is worth: the variables of the dual.
type weights [resources]float64

// onGPU returns what a job costs that takes so much of each resource of the GPUs.
func (w *weights) onGPU(c *[resources]float64) float64 {
	return w[1]*c[1] + w[2]*c[2] + w[3]*c[3] + w[4]*c[4] + w[5]*c[5]
}

// search changes weights by mirror ascent (exponentiated gradients; Kivinen and Warmuth, 1997), and
// returns the greatest bound that it met, with its weights in w. It begins with w, or with equal
// weights if w is 0.
func (w *weights) search(costs [][resources]float64, steps int) (best float64) {
	at := *w
	if at == (weights{}) {
		for r := range at {
			at[r] = 1.0 / resources
		}
	}
	for step := range steps {
		var gradient [resources]float64 // what each resource has to do under these weights
		value := 0.0
		for i := range costs {
			c := &costs[i]
			gpu := at.onGPU(c)
			if host := at[0] * c[0]; host < gpu {
				value += host
				gradient[0] += c[0]
			} else {
				value += gpu
				for r := 1; r < resources; r++ {
					gradient[r] += c[r]
				}
			}
		}
		if value > best {
			best, *w = value, at
		}
		most, sum := 0.0, 0.0
		for _, g := range gradient {
			most = math.Max(most, g)
		}
		if most == 0 {
			break
		}
		for r := range at {
			at[r] *= math.Exp(gradient[r] / most / math.Sqrt(1+float64(step)))
			sum += at[r]
		}
		for r := range at { // none becomes 0, from where it could not rise
			at[r] = math.Max(at[r]/sum, 1e-9)
		}
	}
	return best
}
