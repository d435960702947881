package diff

import (
	"math"
	"slices"
	"sort"

	"github.com/aclements/go-moremath/stats"
	"golang.org/x/perf/benchmath"
)

// fewest is how many values a sample needs for a verdict: the spread of three or fewer is not
// known, whatever a test says.
const fewest = 4

// Sample summarises the durations of one row in the passes of a trace, in ns.
type Sample struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`

	// Low and High are the confidence interval of the median; nil if there are too few
	// values for one. They are values of the sample (order statistics) and assume no
	// distribution.
	Low  *float64 `json:"low,omitempty"`
	High *float64 `json:"high,omitempty"`
}

// sampleOf summarises durations.
func sampleOf(values []int64, alpha float64) *Sample {
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

// shifts finds confidence intervals of how much longer one sample is than another.
type shifts struct {
	alpha float64
	order map[[2]int]int // by the sizes
}

// interval returns the least and greatest shift of b above a that the U test would not
// reject at alpha: of the differences of all pairs, the k-th least and the k-th greatest (Lehmann, "Nonparametrics", 1975, section 2.6; after
// Hodges and Lehmann, and Moses). ok is false if there are too few pairs. Both
// samples must be sorted.
func (s *shifts) interval(a, b []int64) (low, high int64, ok bool) {
	k := s.rank(len(a), len(b))
	if k < 1 {
		return 0, 0, false
	}
	pairs := len(a) * len(b)
	return nthDifference(a, b, k), nthDifference(a, b, pairs-k+1), true
}

// rank returns which of the differences in order, counted from 1, bounds the
// interval: the greatest k for which U < k has a probability of at most alpha/2.
func (s *shifts) rank(n, m int) int {
	key := [2]int{n, m}
	k, ok := s.order[key]
	if ok {
		return k
	}
	nm, sum := float64(n)*float64(m), float64(n)+float64(m)+1
	if limit := stats.MannWhitneyExactLimit; n <= limit && m <= limit {
		d := stats.UDist{N1: n, N2: m}
		k = sort.Search(n*m, func(u int) bool { return d.CDF(float64(u)) > s.alpha/2 })
	} else {
		z := math.Sqrt2 * math.Erfinv(1-s.alpha)
		k = int(math.Floor(nm/2 - z*math.Sqrt(nm*sum/12)))
	}
	s.order[key] = k
	return k
}

// nthDifference returns the k-th least b - a of all pairs, counted from 1, by
// bisection: there may be too many pairs to list. Both are sorted.
func nthDifference(a, b []int64, k int) int64 {
	low, high := b[0]-a[len(a)-1], b[len(b)-1]-a[0]
	for low < high {
		mid := low + (high-low)/2
		// How many pairs differ by at most mid; the first b beyond moves up with a.
		count, j := 0, 0
		for _, x := range a {
			for j < len(b) && b[j] <= x+mid {
				j++
			}
			count += j
		}
		if count >= k {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}

// adjust corrects p values for their number by the procedure of Benjamini and
// Hochberg ("Controlling the False Discovery Rate", 1995): of the differences with
// an adjusted p below alpha, a share of at most alpha is expected to be chance.
func adjust(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		if p[i] < p[j] {
			return -1
		}
		if p[i] > p[j] {
			return 1
		}
		return 0
	})
	out := make([]float64, len(p))
	least := 1.0
	for rank := len(p); rank > 0; rank-- {
		i := order[rank-1]
		least = min(least, p[i]*float64(len(p))/float64(rank))
		out[i] = least
	}
	return out
}
