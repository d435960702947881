package plot

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/layers"
)

// table is numbers by variant.
type table struct {
	ID    string
	Title string
	Heads []head // of columns after the first
	Rows  []row
	Hint  string
}

// head is that of a column.
type head struct {
	Name, Unit string
	Text       bool // aligned at the left
}

// row is a line of a table.
type row struct {
	Name  string
	Cells []cell
	Basis bool // the other rows are compared with it
}

// cell is a value and its interval.
type cell struct {
	Value, Interval, Title string
	Text                   bool
}

// groups are the metrics in the order in which tables have them.
var groups = []struct {
	id, title string
	metrics   []string
}{
	{"time", "Time", []string{"prefill time", "decode time", "time to first token", "prefill rate", "decode rate", "prefill floor", "decode floor", "prefill share of floor", "decode share of floor"}},
	{"memory", "Memory and energy", []string{"host memory", "device memory", "predicted memory", "energy"}},
	{"quality", "Quality", []string{"bits per byte", "perplexity", "agreement", "KL divergence"}},
	{"work", "Work", []string{"parameters", "launches", "prefill FLOPs", "decode FLOPs", "prefill bytes", "decode bytes"}},
}

// comparedMetrics are the columns of the table of other lists of layers.
var comparedMetrics = []string{"prefill time", "decode time", "host memory", "device memory", "energy", "bits per byte", "perplexity", "agreement", "KL divergence"}

// metricTables has all metrics of the sweep, by depth.
func metricTables(r *layers.Result) []*table {
	sweep, _ := depths(r)
	known := map[string]bool{}
	var all []*table
	for _, g := range groups {
		for _, m := range g.metrics {
			known[m] = true
		}
		all = append(all, metricTable(g.id, g.title, sweep, g.metrics))
	}
	others := map[string]bool{}
	for _, v := range sweep {
		for name := range v.Metrics {
			if !known[name] {
				others[name] = true
			}
		}
	}
	all = append(all, metricTable("other", "Other measurements", sweep, slices.Sorted(maps.Keys(others))))
	return slices.DeleteFunc(all, func(t *table) bool { return t == nil })
}

// metricTable has a column for each metric that any of the variants has; nil if there is none.
func metricTable(id, title string, variants []*layers.Variant, metrics []string) *table {
	t := &table{ID: id, Title: title}
	for _, v := range variants {
		t.Rows = append(t.Rows, row{Name: fmt.Sprint(v.Layers)})
	}
	if !t.addMetrics(variants, metrics) {
		return nil
	}
	return t
}

// addMetrics appends a column for each metric that any of the variants has.
func (t *table) addMetrics(variants []*layers.Variant, metrics []string) bool {
	added := false
	for _, name := range metrics {
		largest, unit, has := 0.0, "", false
		for _, v := range variants {
			m, ok := v.Metrics[name]
			if !ok {
				continue
			}
			has = true
			if unit == "" {
				unit = m.Unit
			}
			if drawable(m.Median) {
				largest = max(largest, math.Abs(m.Median))
			}
		}
		if !has {
			continue
		}
		added = true
		shown, divisor := scaled(unit, largest)
		t.Heads = append(t.Heads, head{Name: headName(name), Unit: shown})
		for i, v := range variants {
			m, ok := v.Metrics[name]
			t.Rows[i].Cells = append(t.Rows[i].Cells, metricCell(m, ok, divisor))
		}
	}
	return added
}

// headName is the name of a metric above its column.
func headName(metric string) string {
	switch metric {
	case "energy":
		return "energy per token"
	case "prefill share of floor", "decode share of floor":
		return strings.Replace(metric, "share of floor", "roofline", 1)
	}
	return metric
}

// Wide tells whether a table needs the width of the page.
func (t *table) Wide() bool { return len(t.Heads) > 5 }

// metricCell writes a metric, or none.
func metricCell(m layers.Metric, ok bool, divisor float64) cell {
	if !ok || !drawable(m.Median) {
		return cell{Value: none}
	}
	if m.Median == math.Trunc(m.Median) && m.Low == m.Median && m.High == m.Median && divisor == 1 {
		return cell{Value: whole(m.Median)} // counted
	}
	d := decimals(m.Median / divisor)
	c := cell{Value: fixed(m.Median/divisor, d), Title: fmt.Sprintf("median of %s", humanize.Count(m.N, "measurement", "measurements"))}
	if m.N <= 1 {
		c.Title = ""
	}
	if s, ok := newSpan(m.Low, m.Median, m.High); ok && s.wide() {
		c.Interval = fixed(m.Low/divisor, d) + " to " + fixed(m.High/divisor, d)
	}
	return c
}

