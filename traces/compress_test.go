package traces

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math/rand/v2"
	"strconv"
	"testing"
)

// FullDisk takes so many bytes.
type FullDisk struct{ Room int }

var ErrFull = errors.New("no space left")

func (f *FullDisk) Write(b []byte) (int, error) {
	if f.Room -= len(b); f.Room < 0 {
		return 0, ErrFull
	}
	return len(b), nil
}

// TestCompressor: other programs read what it writes, whatever of blocks and parts ends together; what cannot be written
// is told.
func TestCompressor(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 5, blockSize, 2*blockSize - 1, 3*blockSize + 7} {
		var text []byte
		for len(text) < size {
			text = strconv.AppendInt(append(text, "{\"name\":\"event\",\"ts\":"...), r.Int64N(1e6), 10)
		}
		text = text[:size]
		var b bytes.Buffer
		c, short := newCompressor(&b), newCompressor(&FullDisk{blockSize / 10})
		for rest := text; len(rest) > 0; {
			n := min(len(rest), 1+r.IntN(blockSize))
			if _, err := c.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			short.Write(rest[:n])
			rest = rest[n:]
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(&b)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%d bytes: read %d, error %v", size, len(got), err)
		}
		if err := short.Close(); (err != nil) != (size >= blockSize) || err != nil && err != ErrFull {
			t.Errorf("%d bytes: error %v of a full disk", size, err)
		}
	}
}
