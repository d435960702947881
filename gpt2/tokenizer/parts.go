package tokenizer

import (
	"errors"
	"fmt"
	"slices"
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
	AddBOS      bool     // begin every text with the token BOS
	AddEOS      bool     // end it with EndOfText

	BOS, Unknown, Pad int // ids of the tokens with these roles, -1 for none
}

// New makes a tokenizer of its parts, of which Special and Added are ids of Tokens. It checks the others as [Load] checks
// files.
func New(p Parts) (*Tokenizer, error) {
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
	var added []addedToken
	for _, list := range []struct {
		ids     []int
		special bool
	}{{p.Special, true}, {p.Added, false}} {
		for _, id := range list.ids {
			added = append(added, addedToken{ID: int32(id), Content: p.Tokens[id], Special: list.special})
		}
	}
	var cfg config
	for _, role := range []struct {
		name string
		id   int
		to   *configToken
	}{{"end-of-text", p.EndOfText, &cfg.EOS}, {"beginning-of-text", p.BOS, &cfg.BOS}, {"unknown", p.Unknown, &cfg.UNK},
		{"padding", p.Pad, &cfg.PAD}} {
		if role.id >= len(p.Tokens) {
			return nil, fmt.Errorf("the %s token %d is outside the vocabulary of %d", role.name, role.id, len(p.Tokens))
		}
		if role.id >= 0 {
			role.to.Content = p.Tokens[role.id]
		}
	}
	ends := new([2][]addedToken)
	for i, id := range []int{p.BOS, p.EndOfText} {
		if !(i == 0 && p.AddBOS || i == 1 && p.AddEOS) {
			continue
		}
		if id < 0 {
			return nil, errors.New("a token is to be added to every text, and it is not named (bos, eos)")
		}
		ends[i] = []addedToken{{ID: int32(id), Content: p.Tokens[id]}}
	}
	file := likeGPT2(vocab, p.Merges, added, p.PrefixSpace, ends)
	t, err := parseTokenizer(&folder{}, file, &cfg)
	if err == nil && t.pipe != nil {
		return nil, errors.New("the vocabulary does not have a token for every byte")
	}
	if err == nil && (p.AddBOS || p.AddEOS) {
		t.files = t.beside(file, vocab, p.Merges)
	}
	return t, err
}

// Parts returns what New makes the tokenizer of. It is an error if it is no byte-level BPE that splits words as GPT-2.
func (t *Tokenizer) Parts() (Parts, error) {
	if t.pipe != nil {
		return Parts{}, errors.New("the tokenizer is no byte-level BPE that splits words as GPT-2's does")
	}
	p := Parts{PrefixSpace: t.prefixSpace, AddBOS: len(t.before) > 0, AddEOS: len(t.after) > 0, EndOfText: int(t.eot),
		BOS: -1, Unknown: -1, Pad: -1}
	for role, to := range map[string]*int{"bos_token": &p.BOS, "unk_token": &p.Unknown, "pad_token": &p.Pad} {
		for _, id := range t.withRole(role) {
			*to = int(id)
		}
	}
	if p.AddBOS && !slices.Equal(t.before, []int32{int32(p.BOS)}) || p.AddEOS && !slices.Equal(t.after, []int32{t.eot}) {
		return Parts{}, errors.New("the tokenizer puts other tokens around a text than bos and eos")
	}
	for id := range t.pieces {
		p.Tokens = append(p.Tokens, t.fileName(int32(id)))
	}
	for _, m := range t.merges.sorted() {
		p.Merges = append(p.Merges, p.Tokens[m.left()]+" "+p.Tokens[m.right()]) // the alphabet has no space
	}
	for _, a := range t.added {
		if a.Special {
			p.Special = append(p.Special, int(a.ID))
		} else {
			p.Added = append(p.Added, int(a.ID))
		}
	}
	return p, nil
}

// withRole returns the id of the added token with a role, if there is one.
func (t *Tokenizer) withRole(role string) (ids []int32) {
	for _, a := range t.added {
		if a.Content == t.roles[role] {
			ids = append(ids, a.ID)
		}
	}
	return ids
}
