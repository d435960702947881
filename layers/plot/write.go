package plot

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"gpt2scope/layers"
	"gpt2scope/weights"
)

// names are the figures that there can be.
var names = []string{"time", "memory", "quality", "energy", "quality-time"}

// Write writes the pictures of a result and its page into a directory that exists:
// time, memory, quality, energy and quality-time, each as .png and .svg, and
// layers.html. A figure without data is not written, and its files of an earlier result
// are removed. Each file is replaced as a whole or not at all; the same result gives
// the same bytes.
func Write(ctx context.Context, dir string, r *layers.Result) error {
	if r == nil {
		return errors.New("there is no result to draw")
	}
	type file struct {
		name string
		data []byte
	}
	var files []file
	all := figures(r)
	drawn := map[string]bool{}
	for _, f := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		picture, err := asPNG(filed, f.title, f.panels)
		if err != nil {
			return err
		}
		vector, err := asSVG(filed, f.title, f.panels)
		if err != nil {
			return err
		}
		drawn[f.name] = true
		files = append(files, file{f.name + ".png", picture}, file{f.name + ".svg", vector})
	}
	page, err := newPage(r, all)
	if err != nil {
		return err
	}
	files = append(files, file{"layers.html", page})
	for _, f := range files {
		err := weights.WriteFile(ctx, filepath.Join(dir, f.name), func(w io.Writer) error {
			_, err := w.Write(f.data)
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, name := range names {
		if drawn[name] {
			continue
		}
		for _, ending := range []string{".png", ".svg"} {
			if err := removeOld(filepath.Join(dir, name+ending)); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeOld removes the picture of an earlier result, which could be mistaken for one of this.
func removeOld(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil
	}
	if err == nil {
		err = os.Remove(path)
	}
	return err
}
