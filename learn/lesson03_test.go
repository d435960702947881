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
	steps := func(n float64) float64 { return 10 * (1 + 0.3*math.Round(math.Mod(math.Log2(n), 2))) * (1 + n/1e6) }
	verdicts(t, judgeLink, given{
		"a time that does not depend on the size, then on its square": {linkData(func(n float64) float64 { return 10 + n*n/1e9 }), Refuted},
		"steps": {linkData(steps), Unknown},
		"small copies 9 % slower, all others 9 % faster than a law": {linkData(func(n float64) float64 {
			if n <= 8<<10 {
				return 1.09 * (8 + n/50e3)
			}
			return 0.91 * (8 + n/50e3)
		}), Shown}, // least squares, which the many others decide, are 18 % off
	})
}

// The fit is the best for its criterion: no law on a fine grid has a lower 90th percentile of deviations.
func TestFitLaw(t *testing.T) {
	sizes := []float64{1e3, 2e3, 4e3, 8e3, 16e3, 32e3, 64e3, 128e3, 256e3, 512e3}
	times := []float64{7.2, 7.4, 7.5, 8.7, 10.8, 9.6, 10.2, 11.1, 12.8, 18}
	_, off := fitLaw(sizes, times)
	for latency := 6.0; latency < 11; latency += 0.05 {
		for slope := 5e-6; slope < 4e-5; slope += 2.5e-7 {
			if q := percentile90((law{latency, slope}).deviations(sizes, times)); q < off-1e-9 {
				t.Fatalf("%g us + %g n is off by %g %%, the fit by %g %%", latency, slope, q, off)
			}
		}
	}
}
