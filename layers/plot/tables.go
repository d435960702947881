package plot

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/layers"
)

// Table is a table of a result. The first column names the rows.
type Table struct {
	Title string
	Heads []string // with units
	Rows  [][]string
}

// brief are the columns of the first table of a terminal.
var brief = []string{"prefill time", "decode time", "decode share of floor", "launches", "predicted memory", "energy",
	"bits per byte", "perplexity", "bits per token", "agreement", "drafts", "tokens a pass", "draft time"}

// Tables are those of a result: medians of all variants, with the intervals of times alone, and what was fitted.
func Tables(r *layers.Result) []*Table {
	t := &Table{Title: "Medians, and intervals of times", Heads: []string{"layers"}}
	for _, v := range r.Variants {
		t.Rows = append(t.Rows, []string{v.Label})
	}
	for _, name := range brief {
		t.add(r.Variants, name)
	}
	all := []*Table{t, fits(r), steps(r), predictions(r)}
	return slices.DeleteFunc(all, func(t *Table) bool { return len(t.Rows) == 0 })
}

// add appends a column of a metric if any of the variants has it.
func (t *Table) add(variants []layers.Variant, name string) {
	largest, unit, has := 0.0, "", false
	for _, v := range variants {
		if m, ok := v.Metrics[name]; ok {
			has, unit = true, cmp.Or(unit, m.Unit)
			if finite(m.Median) {
				largest = max(largest, math.Abs(m.Median))
			}
		}
	}
	if !has {
		return
	}
	shown, divisor := humanize.Multiple(unit, largest)
	t.Heads = append(t.Heads, withUnit(name, shown))
	for i, v := range variants {
		text, m := "-", v.Metrics[name]
		switch {
		case m == layers.Metric{}: // absent
		case m.Median == math.Trunc(m.Median) && m.Interval() == "" && divisor == 1: // counted
			text = humanize.Fixed(m.Median, 0)
		case strings.HasSuffix(name, " time") && name != "draft time":
			text = estimate(m.Low/divisor, m.Median/divisor, m.High/divisor)
		default:
			text = humanize.Significant(m.Median/divisor, 4)
		}
		t.Rows[i] = append(t.Rows[i], text)
	}
}

func withUnit(name, unit string) string {
	if unit == "" {
		return name
	}
	return name + " (" + unit + ")"
}

// estimate writes a value and its interval, if that holds it.
func estimate(low, v, high float64) string {
	d := humanize.Decimals(v, 4)
	text := humanize.Fixed(v, d)
	if low < high && low <= v && v <= high && finite(low) && finite(high) {
		text += " (" + humanize.Fixed(low, d) + " to " + humanize.Fixed(high, d) + ")"
	}
	return text
}

// runs writes a list of layers with rising runs as ranges: 0-3, 2, 5-11.
func runs(order []int) string {
	var parts []string
	for i := 0; i < len(order); {
		j := i
		for j+1 < len(order) && order[j+1] == order[j]+1 {
			j++
		}
		if j-i < 2 {
			j = i
			parts = append(parts, fmt.Sprint(order[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", order[i], order[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

// fits has two rows for each line.
func fits(r *layers.Result) *Table {
	t := &Table{Title: "Fit: time = a + b L", Heads: []string{"phase", "coefficient", "value", "standard error", "unit",
		"R²", "depths"}}
	for i := range r.Fits {
		f := &r.Fits[i]
		if f.Rejected != "" {
			continue
		}
		rest := "a, everything but the layers"
		if f.Phase == layers.TaskPrefill {
			rest += ", less what the last layer saves"
		}
		for _, c := range []struct {
			name  string
			v, e  float64
			known bool
		}{{rest, f.A, f.AError, f.Rest >= 0}, {"b, a layer", f.B, f.BError, f.B >= 0}} {
			d := errorDecimals(c.v, c.e)
			value, deviation := "not known", "-"
			if c.known {
				value, deviation = humanize.Fixed(c.v, d), humanize.Fixed(c.e, d)
			}
			t.Rows = append(t.Rows, []string{f.Phase, c.name, value, deviation, f.Unit, humanize.Fixed(f.R2, 6),
				runs(f.Depths)})
		}
	}
	return t
}

// steps is what a layer costs from depth to depth, of the phases whose times do not lie on a line.
func steps(r *layers.Result) *Table {
	t := &Table{Title: "Cost of a layer from depth to depth", Heads: []string{"phase", "layers", "cost ± standard error"}}
	for _, f := range r.Fits {
		for _, s := range f.Steps {
			t.Rows = append(t.Rows, []string{f.Phase, fmt.Sprintf("%d to %d", s.From, s.To),
				withError(s.Cost, s.Error, f.Unit)})
		}
	}
	return t
}

// predictions are beside the measurements that check them.
func predictions(r *layers.Result) *Table {
	t := &Table{Title: "Predictions",
		Heads: []string{"layers", "metric", "predicted, 95 % interval", "measured", "unit", "error (%)", "inside"}}
	for _, p := range r.Predictions {
		largest := 0.0
		for _, v := range []float64{p.Value, p.High} {
			if finite(v) {
				largest = max(largest, math.Abs(v))
			}
		}
		unit, divisor := humanize.Multiple(p.Unit, largest)
		measured, wrong, inside := "-", "-", "-"
		if p.Measured != nil {
			measured = humanize.Fixed(*p.Measured/divisor, humanize.Decimals(p.Value/divisor, 4))
			wrong, inside = signed(100*(p.Value-*p.Measured) / *p.Measured, 2), "no"
			if *p.Measured >= p.Low && *p.Measured <= p.High {
				inside = "yes"
			}
		}
		t.Rows = append(t.Rows, []string{fmt.Sprint(p.Layers), p.Metric,
			estimate(p.Low/divisor, p.Value/divisor, p.High/divisor), measured, unit, wrong, inside})
	}
	return t
}

// withError writes a value and its standard error, if it has one, to the same decimals.
func withError(v, e float64, unit string) string {
	d := errorDecimals(v, e)
	s := humanize.Fixed(v, d)
	if finite(e) && e > 0 {
		s += " ± " + humanize.Fixed(e, d)
	}
	return strings.TrimSpace(s + " " + unit)
}

// errorDecimals shows two digits of a standard error, and no fewer of the value than it has without one.
func errorDecimals(v, e float64) int {
	return max(humanize.Decimals(v, 4), min(humanize.Decimals(e, 2), 9))
}

// signed writes a difference.
func signed(v float64, decimals int) string {
	s := humanize.Fixed(v, decimals)
	if v > 0 && strings.Trim(s, "0.,") != "" && s != "-" {
		s = "+" + s
	}
	return s
}

// Lead says in a few sentences what the tables do not.
func Lead(r *layers.Result) (all []string) {
	if sentence := r.Sentence(); sentence != "" {
		all = append(all, sentence)
	}
	for i := range r.Fits {
		f := &r.Fits[i]
		if s := cmp.Or(f.Trend(), f.Impossible()); s != "" {
			all = append(all, f.Phase+": "+s+".")
		}
	}
	return all
}

// finite tells whether a value says something.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
