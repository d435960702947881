// Package page writes results of lessons as one HTML page with pictures, which needs no network.
package page

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"gpt2scope/internal/chart"
	"gpt2scope/internal/webpage"
	"gpt2scope/learn"
)

//go:embed page.css
var style string

//go:embed page.html
var layout string

var tmpl = template.Must(webpage.New(layout, nil))

// lesson is what the template has of a result.
type lesson struct {
	learn.Result
	Class string
	Parts []part
}

type part struct {
	learn.Part
	Class   string
	Drawing template.HTML
}

// Write writes the page of results.
func Write(w io.Writer, results []learn.Result) error {
	data := struct {
		Head    webpage.Head
		Lessons []lesson
		Summary string
	}{Head: webpage.Head{Title: "Lessons", Style: template.CSS(style) + chart.Style()}}
	counts := map[learn.Verdict]int{}
	for _, r := range results {
		l := lesson{Result: r, Class: class(r.Verdict)}
		counts[r.Verdict]++
		for _, p := range r.Parts {
			one := part{Part: p, Class: class(p.Verdict)}
			if !p.Picture.Empty() {
				var err error
				if one.Drawing, err = p.Picture.HTML(); err != nil {
					return err
				}
			}
			l.Parts = append(l.Parts, one)
		}
		data.Lessons = append(data.Lessons, l)
	}
	data.Summary = fmt.Sprintf("Verdicts on %d claims: %d shown, %d refuted, %d that cannot be shown here.", len(results),
		counts[learn.Shown], counts[learn.Refuted], counts[learn.Unknown])
	return tmpl.Execute(w, data)
}

// class is the name of a verdict in the style.
func class(v learn.Verdict) string {
	word, _, _ := strings.Cut(string(v), " ")
	return word
}
