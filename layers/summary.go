package layers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/perf/benchmath"

	"gpt2scope/internal/humanize"
	"gpt2scope/weights"
)

// sample returns the median of values with its 95 % interval by order statistics, which assume nothing about the
// distribution. Fewer than six values have no such interval: it is then their range.
func sample(unit string, values []float64) Metric {
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds),
		confidence)
	m := Metric{Unit: unit, Median: s.Center, Low: s.Lo, High: s.Hi, N: len(values)}
	if math.IsInf(m.Low, 0) || math.IsNaN(m.Low) {
		m.Low = slices.Min(values)
	}
	if math.IsInf(m.High, 0) || math.IsNaN(m.High) {
		m.High = slices.Max(values)
	}
	return m
}

// FewRepeats is the least number of measurements that have a 95 % interval.
const FewRepeats = 6

func metricsOf(rows []Row, v Variant) map[string]Metric {
	values, metrics := map[string][]float64{}, map[string]Metric{}
	for _, r := range rows {
		switch {
		case r.Kind != v.Kind || r.Variant != v.Label:
		case r.N > 0:
			metrics[r.Metric] = Metric{r.Unit, r.Value.Value, r.Low, r.High, r.N}
		default:
			values[r.Metric] = append(values[r.Metric], r.Value.Value)
			metrics[r.Metric] = Metric{Unit: r.Unit}
		}
	}
	for name, all := range values {
		metrics[name] = sample(metrics[name].Unit, all)
	}
	return metrics
}

// Summarize makes a result of the measurements. Depths of predict are predicted; if their variants were measured too
// (Kind "verify"), the prediction has an error.
func (e *Experiment) Summarize(variants []Variant, rows []Row, predict []int) (_ *Result, err error) {
	c := Computed{Layers: e.Model.Config.Layers, Window: e.Window, Seed: e.Seed, TextTokens: len(e.Text), Shard: e.Shard,
		PassTokens: map[string]int{TaskPrefill: e.batch() * e.PromptLen, TaskDecode: e.batch()}}
	for _, v := range variants {
		if v.Metrics, err = e.compute(v.Order); err != nil {
			return nil, err
		}
		c.Variants = append(c.Variants, v)
	}
	for _, n := range predict {
		d := Depth(n, c.Layers)
		d.Kind = KindVerify
		if d.Metrics, err = e.compute(d.Order); err != nil {
			return nil, err
		}
		c.Predicted = append(c.Predicted, d)
	}
	return c.Summarize(rows), nil
}

// Summarize makes a result of measurements.
func (c *Computed) Summarize(rows []Row) *Result {
	r := &Result{Version: resultVersion, Predicted: c.Predicted, Computed: c}
	for _, v := range c.Variants {
		metrics := metricsOf(rows, v)
		r.BelowFloor = append(r.BelowFloor, c.add(metrics, v)...)
		v.Metrics = metrics
		r.Variants = append(r.Variants, v)
	}
	for _, phase := range []string{TaskPrefill, TaskDecode} {
		if f, ok := fit(phase, timesOf(rows, phase, r.Variants)); ok {
			r.Fits = append(r.Fits, f)
		}
	}
	c.predict(r, rows)
	r.Notes = c.notes(r)
	return r
}

// Sentence says what a layer costs and what it gains, "" if no two depths were measured.
func (r *Result) Sentence() string {
	// change is that of a metric by a layer, from the first depth to the last; NaN if there are no two.
	change := func(metric string) float64 {
		found, values := depths(r.Variants, metric)
		if len(found) < 2 {
			return math.NaN()
		}
		last := len(found) - 1
		return (values[last] - values[0]) / float64(max(1, found[last].Layers-found[0].Layers))
	}
	var costs []string
	for i, phase := range []string{TaskPrefill, TaskDecode} {
		cost := change(phase + " time")
		for _, f := range r.Fits {
			if f.Phase == phase && f.Rejected == "" && !math.IsNaN(cost) {
				cost = f.B
			}
		}
		if cost > 0 && !math.IsInf(cost, 0) {
			costs = append(costs, fmt.Sprintf("%.3g ms of a %s", cost, []string{"prefill", "decode step"}[i]))
		}
	}
	if costs == nil {
		return ""
	}
	text := "Each layer costs " + strings.Join(costs, " and ")
	for _, bits := range [][2]string{{"bits per byte", "byte of the text"}, {"bits per token", "token against the whole model"}} {
		if more := change(bits[0]); math.Abs(more) <= math.MaxFloat64 {
			text += fmt.Sprintf(", and %s %.2g bits a %s", map[bool]string{true: "loses", false: "gains"}[more > 0], math.Abs(more), bits[1])
			break
		}
	}
	return text + " (on average, from the first depth to the last)."
}

// depths returns the depths that have a metric, and its medians.
func depths(variants []Variant, metric string) (found []Variant, medians []float64) {
	for _, v := range variants {
		if m, ok := v.Metrics[metric]; ok && v.Kind == KindDepth {
			found, medians = append(found, v), append(medians, m.Median)
		}
	}
	return found, medians
}

