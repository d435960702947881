package predict

import "math"

// Few chooses which works of a device to measure where only few can be: at most so many of each task. They are those whose times tell most about
// the times of all, by the process that [Fit] fits (Krause, Singh and Guestrin, "Near-Optimal Sensor Placements in Gaussian
// Processes", 2008): one after another, each lowers the sum of the variances that are left the most. No time is needed for that. The
// result is indices of works, those that tell most first.
func Few(kind string, works []Work, each int) []int {
	p, n := process{}, len(works)
	p.reach(kind)
	base, noise := levelsOf(kind)
	p.set(&base, 1)
	all, at := make([]labels, n), make([]place, n)
	for i := range works {
		w := &works[i]
		all[i], at[i] = labels{w.Task, w.DType, kind, kind, w.Memory}, p.placeOf(w) // all of one device, whatever its name
	}
	left := make([][]float64, n) // covariance of all works, given those that were chosen
	for i := range n {
		left[i] = make([]float64, n)
		for j := range i + 1 {
			left[i][j] = p.kernel(&all[i], &all[j], &at[i], &at[j])
			left[j][i] = left[i][j]
		}
	}
	chosen, taken, ofTask := []int{}, make([]bool, n), map[string]int{}
	for {
		best, most := -1, 0.0
		for i, row := range left {
			if taken[i] || ofTask[works[i].Task] >= each {
				continue
			}
			gain := 0.0
			for _, v := range row {
				gain += v * v
			}
			if gain /= row[i] + noise*noise; best < 0 || gain > most {
				best, most = i, gain
			}
		}
		if best < 0 {
			return chosen
		}
		chosen, taken[best] = append(chosen, best), true
		ofTask[works[best].Task]++
		row := append([]float64(nil), left[best]...)
		variance := row[best] + noise*noise
		for i := range left {
			f := row[i] / variance
			if math.Abs(f) < 1e-12 {
				continue
			}
			for j, v := range row {
				left[i][j] -= f * v
			}
		}
	}
}
