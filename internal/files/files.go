// Package files opens files such that nothing waits without end: a cancelled context ends the wait for the other end of
// a pipe, or for any work ([Await]), and what this program keeps by itself is read only from regular files.
package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// ErrNotRegular is in the error of reading a pipe, a device or a directory in place of a regular file.
var ErrNotRegular = errors.New("not a regular file")

// File is an open file whose reads and writes end with a context.
type File struct {
	*os.File
	ctx  context.Context
	stop func() bool
}

// Open opens a file that a user named, for reading. A named pipe waits for its writer until ctx ends.
func Open(ctx context.Context, path string) (*File, error) { return OpenFile(ctx, path, os.O_RDONLY) }

// OpenFile opens a file that exists. A named pipe waits for its other end until ctx ends; so do reads and writes. The
// error then is the cause of ctx.
func OpenFile(ctx context.Context, path string, flag int) (*File, error) {
	f, err := Await(ctx, func() (*os.File, error) {
		f, err := os.OpenFile(path, flag, 0)
		if err == nil && ctx.Err() != nil { // the open went on in its thread, and nobody wants the file
			f.Close()
		}
		return f, err
	})
	if err != nil {
		return nil, err
	}
	return &File{f, ctx, context.AfterFunc(ctx, func() { f.Close() })}, nil
}

// Read reads as os.File does.
func (f *File) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	return n, f.cause(err)
}

// Write writes as os.File does.
func (f *File) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.cause(err)
}

// WriteTo and ReadFrom would go past Read and Write.
func (f *File) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, struct{ io.Reader }{f}) }

func (f *File) ReadFrom(r io.Reader) (int64, error) { return io.Copy(struct{ io.Writer }{f}, r) }

// Close closes the file. After the context has ended it is closed already, which is no error.
func (f *File) Close() error {
	if f.stop() {
		return f.File.Close()
	}
	return nil
}

func (f *File) cause(err error) error {
	if errors.Is(err, os.ErrClosed) && f.ctx.Err() != nil {
		return context.Cause(f.ctx)
	}
	return err
}

// Await returns what f does, or earlier when ctx is cancelled; then f goes on by itself, and what it returns is lost.
func Await[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	select {
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	case r := <-done:
		return r.value, r.err
	}
}

// Regular opens a regular file for reading and waits for nobody.
func Regular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // else a pipe waits for its writer
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is %w", path, ErrNotRegular)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Read returns the content of a regular file of at most so many bytes.
func Read(path string, most int64) ([]byte, error) {
	f, err := Regular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	return data, err
}
