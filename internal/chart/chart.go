// Package chart draws data: series of points with intervals, bars, and spans of time. A caller gives data with names
// and units; this package chooses ranges, ticks, colours, marks and places, and writes SVG, PNG and elements of HTML
// pages.
//
// Values that have no place on an axis (not a number, infinite, not positive on a logarithmic one) are omitted.
package chart

import (
	"math"

	gonum "gonum.org/v1/plot"

	"gpt2scope/internal/humanize"
)

// Picture is panels below each other, their vertical axes aligned.
type Picture struct {
	Title  string
	Panels []Panel
}

// Panel is a pair of axes, with series of points or with rows.
type Panel struct {
	X, Y   Axis
	Series []Series
	Bands  []Band
	Rows   []Row    // Y is not used then
	Kinds  []string // of spans, for the legend, in the order of their colours
}

// Axis says what is along it.
type Axis struct {
	Name, Unit string // bytes, FLOPs and us are shown in a multiple that suits the values
	Log        bool
	Zero       bool // it begins at 0
	Whole      bool // ticks are whole numbers
}

// Kind is what the points of a series are.
type Kind int

const (
	Measured  Kind = iota // marks
	Joined                // marks joined by a line
	Predicted             // open marks
	Line                  // a line without marks, such as a fit
	Dashed                // a dashed line: the fit outside its data
)

// Series is points of one kind. Series of the same group share colour and mark. An earlier series covers a later one.
type Series struct {
	Name   string // in the legend; not there if empty
	Kind   Kind
	Group  int
	Points []Point
}

// Point is a value for each axis. Its label stands beside the mark if there is room.
type Point struct {
	X, Y  Value
	Label string
}

// Value is a value with its interval; without one the three are equal.
type Value struct{ Low, Mid, High float64 }

// Exactly is a value without an interval.
func Exactly(v float64) Value { return Value{v, v, v} }

// Points are those of coordinates without intervals.
func Points(x, y []float64) []Point {
	all := make([]Point, min(len(x), len(y)))
	for i := range all {
		all[i] = Point{X: Exactly(x[i]), Y: Exactly(y[i])}
	}
	return all
}

// Band marks a place on the X axis and its interval, in the colour of a group of series.
type Band struct {
	Value
	Group int
}

// Row is a line of spans under one name: a bar, a stacked bar, or what one device did.
type Row struct {
	Name  string
	Spans []Span
	Value Value  // of a bar, whose interval is drawn
	Text  string // at the end of a bar
}

// Span is a part of a row.
type Span struct {
	Kind       int // its place in the panel's kinds
	Start, End float64
}

// most bounds what is drawn, so that sums and differences of values are finite.
const most = 1e200

// holds tells whether a value has a place on the axis.
func (a Axis) holds(v float64) bool { return math.Abs(v) <= most && (!a.Log || v > 1/most) } // false for NaN

// interval is the value with its interval, if that has a place and holds it.
func (a Axis) interval(v Value) Value {
	if !a.holds(v.Low) || !a.holds(v.High) || v.Low > v.Mid || v.High < v.Mid {
		return Exactly(v.Mid)
	}
	return v
}

// drawable is the picture without points that have no place, and without panels that have nothing.
func (p Picture) drawable() Picture {
	var panels []Panel
	for _, one := range p.Panels {
		var series []Series
		for _, s := range one.Series {
			var points []Point
			for _, v := range s.Points {
				if one.X.holds(v.X.Mid) && one.Y.holds(v.Y.Mid) {
					points = append(points, Point{one.X.interval(v.X), one.Y.interval(v.Y), v.Label})
				}
			}
			if s.Points = points; len(points) > 0 {
				series = append(series, s)
			}
		}
		one.Series = series
		if x, _ := one.bounds(); x.Low <= x.High {
			panels = append(panels, one)
		}
	}
	p.Panels = panels
	return p
}

// Empty tells whether there is nothing to draw.
func (p Picture) Empty() bool { return len(p.drawable().Panels) == 0 }

// scale is the range of an axis and its ticks.
type scale struct {
	low, high float64
	step      float64 // between ticks; 0 on a logarithmic axis
	divisor   float64 // of the labels
}

// scale makes the range for values from low to high, and the label of the axis.
func (a Axis) scale(low, high float64) (scale, string) {
	unit, divisor := humanize.Multiple(a.Unit, max(math.Abs(low), math.Abs(high)))
	label := a.Name
	if unit != "" {
		label += " (" + unit + ")"
	}
	if a.Log {
		pad := math.Pow(max(high/low, 2), 0.04)
		return scale{low / pad, high * pad, 0, divisor}, label
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
	s := scale{low, high + pad, 0, divisor}
	s.step = roundUp((s.high-low)/divisor/mostTicks) * divisor
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
	every := max(1, int(math.Ceil(span/mostTicks)))
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
