package tokenizer

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// Parts are what makes a byte-level BPE like GPT-2's, as files that are not a Hugging Face directory hold it.
type Parts struct {
	Tokens      []string // by id, in the byte alphabet or, if they are in Special or Added, as they are
	Merges      []string // "a b", the first rank first
	Special     []int    // ids of tokens such as <|endoftext|>
	Added       []int    // ids of other tokens that are found in text before BPE
	EndOfText   int      // id of [Tokenizer.EOT], -1 for <|endoftext|> if there is one
	PrefixSpace bool     // begin every text with a space
}

// New makes a tokenizer of its parts. It checks them as [Load] checks files.
func New(p Parts) (*Tokenizer, error) {
	if len(p.Tokens) >= maxVocab {
		return nil, fmt.Errorf("the vocabulary has %d tokens; at most %d are supported", len(p.Tokens), maxVocab-1)
	}
	vocab := make(map[string]int32, len(p.Tokens))
	for id, token := range p.Tokens {
		if !utf8.ValidString(token) {
			return nil, fmt.Errorf("token %d, %.40q, is not UTF-8", id, token)
		}
		if other, ok := vocab[token]; ok {
			return nil, fmt.Errorf("tokens %d and %d are both %.40q", other, id, token)
		}
		vocab[token] = int32(id)
	}
	merges := make([]mergeNames, 0, len(p.Merges))
	for i, line := range p.Merges {
		m, err := splitMerge(line)
		if err != nil {
			return nil, fmt.Errorf("merge %d: %w", i+1, err)
		}
		merges = append(merges, m)
	}
	var added []addedToken
	for _, list := range []struct {
		ids     []int
		special bool
	}{{p.Special, true}, {p.Added, false}} {
		for _, id := range list.ids {
			if id < 0 || id >= len(p.Tokens) {
				return nil, fmt.Errorf("the added token %d is outside the vocabulary of %d", id, len(p.Tokens))
			}
			added = append(added, addedToken{ID: int32(id), Content: p.Tokens[id], Special: list.special})
		}
	}
	var cfg config
	switch {
	case p.EndOfText >= len(p.Tokens):
		return nil, fmt.Errorf("the end-of-text token %d is outside the vocabulary of %d", p.EndOfText, len(p.Tokens))
	case p.EndOfText >= 0:
		cfg.EOS.Content = p.Tokens[p.EndOfText]
	}
	if len(p.Tokens) == 0 {
		return nil, errors.New("it has no tokens")
	}
	return build(vocab, merges, added, &cfg, func(t *Tokenizer) {
		t.prefixSpace, t.splitWords = p.PrefixSpace, true
	})
}
