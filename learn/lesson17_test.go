package learn

import (
	"strings"
	"testing"
)

func occupancyData(copying, chasing func(percent float64) float64) (d Data) {
	for _, percent := range []float64{12.5, 25, 37.5, 50, 62.5, 75, 87.5, 100} {
		d.repeated(occupancyCases[0], "time_us", percent, copying(percent))
		d.repeated(occupancyCases[1], "time_us", percent, chasing(percent))
	}
	return d
}

func TestOccupancy(t *testing.T) {
	inverse := func(percent float64) float64 { return 1e5 / percent }
	saturated := func(percent float64) float64 { return max(1e5/percent, 3000) }
	little := func(percent float64) float64 { return map[bool]float64{true: 1050, false: 1000}[percent <= 50] }
	verdicts(t, judgeOccupancy, given{
		"5 % or not":    {occupancyData(inverse, little), Unknown},
		"one saturates": {occupancyData(saturated, inverse), Refuted},
		"none does":     {occupancyData(inverse, inverse), Shown},
		"two points":    {occupancyData(inverse, inverse)[:40], Unknown},
	})
	f := judgeOccupancy(occupancyData(saturated, inverse))
	if !strings.Contains(f.Text, "The copy, limited by bandwidth, is within 5 % of its best time from an occupancy of 38 % on") ||
		!strings.Contains(f.Text, "The chase, limited by latency, is within 5 % of its best time from an occupancy of 100 % on") {
		t.Error(f.Text)
	}
}

// Every index is reached from every other one.
func TestPermutation(t *testing.T) {
	const n = 1 << 10
	b, at, steps := permutation(n), 0, 0
	for {
		at = int(b[4*at]) | int(b[4*at+1])<<8
		if steps++; at == 0 || steps > n {
			break
		}
	}
	if steps != n {
		t.Errorf("a cycle of %d of %d indices", steps, n)
	}
}
