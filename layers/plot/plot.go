// Package plot draws the result of an experiment over layers. [figures] is the only place that chooses what is drawn.
package plot

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"gpt2scope/internal/album"
	"gpt2scope/internal/chart"
	"gpt2scope/internal/humanize"
	"gpt2scope/layers"
)

// Write draws a result into a directory that exists: time, quality, energy and quality-time, each as .png and
// .svg, and layers.html, a page with all of them and a text. The same result gives the same bytes.
func Write(ctx context.Context, dir string, r *layers.Result, text string) error {
	_, err := album.Album{File: "layers.html", Title: "What a layer costs", Text: text, Pictures: figures(r),
		Hint: "Open marks are predictions or other lists of layers. A line is fitted to the medians of the sweep, and " +
			"dashed outside its depths; times that lie on none are joined by dashes. Intervals that reach far are cut at the " +
			"frame. Labels without room are omitted."}.Write(ctx, dir)
	return err
}

func empty(p chart.Panel) bool { return chart.Picture{Panels: []chart.Panel{p}}.Empty() }

// What a series is of decides its colour.
const (
	ofSweep = iota
	ofPredictions
	ofLists
	ofChecks
)

// qualities are the measures of quality, whose names have their units.
var qualities = []string{"bits per byte", "bits per token"}

// figures are all pictures of a result; what was not measured has no points there.
func figures(r *layers.Result) []album.Picture {
	of := func(metric, axis, unit, phase string) chart.Panel {
		return byDepth(r, metric, chart.Axis{Name: axis, Unit: unit, Zero: true}, phase)
	}
	var quality, against []chart.Panel
	for _, q := range qualities {
		quality = append(quality, byDepth(r, q, chart.Axis{Name: q}, ""))
		against = append(against, againstTime(r, q, chart.Axis{Name: q}))
	}
	picture := func(file, title string, panels ...chart.Panel) album.Picture {
		return album.Picture{File: file, Picture: chart.Picture{Title: title, Panels: panels}}
	}
	return []album.Picture{
		picture("time", "Time by depth", of("prefill time", "prefill time", "ms", layers.TaskPrefill),
			of("decode time", "time of a decode step", "ms", layers.TaskDecode)),
		picture("quality", "Quality by depth", quality...),
		picture("energy", "Energy by depth", of("energy", "energy", "mJ per token", "")),
		picture("quality-time", "Quality against time", against...),
	}
}

// depths are the variants of the sweep, by depth; others are what-ifs, in their order.
func depths(r *layers.Result) (sweep, others []layers.Variant) {
	for _, v := range r.Variants {
		if v.Kind == layers.KindDepth {
			sweep = append(sweep, v)
		} else {
			others = append(others, v)
		}
	}
	slices.SortStableFunc(sweep, func(a, b layers.Variant) int { return cmp.Compare(a.Layers, b.Layers) })
	return sweep, others
}

func value(m layers.Metric) chart.Value { return chart.Value{Low: m.Low, Mid: m.Median, High: m.High} }

// point is a metric of a depth.
func point(depth int, v chart.Value) chart.Point {
	return chart.Point{X: chart.Exactly(float64(depth)), Y: v}
}

// byDepth is a metric by depth; with a phase it has the line that was fitted to it.
func byDepth(r *layers.Result, metric string, y chart.Axis, phase string) chart.Panel {
	sweep, others := depths(r)
	measured := chart.Series{Name: "measured" + intervals(sweep, metric)}
	for _, v := range sweep {
		if m, ok := v.Metrics[metric]; ok {
			measured.Points = append(measured.Points, point(v.Layers, value(m)))
		}
	}
	predicted := chart.Series{Name: "predicted, 95 % interval", Kind: chart.Predicted, Group: ofPredictions}
	verified := chart.Series{Name: "measured afterwards", Group: ofChecks}
	for _, p := range r.Predictions {
		if p.Metric == metric {
			predicted.Points = append(predicted.Points, point(p.Layers, chart.Value{Low: p.Low, Mid: p.Value, High: p.High}))
			if p.Measured != nil {
				verified.Points = append(verified.Points, point(p.Layers, chart.Exactly(*p.Measured)))
			}
		}
	}
	lists := chart.Series{Name: "other lists of layers", Kind: chart.Predicted, Group: ofLists}
	for _, v := range others {
		if m, ok := v.Metrics[metric]; ok {
			p := point(v.Layers, value(m))
			p.Label = short(v.Label)
			lists.Points = append(lists.Points, p)
		}
	}
	p := chart.Panel{X: chart.Axis{Name: "layers", Whole: true, Zero: true}, Y: y,
		Series: []chart.Series{measured, verified, predicted, lists}}
	if !empty(p) {
		p.Series = append(p.Series, fitted(r, phase, measured, predicted)...)
	}
	return p
}

