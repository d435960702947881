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

	"gpt2scope/weights"
)

// sample is the median of values with its 95 % interval: order statistics, which assume
// nothing of the distribution. Of fewer than six values there is none, and the interval
// is from the least to the greatest.
func sample(unit string, values []float64) Metric {
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds), confidence)
	m := Metric{Unit: unit, Median: s.Center, Low: s.Lo, High: s.Hi, N: len(values)}
	if math.IsInf(m.Low, 0) || math.IsNaN(m.Low) {
		m.Low = slices.Min(values)
	}
	if math.IsInf(m.High, 0) || math.IsNaN(m.High) {
		m.High = slices.Max(values)
	}
	return m
}

// fewValues is how many values have no 95 % interval yet.
const fewValues = 6

// metricsOf summarises the rows of a variant.
func metricsOf(rows []Row, v Variant) map[string]Metric {
	values, metrics := map[string][]float64{}, map[string]Metric{}
	for _, r := range rows {
		switch {
		case r.Kind != v.Kind || r.Variant != v.Label:
		case r.N > 0:
			metrics[r.Metric] = Metric{r.Unit, r.Value.Value, r.Low, r.High, r.N}
		default:
			values[r.Metric] = append(values[r.Metric], r.Value.Value)
			metrics[r.Metric] = sample(r.Unit, values[r.Metric])
		}
	}
	delete(metrics, "stages outside layers") // they go to the fit
	delete(metrics, "stages of a layer")
	return metrics
}

// Summarize makes the result of what was measured. Depths of predict are predicted;
// where their variants were measured too (Kind "verify"), the error is told.
func (e *Experiment) Summarize(variants []Variant, rows []Row, predict []int, k Known) (*Result, error) {
	r := &Result{Version: 1}
	for _, v := range variants {
		v.Metrics = metricsOf(rows, v)
		if err := e.count(&v, k); err != nil {
			return nil, err
		}
		r.Variants = append(r.Variants, v)
	}
	lines := map[string]Line{}
	for _, phase := range []string{TaskPrefill, TaskDecode} {
		f, line, ok := fit(phase, r.Variants)
		if !ok {
			continue
		}
		lines[phase+" time"] = line
		f.TraceA, f.TraceB = ofStages(rows, phase, "stages outside layers"), ofStages(rows, phase, "stages of a layer")
		r.Fits = append(r.Fits, f)
	}
	if err := e.predict(r, rows, predict, lines, k); err != nil {
		return nil, err
	}
	r.Notes = e.notes(r, rows, predict)
	return r, nil
}

