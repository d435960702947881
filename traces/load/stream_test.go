package load

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestStream: a trace of any format is the same from a file and from a stream, and nothing
// is left of a copied one.
func TestStream(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, path := range []string{"../samples/eager.sqlite", "../samples/gpt2-L1-graph-stamps.json.gz", "../testdata/kineto.json"} {
		want, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
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
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
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
