package learn

import (
	"bytes"
	"testing"
)

func TestFirst(t *testing.T) {
	data := func(processes int, first func(process int) float64) (d Data) {
		for process := range processes {
			d.add("make a context", "spent_us", 0, 200e3)
			d.add("call", "time_us", 1, first(process))
			for call := 2; call <= firstCalls; call++ {
				d.add("call", "time_us", float64(call), 100*float64(1+process)) // a process beside which other programs run is slow as a whole
			}
		}
		return d
	}
	times := func(factor float64) Data {
		return data(7, func(process int) float64 { return factor * 100 * float64(1+process) })
	}
	verdicts(t, judgeFirst, given{
		"50 times": {times(50), Shown}, "1.51 times": {times(1.51), Shown}, "1.49 times": {times(1.49), Refuted}, "faster": {times(0.9), Refuted},
		"now 1, now 3 times": {data(7, func(process int) float64 { return (1 + 2*float64(process%2)) * 100 * float64(1+process) }), Unknown},
	})
	f := judgeFirst(times(3))
	if f.Figures[2].String() != "3.00x [3.00, 3.00]" || f.Figures[4].Name != "before the first call: make a context" || f.Figures[4].Short() != "200 ms" {
		t.Errorf("%v", f.Figures)
	}
}

func TestProgramsRefuse(t *testing.T) {
	for _, args := range [][]string{{}, {"x"}, {"-1"}, {"1000000000"}, {"1", "2"}} {
		var out bytes.Buffer
		if err := firstCallsOnCPU(t.Context(), args, &out); err == nil || out.Len() > 0 {
			t.Errorf("%q: %v, %q", args, err, &out)
		}
	}
}
