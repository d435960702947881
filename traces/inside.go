package traces

// Parts is a time of an SM in ns, divided by what the SM did.
type Parts struct {
	Weights   int64 `json:"weights"`   // waited for weights, or for keys and values
	Inputs    int64 `json:"inputs"`    // waited for what other SMs compute
	Compute   int64 `json:"compute"`   // from the inputs to its published outputs
	Imbalance int64 `json:"imbalance"` // waited until the last SM had published its own
}

func (p *Parts) fields() [4]*int64 { return [4]*int64{&p.Weights, &p.Inputs, &p.Compute, &p.Imbalance} }

// Sum returns the whole time.
func (p Parts) Sum() int64 { return p.Weights + p.Inputs + p.Compute + p.Imbalance }

// Add adds another time.
func (p *Parts) Add(o Parts) {
	p.Weights, p.Inputs, p.Compute, p.Imbalance = p.Weights+o.Weights, p.Inputs+o.Inputs, p.Compute+o.Compute,
		p.Imbalance+o.Imbalance
}

// Fit makes the parts sum to a duration in ns from which rounding made them differ, by the largest of them.
func (p *Parts) Fit(ns int64) {
	largest := &p.Weights
	for _, v := range p.fields() {
		if *v > *largest {
			largest = v
		}
	}
	*largest = max(0, *largest+ns-p.Sum())
}

// Inside says what the SMs did during a step of a kernel that runs many steps, one after another. Such an event lasts
// from when the last SM published the outputs of the step before to when the last one published its own.
type Inside struct {
	SMs   int `json:"sms"` // that have a part in the step
	Parts     // means over these; they sum to the event's duration
}

// maxSMs bounds the SMs of a device in a file.
const maxSMs = 4096

// check reports whether the parts are those of an event of a duration.
func (in *Inside) check(duration int64) bool {
	for _, v := range in.fields() {
		if *v < 0 || *v > duration {
			return false
		}
	}
	return in.SMs >= 1 && in.SMs <= maxSMs && in.Sum() == duration
}
