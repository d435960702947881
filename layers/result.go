package layers

import "fmt"

const resultVersion = 1

// notAll begins a note if measurements are missing.
const notAll = "Not all is measured"

// NotAll is the note of a result of which only so many measurements are done.
func NotAll(done, total int) string {
	return fmt.Sprintf("%s: %d of %d measurements are done; the same command tries the others.", notAll, done, total)
}

// Result is what layers.json holds: all that an experiment found.
type Result struct {
	Version       int            `json:"version"` // of this format: 1
	Configuration map[string]any `json:"configuration"`
	Command       []string       `json:"command"`
	Variants      []Variant      `json:"variants"`
	Fits          []Fit          `json:"fits,omitempty"`
	Predictions   []Prediction   `json:"predictions,omitempty"`
	Predicted     []Variant      `json:"predicted_depths,omitempty"` // the depths to predict, with the metrics that are computed
	Computed      *Computed      `json:"computed"`                   // of what the summary is made, besides measurements
	BelowFloor    []string       `json:"below_floor,omitempty"`      // passes that are faster than their floors: "decode of 3"
	Notes         []string       `json:"notes,omitempty"`            // limits of the results, and measurements that were skipped
}

// Variant is one list of layers, and what was measured of it.
type Variant struct {
	Label  string `json:"label"`  // "4", "drop 2", "order 0,2,1"
	Kind   string `json:"kind"`   // "depth", "drop", "repeat", "order"; "verify": a depth to predict
	Layers int    `json:"layers"` // how many run
	Order  []int  `json:"order"`  // the run order

	// Metrics by name: "prefill time", "decode time" (ms), "prefill rate", "decode rate" (tokens/s), "launches" (of a
	// decode step), "predicted memory" (bytes), "parameters", "prefill FLOPs", "decode FLOPs", "prefill bytes",
	// "decode bytes", "prefill floor", "decode floor" (ms, the least time by the device's ceilings),
	// "prefill share of floor", "decode share of floor" (roofline %: floor / time),
	// "energy" (mJ per token), "bits per byte", "perplexity", "bits per token" (of a text that the whole model writes),
	// "agreement" (share of its tokens after which the most likely next one is full depth's), "draft time" (ms, of a
	// token of the whole model while this depth drafts; of the whole depth without drafts), "drafts" (verified at once),
	// "tokens a pass". A metric that could not be measured is absent.
	Metrics map[string]Metric `json:"metrics"`
}

// Metric is a median with an interval: see [Metric.Interval]. Of a metric that is computed rather than measured N is 1,
// and the interval is the value.
type Metric struct {
	Unit   string  `json:"unit"`
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	N      int     `json:"n"`
}

// Interval says what Low and High are; "" if they are the value.
func (m Metric) Interval() string {
	switch {
	case m.Low == m.High:
		return ""
	case m.N <= 1:
		return "uncertainty of the counter"
	case m.N < FewRepeats:
		return "least to greatest"
	}
	return "95 % interval"
}

// Fit is the line time(L) = A + B L by least squares, of one phase. If the times of all depths do not lie on a line,
// Rejected says why.
type Fit struct {
	Phase     string    `json:"phase"` // "prefill", "decode"
	Unit      string    `json:"unit"`  // "ms"
	A         float64   `json:"a"`     // everything but the layers
	AError    float64   `json:"a_se"`  // standard errors
	B         float64   `json:"b"`     // a layer
	BError    float64   `json:"b_se"`
	R2        float64   `json:"r2"`
	Depths    []int     `json:"depths"`    // that the line is fitted to
	Residuals []float64 `json:"residuals"` // measured median minus line

	// Rejected says why the times of all depths do not lie on a line, "" if they may. Steps are then the costs of a
	// layer between one depth and the next.
	Rejected string      `json:"rejected,omitempty"`
	Steps    []LayerStep `json:"steps,omitempty"`

	n       int
	mean    float64 // of the depths
	spread  float64 // sum of (depth - mean)^2
	scatter float64 // sqrt(sum of squared residuals / (n - 2))
}

// LayerStep is what a layer costs between two depths: the difference of their medians over that of the depths, with its
// standard error.
type LayerStep struct {
	From  int     `json:"from"`
	To    int     `json:"to"`
	Cost  float64 `json:"ms"`
	Error float64 `json:"se"`
}

// Prediction is what the fit says of a depth that was not in the sweep.
type Prediction struct {
	Layers    int      `json:"layers"`
	Metric    string   `json:"metric"` // "prefill time", "decode time"
	Unit      string   `json:"unit"`
	Value     float64  `json:"value"`
	Low       float64  `json:"low"` // 95 % prediction interval
	High      float64  `json:"high"`
	Measured  *float64 `json:"measured,omitempty"` // with --verify
	ErrorRate *float64 `json:"error,omitempty"`    // (value - measured) / measured
}
