package stats

import "testing"

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		n              int
		p10, half, p90 int
	}{{1, 0, 0, 0}, {2, 0, 1, 1}, {3, 0, 1, 2}, {4, 0, 2, 3}, {10, 1, 5, 8}, {11, 1, 5, 9}, {101, 10, 50, 90}} {
		x := make([]int, c.n)
		for i := range x {
			x[i] = i
		}
		if a, b, d := Quantile(x, 0.1), Quantile(x, 0.5), Quantile(x, 0.9); a != c.p10 || b != c.half || d != c.p90 {
			t.Errorf("of %d values: %d, %d, %d; want %d, %d, %d", c.n, a, b, d, c.p10, c.half, c.p90)
		}
		if m := Median(x); m != c.half {
			t.Errorf("the median of %d values is %d, want %d", c.n, m, c.half)
		}
		if low, high := Quantile(x, 0), Quantile(x, 1); low != 0 || high != c.n-1 {
			t.Errorf("of %d values: from %d to %d", c.n, low, high)
		}
	}
}
