package learn

import (
	"slices"

	"gpt2scope/internal/chart"
)

// linear and log name an axis, with its unit.
func linear(name string) chart.Axis { return chart.Axis{Name: name} }
func log(name string) chart.Axis    { return chart.Axis{Name: name, Log: true} }

// bars makes a Picture of figures, one below the other, divided by a unit.
func bars(title string, x chart.Axis, unit float64, figures func(d Data) []Figure) func(d Data) chart.Picture {
	return func(d Data) chart.Picture {
		p := chart.Panel{X: x}
		for _, f := range figures(d) {
			low, high := f.interval()
			value := chart.Value{Low: low / unit, Mid: f.Value / unit, High: high / unit}
			p.Rows = append(p.Rows, chart.Row{Name: f.Name, Spans: []chart.Span{{End: value.Mid}}, Value: value,
				Text: number(value.Mid)})
		}
		return chart.Picture{Title: title, Panels: []chart.Panel{p}}
	}
}

// found are the figures of a finding that have a unit.
func found(judge func(d Data) Finding, unit string) func(d Data) []Figure {
	return func(d Data) []Figure {
		return slices.DeleteFunc(judge(d).Figures, func(f Figure) bool { return f.Unit != unit })
	}
}

// curves makes a Picture of series, each in a colour of its own.
func curves(title string, x, y chart.Axis, series func(d Data) []chart.Series) func(d Data) chart.Picture {
	return func(d Data) chart.Picture {
		y.Zero = !y.Log
		all := series(d)
		for i := range all {
			all[i].Group = i
		}
		return chart.Picture{Title: title, Panels: []chart.Panel{{X: x, Y: y, Series: all}}}
	}
}

// curve is the value of a case at each X of a quantity.
func (d Data) curve(of, quantity string, value func(x float64) float64) chart.Series {
	xs := d.xs(of, quantity)
	ys := make([]float64, len(xs))
	for i, x := range xs {
		ys[i] = value(x)
	}
	return chart.Series{Name: of, Kind: chart.Joined, Points: chart.Points(xs, ys)}
}

// medians are those of a quantity, of all cases if none is named.
func medians(quantity string, cases ...string) func(d Data) []chart.Series {
	return func(d Data) (all []chart.Series) {
		for _, of := range d.cases(quantity) {
			if len(cases) == 0 || slices.Contains(cases, of) {
				all = append(all, d.curve(of, quantity, func(x float64) float64 { return median(d.at(of, quantity, x)) }))
			}
		}
		return all
	}
}

// bandwidths are those of all cases, by what was varied.
func bandwidths(d Data) (all []chart.Series) {
	for _, of := range d.cases("time_us") {
		all = append(all, d.curve(of, "time_us", func(x float64) float64 { return d.rate(of, of, "bytes", x).Value }))
	}
	return all
}
