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
			has, unit, largest = true, m.Unit, max(largest, math.Abs(m.Median))
		}
	}
	if !has {
		return
	}
	shown, divisor := humanize.Multiple(unit, largest)
	head := name
	if shown != "" {
		head += " (" + shown + ")"
	}
	t.Heads = append(t.Heads, head)
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

// estimate writes a value and its interval, if it has one.
func estimate(low, v, high float64) string {
	d := humanize.Decimals(v, 4)
	text := humanize.Fixed(v, d)
	if low < high {
		text += " (" + humanize.Fixed(low, d) + " to " + humanize.Fixed(high, d) + ")"
	}
	return text
}

func fits(r *layers.Result) *Table {
	t := &Table{Title: "Fit: time = a + b L, ± standard errors", Heads: []string{"phase", "a, everything but the layers",
		"b, a layer", "R²"}}
	for i := range r.Fits {
		if f := &r.Fits[i]; f.Rejected == "" {
			a, b := withError(f.A, f.AError, f.Unit), withError(f.B, f.BError, f.Unit)
			if f.Rest() < 0 {
				a = "not known"
			}
			if f.B < 0 {
				b = "not known"
			}
			t.Rows = append(t.Rows, []string{f.Phase, a, b, humanize.Fixed(f.R2, 6)})
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

// withError writes a value and its standard error, if repeats gave it one.
func withError(v, e float64, unit string) string {
	s := humanize.Significant(v, 4)
	if e > 0 {
		s += " ± " + humanize.Significant(e, 2)
	}
	return s + " " + unit
}

// predictions are beside the measurements that check them.
func predictions(r *layers.Result) *Table {
	t := &Table{Title: "Predictions",
		Heads: []string{"layers", "metric", "predicted, 95 % interval", "measured", "unit", "error (%)", "inside"}}
	for _, p := range r.Predictions {
		measured, wrong, inside := "-", "-", "-"
		if p.Measured != nil {
			measured = humanize.Fixed(*p.Measured, humanize.Decimals(p.Value, 4))
			wrong, inside = fmt.Sprintf("%+.2f", 100**p.ErrorRate), "no"
			if *p.Measured >= p.Low && *p.Measured <= p.High {
				inside = "yes"
			}
		}
		t.Rows = append(t.Rows, []string{fmt.Sprint(p.Layers), p.Metric, estimate(p.Low, p.Value, p.High), measured, p.Unit,
			wrong, inside})
	}
	return t
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
