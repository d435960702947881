package plot

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"

	"gpt2scope/internal/webpage"
	"gpt2scope/layers"
)

//go:embed page/page.css
var style string

//go:embed page/page.html
var pageText string

var pageTemplate = template.Must(webpage.New(pageText, nil))

// page is what the template has.
type page struct {
	Head webpage.Head

	Lead        []string
	Charts      []chart
	Odd         bool // number of charts
	Fits        []fitRow
	Residuals   *table
	Steps       *table
	Predictions []predictionRow
	Tables      []*table
	WhatIf      *table
	Facts       []fact
	Command     string
	Notes       []string
}

// chart is a panel, for wide and narrow windows.
type chart struct {
	Title        string
	Wide, Narrow template.HTML
}

// fact is a line of the configuration.
type fact struct{ Name, Value string }

// newPage writes the page.
func newPage(r *layers.Result, all []*figure) ([]byte, error) {
	p := &page{
		Head: webpage.Head{Title: "What a layer costs", Style: template.CSS(style)},
		Lead: lead(r), Fits: fitRows(r), Residuals: residuals(r), Steps: steps(r), Predictions: predictionRows(r), Tables: metricTables(r), WhatIf: whatIfTable(r),
		Facts: facts(r), Command: commandLine(r.Command), Notes: r.Notes,
	}
	for _, f := range all {
		for _, one := range f.panels {
			c := chart{Title: one.title}
			for _, v := range []struct {
				layout layout
				into   *template.HTML
			}{{broad, &c.Wide}, {narrow, &c.Narrow}} {
				picture, err := asSVG(v.layout, one.title, []*panel{one})
				if err != nil {
					return nil, err
				}
				*v.into = template.HTML(picture) // all text in it is escaped
			}
			p.Charts = append(p.Charts, c)
		}
	}
	p.Odd = len(p.Charts)%2 == 1
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, p)
	return b.Bytes(), err
}

// facts are the configuration, by name.
func facts(r *layers.Result) []fact {
	var all []fact
	for _, name := range slices.Sorted(maps.Keys(r.Configuration)) {
		all = append(all, fact{name, plainValue(r.Configuration[name])})
	}
	return all
}

// plainValue writes a value of the configuration.
func plainValue(v any) string {
	switch v := v.(type) {
	case nil:
		return none
	case string:
		return cmp.Or(v, none)
	case bool:
		if v {
			return "yes"
		}
		return "no"
	case float64:
		if v == float64(int64(v)) {
			return fmt.Sprintf("%.0f", v)
		}
		return fmt.Sprint(v)
	case []string:
		return strings.Join(v, ", ")
	case []int:
		return strings.Trim(strings.ReplaceAll(fmt.Sprint(v), " ", ", "), "[]")
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = plainValue(e)
		}
		return strings.Join(parts, ", ")
	case map[string]any:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, name+": "+plainValue(v[name]))
		}
		return strings.Join(parts, ", ")
	}
	if b, err := json.Marshal(v); err == nil {
		return strings.Trim(string(b), `"`)
	}
	return fmt.Sprint(v)
}

// commandLine writes a command so that a shell reads the same words.
func commandLine(words []string) string {
	all := make([]string, len(words))
	for i, w := range words {
		if w == "" || strings.ContainsFunc(w, func(r rune) bool {
			return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./:,@%", r)
		}) {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		all[i] = w
	}
	return strings.Join(all, " ")
}
