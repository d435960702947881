// Package load reads traces of all known formats from files: gpt2scope's own, the sqlite
// exports of Nsight Systems, and the JSON of PyTorch's profiler.
package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
	"gpt2scope/traces/nsys"
)

// File is a trace in a file, of any format that the package reads.
type File struct {
	Header *traces.Header
	events iter.Seq2[traces.Event, error]
	close  func() error
}

// Events returns the events, once. Those of an sqlite export come in the order of
// [traces.Compare], those of other files as they stand there. An event with an error is
// the last.
func (f *File) Events() iter.Seq2[traces.Event, error] { return f.events }

// Close ends the reading.
func (f *File) Close() error { return f.close() }

// Open opens a trace: one of ours, an sqlite export of Nsight Systems, or JSON of
// PyTorch's profiler; JSON also compressed by gzip. It looks at what the file
// holds, not at its name.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, problem(path, err)
	}
	head := make([]byte, len(nsys.Magic))
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		f.Close()
		return nil, problem(path, err)
	}
	if n == 0 {
		f.Close()
		return nil, fmt.Errorf("%s is empty, not a trace", path)
	}
	if bytes.Equal(head[:n], []byte(nsys.Magic)) {
		f.Close()
		header, all, err := nsys.Read(path)
		if err != nil {
			return nil, err
		}
		events := func(yield func(traces.Event, error) bool) {
			for _, e := range all {
				if !yield(e, nil) {
					return
				}
			}
		}
		return &File{header, events, func() error { return nil }}, nil
	}
	if strings.HasSuffix(path, ".nsys-rep") || strings.HasSuffix(path, ".qdrep") {
		f.Close()
		return nil, fmt.Errorf("%s is a report of Nsight Systems; export it first: nsys export --type sqlite -o OUT.sqlite %s", path, path)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		f.Close()
		return nil, problem(path, err)
	}
	header, events, err := traces.Read(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	named := func(yield func(traces.Event, error) bool) {
		for e, err := range events {
			if err != nil {
				err = fmt.Errorf("%s: %w", path, err)
			}
			if !yield(e, err) {
				return
			}
		}
	}
	return &File{header, named, f.Close}, nil
}

// problem says what the system said of a file.
func problem(path string, err error) error {
	return fmt.Errorf("cannot read %s: %w", path, humanize.Cause(err))
}

// Load reads a whole trace and attributes what its source did not. Of a trace that
// is cut off it returns what is whole and the [*traces.TruncatedError].
func Load(path string) (*traces.Trace, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var events []traces.Event
	for e, failed := range f.Events() {
		if failed != nil {
			err = failed
			break
		}
		events = append(events, e)
	}
	if err != nil && !errors.As(err, new(*traces.TruncatedError)) {
		return nil, err
	}
	if err != nil {
		f.Header.Incomplete = append(f.Header.Incomplete, err.Error())
	}
	return traces.NewTrace(f.Header, events), err
}
