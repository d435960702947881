package tokenizer

import "unicode/utf8"

// A Decoder turns tokens into text as they come and hands out whole UTF-8 characters: bytes at the end of a token
// that may become a character wait for the next token. Bytes that cannot become one any more pass through as they are.
// What it hands out, Flush included, is Decode of the same tokens where they follow others. It is not safe for concurrent
// use.
type Decoder struct {
	t    *Tokenizer
	wait [utf8.UTFMax - 1]byte
	n    int // bytes in wait
}

// NewDecoder returns a Decoder with nothing waiting.
func (t *Tokenizer) NewDecoder() *Decoder { return &Decoder{t: t} }

// Append takes the next token and appends the text that is now whole to dst. An id that is not in the vocabulary
// adds nothing. It allocates only when dst has to grow.
func (d *Decoder) Append(dst []byte, id int32) []byte {
	start := len(dst)
	dst = append(dst, d.wait[:d.n]...)
	dst = d.t.AppendPiece(dst, id)
	d.n = copy(d.wait[:], dst[len(dst)-unfinished(dst[start:]):])
	return dst[:len(dst)-d.n]
}

// Flush appends the bytes that still wait, the start of a character that never came, and forgets them.
func (d *Decoder) Flush(dst []byte) []byte {
	dst = append(dst, d.wait[:d.n]...)
	d.n = 0
	return dst
}

// unfinished returns the length of the beginning of a character at the end of b: up to three bytes that more bytes
// could make a valid character.
func unfinished(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
