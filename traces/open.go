package traces

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"strings"
)

// sqliteMagic begins every sqlite file.
const sqliteMagic = "SQLite format 3\x00"

// File is a trace in a file, of any format that the package reads.
type File struct {
	Header *Header
	events iter.Seq2[Event, error]
	close  func() error
}

// Events returns the events, once. Those of an sqlite export come in the order of
// [Compare], those of other files as they stand there. An event with an error is
// the last.
func (f *File) Events() iter.Seq2[Event, error] { return f.events }

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
	head := make([]byte, len(sqliteMagic))
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		f.Close()
		return nil, problem(path, err)
	}
	if n == 0 {
		f.Close()
		return nil, fmt.Errorf("%s is empty, and no trace", path)
	}
	if bytes.Equal(head[:n], []byte(sqliteMagic)) {
		f.Close()
		return openNsys(path)
	}
	if strings.HasSuffix(path, ".nsys-rep") || strings.HasSuffix(path, ".qdrep") {
		f.Close()
		return nil, fmt.Errorf("%s is a report of Nsight Systems; export it first: nsys export --type sqlite -o OUT.sqlite %s", path, path)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		f.Close()
		return nil, problem(path, err)
	}
	header, events, err := Read(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	named := func(yield func(Event, error) bool) {
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
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return fmt.Errorf("cannot read %s: %w", path, err)
}

// Trace is a whole trace in memory.
type Trace struct {
	Header *Header
	Events []Event // in the order of Compare
	Attribution
}

// Load reads a whole trace and attributes what its source did not. Of a trace that
// is cut off it returns what is whole and the [*TruncatedError].
func Load(path string) (*Trace, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var events []Event
	for e, failed := range f.Events() {
		if failed != nil {
			err = failed
			break
		}
		events = append(events, e)
	}
	if err != nil && !errors.As(err, new(*TruncatedError)) {
		return nil, err
	}
	if err != nil {
		f.Header.Incomplete = append(f.Header.Incomplete, err.Error())
	}
	return NewTrace(f.Header, events), err
}

// NewTrace makes a trace of events that a recorder has in memory. It sorts them,
// in place, and attributes what their source did not.
func NewTrace(h *Header, events []Event) *Trace {
	t := &Trace{Header: h, Events: events}
	t.nameProcess()
	Sort(t.Events)
	t.Attribution = Attribute(h, t.Events)
	return t
}

// nameProcess gives the header a process, that of the first API call, where its
// source did not; and work of the GPU, where it names none.
func (t *Trace) nameProcess() {
	for i := range t.Events {
		if e := &t.Events[i]; t.Header.Process == 0 && e.Kind.IsCall() {
			t.Header.Process = e.Lane.Process
			break
		}
	}
	for i := range t.Events {
		if l := &t.Events[i].Lane; l.Process == 0 && l.Device >= 0 {
			l.Process = t.Header.Process
		}
	}
}
