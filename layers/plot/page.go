// Package plot draws the result of an experiment over layers: pictures as PNG and SVG, and one HTML page with pictures
// and tables, without references to others and without scripts. [figures] is the only place that chooses what is drawn.
package plot

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gpt2scope/internal/chart"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/webpage"
	"gpt2scope/layers"
	"gpt2scope/weights"
)

//go:embed page/page.css
var style string

//go:embed page/page.html
var pageText string

var pageTemplate = template.Must(webpage.New(pageText, nil))

// section is a panel on the page.
type section struct {
	Title   string
	Picture template.HTML
}

// Write writes the pictures of a result and its page into a directory that exists: time, memory, quality, energy and
// quality-time, each as .png and .svg, and layers.html. A figure without data is not written, and its files of an
// earlier result are removed. Each file is replaced as a whole or not at all; the same result gives the same bytes.
func Write(ctx context.Context, dir string, r *layers.Result) error {
	if r == nil {
		return errors.New("there is no result to draw")
	}
	files := map[string][]byte{}
	for _, name := range []string{"time", "memory", "quality", "energy", "quality-time"} {
		files[name+".png"], files[name+".svg"] = nil, nil
	}
	all := figures(r)
	for _, f := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err, other error
		files[f.name+".png"], err = f.picture().PNG()
		files[f.name+".svg"], other = f.picture().SVG()
		if err := cmp.Or(err, other); err != nil {
			return err
		}
	}
	var err error
	if files["layers.html"], err = newPage(r, all); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name)
		if files[name] == nil { // a picture of an earlier result could be mistaken for one of this
			err = os.Remove(path)
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		} else {
			err = weights.WriteFile(ctx, path, func(w io.Writer) error {
				_, err := w.Write(files[name])
				return err
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// newPage writes the page.
func newPage(r *layers.Result, all []*figure) ([]byte, error) {
	var sections []section
	for _, f := range all {
		for _, p := range f.panels {
			picture, err := chart.Picture{Title: p.title, Panels: []chart.Panel{p.Panel}}.HTML()
			if err != nil {
				return nil, err
			}
			sections = append(sections, section{p.title, picture})
		}
	}
	var facts []string // by turns a name and its value
	for _, name := range slices.Sorted(maps.Keys(r.Configuration)) {
		facts = append(facts, name, plainValue(r.Configuration[name]))
	}
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, map[string]any{
		"Head": webpage.Head{Title: "What a layer costs", Style: template.CSS(style) + chart.Style()},
		"Lead": Lead(r), "Notes": r.Notes, "Sections": sections, "Tables": tables(r),
		"Facts":   slices.Collect(slices.Chunk(facts, 2)),
		"Command": commandLine(r.Command),
	})
	return b.Bytes(), err
}

// Lead summarises the result in a few sentences.
func Lead(r *layers.Result) (all []string) {
	if sentence := r.Sentence(); sentence != "" {
		all = append(all, sentence)
	}
	sweep, _ := depths(r)
	deepest := 0
	for _, v := range sweep {
		deepest = max(deepest, v.Layers)
	}
	for i := range r.Fits {
		f := &r.Fits[i]
		s := cmp.Or(f.Trend(), f.Impossible())
		switch {
		case !finite(f.A) || !finite(f.B):
			continue
		case s == "":
			layer, rest := withError(f.B, f.BError, f.Unit), withError(f.Rest, f.RestError, f.Unit)
			s = fmt.Sprintf("a layer costs %s, %s %s", layer, f.RestName(), rest)
			if t := f.A + f.B*float64(deepest); deepest > 0 && f.A >= 0 && f.B >= 0 && t > 0 {
				s += fmt.Sprintf("; of the time at %s, the layers are %.0f %%", layersOf(deepest), 100*f.B*float64(deepest)/t)
			}
		}
		all = append(all, capital(f.Phase)+": "+s+".")
	}
	for _, q := range qualities {
		of := slices.DeleteFunc(slices.Clone(sweep), func(v layers.Variant) bool {
			return !finite(v.Metrics[q.name].Median) || v.Metrics[q.name].N == 0
		})
		if len(of) < 2 {
			continue
		}
		first, last := of[0], of[len(of)-1]
		from, to := number(first.Metrics[q.name].Median), number(last.Metrics[q.name].Median)
		all = append(all, fmt.Sprintf("%s: %s with %s, %s with %d.", capital(q.axis.Name), from, layersOf(first.Layers), to,
			last.Layers))
	}
	return all
}

func layersOf(n int) string { return humanize.Count(n, "layer", "layers") }

// plainValue writes a value of the configuration.
func plainValue(v any) string {
	b, err := json.Marshal(v)
	if err != nil || v == nil || v == "" {
		return "-"
	}
	return strings.ReplaceAll(strings.Trim(string(b), `[]{}"`), ",", ", ")
}

// commandLine writes a command so that a shell reads the same words.
func commandLine(words []string) string {
	all := slices.Clone(words)
	for i, w := range all {
		if w == "" || strings.ContainsAny(w, " \t\n'\"`$\\!*?[]{}()<>|&;#~") {
			all[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(all, " ")
}

// short is a label as it is drawn beside a mark.
func short(s string) string {
	if r := []rune(strings.TrimSpace(s)); len(r) > 26 {
		return string(r[:25]) + "…"
	}
	return strings.TrimSpace(s)
}

// capital writes the first letter of a text as a capital.
func capital(s string) string { return strings.ToUpper(s[:min(1, len(s))]) + s[min(1, len(s)):] }
