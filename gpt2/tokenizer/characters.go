package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// Characters returns the tokenizer of a model of characters, such as nanoGPT makes of a text: the token of each id is
// one character. A character of a text that is none of them gets the id -1, which [Tokenizer.Check] and a session
// refuse.
func Characters(tokens []string) (*Tokenizer, error) {
	vocab := make(map[string]int, len(tokens))
	for id, token := range tokens {
		if utf8.RuneCountInString(token) != 1 || !utf8.ValidString(token) {
			return nil, fmt.Errorf("token %d, %.40q, is not one character", id, token)
		}
		if other, ok := vocab[token]; ok {
			return nil, fmt.Errorf("tokens %d and %d are both %q", other, id, token)
		}
		vocab[token] = id
	}
	return (&folder{files: map[string][]byte{"tokenizer.json": inline(object{
		"version": "1.0", "added_tokens": []addedToken{}, "normalizer": nil, "post_processor": nil,
		"pre_tokenizer": object{"type": "Split", "pattern": object{"Regex": `[\s\S]`}, "behavior": "Isolated", "invert": false},
		"decoder":       object{"type": "Fuse"},
		"model":         object{"type": "WordLevel", "unk_token": "", "vocab": vocab},
	})}}).load()
}
