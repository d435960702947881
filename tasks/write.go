package tasks

import (
	"context"
	"io"
	"path/filepath"

	"gpt2scope/weights"
)

// Write writes the samples and the tables of [Profiles] into a directory.
func Write(ctx context.Context, dir string, samples []Sample) error {
	err := weights.WriteFile(ctx, filepath.Join(dir, SamplesFile), func(w io.Writer) error { return WriteSamples(w, samples) })
	for _, p := range Profiles {
		if err == nil {
			err = weights.WriteFile(ctx, filepath.Join(dir, p.File), func(w io.Writer) error { return p.Write(w, samples) })
		}
	}
	return err
}
