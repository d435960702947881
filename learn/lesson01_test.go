package learn

import "testing"

func TestThreads(t *testing.T) {
	data := func(all float64) (d Data) { // GB/s of all threads where one has 1
		for threads, rate := range map[float64]float64{1: 1, 32: min(20, all), 1000: all} {
			d = d.same(8, "GPU threads", "time_us", threads, 1200/rate).same(8, "GPU threads", "bytes", threads, 1200e3)
		}
		return d
	}
	verdicts(t, judgeThreads, given{
		"4000": {data(4000), Refuted}, "100": {data(100.1), Refuted}, "99": {data(99), Unknown}, "2.1": {data(2.1), Unknown}, "2": {data(1.99), Shown},
	})
	if f := judgeThreads(data(30)); f.Figures[0].String() != "1.00 GB/s [1.00, 1.00]" {
		t.Errorf("%v", f.Figures)
	}
}
