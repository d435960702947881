package stats

import (
	"slices"
	"testing"
)

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		n         int
		p10, p90  int64
		p50, half float64
	}{{0, 0, 0, 0, 0}, {1, 0, 0, 0, 0}, {2, 0, 1, 1, 0.5}, {3, 0, 2, 1, 1}, {4, 0, 3, 2, 1.5}, {10, 1, 8, 5, 4.5}, {11, 1, 9, 5, 5}, {101, 10, 90, 50, 50}} {
		whole, x := make([]int64, c.n), make([]float64, c.n)
		for i := range x {
			whole[i], x[i] = int64(i), float64(i)
		}
		if a, b, m := Quantile(whole, 0.1), Quantile(whole, 0.9), Quantile(x, 0.5); a != c.p10 || b != c.p90 || m != c.p50 {
			t.Errorf("of %d values: %d, %d, %g; want %d, %d, %g", c.n, a, b, m, c.p10, c.p90, c.p50)
		}
		if m, n := Median(x), Median(whole); m != c.half || n != int64(c.half) {
			t.Errorf("the median of %d values is %g and %d, want %g", c.n, m, n, c.half)
		}
		if low, high := Quantile(whole, 0), Quantile(whole, 1); low != 0 || high != int64(max(0, c.n-1)) {
			t.Errorf("of %d values: from %d to %d", c.n, low, high)
		}
	}
}

func TestMedianOf(t *testing.T) {
	values := []float64{5, 1, 4, 2}
	if m := MedianOf(values); m != 3 || !slices.Equal(values, []float64{5, 1, 4, 2}) {
		t.Errorf("the median is %g, and the values are %v", m, values)
	}
}

func TestMeanStdDev(t *testing.T) {
	for _, c := range []struct {
		values          []int64
		mean, deviation float64
	}{{nil, 0, 0}, {[]int64{7}, 7, 0}, {[]int64{2, 4, 4, 4, 5, 5, 7, 9}, 5, 2.138089935299395}} {
		if mean, deviation := MeanStdDev(c.values); mean != c.mean || deviation != c.deviation {
			t.Errorf("%v: mean %v, deviation %v; want %v, %v", c.values, mean, deviation, c.mean, c.deviation)
		}
	}
}
