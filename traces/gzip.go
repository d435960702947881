package traces

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"
	"io"
	"runtime"
	"sync"
)

// zipper compresses parts of a file on several threads. They make one stream of gzip: each part ends at a byte.
type zipper struct {
	to    io.Writer
	part  []byte
	parts chan chan []byte // compressed, in their order
	done  chan error       // what writing them gave
	sum   uint32
	size  uint32
}

const partSize = 1 << 19

var flaters = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(nil, 8) // a tenth smaller than by default
	return w
}}

func newZipper(to io.Writer) *zipper {
	z := &zipper{to: to, parts: make(chan chan []byte, runtime.GOMAXPROCS(0)), done: make(chan error, 1)}
	go func() {
		_, err := to.Write([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}) // deflate, no time, no name, unknown system
		for part := range z.parts {
			if data := <-part; err == nil {
				_, err = to.Write(data)
			}
		}
		z.done <- err
	}()
	return z
}

func (z *zipper) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		n := min(len(rest), partSize-len(z.part))
		z.part, rest = append(z.part, rest[:n]...), rest[n:]
		if len(z.part) == partSize {
			z.send()
		}
	}
	return len(data), nil
}

// send gives the part to a thread.
func (z *zipper) send() {
	part, out := z.part, make(chan []byte, 1)
	z.part = make([]byte, 0, partSize)
	z.sum, z.size = crc32.Update(z.sum, crc32.IEEETable, part), z.size+uint32(len(part))
	z.parts <- out // waits while all threads are busy
	go func() {
		var b bytes.Buffer
		w := flaters.Get().(*flate.Writer)
		w.Reset(&b)
		w.Write(part)
		w.Flush()
		flaters.Put(w)
		out <- b.Bytes()
	}()
}

// Close ends the stream.
func (z *zipper) Close() error {
	z.send()
	close(z.parts)
	if err := <-z.done; err != nil {
		return err
	}
	end := []byte{1, 0, 0, 0xff, 0xff} // an empty last block
	end = binary.LittleEndian.AppendUint32(end, z.sum)
	_, err := z.to.Write(binary.LittleEndian.AppendUint32(end, z.size))
	return err
}
