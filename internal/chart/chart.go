// Package chart draws data: series of points with intervals, bars, and spans of time. A caller gives data with names
// and units; this package chooses ranges, ticks, colours, marks and places, and writes SVG, PNG and elements of HTML
// pages.
//
// Values that have no place on an axis (not a number, infinite, not positive on a logarithmic one) are omitted.
package chart

import (
	"math"
	"slices"
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

// The kinds of series. Marks of an earlier kind cover those of a later one.
const (
	Measured  Kind = iota // marks
	Joined                // marks joined by a line
	Verified              // small black marks: measurements that check predictions
	Predicted             // open marks
	Line                  // a line without marks, such as a fit
	Dashed                // a dashed line: the fit outside its data
)

// Series is points of one kind. Series of the same group share colour and mark.
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
	Faint      bool
}

// Bar is a row from 0 to a value.
func Bar(name string, v Value, text string) Row {
	return Row{Name: name, Spans: []Span{{End: v.Mid}}, Value: v, Text: text}
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
	panels := p.Panels
	p.Panels = nil
	for _, one := range panels {
		series := one.Series
		one.Series = nil
		for _, s := range series {
			s.Points = slices.DeleteFunc(slices.Clone(s.Points), func(v Point) bool {
				return !one.X.holds(v.X.Mid) || !one.Y.holds(v.Y.Mid)
			})
			for i := range s.Points {
				s.Points[i].X, s.Points[i].Y = one.X.interval(s.Points[i].X), one.Y.interval(s.Points[i].Y)
			}
			if len(s.Points) > 0 {
				one.Series = append(one.Series, s)
			}
		}
		if x, _ := one.bounds(); x.Low <= x.High {
			p.Panels = append(p.Panels, one)
		}
	}
	return p
}

// Empty tells whether there is nothing to draw.
func (p Picture) Empty() bool { return len(p.drawable().Panels) == 0 }
