package weights

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"gpt2scope/internal/humanize"
)

// storage is one opened file of a checkpoint, and the only place where its bytes are touched. They are read at offsets.
type storage struct {
	name  string // for messages
	size  int64
	file  fs.File     // open as long as the storage is
	at    io.ReaderAt // the file
	mtime time.Time   // of the file, when it was opened

	mu     sync.RWMutex // held for reading while bytes are touched: Close waits
	closed bool
}

func openFile(path string) (*storage, error) {
	return openFS(os.DirFS(filepath.Dir(path)), filepath.Base(path), path)
}

// openFS opens a file of fsys. display is its name in messages.
func openFS(fsys fs.FS, name, display string) (*storage, error) {
	info, err := fs.Stat(fsys, name) // before it is opened: a pipe would wait for its writer
	switch {
	case err != nil:
		return nil, pathProblem(display, err)
	case info.IsDir():
		return nil, problem(display, "is a directory; a file is needed")
	case !info.Mode().IsRegular():
		return nil, problem(display, "is not a regular file")
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, pathProblem(display, err)
	}
	at, ok := f.(io.ReaderAt)
	if !ok {
		f.Close()
		return nil, problem(display, "is in a file system whose files cannot be read at offsets")
	}
	if info, err = f.Stat(); err != nil {
		f.Close()
		return nil, pathProblem(display, err)
	}
	return &storage{name: display, size: info.Size(), file: f, at: at, mtime: info.ModTime()}, nil
}

// pathProblem makes an Error of an error that the system returned for name.
func pathProblem(name string, err error) error {
	err = humanize.Cause(err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return problem(name, "no such file").because(err)
	case errors.Is(err, fs.ErrPermission):
		return problem(name, "may not be read: check its permissions").because(err)
	}
	return problem(name, "cannot be read").of(err)
}

// pieceBytes stay in the cache between reading and converting.
const pieceBytes = 64 << 10

// read fills dst with the bytes from off on. The range lies in the file as it was when it was opened; if the file has
// changed since, read returns an error, and dst may hold anything.
func (s *storage) read(dst []byte, off int64) error {
	return s.hold(func() error { return s.readAt(dst, off) })
}

// hold calls f, which reads with readAt, while the file stays open. Errors are as read's.
func (s *storage) hold(f func() error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return problem(s.name, "the checkpoint has been closed").because(fs.ErrClosed)
	}
	if err := f(); err != nil {
		return err
	}
	return s.changed()
}

// readAt fills dst with the bytes from off on, of a file that is held.
func (s *storage) readAt(dst []byte, off int64) error {
	got, err := s.at.ReadAt(dst, off)
	if got == len(dst) {
		return nil
	}
	if changed := s.changed(); changed != nil {
		return changed
	}
	return &Error{File: s.name, Offset: off + int64(got), Problem: "cannot be read, check the disk it is on",
		Err: humanize.Cause(err)}
}

// changed returns an error if the file is no longer what was opened.
func (s *storage) changed() error {
	info, err := s.file.Stat()
	switch {
	case err != nil:
		return pathProblem(s.name, err)
	case info.Size() < s.size:
		return problem(s.name, "the file shrank from %d to %d bytes while it was in use: wait until whatever writes it has "+
			"finished, or restore it, and open it again", s.size, info.Size())
	case info.Size() != s.size || !info.ModTime().Equal(s.mtime):
		return problem(s.name, "the file was changed while it was in use: wait until whatever writes it has finished, and "+
			"open it again")
	}
	return nil
}

// close releases the file. It may be called more than once.
func (s *storage) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.file.Close()
}
