package learn

import (
	"math"
	"testing"
)

// A figure is written with a unit that fits its size, and its interval in the same unit. Counts are whole.
func TestFigure(t *testing.T) {
	figure := func(unit string, value, low, high float64) Figure {
		return Figure{Unit: unit, Value: value, Low: &low, High: &high}
	}
	for _, c := range []struct {
		f               Figure
		short, interval string
	}{
		{figure("us", 3333, 3320, 3340), "3.33 ms", "[3.32, 3.34]"},
		{figure("us", 0.25, 0.2, 0.31), "250 ns", "[200, 310]"},
		{figure("us", 2.5e6, 9e5, 3e6), "2.50 s", "[0.900, 3.00]"},
		{figure("x", 2, 1.98, 2.01), "2.00x", "[1.98, 2.01]"},
		{figure("", 1066, 1057, 1067), "1,066", "[1,057, 1,067]"},
		{figure("", 19.5, 4, 80), "19.5", "[4, 80]"},
		{exact("", "numbers", 64), "64 numbers", ""},
		{exact("", "GB/s", math.NaN()), "? GB/s", ""},
	} {
		if c.f.Short() != c.short || c.f.Interval() != c.interval {
			t.Errorf("%+v: %q and %q, want %q and %q", c.f, c.f.Short(), c.f.Interval(), c.short, c.interval)
		}
		if value, unit := c.f.Parts(); value+unit != c.short {
			t.Errorf("%+v: parts %q and %q", c.f, value, unit)
		}
	}
	var ten []float64
	for i := range 10 {
		ten = append(ten, float64(i))
	}
	if f := figureOf("", "us", ten); f.Value != 4.5 || f.N != 10 || f.Low == nil || *f.Low > 2 || *f.High < 7 {
		t.Errorf("0 to 9: %v", f)
	}
	if f := figureOf("", "us", ten[:3]); f.Low != nil || f.Interval() != "" {
		t.Errorf("three values have the interval %s", f.Interval())
	}
}
