package plot

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gpt2scope/layers"
)

// figure is what one file holds, such as time.png.
type figure struct {
	name   string // of the file, without its ending
	title  string
	panels []*panel // below each other
}

// panel is a pair of axes with the series on them.
type panel struct {
	title  string
	x, y   axis
	series []*series
}

// axis says what is along it.
type axis struct {
	name  string
	unit  string  // of the points; bytes are written as KiB, MiB or GiB
	whole bool    // ticks are whole numbers
	zero  bool    // it begins at 0
	reach float64 // it extends at least to here
	limit float64 // and not further than here, so that bars are cut there; 0 is no limit
}

// role is the meaning of a series, which decides how it looks. Marks of an earlier role cover
// those of a later one.
type role int

const (
	measured  role = iota // depths of the sweep
	joined                // depths of the sweep that lie on no line
	trade                 // depths of the sweep, joined by a line in their order
	counted               // memory that was predicted before the run
	line                  // the fit, within the depths that it was made from
	lineOut               // the fit, outside them
	verified              // other depths, measured to check a prediction
	predicted             // other depths, predicted
	whatIf                // other lists of layers
)

// series is points of the same role.
type series struct {
	role   role
	name   string // in the legend; none if empty
	points []point
}

// point is a value for each axis, with intervals.
type point struct {
	x, y  span
	label string // beside the mark; none if empty
}

// span is a value and its interval. Without an interval the three are equal.
type span struct{ low, mid, high float64 }

// exactly is a value without an interval.
func exactly(v float64) span { return span{v, v, v} }

// wide tells whether there is an interval to draw.
func (s span) wide() bool { return s.low < s.high }

// maxValue bounds what is drawn, so that sums and differences of values are finite.
const maxValue = 1e200

// drawable tells whether v can be put on an axis.
func drawable(v float64) bool { return math.Abs(v) <= maxValue } // false for NaN

// newSpan makes a span of a value and an interval, which is dropped if it is not one.
func newSpan(low, mid, high float64) (span, bool) {
	if !drawable(mid) {
		return span{}, false
	}
	if !drawable(low) || !drawable(high) || low > mid || high < mid {
		return exactly(mid), true
	}
	return span{low, mid, high}, true
}

// metric gives the span of a variant's metric.
func metric(v *layers.Variant, name string) (span, bool) {
	m, ok := v.Metrics[name]
	if !ok {
		return span{}, false
	}
	return newSpan(m.Low, m.Median, m.High)
}

// figures are all pictures of a result, without those that have no data.
func figures(r *layers.Result) []*figure {
	var all []*figure
	for _, f := range []*figure{
		{name: "time", title: "Time by depth", panels: []*panel{
			byDepth(r, "Prefill time by depth", "prefill time", axis{name: "prefill time", unit: "ms", zero: true}, "prefill"),
			byDepth(r, "Decode time by depth", "decode time", axis{name: "time of a decode step", unit: "ms", zero: true}, "decode"),
		}},
		{name: "memory", title: "Memory by depth", panels: memory(r)},
		{name: "quality", title: "Quality by depth", panels: quality(r, func(q axis, name string) *panel {
			return byDepth(r, capital(name)+" by depth", name, q, "")
		})},
		{name: "energy", title: "Energy by depth", panels: []*panel{
			byDepth(r, "Energy by depth", "energy", axis{name: "energy", unit: "mJ per token", zero: true}, ""),
		}},
		{name: "quality-time", title: "Quality against time", panels: quality(r, func(q axis, name string) *panel {
			return against(r, q, name)
		})},
	} {
		f.panels = slices.DeleteFunc(f.panels, func(p *panel) bool { return p == nil })
		for _, p := range f.panels {
			p.cut()
		}
		sameDepths(f.panels)
		if len(f.panels) > 0 {
			all = append(all, f)
		}
	}
	return all
}

// sameDepths gives axes of depth the same range.
func sameDepths(panels []*panel) {
	reach := 0.0
	for _, p := range panels {
		if x, _ := p.bounds(); p.x.whole {
			reach = max(reach, x.high)
		}
	}
	for _, p := range panels {
		if p.x.whole {
			p.x.reach = reach
		}
	}
}

// depths are the variants of the sweep, by depth; others are what-ifs, in their order.
func depths(r *layers.Result) (sweep, others []*layers.Variant) {
	for i := range r.Variants {
		if v := &r.Variants[i]; v.Kind == "depth" {
			sweep = append(sweep, v)
		} else {
			others = append(others, v)
		}
	}
	slices.SortStableFunc(sweep, func(a, b *layers.Variant) int { return cmp.Compare(a.Layers, b.Layers) })
	return sweep, others
}

