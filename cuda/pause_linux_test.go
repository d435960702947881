package cuda

import (
	"testing"
	"time"
)

// A nap is much shorter than the millisecond that time.Sleep takes in a program that has nothing else to do: at least the
// shortest of many, as other programs may have the core.
func TestNap(t *testing.T) {
	shortest := time.Hour
	for range 50 {
		began := time.Now()
		Nap(20 * time.Microsecond)
		shortest = min(shortest, time.Since(began))
	}
	if shortest < 20*time.Microsecond || shortest > 500*time.Microsecond {
		t.Errorf("the shortest of 50 naps of 20 us took %v; expected 500 us at most", shortest)
	}
}