// fitted is the line of a phase: within the depths that it was made from, and dashed outside them, to 0 and to the
// deepest point. The times of no line are joined. A line that was rejected, or is below 0 there, is not drawn towards
// 0.
func fitted(r *layers.Result, phase string, measured, predicted chart.Series) []chart.Series {
	at := slices.IndexFunc(r.Fits, func(f layers.Fit) bool { return f.Phase == phase && len(f.Depths) > 0 })
	if at < 0 {
		return nil
	}
	f := &r.Fits[at]
	if f.Rejected != "" || f.B < 0 {
		return []chart.Series{{Name: "no line fits", Kind: chart.Dashed, Points: measured.Points}}
	}
	from, to := float64(slices.Min(f.Depths)), float64(slices.Max(f.Depths))
	end := to
	for _, p := range slices.Concat(measured.Points, predicted.Points) {
		end = max(end, p.X.Mid)
	}
	start := max(0, -f.A/f.B) // a time below 0 is not drawn
	name := fmt.Sprintf("fit: %s + %s L %s", number(f.A), number(f.B), f.Unit)
	if f.Impossible() != "" {
		name, start = fmt.Sprintf("fit: %s %s a layer", number(f.B), f.Unit), max(from, start)
	}
	part := func(name string, kind chart.Kind, from, to float64) chart.Series {
		ends := chart.Points([]float64{from, to}, []float64{f.A + f.B*from, f.A + f.B*to})
		return chart.Series{Name: name, Kind: kind, Points: ends}
	}
	all := []chart.Series{part(name, chart.Line, max(from, start), max(to, start))}
	if from > start {
		all = append(all, part("", chart.Dashed, start, from))
	}
	if end > to {
		all = append(all, part("", chart.Dashed, to, end))
	}
	return all
}

// intervals says what those of a metric are; "" if there are none.
func intervals(variants []layers.Variant, metric string) string {
	for _, v := range variants {
		if text := v.Metrics[metric].Interval(); text != "" {
			return ", " + text
		}
	}
	return ""
}

// againstTime is a measure of quality against the time of a decode step, or of the prefill if there is no decode.
func againstTime(r *layers.Result, quality string, y chart.Axis) chart.Panel {
	sweep, others := depths(r)
	for _, time := range []string{"decode time", "prefill time"} {
		gather := func(s chart.Series, from []layers.Variant) chart.Series {
			for _, v := range from {
				t, ok := v.Metrics[time]
				if q, also := v.Metrics[quality]; ok && also {
					s.Points = append(s.Points, chart.Point{X: value(t), Y: value(q), Label: short(v.Label)})
				}
			}
			return s
		}
		x := chart.Axis{Name: time, Unit: "ms", Zero: true}
		p := chart.Panel{X: x, Y: y, Series: []chart.Series{
			gather(chart.Series{Name: "measured, by number of layers", Kind: chart.Joined}, sweep),
			gather(chart.Series{Name: "other lists of layers", Kind: chart.Predicted, Group: ofLists}, others)}}
		if !empty(p) {
			return p
		}
	}
	return chart.Panel{}
}

// number writes a value with four significant digits, or all of those before the point.
func number(v float64) string { return humanize.Significant(v, 4) }

// short is a label as it is drawn beside a mark.
func short(s string) string {
	if r := []rune(strings.TrimSpace(s)); len(r) > 26 {
		return string(r[:25]) + "…"
	}
	return strings.TrimSpace(s)
}
