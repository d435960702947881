// Package album writes pictures into a directory, each as SVG and PNG, and a page that shows them below a text.
package album

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"html/template"
	"io"
	"os"
	"path/filepath"

	"gpt2scope/internal/chart"
	"gpt2scope/internal/webpage"
	"gpt2scope/weights"
)

// Album is a page with its pictures.
type Album struct {
	File, Title string
	Hint        string // how to read the pictures
	Text        string // as a terminal shows it
	Pictures    []Picture
}

// Picture is one with the name of its files, without the ending.
type Picture struct {
	File string
	chart.Picture
}

//go:embed page.html
var pageText string

// Write writes pictures and page into a directory that exists, and returns how many pictures there are. A picture
// without data is not written, and files of an earlier one are removed, since they would be read as ones of this.
func (a Album) Write(ctx context.Context, dir string) (n int, err error) {
	type file struct {
		name string
		data []byte // nil: to remove
	}
	var files []file
	var shown []Picture
	for _, p := range a.Pictures {
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
		var svg, png []byte
		if !p.Empty() {
			shown = append(shown, p)
			var failed error
			svg, err = p.SVG()
			png, failed = p.PNG()
			if err = errors.Join(err, failed); err != nil {
				return 0, err
			}
		}
		files = append(files, file{p.File + ".svg", svg}, file{p.File + ".png", png})
	}
	var b bytes.Buffer
	head := webpage.Head{Title: a.Title, Style: chart.Style()}
	a.Pictures = shown
	page := template.Must(webpage.New(pageText, nil))
	if err := page.Execute(&b, map[string]any{"Head": head, "Album": a}); err != nil {
		return 0, err
	}
	for _, f := range append(files, file{a.File, b.Bytes()}) {
		path := filepath.Join(dir, f.name)
		if f.data != nil {
			err = weights.WriteFile(ctx, path, func(w io.Writer) error {
				_, err := w.Write(f.data)
				return err
			})
		} else if err = os.Remove(path); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		if err != nil {
			return 0, err
		}
	}
	return len(shown), nil
}