// timesOf returns the depths that have a time of a phase, by depth.
func timesOf(rows []Row, phase string, variants []Variant) (all []timed) {
	found, medians := depths(variants, phase+" time")
	for i, v := range found {
		t := timed{layers: v.Layers, median: medians[i]}
		for _, r := range rows {
			if r.Kind == v.Kind && r.Variant == v.Label && r.Metric == phase+" time" {
				t.times = append(t.times, r.Value.Value)
			}
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b timed) int { return cmp.Compare(a.layers, b.layers) })
	return all
}

// predict adds predictions of time by the line over the depths.
func (c *Computed) predict(r *Result, rows []Row) {
	for _, d := range c.Predicted {
		measured := metricsOf(rows, d)
		for i := range r.Fits {
			f := &r.Fits[i]
			if f.Rejected != "" {
				continue
			}
			p := Prediction{Layers: d.Layers, Metric: f.Phase + " time", Unit: "ms"}
			p.Value, p.Low, p.High = f.predict(float64(d.Layers))
			p.Low = min(p.Value, max(0, p.Low)) // no time is less
			if m, ok := measured[p.Metric]; ok && m.Median > 0 {
				rate := (p.Value - m.Median) / m.Median
				p.Measured, p.ErrorRate = &m.Median, &rate
			}
			r.Predictions = append(r.Predictions, p)
		}
	}
}

// notes are what a reader of the result must know.
func (c *Computed) notes(r *Result) (notes []string) {
	note := func(when bool, format string, args ...any) {
		if when {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	has := func(metric string, also func(Metric) bool) bool {
		return slices.ContainsFunc(r.Variants, func(v Variant) bool {
			m, ok := v.Metrics[metric]
			return ok && (also == nil || also(m))
		})
	}
	few := func(m Metric) bool { return m.N < FewRepeats }
	deep := func(v Variant) bool { return (v.Kind == KindDepth || v.Kind == KindVerify) && v.Layers > c.Layers }
	timed, _ := depths(r.Variants, "decode time")
	note(c.Shard.Count > 1, "This is part %d of %d of the experiment; 'infer layers merge' puts the parts together.",
		c.Shard.Index, c.Shard.Count)
	note(slices.ContainsFunc(r.Variants, deep) || slices.ContainsFunc(c.Predicted, deep),
		"The model has %s; deeper variants run them again from the first. Their time is that of a deeper model as "+
			"long as repeated weights do not come from a cache. Each repeated layer has its own KV cache, but its weights "+
			"take memory only once.", humanize.Count(c.Layers, "layer", "layers"))
	note(has("prefill time", few) || has("decode time", few),
		"A median of fewer than %d measurements has no 95 %% interval; "+
			"the range from the least to the greatest is shown instead.",
		FewRepeats)
	note(len(r.Fits) == 0 && len(timed) > 0, "No line was fitted: that takes at least three depths.")
	note(len(r.BelowFloor) > 0, "Faster than the floor, and so without a roofline %%: %s. A ceiling of the device was "+
		"measured too low; 'infer bench ceilings --measure' measures the ceilings again.", strings.Join(r.BelowFloor, ", "))
	for _, f := range r.Fits {
		note(f.Rejected != "" && len(c.Predicted) > 0,
			"The %s time of other depths is not predicted, since the times lie on no line.", f.Phase)
	}
	note(slices.ContainsFunc(r.Fits, func(f Fit) bool { return len(f.Depths) == 3 }),
		"A line that is fitted to three depths has one degree of freedom: its intervals are wide.")
	note(has("bits per token", nil), "Bits per token are of %d tokens that the whole model of %s writes at "+
		"temperature 1 with seed %d: it needs the fewest, but for chance. Agreement is the share of them where a depth "+
		"finds the same token most likely as the whole model.", c.Window, humanize.Count(c.Layers, "layer", "layers"), c.Seed)
	note(has("draft time", nil), "Draft time is that of a token of the whole model while a depth drafts: drafts are "+
		"those of a pass, tokens a pass what comes of it. Of the whole depth it is the time without drafts. It is of the "+
		"most likely tokens after a text of the model's own, not after as many tokens as decode time; where tokens are "+
		"drawn, drafts gain less.")
	note(has("perplexity", nil), "Bits per byte and perplexity are of %d tokens, "+
		"in windows of %d at a stride of half a window.",
		c.TextTokens, c.Window)
	note(slices.ContainsFunc(r.Fits, func(f Fit) bool { return f.Phase == TaskPrefill }),
		"A prefill computes only the last row of logits, for which the last layer does less than the others: a of a "+
			"prefill is smaller by that difference, and may be negative.")
	return notes
}

// Write writes layers.csv and layers.json into a directory, each as a whole or not at all.
func Write(ctx context.Context, dir string, rows []Row, r *Result) error {
	return cmp.Or(
		weights.WriteFile(ctx, filepath.Join(dir, "layers.csv"), func(w io.Writer) error { return WriteCSV(w, rows) }),
		weights.WriteFile(ctx, filepath.Join(dir, ResultFile), func(w io.Writer) error {
			j := json.NewEncoder(w)
			j.SetEscapeHTML(false)
			j.SetIndent("", "  ")
			return j.Encode(r)
		}))
}
