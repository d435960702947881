// Package load reads traces of all known formats from files: gpt2scope's own, the sqlite
// exports of Nsight Systems, and the JSON of PyTorch's profiler.
package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"gpt2scope/internal/files"
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

// Source is where a trace is read from. What it holds decides the format, not its name.
type Source struct {
	Path string // of the file; of a stream, its name in messages

	// Stream is read in place of the file, if it is not nil. An sqlite export needs a file: it
	// is copied to a temporary one.
	Stream io.Reader

	// Context ends the reading, also a wait for the other end of a pipe; nil for none.
	Context context.Context

	// Progress, if not nil, is told how many bytes were read of how many. For a stream, whose
	// length is not known, it is not called.
	Progress func(done, total int64)

	size int64
}

// Open opens a trace file.
func Open(path string) (*File, error) { return Source{Path: path}.Open() }

// Load reads a whole trace file, as [Source.Load] does.
func Load(path string) (*traces.Trace, error) { return Source{Path: path}.Load() }

// Open opens a trace: one of ours, an sqlite export of Nsight Systems, or JSON of PyTorch's
// profiler; JSON also compressed by gzip.
func (s Source) Open() (*File, error) {
	if s.Context == nil {
		s.Context = context.Background()
	}
	stream, closeStream := s.Stream, func() error { return nil }
	if stream == nil {
		f, err := files.Open(s.Context, s.Path)
		if err != nil {
			return nil, problem(s.Path, err)
		}
		stream, closeStream = f, f.Close
		if info, err := f.Stat(); err == nil && s.Progress != nil && info.Mode().IsRegular() {
			s.size = info.Size()
			stream = &counted{f, 0, s.size, s.Progress}
		}
	}
	opened, isOpen, err := s.open(bufio.NewReaderSize(&ending{stream, s.Context}, headSize), closeStream)
	if !isOpen {
		closeStream()
	}
	return opened, err
}

// open reads the head of the trace. It is not open if nothing more is read from the stream.
func (s Source) open(stream *bufio.Reader, closeStream func() error) (f *File, isOpen bool, err error) {
	head, err := stream.Peek(headSize)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, false, problem(s.Path, err)
	case len(head) == 0:
		return nil, false, fmt.Errorf("%s is empty, not a trace", s.Path)
	case bytes.HasPrefix(head, []byte(nsys.Magic)):
		path := s.Path
		if s.Stream != nil {
			if path, err = copied(stream); err != nil {
				return nil, false, problem(s.Path, err)
			}
			defer os.Remove(path)
		}
		header, all, err := nsys.Read(s.Context, path, s.ofRows())
		if err != nil {
			return nil, false, fmt.Errorf("%s %w", s.Path, err)
		}
		events := func(yield func(traces.Event, error) bool) {
			for _, e := range all {
				if !yield(e, nil) {
					return
				}
			}
		}
		return &File{header, events, func() error { return nil }}, false, nil
	}
	if err := s.foreign(head); err != nil {
		return nil, false, err
	}
	header, events, err := traces.Read(stream)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", s.Path, err)
	}
	named := func(yield func(traces.Event, error) bool) {
		for e, err := range events {
			if err != nil {
				err = fmt.Errorf("%s: %w", s.Path, err)
			}
			if !yield(e, err) {
				return
			}
		}
	}
	return &File{header, named, closeStream}, true, nil
}

// ofRows returns what turns a progress in rows into one in bytes, nil for none.
func (s Source) ofRows() func(done, total int64) {
	if s.size == 0 {
		return nil
	}
	return func(done, total int64) {
		s.Progress(int64(float64(s.size)*float64(done)/float64(max(1, total))), s.size)
	}
}

// ending is a reader that ends with a context.
type ending struct {
	io.Reader
	ctx context.Context
}

func (e *ending) Read(b []byte) (int, error) {
	if e.ctx.Err() != nil {
		return 0, context.Cause(e.ctx)
	}
	return e.Reader.Read(b)
}

// counted counts what is read of a file.
type counted struct {
	io.Reader
	done, total int64
	progress    func(done, total int64)
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.done += int64(n)
	c.progress(c.done, c.total)
	return n, err
}

// copied writes a stream to a temporary file.
func copied(stream io.Reader) (path string, err error) {
	f, err := os.CreateTemp("", "gpt2scope-*.sqlite")
	if err != nil {
		return "", err
	}
	if _, err = io.Copy(f, stream); err == nil {
		err = f.Close()
	} else {
		f.Close()
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return f.Name(), err
}

// problem says what the system said of a file.
func problem(path string, err error) error {
	return fmt.Errorf("cannot read %s: %w", path, humanize.Cause(err))
}

// Load reads a whole trace and attributes what its source did not. Of a trace that is cut off
// it returns what is whole and the [*traces.TruncatedError].
func (s Source) Load() (*traces.Trace, error) {
	f, err := s.Open()
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
	if rank, ok := traces.RankInName(filepath.Base(s.Path)); ok && len(f.Header.Ranks) == 0 {
		f.Header.Ranks = []traces.Rank{{Rank: rank, Source: "the file's name"}}
	}
	return traces.NewTrace(f.Header, events), err
}
