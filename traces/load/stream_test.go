package load

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"gpt2scope/traces/internal/fixtures"
)

// TestStream: a trace of any format is the same from a file and from a stream, and nothing
// is left of a copied one.
func TestStream(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, path := range []string{"../samples/eager.sqlite", "../samples/gpt2-L1-graph-stamps.json.gz", "../testdata/kineto.json"} {
		want := fixtures.Must(Load(path))(t)
		f := fixtures.Must(os.Open(path))(t)
		defer f.Close()
		got, err := Source{Path: "standard input", Stream: f}.Load()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %d events of %d", path, err, len(got.Events), len(want.Events))
		}
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("%v, %v are left", err, left)
	}
	for text, want := range map[string]string{"": "standard input is empty, not a trace", "SQLite format 3\x00 damaged": "standard input is not a readable export of Nsight Systems: ", "{}": "standard input: it is not a trace"} {
		if _, err := (Source{Path: "standard input", Stream: strings.NewReader(text)}).Load(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestProgress: what is read of a file grows to all of it.
func TestProgress(t *testing.T) {
	for _, path := range []string{"../samples/gpt2-xl-eager-stamps.json.gz", "../samples/graph.sqlite"} {
		info := fixtures.Must(os.Stat(path))(t)
		calls, last := 0, int64(0)
		if _, err := (Source{Path: path, Progress: func(done, total int64) {
			if done < last || done > total || total != info.Size() {
				t.Errorf("%s: %d of %d bytes, after %d, of %d", filepath.Base(path), done, total, last, info.Size())
			}
			calls, last = calls+1, done
		}}).Load(); err != nil {
			t.Fatal(err)
		}
		if isJSON := strings.HasSuffix(path, ".gz"); calls == 0 || isJSON && (calls < 3 || last != info.Size()) {
			t.Errorf("%s: %d calls, %d of %d bytes", filepath.Base(path), calls, last, info.Size())
		}
	}
}

// TestReadingEnds: a wait for the writer of a pipe, and the reading of a file, end with the context.
func TestReadingEnds(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	stopped := errors.New("stopped by the user")
	for _, path := range []string{pipe, "../samples/graph.sqlite", "../samples/gpt2-L1-eager-cupti.json.gz"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if path != pipe {
			cancel(stopped)
		}
		done := make(chan error)
		go func() {
			_, err := Source{Path: path, Context: ctx}.Load()
			done <- err
		}()
		cancel(stopped)
		if err := <-done; !errors.Is(err, stopped) {
			t.Errorf("%s: %v", path, err)
		}
	}
	// In the middle of a stream, too.
	ctx, cancel := context.WithCancelCause(t.Context())
	events := strings.Repeat(`{"ph":"X","name":"a","ts":1.5,"dur":1,"pid":1,"tid":1},`, 10_000)
	first := true
	endless := reader(func(b []byte) (int, error) {
		if first {
			first = false
			return copy(b, `{"traceEvents":[`), nil
		}
		cancel(stopped)
		return copy(b, events), nil
	})
	if _, err := (Source{Path: "endless", Stream: endless, Context: ctx}).Load(); !errors.Is(err, stopped) {
		t.Errorf("a stream without an end: %v", err)
	}
}

// reader reads by a function.
type reader func([]byte) (int, error)

func (r reader) Read(b []byte) (int, error) { return r(b) }
