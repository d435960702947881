package weights

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"gpt2scope/internal/humanize"
)

// storage is one opened file of a checkpoint, and the only place where its bytes
// are touched. It is in memory (data) or read at offsets (reader).
type storage struct {
	name   string // for messages
	size   int64
	data   []byte      // the whole file, if it is in memory
	reader io.ReaderAt // if data is nil
	file   fs.File     // if there is one; open as long as the storage is
	mtime  time.Time   // of file, when it was opened

	mu     sync.RWMutex // held for reading while bytes are touched: Close waits
	closed bool
}

// openFile opens the file at path.
func openFile(path string) (*storage, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // else a pipe, which is refused below, waits for its writer
	if err != nil {
		return nil, pathProblem(path, err)
	}
	return newStorage(path, f)
}

// openFS opens the file called name in fsys.
func openFS(fsys fs.FS, name string) (*storage, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, pathProblem(name, err)
	}
	return newStorage(name, f)
}

// newStorage makes a storage of a file just opened. On an error it closes the file.
func newStorage(name string, f fs.File) (*storage, error) {
	s := &storage{name: name, file: f}
	if err := s.stat(); err != nil {
		f.Close()
		return nil, err
	}
	if r, ok := f.(io.ReaderAt); ok {
		s.reader = r
		return s, nil
	}
	// A compressed archive, perhaps.
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, pathProblem(name, err)
	}
	return inMemory(name, data), nil
}

// inMemory makes a storage of bytes that the caller keeps unchanged.
func inMemory(name string, data []byte) *storage {
	if data == nil {
		data = []byte{}
	}
	return &storage{name: name, size: int64(len(data)), data: data}
}

// stat notes the size and time of a file just opened.
func (s *storage) stat() error {
	info, err := s.file.Stat()
	if err != nil {
		return pathProblem(s.name, err)
	}
	if !info.Mode().IsRegular() {
		return notRegular(s.name, info)
	}
	s.size, s.mtime = info.Size(), info.ModTime()
	return nil
}

// notRegular is the error for a directory or a device in a file's place.
func notRegular(name string, info fs.FileInfo) error {
	if info.IsDir() {
		return problem(name, "is a directory; a file is needed")
	}
	return problem(name, "is not a regular file")
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
	e := problem(name, "cannot be read")
	e.Err = err
	return e
}

// pieceBytes stay in the cache between reading and converting.
const pieceBytes = 64 << 10

// view calls use with the bytes [off, off+n) of the file, in order, in pieces
// whose lengths are multiples of unit. The pieces are valid during the call
// only. The range lies in the file as it was when it was opened; if the file has
// changed since, view returns an error, and use may have seen anything.
func (s *storage) view(off, n int64, unit int, use func(piece []byte)) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return closedProblem(s.name)
	}
	if s.data != nil {
		use(s.data[off : off+n])
		return nil
	}
	buf := make([]byte, min(n, int64(pieceBytes/unit*unit)))
	for n > 0 {
		b := buf[:min(n, int64(len(buf)))]
		if err := s.readAt(b, off); err != nil {
			return err
		}
		use(b)
		off, n = off+int64(len(b)), n-int64(len(b))
	}
	return s.changed()
}

// read fills dst with the bytes from off on. The range, and errors, are as view's.
func (s *storage) read(dst []byte, off int64) error {
	return s.hold(func() error { return s.at(dst, off) })
}

// hold calls f, which reads with at, while the file stays open. Errors are as view's.
func (s *storage) hold(f func() error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return closedProblem(s.name)
	}
	if err := f(); err != nil {
		return err
	}
	return s.changed()
}

// at fills dst with the bytes from off on, of a file that is held.
func (s *storage) at(dst []byte, off int64) error {
	if s.data != nil {
		copy(dst, s.data[off:])
		return nil
	}
	return s.readAt(dst, off)
}

// readAt reads the bytes from off on with the reader.
func (s *storage) readAt(dst []byte, off int64) error {
	got, err := s.reader.ReadAt(dst, off)
	if got == len(dst) {
		return nil
	}
	if changed := s.changed(); changed != nil {
		return changed
	}
	return &Error{File: s.name, Offset: off + int64(got), Problem: "cannot be read, check the disk it is on", Err: humanize.Cause(err)}
}

// changed returns an error if the file is no longer what was opened.
func (s *storage) changed() error {
	if s.file == nil {
		return nil
	}
	info, err := s.file.Stat()
	switch {
	case err != nil:
		return pathProblem(s.name, err)
	case info.Size() < s.size:
		return problem(s.name, "the file shrank from %d to %d bytes while it was in use: wait until whatever writes it has finished, or restore it, and open it again", s.size, info.Size())
	case info.Size() != s.size || !info.ModTime().Equal(s.mtime):
		return problem(s.name, "the file was changed while it was in use: wait until whatever writes it has finished, and open it again")
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
	s.data, s.reader = nil, nil
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// closedProblem is the error for using a checkpoint after Close.
func closedProblem(name string) error {
	return problem(name, "the checkpoint has been closed").because(fs.ErrClosed)
}