// ofStages returns the median of what recordings say, nil where there are none.
func ofStages(rows []Row, phase, metric string) *float64 {
	var values []float64
	for _, r := range rows {
		if r.Phase == phase && r.Metric == metric {
			values = append(values, r.Value.Value)
		}
	}
	if len(values) == 0 {
		return nil
	}
	median := sample("ms", values).Median
	return &median
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

// fit fits the line of a phase to the medians of the depths.
func fit(phase string, variants []Variant) (Fit, Line, bool) {
	found, y := depths(variants, phase+" time")
	f := Fit{Phase: phase, Unit: "ms"}
	var x []float64
	for _, v := range found {
		f.Depths = append(f.Depths, v.Layers)
		x = append(x, float64(v.Layers))
	}
	line, err := FitLine(x, y)
	if err != nil {
		return f, line, false
	}
	f.A, f.AError, f.B, f.BError, f.R2, f.Residuals = line.A, line.AError, line.B, line.BError, line.R2, line.Residuals
	return f, line, true
}

// predict adds predictions: of time by the line over the depths, of memory by one over
// what the plan says that a depth takes.
func (e *Experiment) predict(r *Result, rows []Row, predict []int, lines map[string]Line, k Known) error {
	layers := e.Model.Config.Layers
	memory := func(order []int) (float64, error) {
		if k.Memory != nil {
			n, err := k.Memory(order)
			return float64(n), err
		}
		return float64(e.PredictMemory(order)), nil
	}
	for _, name := range []string{"host memory", "device memory"} {
		found, y := depths(r.Variants, name)
		var x []float64
		for _, v := range found {
			x = append(x, v.Metrics["predicted memory"].Median)
		}
		if line, err := FitLine(x, y); err == nil {
			lines[name] = line
		}
	}
	for _, n := range predict {
		d := Depth(n, layers)
		d.Kind = KindVerify
		measured := metricsOf(rows, d)
		for _, name := range []string{"prefill time", "decode time", "host memory", "device memory"} {
			line, ok := lines[name]
			if !ok {
				continue
			}
			x, unit := float64(n), "ms"
			if strings.HasSuffix(name, "memory") {
				var err error
				if x, err = memory(d.Order); err != nil {
					return err
				}
				unit = "bytes"
			}
			p := Prediction{Layers: n, Metric: name, Unit: unit}
			p.Value, p.Low, p.High = line.Predict(x)
			if m, ok := measured[name]; ok && m.Median > 0 {
				rate := (p.Value - m.Median) / m.Median
				p.Measured, p.ErrorRate = &m.Median, &rate
			}
			r.Predictions = append(r.Predictions, p)
		}
	}
	return nil
}

// notes says what a reader of the result must know.
func (e *Experiment) notes(r *Result, rows []Row, predict []int) []string {
	var notes []string
	L := e.Model.Config.Layers
	deep := func(n int) bool { return n > L }
	if slices.ContainsFunc(r.Variants, func(v Variant) bool { return v.Kind == KindDepth && deep(v.Layers) }) || slices.ContainsFunc(predict, deep) {
		notes = append(notes, fmt.Sprintf("The model has %d layers. Beyond that its layers run again from the first: the time is that of a deeper model, as far as weights that are read again are not in a cache, and each repeated layer has a KV cache of its own, but its weights take memory once.", L))
	}
	few := false
	for _, v := range r.Variants {
		for _, name := range []string{"prefill time", "decode time"} {
			m, ok := v.Metrics[name]
			few = few || ok && m.N < fewValues
		}
	}
	if few {
		notes = append(notes, fmt.Sprintf("A median of fewer than %d measurements has no 95 %% interval; here it is from the least to the greatest.", fewValues))
	}
	if found, _ := depths(r.Variants, "decode time"); len(r.Fits) == 0 && len(found) > 0 {
		notes = append(notes, "No line was fitted: it takes at least three depths.")
	}
	for _, f := range r.Fits {
		if len(f.Depths) == 3 {
			notes = append(notes, "The lines have one degree of freedom, since there are three depths: the intervals are wide.")
			break
		}
	}
	has := func(metric string) bool {
		return slices.ContainsFunc(r.Variants, func(v Variant) bool { _, ok := v.Metrics[metric]; return ok })
	}
	if has("KL divergence") {
		notes = append(notes, fmt.Sprintf("Agreement and KL divergence compare with all %d layers, each once, on %d tokens that those write at temperature 1 with seed %d; they are means over the tokens.", L, e.Window, e.Seed))
	}
	if has("perplexity") {
		notes = append(notes, fmt.Sprintf("Bits per byte and perplexity are of %d tokens, in windows of %d at a stride of half a window.", len(e.Text), e.Window))
	}
	if has("host memory") {
		notes = append(notes, "Host memory is the peak (VmHWM) of a process that loads the variant, runs a few passes and, where those are on the host, fills the context; the program itself is in it. Predicted memory is weights, KV cache and activations where the passes run.")
	}
	if has("device memory") {
		notes = append(notes, "Device memory is by how much less was free after a few passes than before the weights were loaded, in a process of its own.")
	}
	if slices.ContainsFunc(rows, func(r Row) bool { return r.Metric == "stages of a layer" }) {
		notes = append(notes, "By stages, a layer takes the time of its steps and of what lies between steps of layers. Of a prefill the last row of logits is computed, for which the last layer does less than the others: a is less by that much, and may be negative.")
	}
	return notes
}

// Write writes layers.csv and layers.json in a directory. Each is whole or not there.
func Write(ctx context.Context, dir string, rows []Row, r *Result) error {
	return cmp.Or(
		weights.WriteFile(ctx, filepath.Join(dir, "layers.csv"), func(w io.Writer) error { return WriteCSV(w, rows) }),
		weights.WriteFile(ctx, filepath.Join(dir, "layers.json"), func(w io.Writer) error {
			j := json.NewEncoder(w)
			j.SetEscapeHTML(false)
			j.SetIndent("", "  ")
			return j.Encode(r)
		}))
}
