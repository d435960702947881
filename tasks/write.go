package tasks

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/weights"
)

// Write writes the samples and the tables of [Profiles] into a directory.
func Write(ctx context.Context, dir string, samples []Sample) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("directory %s cannot be made: %w", dir, humanize.Cause(err))
	}
	err := weights.WriteFile(ctx, filepath.Join(dir, SamplesFile), func(w io.Writer) error { return WriteSamples(w, samples) })
	for _, p := range Profiles {
		if err == nil {
			err = weights.WriteFile(ctx, filepath.Join(dir, p.File), func(w io.Writer) error { return p.Write(w, samples) })
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
