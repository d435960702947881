package plot

import (
	"math"

	gonum "gonum.org/v1/plot"
)

// scale is the range of an axis and its ticks, in the units of the points.
type scale struct {
	low, high float64
	step      float64
	divisor   float64 // of the labels
}

// wholeSteps are distances of ticks on an axis of depth: depths of models are more
// often multiples of 4 or 12 than of 5.
var wholeSteps = []float64{1, 2, 4, 6, 8, 12}

// newScale makes a scale for values from low to high with at most about so many ticks.
func newScale(a axis, low, high, divisor float64, ticks int) scale {
	if a.zero {
		low, high = min(low, 0), max(high, a.reach, 0)
	}
	if span := high - low; span <= max(1e-9*max(math.Abs(low), math.Abs(high)), 1/maxValue) { // one value
		pad := max(math.Abs(low)*0.05, 1e-9)
		if a.whole || low == 0 {
			pad = 1
		}
		high += pad
		if low != 0 {
			low -= pad
		}
	}
	s := scale{low: low, high: high, divisor: divisor}
	s.step = niceStep((high-low)/divisor/float64(ticks), a.whole) * divisor
	if a.whole { // the deepest mark lies inside the frame
		s.high += (high - low) * 0.03
		return s
	}
	s.low, s.high = min(low, math.Floor(low/s.step+1e-9)*s.step), max(high, math.Ceil(high/s.step-1e-9)*s.step)
	// A mark at the end of an axis lies inside the frame.
	pad := 0.03 * (s.high - s.low)
	if s.high-high < pad/2 {
		s.high += pad
	}
	if low-s.low < pad/2 && !a.zero {
		s.low -= pad
	}
	return s
}

// niceStep is the least round number that is not below least.
func niceStep(least float64, whole bool) float64 {
	if whole {
		for _, s := range wholeSteps {
			if s >= least {
				return s
			}
		}
	}
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= least*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// maxTicks bounds the ticks of an axis, whatever its range.
const maxTicks = 60

// Ticks implements [gonum.Ticker].
func (s scale) Ticks(low, high float64) []gonum.Tick {
	var all []gonum.Tick
	places := max(0, -int(math.Floor(math.Log10(s.step/s.divisor)+1e-9)))
	first := math.Ceil(low/s.step - 1e-9)
	for i := 0.0; i < maxTicks; i++ {
		v := (first + i) * s.step
		if v > high+s.step*1e-9 {
			break
		}
		// The sum may be off the end by a rounding error, and gonum leaves out such ticks.
		v = min(max(v, low), high)
		all = append(all, gonum.Tick{Value: v, Label: fixed(v/s.divisor, min(places, 12))})
	}
	return all
}
