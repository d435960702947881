package tokenizer

import (
	"errors"
	"fmt"
	"slices"
)

// EndOfText is the content of GPT-2's only special token. It separates documents, and so comes before the first.
const EndOfText = "<|endoftext|>"

// gpt2Roles are the roles that <|endoftext|> has where files of a GPT-2 name no others.
var gpt2Roles = roleNames[:3]

// A Tokenizer maps text to token ids and back. It is immutable and safe for concurrent use.
type Tokenizer struct {
	// pieces[id] is the bytes of a token. Ids below modelSize are the model's vocabulary; the rest are added tokens.
	pieces    []string // (V)
	modelSize int
	// literal has the ids whose pieces files spell literally instead of in the byte alphabet: added tokens, and entries
	// of the vocabulary with characters outside the alphabet, which no text encodes to.
	literal map[int32]bool

	bpe
	prefixSpace bool // a space goes before text that doesn't start with one

	pipe          *pipeline         // nil for a tokenizer like GPT-2's
	first         map[int32]string  // pieces that are other at the beginning of a text
	trim          bool              // a text begins with the first token that has text
	missing       map[int32]bool    // ids below V that stand for nothing
	before, after []int32           // go around a text, as files ask for
	files         map[string][]byte // what [Tokenizer.Files] returns, nil if it writes them

	added       []addedToken      // by id
	early, late *addedSet         // those with normalized false, found first; then those with normalized true
	eot         int32             // -1: none
	roles       map[string]string // content of the tokens that files give a role, such as pad_token
}

// finish sets the fields that derive from the others.
func (t *Tokenizer) finish() {
	t.early = newAddedSet(t.added, false, func(s string) string { return s })
	t.late = newAddedSet(t.added, true, t.normalize)
}

func (t *Tokenizer) normalize(s string) string {
	if t.pipe != nil {
		return t.pipe.normalize(s)
	}
	return s
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

// Decode returns the bytes of ids as a text, one token after another, special tokens included. An id that is not in the
// vocabulary adds nothing; [Tokenizer.Check] finds those.
func (t *Tokenizer) Decode(ids []int32) []byte {
	var dst []byte
	for i, id := range ids {
		if piece, ok := t.first[id]; ok && (i == 0 || t.trim && len(dst) == 0) {
			dst = append(dst, piece...)
		} else {
			dst = t.AppendPiece(dst, id)
		}
	}
	return dst
}

// Check returns an error that names the first of ids that is not in the vocabulary, and nil when all are.
func (t *Tokenizer) Check(ids []int32) error {
	for i, id := range ids {
		if id < 0 || int(id) >= len(t.pieces) || t.missing[id] {
			return fmt.Errorf("token %d at position %d is not in the vocabulary: its ids are 0 to %d", id, i, len(t.pieces)-1)
		}
	}
	return nil
}

// Unknown returns an error that names the first character of text for which there is no token, and nil if ids, its
// tokens, have no -1.
func (t *Tokenizer) Unknown(text string, ids []int32) error {
	if !slices.Contains(ids, -1) {
		return nil
	}
	for i, r := range text {
		if slices.Contains(t.EncodeOrdinary(string(r)), -1) {
			return fmt.Errorf("the text has %q at byte %d, for which the tokenizer has no token", r, i)
		}
	}
	return errors.New("the text has a word for which the tokenizer has no token")
}

// Encode returns the ids of text. Added tokens that stand in the text, special ones too, become their id, and before and
// after it come the tokens that the tokenizer's files ask for. Text need not be UTF-8; no text is an error.
func (t *Tokenizer) Encode(text string) []int32 { return append(t.EncodePrompt(text), t.after...) }

// EncodePrompt is Encode of a text that is to go on: without the tokens that end one.
func (t *Tokenizer) EncodePrompt(text string) []int32 {
	return t.encode(slices.Clone(t.before), text, false)
}

// EncodeOrdinary is the text alone, with special tokens read as plain text: <|endoftext|> is thirteen characters. Added
// tokens that are not special still become their id.
func (t *Tokenizer) EncodeOrdinary(text string) []int32 { return t.encode(nil, text, true) }

func (t *Tokenizer) encode(dst []int32, text string, ordinary bool) []int32 {
	start := true // nothing stands before
	t.early.split(text, ordinary, func(s string, id int32) {
		if id >= 0 {
			dst, start = append(dst, id), false
			return
		}
		t.late.split(t.normalize(s), ordinary, func(s string, id int32) {
			if id >= 0 {
				dst = append(dst, id)
			} else {
				dst = t.appendText(dst, s, start)
			}
			start = false
		})
	})
	return dst
}

// appendText appends the tokens of a text without added tokens. start: it begins the whole text.
func (t *Tokenizer) appendText(dst []int32, s string, start bool) []int32 {
	if t.pipe != nil {
		t.pipe.words(0, s, start, func(w string) { dst = t.pipe.appendWord(dst, w) })
		return dst
	}
	if t.prefixSpace && s[0] != ' ' {
		s = " " + s
	}
	for len(s) > 0 {
		n := nextWord(s)
		dst = t.appendWord(dst, s[:n])
		s = s[n:]
	}
	return dst
}