// unitOf is the unit that the first variant gives for a metric.
func unitOf(r *layers.Result, name, otherwise string) string {
	for i := range r.Variants {
		if m, ok := r.Variants[i].Metrics[name]; ok && m.Unit != "" && m.Unit != "1" { // a count or a share has none
			return m.Unit
		}
	}
	return otherwise
}

var depthAxis = axis{name: "layers", whole: true, zero: true}

// byDepth is a metric by depth; with a phase it has the line that was fitted to it.
func byDepth(r *layers.Result, title, name string, y axis, phase string) *panel {
	y.unit = unitOf(r, name, y.unit)
	if name == "bits per byte" {
		y.unit = "" // the name has it
	}
	if name == "energy" && (y.unit == "mJ" || y.unit == "J") {
		y.unit += " per token"
	}
	p := &panel{title: title, x: depthAxis, y: y}
	sweep, others := depths(r)
	main := &series{role: measured, name: "measured"}
	for _, v := range sweep {
		if s, ok := metric(v, name); ok {
			main.points = append(main.points, point{x: exactly(float64(v.Layers)), y: s})
		}
	}
	if kind := intervalOf(sweep, name); kind != "" {
		main.name = "measured; bars: " + kind
	}
	predictions, checks := predictionsOf(r, name)
	lists := &series{role: whatIf, name: "other lists of layers"}
	for _, v := range others {
		if s, ok := metric(v, name); ok {
			lists.points = append(lists.points, point{exactly(float64(v.Layers)), s, shortLabel(v.Label)})
		}
	}
	p.add(main)
	p.add(fitted(r, phase, main, predictions)...)
	p.add(predictions, checks, lists)
	if !slices.ContainsFunc(p.series, func(s *series) bool { return s.role != line && s.role != lineOut }) {
		return nil
	}
	return p
}

// cut limits the axes of values if bars reach much further than points do: a few slow
// repeats would leave no room to tell the points apart.
func (p *panel) cut() {
	x, y := p.bounds()
	most := span{}
	for _, s := range p.series {
		for _, v := range s.points {
			most.mid, most.high = max(most.mid, v.x.mid), max(most.high, v.y.mid)
		}
	}
	cut := false
	for _, a := range []struct {
		axis        *axis
		high, point float64
	}{{&p.x, x.high, most.mid}, {&p.y, y.high, most.high}} {
		if a.point > 0 && a.high > 3*a.point {
			a.axis.limit, cut = 1.5*a.point, true
		}
	}
	if cut {
		for _, s := range p.series {
			if s.role == measured || s.role == trade {
				s.name += ", cut at the frame"
			}
		}
	}
}

// intervalOf says what the bars of a metric are; "" if there are none.
func intervalOf(variants []*layers.Variant, name string) string {
	for _, v := range variants {
		if s, ok := metric(v, name); ok && s.wide() {
			return v.Metrics[name].Interval()
		}
	}
	return ""
}

// add appends series that have points.
func (p *panel) add(all ...*series) {
	for _, s := range all {
		if len(s.points) > 0 {
			p.series = append(p.series, s)
		}
	}
}

// predictionsOf returns the predictions of a metric, and the measurements that check them.
func predictionsOf(r *layers.Result, name string) (predictions, checks *series) {
	predictions = &series{role: predicted, name: "predicted, with 95 % interval"}
	checks = &series{role: verified, name: "measured afterwards"}
	for _, f := range r.Predictions {
		if f.Metric != name {
			continue
		}
		x := exactly(float64(f.Layers))
		if s, ok := newSpan(f.Low, f.Value, f.High); ok {
			predictions.points = append(predictions.points, point{x: x, y: s})
		}
		if f.Measured != nil && drawable(*f.Measured) {
			checks.points = append(checks.points, point{x: x, y: exactly(*f.Measured)})
		}
	}
	return predictions, checks
}

