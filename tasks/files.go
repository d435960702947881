package tasks

import (
	"bufio"
	"compress/gzip"
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

// SamplesFile is the name of the file of samples in a directory of results.
const SamplesFile = "samples.csv"

// ReadFiles reads samples from files, plain or compressed by gzip, and from directories that hold [SamplesFile].
func ReadFiles(paths ...string) ([]Sample, error) {
	var all []Sample
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			path = filepath.Join(path, SamplesFile)
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, humanize.Cause(err))
		}
		samples, err := ReadAny(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, humanize.Cause(err))
		}
		all = append(all, samples...)
	}
	return all, nil
}

// ReadAny reads samples, plain or compressed by gzip.
func ReadAny(r io.Reader) ([]Sample, error) {
	in := bufio.NewReader(r)
	if head, err := in.Peek(2); err != nil || head[0] != 0x1f || head[1] != 0x8b {
		return ReadSamples(in)
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, fmt.Errorf("not a gzip file: %w", err)
	}
	return ReadSamples(z)
}

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
