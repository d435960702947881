package traces

import "encoding/json"

// Parts is a time of an SM in ns, divided by what the SM did. The zero value is that of an SM
// that has no part in a step.
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

// stretch makes the parts sum to ns, by the largest of them. Those of no SM stay zero.
func (p *Parts) stretch(ns int64) {
	sum := p.Sum()
	if sum == 0 {
		return
	}
	largest := &p.Weights
	for _, v := range p.fields() {
		if *v > *largest {
			largest = v
		}
	}
	*largest = max(0, *largest+ns-sum)
}

// Inside says what the SMs did during a step of a kernel that runs many steps, one after another. Such an event lasts
// from when the last SM published the outputs of the step before to when the last one published its own.
type Inside struct {
	Parts         // means over the SMs that have a part in the step; they sum to the event's duration
	SMs   int     // that have a part in the step
	Each  []Parts // of each SM; they sum to the event's duration, or are zero. nil if they were not kept
}

// insideFile is an Inside in a file: Each has the four times of each SM in turn.
type insideFile struct {
	SMs int `json:"sms"`
	Parts
	Each []int64 `json:"each,omitempty"`
}

func (in *Inside) MarshalJSON() ([]byte, error) {
	f := insideFile{SMs: in.SMs, Parts: in.Parts}
	for _, p := range in.Each {
		f.Each = append(f.Each, p.Weights, p.Inputs, p.Compute, p.Imbalance)
	}
	return json.Marshal(f)
}

func (in *Inside) UnmarshalJSON(text []byte) error {
	var f insideFile
	err := json.Unmarshal(text, &f)
	in.SMs, in.Parts = f.SMs, f.Parts
	for ns := f.Each; len(ns) >= 4; ns = ns[4:] {
		in.Each = append(in.Each, Parts{ns[0], ns[1], ns[2], ns[3]})
	}
	return err
}

// Fit makes the parts sum to a duration in ns from which rounding made them differ.
func (in *Inside) Fit(duration int64) {
	in.Parts.stretch(duration)
	for i := range in.Each {
		in.Each[i].stretch(duration)
	}
}

// maxSMs bounds the SMs of a device in a file.
const maxSMs = 4096

// check reports whether the parts are those of an event of a duration.
func (in *Inside) check(duration int64) bool {
	ok := func(p Parts) bool {
		for _, v := range p.fields() {
			if *v < 0 || *v > duration {
				return false
			}
		}
		return p.Sum() == duration
	}
	if in.SMs < 1 || in.SMs > maxSMs || len(in.Each) > maxSMs || !ok(in.Parts) {
		return false
	}
	for _, p := range in.Each {
		if p != (Parts{}) && !ok(p) {
			return false
		}
	}
	return true
}
