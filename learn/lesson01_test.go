package learn

import "testing"

func TestThreads(t *testing.T) {
	for _, c := range []struct {
		all  float64 // GB/s of all threads where one has 1
		want Verdict
	}{{4000, Refuted}, {100, Refuted}, {30, Unknown}, {1.5, Shown}} {
		var d Data
		for range 8 {
			for threads, rate := range map[float64]float64{1: 1, 32: min(20, c.all), 1000: c.all} {
				d.add("GPU threads", "time_us", threads, 1200/rate)
				d.add("GPU threads", "bytes", threads, 1200e3)
			}
		}
		f := judgeThreads(d)
		if f.Verdict != c.want || f.Figures[0].String() != "1.00 GB/s [1.00, 1.00]" {
			t.Errorf("%g GB/s: %s: %s", c.all, f.Verdict, f.Text)
		}
	}
}
