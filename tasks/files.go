package tasks

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"gpt2scope/internal/humanize"
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
		samples, err := readFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, humanize.Cause(err))
		}
		all = append(all, samples...)
	}
	return all, nil
}

func readFile(path string) ([]Sample, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAny(f)
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
