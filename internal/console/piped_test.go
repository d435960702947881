package console

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpt2scope/internal/require"
)

func TestPiped(t *testing.T) {
	file := func(text string) *os.File {
		t.Helper()
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
		f := require.Value(os.Open(path))(t)
		t.Cleanup(func() { f.Close() })
		return f
	}
	pipe := func(after time.Duration, text string, end bool) *os.File {
		t.Helper()
		r, w, err := os.Pipe()
		require.NoError(t, err)
		go func() {
			time.Sleep(after)
			w.WriteString(text)
			if end {
				w.Close()
			}
		}()
		t.Cleanup(func() { w.Close(); r.Close() })
		return r
	}
	null := require.Value(os.Open(os.DevNull))(t)
	defer null.Close()
	zero := require.Value(os.Open("/dev/zero"))(t)
	defer zero.Close()
	closed := file("text")
	closed.Close()
	for name, c := range map[string]struct {
		from io.Reader
		text string
		err  error
	}{
		"a file":                 {file("ROMEO:"), "ROMEO:", nil},
		"an empty file":          {file(""), "", io.EOF},
		"a pipe":                 {pipe(0, "ROMEO:", true), "ROMEO:", nil},
		"a pipe that comes late": {pipe(50*time.Millisecond, "ROMEO:", true), "ROMEO:", nil},
		"an empty pipe":          {pipe(0, "", true), "", io.EOF},
		"a pipe left open":       {pipe(0, "", false), "", ErrSilent},
		"a null device":          {null, "", io.EOF},
		"a device without end":   {zero, "", io.EOF},
		"a closed file":          {closed, "", io.EOF},
		"another reader":         {strings.NewReader("ROMEO:"), "ROMEO:", nil},
		"another, empty":         {strings.NewReader(""), "", io.EOF},
	} {
		began := time.Now()
		r, err := Piped(t.Context(), c.from, 400*time.Millisecond)
		if !errors.Is(err, c.err) || err == nil && r == nil {
			t.Errorf("%s: error %v, want %v", name, err, c.err)
			continue
		}
		if silent := errors.Is(c.err, ErrSilent); silent != (time.Since(began) >= 400*time.Millisecond) {
			t.Errorf("%s: it took %v", name, time.Since(began))
		}
		if err == nil {
			if text, err := io.ReadAll(r); err != nil || string(text) != c.text {
				t.Errorf("%s: %q, %v", name, text, err)
			}
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if _, err := Piped(ctx, pipe(0, "", false), time.Minute); !errors.Is(err, why) {
		t.Errorf("cancelled, the error is %v", err)
	}
}
