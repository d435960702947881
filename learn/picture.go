package learn

import (
	"slices"

	"gpt2scope/internal/chart"
)

// linear and log name an axis, with its unit.
func linear(name string) chart.Axis { return chart.Axis{Name: name} }
func log(name string) chart.Axis    { return chart.Axis{Name: name, Log: true} }

// bars draws figures one below the other, divided by a unit.
func bars(title string, x chart.Axis, unit float64, figures ...Figure) chart.Picture {
	p := chart.Panel{X: x}
	for _, f := range figures {
		low, high := f.interval()
		value := chart.Value{Low: low / unit, Mid: f.Value / unit, High: high / unit}
		p.Rows = append(p.Rows, chart.Row{Name: f.Name, Spans: []chart.Span{{End: value.Mid}}, Value: value,
			Text: number(value.Mid)})
	}
	return chart.Picture{Title: title, Panels: []chart.Panel{p}}
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

// medians are those of a quantity of cases.
func (d Data) medians(quantity string, cases ...string) (all []chart.Series) {
	for _, of := range cases {
		all = append(all, d.curve(of, quantity, func(x float64) float64 { return median(d.at(of, quantity, x)) }))
	}
	return all
}

// curves draws series, each in a colour of its own.
func curves(title string, x, y chart.Axis, series ...chart.Series) chart.Picture {
	y.Zero = !y.Log
	series = slices.Clone(series)
	for i := range series {
		series[i].Group = i
	}
	return chart.Picture{Title: title, Panels: []chart.Panel{{X: x, Y: y, Series: series}}}
}
