package tasks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/weights"
)

// Write writes the samples and those tables of [Profiles] that have rows into a directory. A table without rows is
// not written, and one of earlier samples is removed, since it would be read as one of these.
func Write(ctx context.Context, dir string, samples []Sample) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("directory %s cannot be made: %w", dir, humanize.Cause(err))
	}
	err := weights.WriteFile(ctx, filepath.Join(dir, SamplesFile), func(w io.Writer) error { return WriteSamples(w, samples) })
	for _, p := range Profiles {
		path := filepath.Join(dir, p.File)
		switch {
		case err != nil:
		case p.Has(samples):
			err = weights.WriteFile(ctx, path, func(w io.Writer) error { return p.Write(w, samples) })
		default:
			if err = os.Remove(path); errors.Is(err, os.ErrNotExist) {
				err = nil
			}
		}
	}
	return err
}

// Merge puts samples in the order of their times, each once.
func Merge(samples []Sample) []Sample {
	seen := map[string]bool{}
	var out []Sample
	for i := range samples {
		if key := strings.Join(cells(&samples[i]), "\x00"); !seen[key] {
			seen[key] = true
			out = append(out, samples[i])
		}
	}
	slices.SortStableFunc(out, func(a, b Sample) int { return a.Time.Compare(b.Time) })
	return out
}
