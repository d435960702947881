package dispatch

// Policy is how a scheduler decides. All policies share the scheduler; they differ in what they
// believe and in what they do with it.
type Policy struct {
	Name     string
	Believes Estimator

	// Fixed, if not nil, chooses the device of a job by itself.
	Fixed func(*Job) int

	// Plan plans all work that has not begun: anew where a device would idle, after a drift, and
	// once many jobs have come. Without it a job keeps the device it got when it came.
	Plan bool

	// Refine corrects the predictions by what is observed.
	Refine bool

	// Backup, if not nil, is believed instead while Believes is far off, even refined, and Backup is less than half as far off: a
	// model that is corrupted, or of another machine. Refine must be set.
	Backup Estimator

	// Explore runs a job on the device that it is predicted to be slower on, if that is cheap,
	// the predictions are uncertain, and the device has not run such a job.
	Explore bool
}

// Ours is the policy of this package with an estimator, and one that needs nothing fitted.
func Ours(e, backup Estimator) Policy {
	return Policy{Name: "ours", Believes: e, Plan: true, Refine: true, Backup: backup, Explore: true}
}

// DMDA is StarPU's policy of that name: each job goes, when it comes, where it is expected to
// finish first, data transfers included.
func DMDA(name string, e Estimator) Policy { return Policy{Name: name, Believes: e} }

// Oracle is Plan with true times.
func Oracle(truth Estimator) Policy { return Policy{Name: "oracle", Believes: truth, Plan: true} }

// Always puts all jobs on one device.
func Always(name string, device int, e Estimator) Policy {
	return Policy{Name: name, Believes: e, Fixed: func(*Job) int { return device }}
}

// Threshold puts the jobs whose size is at least a bound on a device, the others on the host.
func Threshold(size func(*Job) float64, bound float64, device int, e Estimator) Policy {
	return Policy{Name: "threshold", Believes: e, Fixed: func(j *Job) int {
		if size(j) >= bound {
			return device
		}
		return Host
	}}
}
