package files

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gpt2scope/internal/require"
)

func pipe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	return path
}

// A cancelled context ends the wait for a pipe's writer, and for what it writes.
func TestPipe(t *testing.T) {
	stopped := errors.New("stopped")
	path := pipe(t)
	for _, flag := range []int{os.O_RDONLY, os.O_WRONLY} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(stopped)
		if _, err := OpenFile(ctx, path, flag); err != stopped {
			t.Errorf("flag %d: %v", flag, err)
		}
	}
	path = pipe(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	writer := make(chan *File)
	go func() {
		w, err := OpenFile(t.Context(), path, os.O_WRONLY)
		if err != nil {
			t.Error(err)
		}
		writer <- w
	}()
	r := require.Value(Open(ctx, path))(t)
	w := <-writer
	defer w.Close()
	if _, err := io.WriteString(w, "text"); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 10)
	if n, err := r.Read(buffer); string(buffer[:n]) != "text" || err != nil {
		t.Fatalf("%q, %v", buffer[:n], err)
	}
	go cancel(stopped)
	if _, err := io.ReadAll(r); err != stopped {
		t.Errorf("a read of a pipe that nobody writes ended with %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// What is not a regular file is refused at once; a file may have a limited size.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("12345"), 0o666))
	if data, err := Read(file, 5); string(data) != "12345" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := Read(file, 4); err == nil || !strings.Contains(err.Error(), file+" is larger than 4 bytes") {
		t.Error(err)
	}
	for _, path := range []string{pipe(t), dir, os.DevNull} {
		if _, err := Read(path, 5); !errors.Is(err, ErrNotRegular) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Read(filepath.Join(dir, "none"), 5); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
