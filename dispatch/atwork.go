package dispatch

// scaled is a truth in which jobs take a multiple of their times, by device and class.
type scaled struct {
	Truth
	by [][]float64
}

func (s scaled) Times(device int, j *Job) Times {
	t, f := s.Truth.Times(device, j), s.by[device][j.Class]
	return Times{t.In * f, t.Run * f, t.Out * f}
}

// workedShare is the share of a run in which each device must have worked for the run to tell what jobs take beside those of other devices.
const workedShare = 0.5

// AtWork returns what jobs take while other devices work too, as runs show it: the usual times, and for each device and kind of job a factor, all that such jobs
// took there over all that they usually take. That is more than usual, since caches hold the data of other jobs, and cores, memory and links are shared.
// Runs in which a device had little to do do not count. A kind that no such run had on a device takes as many times longer as all kinds do there. ok is false if there is no such run.
func AtWork(devices []Device, classes int, usual Truth, runs []Result) (truth Truth, ok bool) {
	took, usually := make([][]float64, len(devices)), make([][]float64, len(devices))
	for d := range devices {
		took[d], usually[d] = make([]float64, classes+1), make([]float64, classes+1) // at last the sums
	}
	for _, r := range runs {
		all := len(devices) > 1
		for _, busy := range r.Busy {
			all = all && busy >= workedShare*r.Makespan
		}
		if !all {
			continue
		}
		ok = true
		for i := range r.Done {
			d := &r.Done[i]
			a, b := d.Times.Total(), usual.Times(d.Device, d.Job).Total()
			for _, c := range []int{d.Job.Class, classes} {
				took[d.Device][c] += a
				usually[d.Device][c] += b
			}
		}
	}
	by := make([][]float64, len(devices))
	for d := range by {
		by[d] = make([]float64, classes)
		for c := range by[d] {
			from := c
			if usually[d][c] == 0 {
				from = classes
			}
			by[d][c] = 1
			if usually[d][from] > 0 {
				by[d][c] = took[d][from] / usually[d][from]
			}
		}
	}
	return scaled{usual, by}, ok
}
