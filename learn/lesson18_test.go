package learn

import (
	"fmt"
	"testing"
)

// divergenceData take a time for each case: that of the base times a factor.
func divergenceData(factor func(of string) float64) (d Data) {
	for _, of := range divergenceCases {
		d.repeated(of, "time_us", 0, 100*factor(of))
	}
	return d
}

func TestDivergence(t *testing.T) {
	real := map[string]float64{fmt.Sprintf(byLane, 2): 2, fmt.Sprintf(byLane, 4): 4, fmt.Sprintf(byLane, 32): 31, oneLong: 15, allLong: 16}
	verdicts(t, judgeDivergence, given{
		"as GPUs do": {divergenceData(func(of string) float64 { return max(1, real[of]) }), Refuted},
		"always half the speed": {divergenceData(func(of string) float64 {
			if of == onePath || of == agreeing || of == allBrief {
				return 1
			}
			return 2
		}), Shown},
		"a little less than half": {divergenceData(func(of string) float64 {
			if of == onePath || of == agreeing || of == allBrief {
				return 1
			}
			return 1.8
		}), Unknown},
	})
}
