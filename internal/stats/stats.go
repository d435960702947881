// Package stats has quantiles of sorted values, for all tables alike.
package stats

// Quantile returns the q-quantile of sorted values by the nearest rank, one of the
// values itself; 0 if there are none.
func Quantile[T ~int64 | ~float64](sorted []T, q float64) T {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

// Median returns the middle of sorted values, or the mean of the two in the middle; 0
// if there are none.
func Median[T ~int64 | ~float64](sorted []T) T {
	n := len(sorted)
	if n == 0 {
		return 0
	}
	low, high := sorted[(n-1)/2], sorted[n/2]
	return low + (high-low)/2
}
