package learn

import (
	"bytes"
	"testing"
)

func TestFirst(t *testing.T) {
	for _, c := range []struct {
		first float64
		want  Verdict
	}{{5000, Shown}, {200, Shown}, {101, Refuted}, {90, Refuted}} {
		var d Data
		for process := range 7 {
			d.add("make a context", "spent_us", 0, 200e3)
			for call := range 10 {
				time := 100 + float64(process)
				if call == 0 {
					time = c.first
				}
				d.add("call", "time_us", float64(call+1), time)
			}
		}
		if f := judgeFirst(d); f.Verdict != c.want || f.Figures[4].Name != "before the first call: make a context" || f.Figures[4].Short() != "200 ms" {
			t.Errorf("a first call of %g us: %s: %s", c.first, f.Verdict, f.Text)
		}
	}
}

// A process that is slow as a whole, because other programs run beside it, is compared with itself.
func TestFirstOnBusyMachine(t *testing.T) {
	var d Data
	for process := range 11 {
		for call := range 10 {
			time := 100 * float64(1+process)
			if call == 0 {
				time *= 3
			}
			d.add("call", "time_us", float64(call+1), time)
		}
	}
	if f := judgeFirst(d); f.Verdict != Shown || f.Figures[2].String() != "3.00x [3.00, 3.00]" {
		t.Errorf("%s: %s (%v)", f.Verdict, f.Text, f.Figures[2])
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