// fitted is the line of a phase: solid between the depths that it was made from, and
// dashed from 0 to the deepest prediction. If the times of all depths do not lie on a line
// it does not go below the depths that do, and points that lie on none are joined. Neither is it
// drawn towards 0, nor its value there named, if that is a time that cannot be.
func fitted(r *layers.Result, phase string, others ...*series) []*series {
	for i := range r.Fits {
		f := &r.Fits[i]
		if f.Phase != phase || !drawable(f.A) || !drawable(f.B) || len(f.Depths) == 0 {
			continue
		}
		if f.NoLine() || f.B < 0 {
			return []*series{{role: joined, name: "no line fits", points: others[0].points}}
		}
		from, to := float64(slices.Min(f.Depths)), float64(slices.Max(f.Depths))
		end := to
		for _, s := range others {
			for _, p := range s.points {
				end = max(end, p.x.mid)
			}
		}
		if !drawable(f.A + f.B*end) {
			continue
		}
		at := func(x float64) point { return point{x: exactly(x), y: exactly(f.A + f.B*x)} }
		start := 0.0
		if f.A < 0 && f.B > 0 { // a time below 0 is not drawn
			start = -f.A / f.B
		}
		name := "fit: " + equation(f)
		if f.Impossible() != "" {
			name = fmt.Sprintf("fit: %s %s a layer", number(f.B), clean(f.Unit))
		}
		all := []*series{{role: line, name: name, points: []point{at(max(from, start)), at(max(to, start))}}}
		if from > start && f.Rejected == "" && f.Impossible() == "" {
			all = append(all, &series{role: lineOut, points: []point{at(start), at(from)}})
		}
		if end > to {
			all = append(all, &series{role: lineOut, points: []point{at(to), at(end)}})
		}
		return all
	}
	return nil
}

// memory has a panel for the host and one for the device. The predicted memory is that of the
// device if the device's was measured, otherwise that of the host.
func memory(r *layers.Result) []*panel {
	host := byDepth(r, "Host memory by depth", "host memory", axis{name: "host memory, peak", unit: "bytes", zero: true}, "")
	device := byDepth(r, "Device memory by depth", "device memory", axis{name: "device memory, peak", unit: "bytes", zero: true}, "")
	guess := &series{role: counted, name: "predicted before the run"}
	sweep, _ := depths(r)
	for _, v := range sweep {
		if s, ok := metric(v, "predicted memory"); ok {
			guess.points = append(guess.points, point{x: exactly(float64(v.Layers)), y: s})
		}
	}
	switch {
	case device != nil:
		device.add(guess)
	case host != nil:
		host.add(guess)
	case len(guess.points) > 0:
		host = &panel{title: "Predicted memory by depth", x: depthAxis, y: axis{name: "memory", unit: "bytes", zero: true}, series: []*series{guess}}
	}
	return []*panel{host, device}
}

// qualities are the measures of quality and their axes.
var qualities = []struct {
	name string
	axis axis
}{
	{"bits per byte", axis{name: "bits per byte"}},
	{"agreement", axis{name: "agreement with full depth", unit: "share of top tokens"}},
	{"KL divergence", axis{name: "KL divergence from full depth", unit: "nats"}},
}

// quality makes a panel of each measure of quality.
func quality(r *layers.Result, make func(q axis, name string) *panel) []*panel {
	var all []*panel
	for _, q := range qualities {
		all = append(all, make(q.axis, q.name))
	}
	return all
}

// against is a measure of quality against the time of a decode step, or of the prefill
// if there is no decode.
func against(r *layers.Result, y axis, name string) *panel {
	y.unit = unitOf(r, name, y.unit)
	if name == "bits per byte" {
		y.unit = "" // the name says it
	}
	sweep, others := depths(r)
	for _, t := range []struct{ metric, axis, title string }{
		{"decode time", "time of a decode step", "decode time"}, {"prefill time", "prefill time", "prefill time"},
	} {
		p := &panel{title: capital(name) + " against " + t.title, x: axis{name: t.axis, unit: unitOf(r, t.metric, "ms"), zero: true}, y: y}
		gather := func(s *series, from []*layers.Variant, label func(*layers.Variant) string) {
			for _, v := range from {
				tx, ok := metric(v, t.metric)
				qy, also := metric(v, name)
				if ok && also {
					s.points = append(s.points, point{tx, qy, label(v)})
				}
			}
			p.add(s)
		}
		main := "measured, by number of layers"
		switch ofTime, ofQuality := intervalOf(sweep, t.metric), intervalOf(sweep, name); {
		case ofTime != "" && ofQuality != "" && ofTime != ofQuality:
			main += fmt.Sprintf("; bars: %s of time; %s of %s", ofTime, ofQuality, name)
		case ofTime != "" || ofQuality != "":
			main += "; bars: " + cmp.Or(ofTime, ofQuality)
		}
		gather(&series{role: trade, name: main}, sweep, func(v *layers.Variant) string { return whole(float64(v.Layers)) })
		gather(&series{role: whatIf, name: "other lists of layers"}, others, func(v *layers.Variant) string { return shortLabel(v.Label) })
		if len(p.series) > 0 {
			return p
		}
	}
	return nil
}
