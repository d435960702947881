package learn

import "testing"

// queueData are rounds of 2000 launches of a kernel, of which those after the depth wait.
func queueData(kernel, launch float64, depths ...int) (d Data) {
	for _, depth := range depths {
		d.add("kernel", "time_us", 0, kernel)
		d.add("round", "launches", 0, 2000)
		for i := 1; i <= 2000; i++ {
			switch {
			case i > depth:
				d.add("launch", "time_us", float64(i), kernel)
			case i == 500: // one that the operating system held up
				d.add("launch", "time_us", float64(i), 3*kernel)
			case i%50 == 1:
				d.add("launch", "time_us", float64(i), launch)
			}
		}
	}
	return d
}

func TestQueue(t *testing.T) {
	waits := queueData(100, 4, 1023, 1023, 1024, 1023, 1025, 1024)
	if f := judgeQueue(waits); f.Figures[2].Value < 1023 || f.Figures[2].Value > 1024 || f.Figures[3].Value != 100 {
		t.Errorf("a queue of 1,024: %+v", f)
	}
	verdicts(t, judgeQueue, given{
		"all rounds wait":          {waits, Refuted},
		"no launch waits":          {queueData(100, 4, 2000, 2000, 2000), Shown},
		"some rounds wait":         {queueData(100, 4, 2000, 1023, 2000), Unknown},
		"the kernel takes no time": {queueData(0, 4, 2000), Unknown},
		"the launch is as slow":    {queueData(100, 90, 2000), Unknown},
	})
}
