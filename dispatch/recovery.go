package dispatch

import (
	"cmp"
	"math"
	"slices"

	"gpt2scope/internal/stats"
)

// Recovery says how soon predictions of a device held again after something changed there, such as other load.
type Recovery struct {
	Tasks  int     // that the device ran before: see recoveryWindow
	Ever   bool    // they held again; if not, Tasks are all
	LostUs float64 // time of Tasks beyond their usual time on the best other device; those that took less do not count
}

// recoveryWindow is a number of jobs. Predictions of a device hold from a job on if observed over predicted time is within a factor of 1.5 in the median of so many jobs from
// that one on, and in that of as many after these. Too long and too short ones cancel: single jobs are off by more than that for many reasons, also where nothing has changed.
const recoveryWindow = 5

// Recovery returns how soon the predictions of a device held, of the jobs that began at a time or later, in us. usual are the usual
// times of jobs.
func (r Result) Recovery(device int, since float64, usual Truth) Recovery {
	var done []Done
	var off []float64
	for _, d := range r.Done {
		if d.Device == device && d.Actual.Start >= since {
			done = append(done, d)
		}
	}
	slices.SortStableFunc(done, func(a, b Done) int { return cmp.Compare(a.Actual.End, b.Actual.End) }) // as predictions were corrected
	for _, d := range done {
		off = append(off, math.Log(d.Times.Total()/d.Decided.Total()))
	}
	holds := func(from int) bool {
		some := off[min(from, len(off)):min(from+recoveryWindow, len(off))]
		return len(some) == 0 || math.Abs(stats.MedianOf(some)) <= drifted
	}
	out := Recovery{Tasks: len(done)}
	for k := range done {
		if holds(k) && holds(k+recoveryWindow) {
			out.Tasks, out.Ever = k, true
			break
		}
	}
	for _, d := range done[:out.Tasks] {
		if late := d.Times.Total() - r.best(d.Job, device, usual); late > 0 { // not if there is no other device
			out.LostUs += late
		}
	}
	return out
}

// medianRecovery sorts the recoveries of several runs, the soonest first, and returns the one in the middle, by tasks, and the median of what was lost. A run in which predictions never held is behind all others.
func medianRecovery(all []Recovery) (r Recovery) {
	slices.SortFunc(all, func(a, b Recovery) int {
		if a.Ever != b.Ever {
			if a.Ever {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Tasks, b.Tasks)
	})
	var lost []float64
	for _, one := range all {
		lost = append(lost, one.LostUs)
	}
	r = all[(len(all)-1)/2]
	r.LostUs = stats.MedianOf(lost)
	return r
}

// best returns the least usual time of a job on any device but one, in us; -1 leaves none out. It is infinite if there is no other.
func (r Result) best(j *Job, but int, usual Truth) float64 {
	least := math.Inf(1)
	for i := range r.Devices {
		if i != but {
			least = math.Min(least, usual.Times(i, j).Total())
		}
	}
	return least
}

// OverBest says how much longer jobs took than they usually take on the device that is best for each.
type OverBest struct{ GeoMean, P99, Worst float64 }

// OverBest returns it, zeros if no job has ended.
func (r Result) OverBest(usual Truth) (o OverBest) {
	var ratios []float64
	logs := 0.0
	for _, d := range r.Done {
		best := r.best(d.Job, -1, usual)
		ratios = append(ratios, d.Times.Total()/best)
		logs += math.Log(d.Times.Total() / best)
	}
	if len(ratios) == 0 {
		return o
	}
	slices.Sort(ratios)
	return OverBest{math.Exp(logs / float64(len(ratios))), stats.Quantile(ratios, 0.99), ratios[len(ratios)-1]}
}

// since returns when the results of a number of jobs were checked, 0 for none.
func (r Result) since(ended int) float64 {
	if ended < 1 || ended > len(r.Done) {
		return 0
	}
	return r.Done[ended-1].Checked
}
