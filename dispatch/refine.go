package dispatch

import (
	"math"
	"slices"

	"gpt2scope/internal/stats"
)

// Constants of the refinement. Residuals are logarithms of observed over predicted time.
const (
	dropped  = 1    // first samples of a kind of task on a device, which load and warm up
	needed   = 10   // samples before a correction is used
	forget   = 0.95 // what a sample still weighs when the next comes
	huberK   = 1.345
	leastDev = 0.03 // the least scale of residuals, so that equal times do not make every other an outlier
	runClass = 3    // samples in a row beyond the threshold that are a drift of a kind of task, of two sizes at least
	runAll   = 3    // and of a device, of two kinds of task at least
	beyond   = 2.0  // scales that samples of a smaller shift are off, all on one side
	runShift = 4    // of those in a row
	lateBy   = 2.0  // times the refined prediction of jobs in a row
	lateUs   = 5000 // that these take beyond it, which is a drift however much they differ
)

// drifted is the ratio of observed to predicted time beyond which work that has not begun is
// decided again.
var drifted = math.Log(1.5)

// changed is how much of what plans take of a correction is worth a new plan, without a drift.
var changed = math.Log(1.2)

// location is the place of recent residuals: Huber's estimator, of which old samples weigh less.
type location struct {
	n      int     // samples, with the dropped ones
	at     float64 // where residuals lie
	scale  float64
	weight float64
	used   bool // at is trusted
	recent [runShift]float64
	kinds  [runShift]uint64 // the class of each recent one
	filled int
}

// add takes a residual of a kind of task. It tells whether the location jumped to the last ones: run of them lie
// beyond a ratio of 1.5 on one side, or runShift beyond what noise does.
func (l *location) add(r float64, kind uint64, run int) (drift bool) {
	if l.n++; l.n <= dropped {
		return false
	}
	copy(l.recent[1:], l.recent[:])
	copy(l.kinds[1:], l.kinds[:])
	l.recent[0], l.kinds[0] = r, kind
	l.filled = min(l.filled+1, runShift)
	if n, same := l.shift(run); n > 0 && !same {
		l.jump(n)
		return true
	}
	u := r - l.at
	if l.weight == 0 { // the first that counts
		l.at, l.weight, l.scale = r, 1, max(leastDev, math.Abs(r)/4)
		return false
	}
	l.weight = forget*l.weight + 1
	bound := huberK * l.scale
	l.at += math.Max(-bound, math.Min(bound, u)) / l.weight
	square := math.Min(u*u, 4*bound*bound)
	l.scale = math.Max(leastDev, math.Sqrt(l.scale*l.scale+(square-l.scale*l.scale)/l.weight))
	l.used = l.used || l.n >= dropped+needed
	return false
}

// off tells whether the last n residuals are all further from the location than a distance, on one
// side, and near each other; same, whether all are of one kind. A size that is predicted wrong says nothing of others.
func (l *location) off(n int, distance float64) (off, same bool) {
	if l.filled < n {
		return false, false
	}
	up, down, same := true, true, true
	low, high := math.Inf(1), math.Inf(-1)
	for i, v := range l.recent[:n] {
		up = up && v-l.trusted() > distance
		down = down && l.trusted()-v > distance
		low, high = math.Min(low, v), math.Max(high, v)
		same = same && l.kinds[i] == l.kinds[0]
	}
	return (up || down) && high-low < 2*drifted, same
}

// shift returns how many of the last residuals show that times have shifted, 0 if none do, and whether these are all of one kind.
func (l *location) shift(run int) (n int, same bool) {
	if off, same := l.off(run, drifted); off {
		return run, same
	}
	if l.n > needed {
		if off, same := l.off(runShift, beyond*l.scale); off {
			return runShift, same
		}
	}
	return 0, false
}

// jump moves the location to the median of the last n residuals.
func (l *location) jump(n int) {
	last := l.recent
	slices.Sort(last[:n])
	l.at, l.weight, l.used, l.filled = stats.Median(last[:n]), float64(n), true, 0
	l.scale = max(leastDev, (last[n-1]-last[0])/2)
}

// trusted returns the location, 0 before enough samples are known.
func (l *location) trusted() float64 {
	if l.used {
		return l.at
	}
	return 0
}

// Refinement corrects predictions by what was observed, by kind of task and device.
type Refinement struct {
	classes [][]location // by device and class: what is beyond the device's
	devices []location
	seen    [][]int // by device and class: the observation at which it was last seen, 0: never
	count   int
	of      []int // by device: observations
	last    []int // by device: the class of the last one
	late    []lateness
}

