package energy

import (
	"testing"
	"time"
)

// TestTotal: the energy is known to within the counter's largest step, wherever it came.
func TestTotal(t *testing.T) {
	began := time.Now()
	l := &Log{First: 100, Last: 190}
	for i, mJ := range []float64{110, 150, 170, 190} {
		l.Steps = append(l.Steps, Step{Time: began.Add(time.Duration(i) * time.Millisecond), Millijoule: mJ})
	}
	if mJ, resolution := l.Total(); mJ != 90 || resolution != 40 {
		t.Errorf("%g mJ to within %g, want 90 to within 40", mJ, resolution)
	}
}

// TestManySteps: of more steps than are kept every second one is dropped, so that those
// left are as far apart everywhere and the power stays what it was.
func TestManySteps(t *testing.T) {
	began := time.Now()
	at := func(i int) time.Time { return began.Add(time.Duration(i) * time.Millisecond) }
	l := &Log{Source: "test counter"}
	for i := range maxSteps + 2 {
		l.add(Step{at(i), time.Millisecond, 3 * float64(i)}) // 3 W
	}
	if n := len(l.Steps); n != maxSteps/2+2 {
		t.Fatalf("%d steps are kept, want %d", n, maxSteps/2+2)
	}
	for i := 1; i < maxSteps/2; i++ {
		if d := l.Steps[i].Time.Sub(l.Steps[i-1].Time); d != 2*time.Millisecond {
			t.Fatalf("steps %d and %d are %v apart, want 2ms", i-1, i, d)
		}
	}
	if p, err := l.Power(at(0), at(maxSteps+2)); err != nil || p.Watts < 2.999 || p.Watts > 3.001 {
		t.Errorf("the power is %+v (%v), want 3 W", p, err)
	}
}
