package weights

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"

	"gpt2scope/internal/files"
	"gpt2scope/internal/humanize"
)

// WriteFile replaces the file at path by what write writes, as a whole or not at all. The new content goes to a
// temporary file in the same directory, which is synced to disk and then renamed; on any error, of write or of the
// system (a full disk, say), the temporary file is removed, and what was at path stays as it was. When ctx is
// cancelled, writing stops and WriteFile returns ctx.Err(), wrapped.
//
// If path is a symbolic link, the file that it points to is replaced. If it is a device or a pipe, such as /dev/stdout,
// it is written to directly. Writes are buffered.
func WriteFile(ctx context.Context, path string, write func(w io.Writer) error) error {
	path, info, err := target(path)
	if err != nil {
		return err
	}
	if info != nil && !info.Mode().IsRegular() {
		f, err := files.OpenFile(ctx, path, os.O_WRONLY)
		if ctx.Err() != nil {
			return interrupted(path, ctx.Err())
		}
		if err != nil {
			return writeProblem(path, err)
		}
		err = fill(ctx, path, f, write)
		if closed := f.Close(); err == nil && closed != nil {
			err = writeProblem(path, closed)
		}
		return err
	}

	dir, base := filepath.Split(path)
	// Unlike that of os.CreateTemp its mode follows the umask, as that of any other file.
	f, err := os.OpenFile(temporary(dir, base), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return writeProblem(path, err)
	}
	done := false
	defer func() {
		if !done { // an error, or a panic in write
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err := fill(ctx, path, f, write); err != nil {
		return err
	}
	if info != nil {
		// Best effort: the file may belong to someone else.
		_ = f.Chmod(info.Mode().Perm())
	}
	if err := f.Sync(); err != nil {
		return writeProblem(path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return writeProblem(path, err)
	}
	done = true
	if err := f.Close(); err != nil {
		return writeProblem(path, err)
	}
	// The rename itself reaches the disk with its directory. Not every system can
	// sync one, and the content is safe either way.
	if d, err := os.Open(filepath.Clean(dir)); err == nil {
		_ = d.Sync()
		d.Close()
	}
	return nil
}

// target follows symbolic links, and returns what is at the end, or nil if nothing is there yet.
func target(path string) (string, fs.FileInfo, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if there, err := os.Lstat(path); err == nil && there.Mode().IsRegular() { // another writer was here in between
			return path, there, nil
		} else if err == nil {
			return "", nil, problem(path, "cannot be written: it is a symbolic link to a file that does not exist; remove it")
		}
		if base := filepath.Base(path); path == "" || os.IsPathSeparator(path[len(path)-1]) || base == "." || base == ".." {
			return "", nil, problem(path, "cannot be written: it does not name a file")
		}
		return path, nil, nil
	case err != nil:
		return "", nil, writeProblem(path, err)
	case info.IsDir():
		return "", nil, problem(path, "cannot be written: it is a directory")
	case !info.Mode().IsRegular():
		return path, info, nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", nil, writeProblem(path, err)
	}
	return real, info, nil
}

// temporary returns a path for what becomes dir/base.
func temporary(dir, base string) string {
	if len(base) > 200 { // names are limited, commonly to 255 bytes
		base = ""
	}
	return fmt.Sprintf("%s.%s.tmp-%08x", dir, base, rand.Uint32())
}

func fill(ctx context.Context, path string, f io.Writer, write func(io.Writer) error) error {
	// The first error of the file counts, whatever write makes of it.
	w := &fileWriter{ctx: ctx, path: path, file: f}
	buffered := bufio.NewWriterSize(w, 1<<20)
	err := write(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if w.err != nil {
		return w.err
	}
	if err == nil && ctx.Err() != nil {
		err = interrupted(path, ctx.Err())
	}
	return err
}

// fileWriter writes to a file until its context is cancelled.
type fileWriter struct {
	ctx  context.Context
	path string
	file io.Writer
	err  error
}

func (w *fileWriter) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if err := w.ctx.Err(); err != nil {
		w.err = interrupted(w.path, err)
		return 0, w.err
	}
	n, err := w.file.Write(p)
	if err != nil {
		w.err = writeProblem(w.path, err)
	}
	return n, w.err
}

// interrupted is the error for a cancelled context.
func interrupted(path string, err error) error {
	return problem(path, "was not written: writing was interrupted").because(err)
}

// writeProblem makes an Error of an error that the system returned when path was to be written.
func writeProblem(path string, err error) error {
	cause := humanize.Cause(err) // the path is that of the temporary file, which means nothing to the user
	switch dir := filepath.Dir(path); {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return problem(path, "was not written: the disk or quota is full; make room, or choose another place").because(cause)
	case errors.Is(err, syscall.EFBIG):
		return problem(path, "was not written: it would be larger than files may be there; raise the limit, or choose "+
			"another place").because(cause)
	case errors.Is(err, syscall.EPIPE):
		return problem(path, "the program that was reading it has stopped").because(cause)
	case errors.Is(err, fs.ErrNotExist):
		return problem(path, "cannot be written: there is no directory %s", dir).because(cause)
	case errors.Is(err, fs.ErrPermission):
		return problem(path, "cannot be written: check the permissions of %s", dir).because(cause)
	}
	return problem(path, "was not written").of(cause)
}
