package traces

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// compressions are those that files are read with, by the bytes that they begin with.
var compressions = []struct {
	name, begins string
	open         func(io.Reader) (io.Reader, error)
}{
	{"gzip", "\x1f\x8b", func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
	{"zstd", "\x28\xb5\x2f\xfd", func(r io.Reader) (io.Reader, error) {
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(mostMemory))
	}},
}

// mostMemory bounds what undoing zstd takes, and so what its --long may be.
const mostMemory = 1 << 30

// SQLite begins every sqlite file.
const SQLite = "SQLite format 3\x00"

// byteOrderMark precedes the text in files of some editors of Windows.
const byteOrderMark = "\xef\xbb\xbf"

// Uncompressed undoes what was done to a whole file: compression, which may be twofold, and a mark of its encoding.
func Uncompressed(r io.Reader) (*bufio.Reader, error) {
	const most = 4
	in := bufio.NewReaderSize(r, 1<<16)
next:
	for range most {
		head, _ := in.Peek(zstd.HeaderMaxSize)
		h := new(zstd.Header)
		if h.Decode(head) == nil && (h.WindowSize > zstd.MaxWindowSize || h.SingleSegment && h.FrameContentSize > mostMemory) {
			return nil, errors.New("undoing its compression (zstd) takes too much memory; 'zstd -d --long=31 FILE' undoes it")
		}
		for _, c := range compressions {
			if bytes.HasPrefix(head, []byte(c.begins)) {
				d := &decompressor{name: c.name, from: &noted{Reader: in}}
				var err error
				if d.Reader, err = c.open(d.from); err != nil {
					return nil, cmp.Or(d.from.err, d.broken(err))
				}
				in = bufio.NewReaderSize(d, 1<<16)
				continue next
			}
		}
		break
	}
	if head, _ := in.Peek(len(byteOrderMark)); string(head) == byteOrderMark {
		in.Discard(len(byteOrderMark))
	}
	return in, nil
}

// decompressor says in its errors which compression is damaged.
type decompressor struct {
	io.Reader
	name string
	from *noted
}

func (d *decompressor) Read(b []byte) (int, error) {
	n, err := d.Reader.Read(b)
	switch {
	case d.from.err != nil: // the file could not be read
		err = d.from.err
	case err != nil && err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF): // nor was it cut off
		err = d.broken(err)
	}
	return n, err
}

func (d *decompressor) broken(err error) error {
	return fmt.Errorf("its compression (%s) is damaged: %w; copy it again, and test it with '%s -t'", d.name, err, d.name)
}

// noted is a reader that keeps its error, but not that it ended.
type noted struct {
	io.Reader
	err error
}

func (n *noted) Read(b []byte) (int, error) {
	got, err := n.Reader.Read(b)
	if err != nil && err != io.EOF {
		n.err = err
	}
	return got, err
}

// escapes is a reader of JSON that doubles backslashes which begin no escape. PyTorch's profiler writes paths of
// Windows with such.
type escapes struct {
	in      *bufio.Reader
	pending []byte // to give before the rest of in
	mended  int64  // backslashes
}

func (e *escapes) Read(b []byte) (n int, err error) {
	for n < len(b) && (n == 0 || len(e.pending) > 0 || e.in.Buffered() > 0) {
		if len(e.pending) > 0 {
			copied := copy(b[n:], e.pending)
			n, e.pending = n+copied, e.pending[copied:]
			continue
		}
		if _, err = e.in.Peek(1); err != nil { // fills the buffer
			break
		}
		next, _ := e.in.Peek(min(e.in.Buffered(), len(b)-n))
		plain := bytes.IndexByte(next, '\\')
		if plain < 0 {
			plain = len(next)
		}
		if plain > 0 {
			n += copy(b[n:], next[:plain])
			e.in.Discard(plain)
			continue
		}
		next, _ = e.in.Peek(6) // less at the end
		length := escape(next)
		e.pending = bytes.Clone(next[:length])
		if length == 0 {
			length, e.pending = 1, []byte(`\\`)
			e.mended++
		}
		e.in.Discard(length)
	}
	if n > 0 {
		err = nil
	}
	return n, err
}

// escape returns the length of the escape that a text of at most 6 bytes begins with, 0 for none.
func escape(text []byte) int {
	switch {
	case len(text) < 2: // cut off
		return len(text)
	case bytes.IndexByte([]byte(`"\/bfnrt`), text[1]) >= 0:
		return 2
	case text[1] != 'u':
		return 0
	}
	for _, c := range text[2:] {
		if !('0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f') {
			return 0
		}
	}
	return len(text)
}
