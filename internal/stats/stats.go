// Package stats has quantiles and means, for all tables alike.
package stats

import (
	"math"
	"slices"
)

// Quantile returns the q-quantile of sorted values by the nearest rank, one of the values itself; 0 if there are none.
func Quantile[T ~int64 | ~float64](sorted []T, q float64) T {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

// Median returns the middle of sorted values, or the mean of the two in the middle; 0 if there are none.
func Median[T ~int64 | ~float64](sorted []T) T {
	n := len(sorted)
	if n == 0 {
		return 0
	}
	low, high := sorted[(n-1)/2], sorted[n/2]
	return low + (high-low)/2
}

// MedianOf returns the median of values in any order, which it leaves as they are.
func MedianOf[T ~int64 | ~float64](values []T) T { return Median(slices.Sorted(slices.Values(values))) }

// MeanStdDev returns the mean of values and their standard deviation as a sample, which divides by one less than their
// number; 0 for a single value, and both 0 for none.
func MeanStdDev[T ~int64 | ~float64](values []T) (mean, deviation float64) {
	n := float64(len(values))
	if n == 0 {
		return 0, 0
	}
	for _, v := range values {
		mean += float64(v)
	}
	mean /= n
	if n == 1 {
		return mean, 0
	}
	sum := 0.0
	for _, v := range values {
		sum += (float64(v) - mean) * (float64(v) - mean)
	}
	return mean, math.Sqrt(sum / (n - 1))
}
