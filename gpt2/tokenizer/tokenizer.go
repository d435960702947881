package tokenizer

import (
	"fmt"
	"sync"
)

// EndOfText is the content of GPT-2's only special token. It separates documents, and so comes before the first.
const EndOfText = "<|endoftext|>"

// gpt2Roles are the roles that <|endoftext|> has where files of a GPT-2 name no others.
var gpt2Roles = []string{"bos_token", "eos_token", "unk_token"}

// A Tokenizer maps text to token ids and back. It is immutable and safe for concurrent use.
type Tokenizer struct {
	// pieces[id] is the bytes of a token. Ids below modelSize are the model's vocabulary; the rest are added tokens.
	pieces    []string // (V)
	modelSize int
	// literal has the ids whose pieces files spell literally instead of in the byte alphabet: added tokens, and entries
	// of the vocabulary with characters outside the alphabet, which no text encodes to.
	literal map[int32]bool

	bpe
	ignoreMerges bool // a word that is a piece as a whole becomes that token, without merges
	prefixSpace  bool // a space goes before text that doesn't start with one
	splitWords   bool // GPT-2's pattern applies; if not, all text between added tokens is one word

	chars map[string]int32 // ids of characters, if these are the tokens; nil for a BPE

	added       []addedToken      // by id
	early, late *addedSet         // those with normalized false, found first; then those with normalized true
	eot         int32             // -1: none
	roles       map[string]string // content of the tokens that files give a role, such as pad_token

	cache *wordCache
	words func() map[string]int32 // ids of the vocabulary by their bytes, without literal pieces; made on first use
}

// finish sets the fields that derive from the others.
func (t *Tokenizer) finish() {
	t.early, t.late = newAddedSet(t.added, false), newAddedSet(t.added, true)
	t.cache = newWordCache()
	t.words = sync.OnceValue(func() map[string]int32 {
		words := make(map[string]int32, t.modelSize)
		for id, piece := range t.pieces[:t.modelSize] {
			if !t.literal[int32(id)] {
				words[piece] = int32(id)
			}
		}
		return words
	})
}

// VocabSize returns V, the number of ids, which are 0 to V-1. A model's own vocabulary may be larger if its
// embedding was padded; the ids beyond V mean nothing.
func (t *Tokenizer) VocabSize() int { return len(t.pieces) }

// EOT returns the id of the end-of-text token, and false when there is none. It is the token that the directory's
// configuration calls eos_token, or <|endoftext|> if it names none.
func (t *Tokenizer) EOT() (id int32, ok bool) { return max(t.eot, 0), t.eot >= 0 }

// AppendPiece appends the bytes of one token to dst. An id that is not in the vocabulary appends nothing. It
// allocates only when dst has to grow.
func (t *Tokenizer) AppendPiece(dst []byte, id int32) []byte {
	if id < 0 || int(id) >= len(t.pieces) {
		return dst
	}
	return append(dst, t.pieces[id]...)
}

// Decode returns the bytes of ids, one token after another, special tokens included. An id that is not in the
// vocabulary adds nothing; [Tokenizer.Check] finds those.
func (t *Tokenizer) Decode(ids []int32) []byte {
	var dst []byte
	for _, id := range ids {
		dst = t.AppendPiece(dst, id)
	}
	return dst
}

// Check returns an error that names the first of ids that is not in the vocabulary, and nil when all are.
func (t *Tokenizer) Check(ids []int32) error {
	for i, id := range ids {
		if id < 0 || int(id) >= len(t.pieces) {
			return fmt.Errorf("token %d at position %d is not in the vocabulary: its ids are 0 to %d", id, i, len(t.pieces)-1)
		}
	}
	return nil
}

// Encode returns the ids of text. Added tokens that stand in the text, special ones too, become their id. Text need
// not be UTF-8; no text is an error.
func (t *Tokenizer) Encode(text string) []int32 { return t.AppendEncode(nil, text) }

// AppendEncode is Encode, appending to dst.
func (t *Tokenizer) AppendEncode(dst []int32, text string) []int32 { return t.encode(dst, text, false) }

// EncodeOrdinary is Encode with special tokens read as plain text: <|endoftext|> is thirteen characters. Added tokens
// that are not special still become their id.
func (t *Tokenizer) EncodeOrdinary(text string) []int32 { return t.encode(nil, text, true) }

func (t *Tokenizer) encode(dst []int32, text string, ordinary bool) []int32 {
	t.early.split(text, ordinary, func(s string, id int32) {
		if id >= 0 {
			dst = append(dst, id)
			return
		}
		t.late.split(s, ordinary, func(s string, id int32) {
			if id >= 0 {
				dst = append(dst, id)
				return
			}
			dst = t.appendText(dst, s)
		})
	})
	return dst
}

// appendText appends the tokens of a text without added tokens.
func (t *Tokenizer) appendText(dst []int32, s string) []int32 {
	if t.chars != nil {
		return t.appendCharacters(dst, s)
	}
	if t.prefixSpace && s[0] != ' ' {
		s = " " + s
	}
	if !t.splitWords {
		return t.appendWord(dst, s)
	}
	for len(s) > 0 {
		n := nextWord(s)
		dst = t.appendWord(dst, s[:n])
		s = s[n:]
	}
	return dst
}

// appendWord appends the tokens of one word, from the cache when it has them.
func (t *Tokenizer) appendWord(dst []int32, w string) []int32 {
	if len(w) == 1 {
		return append(dst, t.byteID[w[0]])
	}
	if t.ignoreMerges {
		if id, ok := t.words()[w]; ok {
			return append(dst, id)
		}
	}
	if len(w) > cacheWord || t.merges.count == 0 {
		return t.bpe.appendWord(dst, w)
	}
	if ids := t.cache.get(w); ids != nil {
		return append(dst, ids...)
	}
	start := len(dst)
	dst = t.bpe.appendWord(dst, w)
	t.cache.put(w, dst[start:])
	return dst
}
