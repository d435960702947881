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
