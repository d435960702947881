// Package page writes results of lessons as one HTML page with pictures, which needs no network.
package page

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"gpt2scope/internal/chart"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/webpage"
	"gpt2scope/learn"
)

//go:embed page.css
var style string

//go:embed page.html
var layout string

// Write writes the page of results.
func Write(w io.Writer, results []learn.Result) error {
	counts := map[learn.Verdict]int{}
	for _, r := range results {
		counts[r.Verdict]++
	}
	said := map[string]bool{}
	tmpl := template.Must(webpage.New(layout, template.FuncMap{
		// class is the name of a verdict in the style.
		"class": func(v learn.Verdict) string { return strings.Fields(string(v))[0] },
	}))
	return tmpl.Execute(w, map[string]any{
		"Head":    webpage.Head{Title: "Lessons", Style: template.CSS(style) + chart.Style()},
		"Lessons": results,
		"First":   func(reason string) bool { defer func() { said[reason] = true }(); return !said[reason] },
		"Summary": fmt.Sprintf("Verdicts on %s: %d shown, %d half true, %d refuted, %d that cannot be shown here.",
			humanize.Count(len(results), "claim", "claims"), counts[learn.Shown], counts[learn.HalfTrue], counts[learn.Refuted], counts[learn.Unknown]),
	})
}
