package learn

import "testing"

// timersData are ten rounds of kernels of 10 us and 10 ms.
func timersData(launch, waitedUs, eventsUs float64) (d Data) {
	for round := range 10 {
		wobble := 1 + 0.0005*float64(round%5)
		for _, x := range []float64{10, 10000} {
			d.add(noWait, "time_us", x, launch*wobble)
			d.add(waited, "time_us", x, waitedUs*x/10000*wobble)
			d.add(events, "time_us", x, eventsUs*x/10000)
		}
	}
	return d
}

func TestTimers(t *testing.T) {
	verdicts(t, judgeTimers, given{
		"within 2 %":               {timersData(5, 10050, 10000), Refuted},
		"10 % more":                {timersData(5, 11000, 10000), Shown},
		"10 % less":                {timersData(5, 9000, 10000), Shown},
		"the interval holds 2 %":   {timersData(5, 10190, 10000), Unknown},
		"no kernel ran":            {timersData(0.1, 0.2, 0.1), Unknown},
		"only kernels of one size": {timersData(5, 10050, 10000)[:3], Unknown},
	})
}
