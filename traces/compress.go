package traces

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"slices"
	"sync/atomic"

	"github.com/klauspost/compress/flate"
)

// compressor writes a text by gzip on several processors: blocks are compressed beside one another, each with the end
// of the one before as its dictionary, and are one stream for readers.
type compressor struct {
	block, before []byte           // what is not yet being compressed; the block before it
	parts         chan chan []byte // in their order
	crc, size     uint32
	failed        atomic.Pointer[error] // the first error of writing
	written       chan struct{}
}

const (
	blockSize = 1 << 20
	ahead     = 8       // blocks in work at most: making the text feeds no more processors
	farthest  = 1 << 15 // how far back deflate refers
	level     = 6       // the last that is as fast as making the text; 9 takes five times as long for a tenth less
)

func newCompressor(to io.Writer) *compressor {
	c := &compressor{parts: make(chan chan []byte, ahead), written: make(chan struct{})}
	go func() {
		defer close(c.written)
		for part := range c.parts {
			text := <-part
			if c.failed.Load() != nil {
				continue
			}
			if _, err := to.Write(text); err != nil {
				c.failed.Store(&err)
			}
		}
	}()
	c.put([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}) // deflate, by an unknown system
	return c
}

// put lets a part be written.
func (c *compressor) put(part []byte) {
	at := make(chan []byte, 1)
	at <- part
	c.parts <- at
}

func (c *compressor) Write(text []byte) (int, error) {
	if err := c.failed.Load(); err != nil {
		return 0, *err
	}
	n := len(text)
	for len(text) > 0 {
		k := min(len(text), blockSize-len(c.block))
		c.block, text = append(slices.Grow(c.block, blockSize-len(c.block)), text[:k]...), text[k:]
		if len(c.block) == blockSize {
			c.compress(false)
		}
	}
	return n, nil
}

// compress begins with a block.
func (c *compressor) compress(last bool) {
	block, before := c.block, c.before[max(0, len(c.before)-farthest):]
	c.crc, c.size = crc32.Update(c.crc, crc32.IEEETable, block), c.size+uint32(len(block))
	part := make(chan []byte, 1)
	c.parts <- part
	go func() {
		var b bytes.Buffer
		z, _ := flate.NewWriterDict(&b, level, before) // a level that there is
		z.Write(block)
		if last {
			z.Close()
		} else {
			z.Flush()
		}
		part <- b.Bytes()
	}()
	c.before, c.block = block, nil
}

// Close writes the rest, and returns the first error of writing.
func (c *compressor) Close() error {
	c.compress(true)
	c.put(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, c.crc), c.size))
	close(c.parts)
	<-c.written
	if err := c.failed.Load(); err != nil {
		return *err
	}
	return nil
}
