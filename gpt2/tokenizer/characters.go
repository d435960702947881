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
	seen := make(map[string]int, len(tokens))
	for id, token := range tokens {
		if utf8.RuneCountInString(token) != 1 || !utf8.ValidString(token) {
			return nil, fmt.Errorf("token %d, %.40q, is not one character", id, token)
		}
		if other, ok := seen[token]; ok {
			return nil, fmt.Errorf("tokens %d and %d are both %q", other, id, token)
		}
		seen[token] = id
	}
	var b bytes.Buffer
	b.WriteString(`{
  "version": "1.0",
  "added_tokens": [],
  "normalizer": null,
  "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[\\s\\S]"}, "behavior": "Isolated", "invert": false},
  "post_processor": null,
  "decoder": {"type": "Fuse"},
  "model": {"type": "WordLevel", "unk_token": "", "vocab": `)
	appendVocab(&b, tokens, "  ")
	b.WriteString("}\n}\n")
	return (&folder{files: map[string][]byte{"tokenizer.json": b.Bytes()}}).load()
}
