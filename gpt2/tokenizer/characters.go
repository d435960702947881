package tokenizer

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// Characters returns the tokenizer of a model of characters, such as nanoGPT makes of a text: the token of each id is
// one character. A character of a text that is none of them gets the id -1, which [Tokenizer.Check] and a session
// refuse.
func Characters(tokens []string) (*Tokenizer, error) {
	t := &Tokenizer{pieces: tokens, modelSize: len(tokens), bpe: bpe{merges: newMergeTable(0)}, eot: -1,
		chars: make(map[string]int32, len(tokens))}
	for id, token := range tokens {
		if utf8.RuneCountInString(token) != 1 || !utf8.ValidString(token) {
			return nil, fmt.Errorf("token %d, %.40q, is not one character", id, token)
		}
		if other, ok := t.chars[token]; ok {
			return nil, fmt.Errorf("tokens %d and %d are both %q", other, id, token)
		}
		t.chars[token] = int32(id)
	}
	t.finish()
	return t, nil
}

// appendCharacters appends the id of each character of a text.
func (t *Tokenizer) appendCharacters(dst []int32, s string) []int32 {
	for len(s) > 0 {
		_, n := utf8.DecodeRuneInString(s)
		id, ok := t.chars[s[:n]]
		if !ok {
			id = -1
		}
		dst, s = append(dst, id), s[n:]
	}
	return dst
}

// characterFiles is Files of a tokenizer of characters: the words of a WordLevel model.
func (t *Tokenizer) characterFiles() map[string][]byte {
	var b bytes.Buffer
	b.WriteString(`{
  "version": "1.0",
  "added_tokens": [],
  "normalizer": null,
  "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[\\s\\S]"}, "behavior": "Isolated", "invert": false},
  "post_processor": null,
  "decoder": {"type": "Fuse"},
  "model": {"type": "WordLevel", "unk_token": "", "vocab": `)
	appendVocab(&b, t.pieces, "  ")
	b.WriteString("}\n}\n")
	return map[string][]byte{"tokenizer.json": b.Bytes()}
}
