package learn

import (
	"strings"
	"testing"
)

// reuseData are times for a transfer of 1000 us, readings on the device of compute and readings in place of place each.
func reuseData(compute, place float64) (d Data) {
	for _, r := range []float64{1, 2, 10, 100} {
		d.repeated(oneCopy, "time_us", r, 1000)
		d.repeated(resident, "time_us", r, compute*r)
		d.repeated(copyRead, "time_us", r, 1000+compute*r)
		d.repeated(inPlace, "time_us", r, place*r)
	}
	return d
}

func TestReuse(t *testing.T) {
	verdicts(t, judgeReuse, given{
		"a link":                        {reuseData(15, 1000), Refuted},
		"a link as fast as memory":      {reuseData(15, 15), Shown},
		"a transfer that is never long": {reuseData(2000, 2000), Unknown},
		"in place as fast as a copy":    {reuseData(600, 1600), Unknown},
		"one number of readings":        {reuseData(15, 1000)[:40], Unknown},
	})
	if f := judgeReuse(reuseData(15, 1000)); !strings.Contains(f.Text, "Up to 10 readings the transfer takes longer than the computation. Yet from 2 readings on, copying first is faster") {
		t.Error(f.Text)
	}
}
