package chart

import (
	"math"

	gonum "gonum.org/v1/plot"

	"gpt2scope/internal/humanize"
)

// scale is the range of an axis and its ticks.
type scale struct {
	low, high float64
	step      float64 // between ticks; 0 on a logarithmic axis
	divisor   float64 // of the labels
	ticks     int     // at most about as many
}

// scale makes the range for values from low to high, and the label of the axis.
func (a Axis) scale(low, high float64, ticks int) (scale, string) {
	unit, divisor := humanize.Multiple(a.Unit, max(math.Abs(low), math.Abs(high)))
	label := a.Name
	if unit != "" {
		label += " (" + unit + ")"
	}
	if a.Log {
		pad := math.Pow(max(high/low, 2), 0.04)
		return scale{low / pad, high * pad, 0, divisor, ticks}, label
	}
	if a.Zero {
		low, high = min(low, 0), max(high, 0)
	}
	pad := 0.04 * (high - low) // marks lie inside the frame
	if pad <= 1e-9*math.Abs(low) {
		if pad = math.Abs(low) * 0.05; a.Whole || pad < 1/most {
			pad = 1
		}
	}
	if low != 0 {
		low -= pad
	}
	s := scale{low, high + pad, 0, divisor, ticks}
	s.step = roundUp((s.high-low)/divisor/float64(ticks)) * divisor
	if a.Whole {
		s.step = max(1, math.Round(s.step))
	}
	return s, label
}

// roundUp is the least of 1, 2 and 5 times a power of ten that is not below v.
func roundUp(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// Ticks implements [gonum.Ticker].
func (s scale) Ticks(low, high float64) (all []gonum.Tick) {
	if s.step == 0 {
		return s.decades()
	}
	places := max(0, -int(math.Floor(math.Log10(s.step/s.divisor)+1e-9)))
	for i := math.Ceil(low / s.step); len(all) < 60 && i*s.step <= high; i++ {
		all = append(all, gonum.Tick{Value: i * s.step, Label: humanize.Fixed(i*s.step/s.divisor, min(places, 12))})
	}
	return all
}

// decades are ticks at powers of ten, and between them if there are few.
func (s scale) decades() (all []gonum.Tick) {
	span := math.Log10(s.high / s.low)
	every := max(1, int(math.Ceil(span/float64(s.ticks))))
	for e := math.Floor(math.Log10(s.low)); e <= math.Log10(s.high); e++ {
		for n := 1.0; n < 10; n++ {
			tick := gonum.Tick{Value: n * math.Pow(10, e)}
			if n == 1 && int(e)%every == 0 || span < 2 && (n == 2 || n == 5) || span < 0.7 {
				tick.Label = humanize.Short(tick.Value / s.divisor)
			}
			if tick.Value >= s.low && tick.Value <= s.high && (every == 1 || n == 1) {
				all = append(all, tick)
			}
		}
	}
	return all
}
