package plot

import (
	"fmt"

	"gpt2scope/internal/humanize"
	"gpt2scope/layers"
)

// lead summarises the result in a few sentences.
func lead(r *layers.Result) []string {
	var all []string
	sweep, _ := depths(r)
	deepest := 0
	for _, v := range sweep {
		deepest = max(deepest, v.Layers)
	}
	for i := range r.Fits {
		f := &r.Fits[i]
		if !drawable(f.A) || !drawable(f.B) {
			continue
		}
		if trend := f.Trend(); trend != "" {
			all = append(all, capital(f.Phase)+": "+clean(trend)+".")
			continue
		}
		if impossible := f.Impossible(); impossible != "" {
			all = append(all, capital(f.Phase)+": "+impossible+".")
			continue
		}
		rest := withError(f.Rest, f.RestError, f.Unit)
		s := fmt.Sprintf("%s: a layer costs %s, %s %s", capital(f.Phase), withError(f.B, f.BError, f.Unit), f.RestName(), rest)
		if t := f.A + f.B*float64(deepest); deepest > 0 && f.A >= 0 && f.B >= 0 && t > 0 {
			s += fmt.Sprintf("; of the time at %s, the layers are %.0f"+nbsp+"%%", humanize.Count(deepest, "layer", "layers"), 100*f.B*float64(deepest)/t)
		}
		if b, rest, ok := f.Stages(); ok && drawable(b) && drawable(rest) {
			s += fmt.Sprintf("; by the stage trace %s and %s", withError(b, 0, f.Unit), withError(rest, 0, f.Unit))
		}
		all = append(all, s+".")
	}
	for _, q := range qualities {
		var first, last *layers.Variant
		for _, v := range sweep {
			if _, ok := metric(v, q.name); !ok {
				continue
			}
			if first == nil {
				first = v
			}
			last = v
		}
		if first == nil || first.Layers == last.Layers {
			continue
		}
		from, to := first.Metrics[q.name].Median, last.Metrics[q.name].Median
		all = append(all, fmt.Sprintf("%s: %s with %s, %s with %d.", capital(q.axis.name), number(from), humanize.Count(first.Layers, "layer", "layers"), number(to), last.Layers))
	}
	return all
}

// withError writes a value and its standard error, if it has one, to the same
// decimals.
func withError(v, e float64, unit string) string {
	s := number(v)
	if drawable(e) && e > 0 {
		d := errorDecimals(v, e)
		s = fixed(v, d) + " ± " + fixed(e, d)
	}
	if unit != "" {
		s += nbsp + unit
	}
	return s
}

// errorDecimals shows two digits of a standard error, and no fewer of the value than
// it has without one.
func errorDecimals(v, e float64) int {
	return max(decimals(v), min(decimals(e)-2, 9))
}
