package schedule

import "math"

// The resources that tasks share: the CPU; of the GPUs the engines that copy in, work and copy out, and the slots.
const (
	onHost = iota
	copyIn
	work
	copyOut
	slotTime
	resources
)

// costs are how long a task occupies each resource.
type costs [resources]float64

// costsOn returns what a task costs of the resources of the GPUs if it takes these times on each.
func costsOn(d *Device, j *Job, t Times, gpus int) (c costs) {
	n := float64(gpus)
	if !j.Shares {
		c[copyIn], c[work], c[copyOut] = t.In/n, t.Run/n, t.Out/n
	}
	c[slotTime] = t.Total() / n / float64(d.Slots)
	return c
}

// prices are what a unit of time of each resource is worth. They are the variables of the dual of a linear program.
type prices [resources]float64

// gpu returns what a task costs on a GPU.
func (p *prices) gpu(c *costs) (sum float64) {
	for r := copyIn; r < resources; r++ {
		sum += p[r] * c[r]
	}
	return sum
}

// LowerBound returns a time in us that no schedule of the tasks can beat, the greater of
//
//   - the fractional assignment: the least T in which the CPU and each resource of the GPUs have done the tasks, of
//     which any part may run on either;
//   - the longest task, on the device where it is shortest, after it has arrived.
//
// The first is a linear program. By duality it is the greatest value, over prices of the resources with the sum 1, of
// the sum over tasks of the lesser of price_host host and price_in in + price_work work + price_out out + price_slot
// (in + work + out) / slots, all of these divided by the number of GPUs. Any prices give a bound, so that an inexact
// search only gives a lower one. Of several GPUs the least time counts for all.
func LowerBound(devices []Device, jobs []Job, truth Truth) float64 {
	longest, sum, gpus := 0.0, 0.0, len(devices)-1
	all := make([]costs, len(jobs))
	for i := range jobs {
		j, c := &jobs[i], &all[i]
		host := truth(j, Host).Total()
		least := host
		for r := range c {
			c[r] = math.Inf(1)
		}
		for d := 1; d < len(devices); d++ {
			t := truth(j, d)
			if j.Input != nil { // another task may have brought it
				t.In = 0
			}
			least = math.Min(least, t.Total())
			for r, v := range costsOn(&devices[d], j, t, gpus) {
				c[r] = math.Min(c[r], v)
			}
		}
		c[onHost] = host
		sum += host
		longest = math.Max(longest, j.Arrive+least)
	}
	if gpus == 0 {
		return math.Max(sum, longest)
	}
	var p prices
	return math.Max(p.search(all, 2000), longest)
}

// search improves prices by mirror ascent (exponentiated gradients; Kivinen and Warmuth, 1997), from equal ones if all
// are 0, and returns the greatest bound that it found.
func (p *prices) search(all []costs, steps int) (best float64) {
	at := *p
	if at == (prices{}) {
		for r := range at {
			at[r] = 1.0 / resources
		}
	}
	for step := range steps {
		var busy costs // each resource, under these prices
		value := 0.0
		for i := range all {
			c := &all[i]
			if host, gpu := at[onHost]*c[onHost], at.gpu(c); host < gpu {
				value += host
				busy[onHost] += c[onHost]
			} else {
				value += gpu
				for r := copyIn; r < resources; r++ {
					busy[r] += c[r]
				}
			}
		}
		if value > best {
			best, *p = value, at
		}
		most, sum := 0.0, 0.0
		for _, b := range busy {
			most = math.Max(most, b)
		}
		if most == 0 {
			break
		}
		for r := range at {
			at[r] *= math.Exp(busy[r] / most / math.Sqrt(1+float64(step)))
			sum += at[r]
		}
		for r := range at { // a price of 0 could not rise again
			at[r] = math.Max(at[r]/sum, 1e-9)
		}
	}
	return best
}
