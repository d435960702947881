package humanize

import (
	"math"
	"testing"
)

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		Significant(1234567, 4): "1,234,567", Significant(-0.0412345, 4): "-0.04123", Significant(12.3456, 4): "12.35", Significant(0, 4): "0", Significant(1e300, 4): "1e+300",
		Fixed(-0.0001, 2): "0.00", Fixed(math.NaN(), 2): "-",
		Short(999.6): "1k", Short(20000): "20k", Short(3.5e9): "3.5G", Short(0.0123): "0.0123", Short(100): "100", Short(99.96): "100", Short(-1500): "-1.5k", Short(math.Inf(1)): "+Inf", Short(1e15): "1e+15",
	} {
		if got != want {
			t.Errorf("got %q, expected %q", got, want)
		}
	}
	for _, c := range []struct {
		unit string
		v    float64
		want string
		by   float64
	}{{"bytes", 3 << 30, "GiB", 1 << 30}, {"bytes", 100, "bytes", 1}, {"us", 2e3, "ms", 1e3}, {"ms", 1e9, "ms", 1}, {"1", 5, "", 1}} {
		if unit, by := Multiple(c.unit, c.v); unit != c.want || by != c.by {
			t.Errorf("%v %s is in %s, %v each", c.v, c.unit, unit, by)
		}
	}
}
