package learn

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchmath"

	"gpt2scope/internal/humanize"
)

// Point is one measured value.
type Point struct {
	Case     string  `json:"case"`           // what was done, such as "a * a"
	Quantity string  `json:"quantity"`       // what was measured, with its unit: "time_us"
	X        float64 `json:"x,omitempty"`    // what was varied, such as the number of threads
	Value    float64 `json:"value"`          // 0 if the outcome is a text
	Text     string  `json:"text,omitempty"` // an outcome in words
}

// Data are the points of an experiment, in the order in which they were measured. The n-th points of two cases that are
// measured in turns belong to the same turn.
type Data []Point

func (d *Data) add(of, quantity string, x, value float64) {
	*d = append(*d, Point{Case: of, Quantity: quantity, X: x, Value: value})
}

func (d *Data) say(of, quantity, text string) {
	*d = append(*d, Point{Case: of, Quantity: quantity, Text: text})
}

// values returns all values of a quantity of a case, whatever X is.
func (d Data) values(of, quantity string) (values []float64) {
	for _, p := range d {
		if p.Case == of && p.Quantity == quantity {
			values = append(values, p.Value)
		}
	}
	return values
}

func (d Data) at(of, quantity string, x float64) (values []float64) {
	for _, p := range d {
		if p.Case == of && p.Quantity == quantity && p.X == x {
			values = append(values, p.Value)
		}
	}
	return values
}

// xs returns the values of X for which a quantity of a case was measured, sorted.
func (d Data) xs(of, quantity string) (xs []float64) {
	for _, p := range d {
		if p.Case == of && p.Quantity == quantity && !slices.Contains(xs, p.X) {
			xs = append(xs, p.X)
		}
	}
	slices.Sort(xs)
	return xs
}

// cases returns the cases of which a quantity was measured, in the order of their first points.
func (d Data) cases(quantity string) (cases []string) {
	for _, p := range d {
		if p.Quantity == quantity && !slices.Contains(cases, p.Case) {
			cases = append(cases, p.Case)
		}
	}
	return cases
}

// text returns the first outcome in words of a case, "" if there is none.
func (d Data) text(of, quantity string) string {
	for _, p := range d {
		if p.Case == of && p.Quantity == quantity {
			return p.Text
		}
	}
	return ""
}

// Figure is a value with its interval.
type Figure struct {
	Name  string   `json:"name"`
	Value float64  `json:"value"`          // the median
	Low   *float64 `json:"low,omitempty"`  // of the interval in which the median lies with a confidence of 95 %,
	High  *float64 `json:"high,omitempty"` // absent for fewer than six values
	Unit  string   `json:"unit,omitempty"`
	N     int      `json:"n"` // how many values it is of
}

// confidence is that of all intervals.
const confidence = 0.95

// figureOf is the median of values with its interval, from order statistics, which assume no distribution.
func figureOf(name, unit string, values []float64) Figure {
	f := Figure{Name: name, Value: math.NaN(), Unit: unit, N: len(values)}
	if len(values) == 0 {
		return f
	}
	sample := benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
	s := benchmath.AssumeNothing.Summary(sample, confidence)
	f.Value = s.Center
	if !math.IsInf(s.Lo, 0) && !math.IsInf(s.Hi, 0) {
		f.Low, f.High = &s.Lo, &s.Hi
	}
	return f
}

// exact is a figure that was counted or computed: it has no interval.
func exact(name, unit string, value float64) Figure {
	return Figure{Name: name, Value: value, Unit: unit, N: 1}
}

// interval returns the ends of the interval, the value twice if it has none.
func (f Figure) interval() (low, high float64) {
	if f.Low == nil || f.High == nil {
		return f.Value, f.Value
	}
	return *f.Low, *f.High
}

// String writes value, unit and interval: "3.33 ms [3.32, 3.34]".
func (f Figure) String() string {
	return strings.TrimSpace(f.Short() + " " + f.Interval())
}

// Interval writes the interval in the unit of Short: "[3.32, 3.34]"; "" if there is none.
func (f Figure) Interval() string {
	if f.Low == nil || f.High == nil || *f.Low == *f.High { // of a constant
		return ""
	}
	_, _, scale := f.scaled()
	return fmt.Sprintf("[%s, %s]", f.number(*f.Low*scale), f.number(*f.High*scale))
}

// number writes a value of the figure; counts are whole.
func (f Figure) number(x float64) string {
	if (f.Unit == "" || f.Unit == "numbers") && x == math.Trunc(x) {
		return count(x)
	}
	return number(x)
}

// Short writes value and unit: "3.33 ms".
func (f Figure) Short() string {
	value, unit := f.Parts()
	return value + unit
}

// Parts are those of Short, for columns: "3.33" and " ms", "2.00" and "x".
func (f Figure) Parts() (value, unit string) {
	value, unit, _ = f.scaled()
	if unit != "" && unit != "x" {
		unit = " " + unit
	}
	return value, unit
}

// scaled writes the value in a unit that fits its size.
func (f Figure) scaled() (value, unit string, scale float64) {
	unit, scale = f.Unit, 1.0
	if unit == "us" {
		switch a := math.Abs(f.Value); {
		case a >= 1e6:
			unit, scale = "s", 1e-6
		case a >= 1e3:
			unit, scale = "ms", 1e-3
		case a < 1 && a > 0:
			unit, scale = "ns", 1e3
		}
	}
	return f.number(f.Value * scale), unit, scale
}

// number writes a number with three significant digits, or all of those before the point.
func number(x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return "?"
	}
	return humanize.Significant(x, 3)
}

// median returns the median of values, NaN if there are none.
func median(values []float64) float64 { return figureOf("", "", values).Value }

// each applies a function to the n-th values of two lists, as far as both go.
func each(a, b []float64, f func(a, b float64) float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = f(a[i], b[i])
	}
	return out
}

// ratios are the quotients of the n-th values of two lists.
func ratios(a, b []float64) []float64 {
	return each(a, b, func(a, b float64) float64 { return a / b })
}

// rate is a quantity of a case by its time: of "bytes" in GB/s, of "flops" in GFLOP/s.
func (d Data) rate(name, of, quantity string, x float64) Figure {
	work, times := d.at(of, quantity, x), d.at(of, "time_us", x)
	if len(work) == 0 {
		times = nil
	}
	rates := make([]float64, len(times))
	for i, t := range times {
		rates[i] = work[0] / t / 1e3
	}
	return figureOf(name, map[string]string{"bytes": "GB/s", "flops": "GFLOP/s"}[quantity], rates)
}

// countOf writes a number of things: "1 result", "3 results".
func countOf(n int, what string) string { return humanize.Count(n, what, what+"s") }

// changes are the differences of the n-th values of a second list from those of a first, in percent.
func changes(a, b []float64) []float64 {
	return each(a, b, func(a, b float64) float64 { return 100 * (b/a - 1) })
}

func count(x float64) string { return humanize.Thousands(int64(x)) }
