package cuda

import (
	"math"
	"testing"
	"time"
)

// What the second half adds counts if it is believable.
func TestL2Rate(t *testing.T) {
	ms := func(x ...float64) (out []time.Duration) {
		for _, v := range x {
			out = append(out, time.Duration(v*1e6))
		}
		return out
	}
	for _, c := range []struct {
		half, whole []time.Duration
		want        float64
	}{
		{ms(3, 3, 3), ms(4.5, 4.5, 4.5), 2 / 3.},  // 1e6 bytes more in 1.5 ms; all in 4.5 ms would be 0.44 GB/s
		{ms(3, 3, 3), ms(3.1, 3.1, 3.1), 2 / 3.1}, // 10 GB/s is not believed
		{ms(3, 3, 3), ms(2, 2, 2), 1},             // faster than the half: noise; all in 2 ms
		{ms(2, 2, 2), ms(4, 4, 4), 0.5},           // no start to subtract
	} {
		v := l2Rate(1e6, c.half, 2e6, c.whole)
		if math.Abs(v.Value-c.want) > 1e-6 || v.P10 > v.P90 || v.P90 < v.Value {
			t.Errorf("%v and %v: %+v, want %g", c.half, c.whole, v, c.want)
		}
	}
}
