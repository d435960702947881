// Package console reads what a person types, or what a pipe sends.
package console

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"gpt2scope/internal/files"
)

// ErrSilent says that a pipe is open and sent nothing in time.
var ErrSilent = errors.New("nothing came in time")

// Piped returns a reader of the text on r if there is any. r may be an inherited pipe that nobody writes to or closes,
// so only the first byte is waited for, and so long only: then the error is [ErrSilent]. It is io.EOF if there is no
// text: r is empty, a terminal, or a device such as /dev/null.
func Piped(ctx context.Context, r io.Reader, wait time.Duration) (io.Reader, error) {
	if f, ok := r.(*os.File); ok {
		info, err := f.Stat()
		if err != nil {
			return nil, io.EOF // it is closed
		}
		if mode := info.Mode(); !mode.IsRegular() && mode&(fs.ModeNamedPipe|fs.ModeSocket) == 0 {
			return nil, io.EOF
		}
	}
	text := bufio.NewReader(r)
	ctx, cancel := context.WithTimeoutCause(ctx, wait, ErrSilent)
	defer cancel()
	_, err := files.Await(ctx, func() ([]byte, error) { return text.Peek(1) })
	return text, err
}