// whatIfTable compares other lists of layers with the deepest of the sweep.
func whatIfTable(r *layers.Result) *table {
	sweep, others := depths(r)
	if len(others) == 0 {
		return nil
	}
	variants := others
	t := &table{ID: "whatif", Title: "Other lists of layers", Heads: []head{{Name: "layers"}, {Name: "run order", Text: true}}}
	if len(sweep) > 0 {
		variants = append([]*layers.Variant{sweep[len(sweep)-1]}, others...)
		t.Hint = "The first row is the deepest of the sweep, as the basis of comparison."
	}
	for i, v := range variants {
		order := make([]string, len(v.Order))
		for i, l := range v.Order {
			order[i] = fmt.Sprint(l)
		}
		name := v.Label
		if i == 0 && len(sweep) > 0 {
			name = fmt.Sprintf("%s, in order", humanize.Count(v.Layers, "layer", "layers"))
		}
		t.Rows = append(t.Rows, row{Name: name, Basis: i == 0 && len(sweep) > 0, Cells: []cell{{Value: fmt.Sprint(v.Layers)}, {Value: runs(v.Order), Title: strings.Join(order, ", "), Text: true}}})
	}
	t.addMetrics(variants, comparedMetrics)
	return t
}

// runs writes a list of layers with rising runs as ranges: 0-3, 2, 5-11.
func runs(order []int) string {
	var parts []string
	for i := 0; i < len(order); {
		j := i
		for j+1 < len(order) && order[j+1] == order[j]+1 {
			j++
		}
		switch {
		case j-i >= 2:
			parts = append(parts, fmt.Sprintf("%d-%d", order[i], order[j]))
		default:
			for k := i; k <= j; k++ {
				parts = append(parts, fmt.Sprint(order[k]))
			}
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

// fitRow is a coefficient of a fit, beside that of the stage trace.
type fitRow struct {
	Phase, Name, What, Unit string
	Value, Error            string
	Trace, Difference, Rate string
	First                   bool // of its phase
	R2, Depths              string
}

// fitRows has two rows for each fit.
func fitRows(r *layers.Result) []fitRow {
	var all []fitRow
	for i := range r.Fits {
		f := &r.Fits[i]
		if f.NoLine() {
			continue
		}
		depths := make([]string, len(f.Depths))
		for i, d := range f.Depths {
			depths[i] = fmt.Sprint(d)
		}
		rest := "everything but the layers"
		switch {
		case f.Rejected != "":
			rest = fmt.Sprintf("of the line from %d layers on", f.From)
		case f.Phase == layers.TaskPrefill:
			rest += ", less what the last layer saves"
		}
		for i, c := range []struct {
			name, what string
			v, e       float64
			trace      *float64
		}{{"a", rest, f.A, f.AError, f.TraceA}, {"b", "a layer", f.B, f.BError, f.TraceB}} {
			d := decimals(c.v)
			if drawable(c.e) && c.e > 0 {
				d = errorDecimals(c.v, c.e)
			}
			row := fitRow{Phase: f.Phase, Name: c.name, What: c.what, Unit: f.Unit, Value: fixed(c.v, d), Error: fixed(c.e, d), First: i == 0,
				R2: fixed(f.R2, 6), Depths: runs(f.Depths), Trace: none, Difference: none, Rate: none}
			if c.trace != nil && drawable(*c.trace) {
				row.Trace = fixed(*c.trace, d)
				if drawable(c.v) {
					row.Difference = signed(*c.trace-c.v, d)
					if c.v != 0 {
						row.Rate = signed(100*(*c.trace-c.v)/c.v, 1)
					}
				}
			}
			all = append(all, row)
		}
	}
	return all
}

// signed writes a difference.
func signed(v float64, decimals int) string {
	s := fixed(v, decimals)
	if v > 0 && strings.Trim(s, "0.,") != "" && s != none {
		s = "+" + s
	}
	return s
}

// steps is the table of what a layer costs from depth to depth, of the phases whose times
// do not lie on a line.
func steps(r *layers.Result) *table {
	t := &table{ID: "steps", Title: "Cost of a layer from depth to depth", Hint: "± is the standard error, from the repeats of both depths."}
	var names []string
	for i := range r.Fits {
		f := &r.Fits[i]
		if len(f.Steps) == 0 {
			continue
		}
		t.Heads = append(t.Heads, head{Name: f.Phase, Unit: f.Unit})
		for _, s := range f.Steps {
			name := fmt.Sprintf("%d to %d", s.From, s.To)
			j := slices.Index(names, name)
			if j < 0 {
				j, names = len(names), append(names, name)
				t.Rows = append(t.Rows, row{Name: name})
			}
			for len(t.Rows[j].Cells) < len(t.Heads)-1 {
				t.Rows[j].Cells = append(t.Rows[j].Cells, cell{Value: none})
			}
			t.Rows[j].Cells = append(t.Rows[j].Cells, cell{Value: withError(s.Cost, s.Error, "")})
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	for i := range t.Rows {
		for len(t.Rows[i].Cells) < len(t.Heads) {
			t.Rows[i].Cells = append(t.Rows[i].Cells, cell{Value: none})
		}
	}
	return t
}

// residuals is the table of the residuals of all fits, by depth.
func residuals(r *layers.Result) *table {
	t := &table{ID: "residuals", Title: "Residuals"}
	at := map[int]bool{}
	for i := range r.Fits {
		for _, d := range r.Fits[i].Depths {
			at[d] = at[d] || !r.Fits[i].NoLine()
		}
	}
	maps.DeleteFunc(at, func(_ int, line bool) bool { return !line })
	if len(at) == 0 {
		return nil
	}
	all := slices.Sorted(maps.Keys(at))
	for _, d := range all {
		t.Rows = append(t.Rows, row{Name: fmt.Sprint(d)})
	}
	for i := range r.Fits {
		f := &r.Fits[i]
		if f.NoLine() {
			continue
		}
		t.Heads = append(t.Heads, head{Name: f.Phase, Unit: f.Unit}, head{Name: "of the line", Unit: "%"})
		largest := 0.0
		for _, v := range f.Residuals {
			if drawable(v) {
				largest = max(largest, math.Abs(v))
			}
		}
		for i, d := range all {
			value, rate := cell{Value: none}, cell{Value: none}
			if j := slices.Index(f.Depths, d); j >= 0 && j < len(f.Residuals) {
				v := f.Residuals[j]
				value.Value = signed(v, min(decimals(largest)-1, 9))
				if at := f.A + f.B*float64(d); drawable(at) && at != 0 {
					rate.Value = signed(100*v/at, 2)
				}
			}
			t.Rows[i].Cells = append(t.Rows[i].Cells, value, rate)
		}
	}
	return t
}

// predictionRow is a prediction, and the measurement that checks it.
type predictionRow struct {
	Layers, Metric, Unit, Value, Interval, Measured, Error, Inside string
}

func predictionRows(r *layers.Result) []predictionRow {
	var all []predictionRow
	for _, p := range r.Predictions {
		largest := 0.0
		for _, v := range []float64{p.Value, p.High} {
			if drawable(v) {
				largest = max(largest, math.Abs(v))
			}
		}
		unit, divisor := scaled(p.Unit, largest)
		d := decimals(p.Value / divisor)
		row := predictionRow{Layers: fmt.Sprint(p.Layers), Metric: p.Metric, Unit: unit, Value: fixed(p.Value/divisor, d), Interval: none, Measured: none, Error: none, Inside: none}
		s, ok := newSpan(p.Low, p.Value, p.High)
		if ok && s.wide() {
			row.Interval = fixed(p.Low/divisor, d) + " to " + fixed(p.High/divisor, d)
		}
		if p.Measured != nil {
			row.Measured = fixed(*p.Measured/divisor, d)
			if ok && s.wide() && drawable(*p.Measured) {
				row.Inside = "no"
				if *p.Measured >= p.Low && *p.Measured <= p.High {
					row.Inside = "yes"
				}
			}
		}
		switch {
		case p.ErrorRate != nil:
			row.Error = signed(100**p.ErrorRate, 2)
		case p.Measured != nil:
			row.Error = signed(100*(p.Value-*p.Measured) / *p.Measured, 2)
		}
		all = append(all, row)
	}
	return all
}
