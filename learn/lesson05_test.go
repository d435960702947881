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
	for _, c := range []struct {
		launch, waited, events float64
		want                   Verdict
	}{
		{5, 10050, 10000, Refuted},
		{5, 11000, 10000, Shown}, // the host adds 10 %
		{5, 9000, 10000, Shown},
		{5, 10190, 10000, Unknown}, // the interval holds 2 %
		{0.1, 0.2, 0.1, Unknown},   // no kernel ran
	} {
		if f := judgeTimers(timersData(c.launch, c.waited, c.events)); f.Verdict != c.want {
			t.Errorf("%+v: %s: %s", c, f.Verdict, f.Text)
		}
	}
}
