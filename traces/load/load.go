// Package load reads traces of all known formats from files, and the samples in the program: gpt2scope's own, the sqlite
// exports of Nsight Systems, and the JSON of PyTorch's profiler.
package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"gpt2scope/internal/files"
	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
	"gpt2scope/traces/nsys"
	"gpt2scope/traces/samples"
)

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
}

// Load reads a whole trace file, as [Source.Load] does.
func Load(path string) (*traces.Trace, error) { return Source{Path: path}.Load() }

// Open opens a file that a user named, or one of [samples].
func Open(ctx context.Context, path string) (io.ReadCloser, error) {
	data, err := samples.Find(path)
	if data != nil || err != nil {
		return io.NopCloser(bytes.NewReader(data)), err
	}
	f, err := files.Open(ctx, path)
	if err != nil {
		return nil, problem(path, err)
	}
	return f, nil
}

// Load reads a whole trace, and attributes what its source did not: one of ours, an sqlite export of Nsight Systems, or
// Chrome trace JSON in a dialect that package traces knows; also compressed by gzip or zstd. Of a trace that is cut off it
// returns what is whole and the [*traces.TruncatedError].
func (s Source) Load() (*traces.Trace, error) {
	if s.Context == nil {
		s.Context = context.Background()
	}
	watched := &watched{Reader: s.Stream, ctx: s.Context}
	if s.Stream == nil {
		f, err := Open(s.Context, s.Path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		watched.Reader = f
		if file, ok := f.(*files.File); !ok { // an sqlite export among the samples has to become a file too
			s.Stream = f
		} else if info, err := file.Stat(); err == nil && s.Progress != nil && info.Mode().IsRegular() {
			watched.total, watched.progress = info.Size(), s.Progress
		}
	}
	header, events, err := s.read(bufio.NewReaderSize(watched, headSize))
	if err != nil && !errors.As(err, new(*traces.TruncatedError)) || header == nil {
		return nil, err
	}
	if err != nil {
		header.Incomplete = append(header.Incomplete, err.Error())
	}
	if rank, ok := traces.RankInName(filepath.Base(s.Path)); ok && len(header.Ranks) == 0 {
		header.Ranks = []traces.Rank{{Rank: rank, Source: "the file's name"}}
	}
	return traces.NewTrace(header, events), err
}

// read reads the trace, whose first bytes say what it is.
func (s Source) read(stream *bufio.Reader) (*traces.Header, []traces.Event, error) {
	file, _ := stream.Peek(len(traces.SQLite))
	isFile := s.Stream == nil && string(file) == traces.SQLite
	stream, err := traces.Uncompressed(stream)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.Path, err)
	}
	head, err := stream.Peek(headSize)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, nil, problem(s.Path, err)
	case len(head) == 0:
		return nil, nil, fmt.Errorf("%s is empty, not a trace", s.Path)
	case bytes.HasPrefix(head, []byte(traces.SQLite)):
		path := s.Path
		if !isFile {
			if path, err = copied(stream); err != nil {
				return nil, nil, problem(s.Path, err)
			}
			defer os.Remove(path)
			s.Progress = nil
		}
		header, events, err := nsys.Read(s.Context, path, s.Progress)
		if err != nil {
			return nil, nil, fmt.Errorf("%s %w", s.Path, err)
		}
		return header, events, nil
	}
	if err := s.foreign(head); err != nil {
		return nil, nil, err
	}
	header, events, err := traces.Read(stream)
	if err != nil {
		err = fmt.Errorf("%s: %w", s.Path, err)
	}
	return header, events, err
}

// watched is a reader that ends with a context, and tells what was read of a file.
type watched struct {
	io.Reader
	ctx         context.Context
	done, total int64
	progress    func(done, total int64) // nil if nobody asks
}

func (w *watched) Read(b []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	n, err := w.Reader.Read(b)
	if w.done += int64(n); w.progress != nil {
		w.progress(w.done, w.total)
	}
	return n, err
}

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

// headSize is how many bytes of a file decide what it is. nsys and ncu may print lines before the header of a CSV.
const headSize = 4096

// strangers are kinds of files that are no recordings, by an expression for how they begin: what a file is, and what to
// do instead. FILE stands for its name.
var strangers = []struct{ begins, is string }{
	{`^NVIDIA Tegra Profiler Report`, "is a report of Nsight Systems, which only nsys can read: export it with " +
		"nsys export --type sqlite FILE, and give the sqlite file"},
	{`^NVR\x00`, "is a report of Nsight Compute: it has counters of kernels, but no times of a run; ncu --csv " +
		"--page details --import FILE prints the counters, and nsys makes a recording"},
	{`(?m)^"ID","Process ID"|\A\s*==PROF==`, "is output of Nsight Compute (ncu --csv --page details or raw): " +
		"it has counters of kernels, but no times of a run; give a recording, such as the file of nsys export --type sqlite"},
	{`(?m)^[A-Z][^\n"]*\((ns|MB|%)\),|^ ?\*\* .*\(\w+_(sum|trace|gpu_\w+)(:\w+)*\)|^ *Time ?\(%\) +Total Time`,
		"is a table of nsys stats, not a trace: give the export of the report, nsys export --type sqlite REPORT.nsys-rep"},
	{`(?m)^==\d+== |^"Type","Time\(%\)"|^"Start","Duration","Grid X"`, "is a table of nvprof, not a trace: record " +
		"with nsys profile, then nsys export --type sqlite"},
	{`^"(Kind|Name)","(Agent_Id|Domain|Calls)"|^"Index","KernelName"|^\s*\{\s*"rocprofiler-sdk-tool"`,
		"is output of rocprof (rocprofv3), which is not read: record with PyTorch's profiler, which records AMD's GPUs " +
			"too, and give the file of export_chrome_trace"},
	{`^\s*\[\s*\{\s*"(children|frame|metrics)"`, "is a profile of Triton's Proton: a tree of sums, not a trace; " +
		"record with PyTorch's profiler or nsys"},
	{`(?s)^\n[^\s{\[].*/(host|device):`, "is a profile of XLA (xplane.pb of JAX or TensorFlow), which is not read: " +
		"give the trace.json.gz that lies beside it"},
	{`^PK\x03\x04`, "is a zip archive, not a trace: unpack it with unzip FILE, and give the file that it has"},
	{`^BZh|^.7zXZ`, "is compressed by bzip2 or xz: decompress it first; gzip and zstd are read as they are"},
}

// foreign says what a file is, by its first bytes, if it is of a known kind that is not a
// recording, and what to do instead. It is nil if the file may be a recording.
func (s Source) foreign(head []byte) error {
	path, file := s.Path, s.Path
	if s.Stream != nil { // Path is no file then
		file = "FILE"
	}
	for _, stranger := range strangers {
		if regexp.MustCompile(stranger.begins).Match(head) {
			return fmt.Errorf("%s %s", path, strings.Replace(stranger.is, "FILE", file, 1))
		}
	}
	if first := bytes.TrimLeft(head, " \t\r\n"); len(first) == 0 || first[0] == '{' || first[0] == '[' {
		return nil
	}
	text := fmt.Sprintf("%s is not a trace: it is neither JSON nor an sqlite file, nor such compressed by gzip or zstd",
		path)
	switch filepath.Ext(path) {
	case ".nsys-rep", ".qdrep":
		text += ", and its content is not that of a report of Nsight Systems, which its name promises: record again, then " +
			"nsys export --type sqlite FILE"
	case ".ncu-rep":
		text += ", and its content is not that of a report of Nsight Compute, which its name promises: record again, then " +
			"ncu --csv --page details --import FILE"
	}
	return errors.New(text)
}