// lateness is of the last jobs of a device that were all late.
type lateness struct{ lostUs, least float64 } // beyond predictions; the least ratio to one

// NewRefinement makes one that corrects nothing.
func NewRefinement(devices, classes int) *Refinement {
	r := &Refinement{devices: make([]location, devices), of: make([]int, devices), last: make([]int, devices), late: make([]lateness, devices)}
	for range devices {
		r.classes = append(r.classes, make([]location, classes))
		r.seen = append(r.seen, make([]int, classes))
	}
	return r
}

// Factor is what multiplies a prediction.
func (r *Refinement) Factor(device, class int) float64 { return r.power(device, class, 1) }

// power is a power of Factor.
func (r *Refinement) power(device, class int, exponent float64) float64 {
	if at := r.devices[device].trusted() + r.classes[device][class].trusted(); at != 0 {
		return math.Exp(exponent * at)
	}
	return 1
}

// Observe learns from a job of a size, any number that tells sizes apart, whose time the model itself,
// uncorrected, had predicted. It tells whether the times of the device or of the kind of task have drifted.
func (r *Refinement) Observe(device, class int, size, observed, predicted float64) (drift bool) {
	r.count++
	r.of[device]++
	r.last[device] = class
	r.seen[device][class] = r.count
	if !(observed > 0) || !(predicted > 0) {
		return false
	}
	if r.isLate(device, observed, predicted*r.Factor(device, class)) {
		return true
	}
	residual := math.Log(observed / predicted)
	own, all := &r.classes[device][class], &r.devices[device]
	if own.n == 0 && residual > 0 { // loading and warming up; what was faster than predicted was not that
		own.n = dropped
		return false
	}
	own.n, all.n = max(own.n, dropped), max(all.n, dropped)
	if all.add(residual-own.trusted(), uint64(class), runAll) {
		for i := range r.classes[device] { // their last samples were of the time before
			r.classes[device][i].filled = 0
		}
		return true
	}
	return own.add(residual-all.trusted(), math.Float64bits(size), runClass)
}

// isLate corrects a device once its last jobs, all late, have lost much time: threads that wait for others' time slices take some times or some hundred
// times as long, which shows nothing that jobs agree on, but that none is on time. The least of their ratios is believed.
func (r *Refinement) isLate(device int, observed, expected float64) bool {
	l := &r.late[device]
	ratio := observed / expected
	if ratio < lateBy {
		*l = lateness{}
		return false
	}
	if l.lostUs == 0 || ratio < l.least {
		l.least = ratio
	}
	if l.lostUs += observed - expected; l.lostUs < lateUs {
		return false
	}
	all := &r.devices[device]
	all.at, all.weight, all.used, all.filled = all.trusted()+math.Log(l.least), runAll, true, 0
	for i := range r.classes[device] { // as after a jump
		r.classes[device][i].filled = 0
	}
	*l = lateness{}
	return true
}

// doubt is about the last jobs of a device, which were all off, but all of one kind: either their prediction is wrong, or the device has
// changed. A job of another kind tells.
type doubt struct {
	class int
	size  uint64 // that all were of; not used if the class is in question
	sizes bool   // jobs of the class of other sizes tell; else those of other classes
}

// doubts returns the doubt about a device, false if there is none.
func (r *Refinement) doubts(device int) (doubt, bool) {
	if n, same := r.devices[device].shift(runAll); n > 0 && same {
		return doubt{class: int(r.devices[device].kinds[0])}, true
	}
	class := r.last[device]
	l := &r.classes[device][class]
	n, same := l.shift(runClass)
	return doubt{class, l.kinds[0], true}, n > 0 && same
}

// settledBy tells whether a job on a device settles the doubt about it.
func (d doubt) settledBy(j *Job, device int) bool {
	if d.sizes {
		return j.Class == d.class && math.Float64bits(j.Work[device].FloorUs) != d.size
	}
	return j.Class != d.class
}

// verified tells whether a device has run so many jobs that its drift would have been found.
func (r *Refinement) verified(device int) bool { return r.of[device] >= runAll }

// trust keeps how far refined predictions are off.
type trust struct {
	n     int
	error float64 // of the logarithm, a moving mean
}

const trustForget = 0.9

func (t *trust) add(observed, predicted float64) {
	e := math.Min(3, math.Abs(math.Log(observed/predicted)))
	if t.n++; t.n == 1 {
		t.error = e
	}
	t.error = trustForget*t.error + (1-trustForget)*e
}

// fresh tells whether a kind of task was seen on a device among the last observations.
func (r *Refinement) fresh(device, class, within int) bool {
	at := r.seen[device][class]
	return at > 0 && r.count-at <= within
}
