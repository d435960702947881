package tables

import (
	"slices"

	"gpt2scope/internal/stats"
)

// Spread describes a list of times in ns. All fields are 0 if there are none.
type Spread struct {
	Mean   float64 `json:"mean"`
	StdDev float64 `json:"stddev"` // of a sample, with n-1, as nsys stats has it; 0 of one time
	Min    int64   `json:"min"`
	P25    int64   `json:"p25"` // quantiles by the nearest rank
	Median int64   `json:"median"`
	P75    int64   `json:"p75"`
	P95    int64   `json:"p95"`
	P99    int64   `json:"p99"`
	Max    int64   `json:"max"`
}

// spreadOf describes times, which it sorts.
func spreadOf(times []int64) Spread {
	n := len(times)
	if n == 0 {
		return Spread{}
	}
	slices.Sort(times)
	s := Spread{Min: times[0], P25: stats.Quantile(times, 0.25), Median: stats.Median(times),
		P75: stats.Quantile(times, 0.75),
		P95: stats.Quantile(times, 0.95), P99: stats.Quantile(times, 0.99), Max: times[n-1]}
	s.Mean, s.StdDev = stats.MeanStdDev(times)
	return s
}
