package learn

import (
	"math"
	"testing"
)

// linkData are nine rounds of copies that take what time says.
func linkData(time func(n float64) float64) (d Data) {
	for round := range 9 {
		for _, n := range linkSizes(1 << 24) {
			t := time(float64(n)) * (1 + 0.01*float64(round%3-1))
			for _, of := range []string{toDevice, toHost, pageable} {
				d.add(of, "time_us", float64(n), t)
			}
			d.add(taskKernel, "kernel_us", float64(n), 2)
		}
	}
	return d
}

func TestLink(t *testing.T) {
	f := judgeLink(linkData(func(n float64) float64 { return 8 + n/50e3 }))
	if f.Verdict != Shown || math.Abs(f.Figures[0].Value-8) > 0.1 || math.Abs(f.Figures[1].Value-50) > 0.5 {
		t.Errorf("8 us + n / 50 GB/s: %+v", f)
	}
	for name, c := range map[string]struct {
		time func(n float64) float64
		want Verdict
	}{
		"a time that does not depend on the size, then on its square": {func(n float64) float64 { return 10 + n*n/1e9 }, Refuted},
		"steps": {func(n float64) float64 { return 10 * (1 + 0.3*math.Round(math.Mod(math.Log2(n), 2))) * (1 + n/1e6) }, Unknown},
	} {
		if f := judgeLink(linkData(c.time)); f.Verdict != c.want {
			t.Errorf("%s: %s: %s", name, f.Verdict, f.Text)
		}
	}
}
