package layers

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/layers"
)

// layersColumns are the columns of the table: heading, metric, and how a median is written.
var layersColumns = []struct{ head, metric, format string }{
	{"prefill ms", "prefill time", "interval"},
	{"decode ms", "decode time", "interval"},
	{"tokens/s", "decode rate", "%.0f"},
	{"roofline %", "decode share of floor", "%.0f"},
	{"launches", "launches", "%.0f"},
	{"memory", "predicted memory", "bytes"},
	{"mJ/token", "energy", "digits"},
	{"bits/byte", "bits per byte", "%.4f"},
	{"perplexity", "perplexity", "%.2f"},
	{"agreement", "agreement", "percent"},
	{"KL nats", "KL divergence", "%.4f"},
	{"drafts", "drafts", "%.0f"},
	{"tokens/pass", "tokens a pass", "%.2f"},
	{"drafting ms", "draft time", "digits"},
}

func show(m layers.Metric, format string) string {
	switch format {
	case "interval":
		return fmt.Sprintf("%s (%s - %s)", cli.Digits(m.Median), cli.Digits(m.Low), cli.Digits(m.High))
	case "digits":
		return cli.Digits(m.Median)
	case "bytes":
		return humanize.Size(int64(m.Median))
	case "percent":
		return fmt.Sprintf("%.0f%%", 100*m.Median)
	}
	return fmt.Sprintf(format, m.Median)
}

// writeLayers writes a result as tables.
func writeLayers(w io.Writer, r *layers.Result) {
	var s cli.Setting
	if text, err := json.Marshal(r.Configuration); err == nil {
		_ = json.Unmarshal(text, &s) // fields that are not words or numbers are left out
	}
	interval := "95% interval"
	for _, v := range r.Variants {
		if m, ok := v.Metrics["decode time"]; ok && m.N < layers.FewRepeats {
			interval = "least - greatest"
		}
	}
	if sentence := r.Sentence(); sentence != "" {
		fmt.Fprintf(w, "%s\n\n", sentence)
	}
	fmt.Fprintf(w, "%s, %s, %s; median (%s)\n\n", s.Model, s.Place(), s.DType, interval)
	heading, columns := "layers", layersColumns[:0:0]
	for _, c := range layersColumns {
		if slices.ContainsFunc(r.Variants, func(v layers.Variant) bool { _, ok := v.Metrics[c.metric]; return ok }) {
			columns, heading = append(columns, c), heading+"\t"+c.head
		}
	}
	table.Lines(w, table.Right, heading, r.Variants, func(v layers.Variant) string {
		line := v.Label
		for _, c := range columns {
			line += "\t"
			if m, ok := v.Metrics[c.metric]; ok {
				line += show(m, c.format)
			}
		}
		return line
	})
	if best, share := r.BestDraft(); best != nil {
		fmt.Fprintf(w, "\nfastest drafts: --speculate exits=%d,%.0f; a token takes %.2f of its time without\n", best.Layers,
			best.Metrics["drafts"].Median, share)
	}
	WriteFits(w, r.Fits)
	writePredictions(w, r.Predictions)
	if len(r.Notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, n := range r.Notes {
		fmt.Fprintln(w, n)
	}
}

// WriteFits writes the lines, and what a layer costs at which depth if times do not lie on a line.
func WriteFits(w io.Writer, fits []layers.Fit) {
	var lines []string
	row := func(phase, name string, known bool, value, deviation float64, rest string) {
		measured := fmt.Sprintf("%.5f ± %.5f", value, deviation)
		if !known {
			measured = "not known"
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s", phase, name, measured, rest))
	}
	var trends []string
	for _, f := range fits {
		if trend := f.Trend(); trend != "" {
			trends = append(trends, f.Phase+": "+trend)
		}
		if impossible := f.Impossible(); impossible != "" {
			trends = append(trends, f.Phase+": "+impossible)
		}
		if f.Rejected != "" {
			continue
		}
		most := 0.0
		for _, x := range f.Residuals {
			if math.Abs(x) > math.Abs(most) {
				most = x
			}
		}
		row(f.Phase, "b, a layer", f.B >= 0, f.B, f.BError, fmt.Sprintf("%.5f\t%+.5f", f.R2, most))
		rest := "a, the rest"
		if f.Phase == layers.TaskPrefill {
			rest += " less what the last layer saves"
		}
		row("", rest, f.Rest >= 0, f.A, f.AError, "\t")
	}
	if len(lines) > 0 {
		fmt.Fprintln(w, "\ntime(L) = a + b L by least squares (± standard error)")
		table.Lines(w, table.Right, "phase\t\tms\tR^2\tlargest residual ms", lines, func(line string) string { return line })
	}
	if len(trends) > 0 {
		fmt.Fprintln(w)
	}
	for _, t := range trends {
		fmt.Fprintln(w, t)
	}
}

// writePredictions writes predictions, and how wrong they were.
func writePredictions(w io.Writer, predictions []layers.Prediction) {
	if len(predictions) == 0 {
		return
	}
	fmt.Fprintln(w, "\npredicted (95% prediction interval)")
	table.Lines(w, table.Right, "layers\twhat\tpredicted\tmeasured\terror", predictions, func(p layers.Prediction) string {
		show := func(x float64) string {
			if p.Unit == "bytes" && x >= 0 {
				return humanize.Size(int64(x))
			}
			return strings.TrimSpace(fmt.Sprintf("%.4f %s", x, p.Unit))
		}
		measured, wrong := "", ""
		if p.Measured != nil {
			measured, wrong = show(*p.Measured), fmt.Sprintf("%+.1f%%", 100**p.ErrorRate)
		}
		return fmt.Sprintf("%d\t%s\t%s (%s - %s)\t%s\t%s", p.Layers, p.Metric, show(p.Value), show(p.Low), show(p.High),
			measured, wrong)
	})
}
