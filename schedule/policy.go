package schedule

// Policy is how a scheduler decides.
type Policy struct {
	Name    string
	Predict Predictor

	Fixed func(*Job) int // the device of each task; nil: the one with the earliest expected finish
	Plan  bool           // divide waiting tasks anew, and let idle devices steal
	Learn bool           // correct predictions by measured times
}

// Ours is the policy of this package.
func Ours(p Predictor) Policy { return Policy{Name: "ours", Predict: p, Plan: true, Learn: true} }

// Oracle plans with true times.
func Oracle(t Truth) Policy { return Policy{Name: "oracle", Predict: Predictor(t), Plan: true} }

// Always puts all tasks on one device.
func Always(name string, device int, p Predictor) Policy {
	return Policy{Name: "always " + name, Predict: p, Fixed: func(*Job) int { return device }}
}

// Threshold puts tasks whose size is at least a bound on a device, and the others on the CPU.
func Threshold(size func(*Job) float64, bound float64, device int, p Predictor) Policy {
	return Policy{Name: "best threshold", Predict: p, Fixed: func(j *Job) int {
		if size(j) >= bound {
			return device
		}
		return Host
	}}
}
