package diff

import (
	"cmp"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// fewest is how many values a sample needs for a verdict: the spread of three or fewer is not
// known, whatever a test says.
const fewest = 4

// Sample summarises the durations of one row in the passes of a trace, in ns.
type Sample struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`

	// Low and High are the confidence interval of the median; nil if there are too few values for one. They are values
	// of the sample (order statistics) and assume no distribution.
	Low  *float64 `json:"low,omitempty"`
	High *float64 `json:"high,omitempty"`
}

// sampleOf summarises durations; nil if there are none.
func sampleOf(values []int64, alpha float64) *Sample {
	if len(values) == 0 {
		return nil
	}
	s := benchmath.AssumeNothing.Summary(benchSample(values, alpha), 1-alpha)
	return &Sample{N: len(values), Median: s.Center, Low: finite(s.Lo), High: finite(s.Hi)}
}

func benchSample(values []int64, alpha float64) *benchmath.Sample {
	list := make([]float64, len(values))
	for i, v := range values {
		list[i] = float64(v)
	}
	return benchmath.NewSample(list, &benchmath.Thresholds{CompareAlpha: alpha})
}

// finite returns nil for what JSON cannot say.
func finite(x float64) *float64 {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return nil
	}
	return &x
}

// enough reports whether samples of such sizes can show a difference at all: whether
// the least p that the U test has for them, 2 / C(n+m, n), is below alpha.
func enough(n, m int, alpha float64) bool {
	if n < fewest || m < fewest {
		return false
	}
	p := 2.0
	for i := 1; i <= min(n, m) && p > 1e-300; i++ { // 1/C(n+m, min) = product of i / (max+i)
		p *= float64(i) / float64(max(n, m)+i)
	}
	return p <= alpha
}

// pValue is that of the Mann-Whitney U test, two-sided, corrected for ties: how
// likely samples of one distribution differ as much. It is exact for small samples.
func pValue(a, b []int64, alpha float64) float64 {
	return benchmath.AssumeNothing.Compare(benchSample(a, alpha), benchSample(b, alpha)).P
}

// adjust corrects p values for their number by the procedure of Benjamini and
// Hochberg ("Controlling the False Discovery Rate", 1995): of the differences with
// an adjusted p below alpha, a share of at most alpha is expected to be chance.
func adjust(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(p[i], p[j]) })
	out := make([]float64, len(p))
	least := 1.0
	for rank := len(p); rank > 0; rank-- {
		i := order[rank-1]
		least = min(least, p[i]*float64(len(p))/float64(rank))
		out[i] = least
	}
	return out
}
