// Package stats has quantiles of sorted values, for all tables alike.
package stats

// Quantile returns the q-quantile of sorted values, by the nearest rank: one of the
// values itself. There is at least one value.
func Quantile[T any](sorted []T, q float64) T {
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

// Median returns the middle of sorted values; of an even number the upper of the two.
func Median[T any](sorted []T) T { return sorted[len(sorted)/2] }
