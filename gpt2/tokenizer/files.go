package tokenizer

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
)

// Files returns the tokenizer as the files of a Hugging Face directory, by name: tokenizer.json, tokenizer_config.json,
// special_tokens_map.json, vocab.json and merges.txt; or those that it was loaded from, if it is not like GPT-2's. Both
// [Load] and Hugging Face's libraries read them, with the same ids.
func (t *Tokenizer) Files() map[string][]byte {
	if t.files != nil {
		return maps.Clone(t.files)
	}
	p, err := t.Parts()
	if err != nil {
		panic(err) // a tokenizer that is not like GPT-2's has files
	}
	vocab := make(map[string]int32, t.modelSize)
	for id, token := range p.Tokens[:t.modelSize] {
		vocab[token] = int32(id)
	}
	return t.beside(likeGPT2(vocab, p.Merges, t.added, t.prefixSpace, nil), vocab, p.Merges)
}

// beside returns a tokenizer.json with the other files.
func (t *Tokenizer) beside(file []byte, vocab any, merges []string) map[string][]byte {
	return map[string][]byte{
		"tokenizer.json":          file,
		"tokenizer_config.json":   t.configJSON(),
		"special_tokens_map.json": indented(t.roles),
		"vocab.json":              inline(vocab),
		"merges.txt":              []byte(strings.Join(append([]string{"#version: 0.2"}, merges...), "\n") + "\n"),
	}
}

// fileName spells a token in the byte alphabet, or as it is when it is literal.
func (t *Tokenizer) fileName(id int32) string {
	if t.literal[id] {
		return t.pieces[id]
	}
	return toAlphabet(t.pieces[id])
}

// byteLevel is the pre-tokenizer, the post-processor and the decoder in tokenizer.json.
type byteLevel struct {
	Type        string `json:"type"`
	PrefixSpace bool   `json:"add_prefix_space"`
	TrimOffsets bool   `json:"trim_offsets"`
	UseRegex    bool   `json:"use_regex"`
}

func (t *Tokenizer) configJSON() []byte {
	type token struct { // addedToken without the id
		Content    string `json:"content"`
		LStrip     bool   `json:"lstrip"`
		Normalized bool   `json:"normalized"`
		RStrip     bool   `json:"rstrip"`
		SingleWord bool   `json:"single_word"`
		Special    bool   `json:"special"`
	}
	added := make(map[int32]token)
	for _, a := range t.added {
		added[a.ID] = token{a.Content, a.LStrip, a.Normalized, a.RStrip, a.SingleWord, a.Special}
	}
	cfg := map[string]any{
		"add_prefix_space":             t.prefixSpace,
		"added_tokens_decoder":         added,
		"clean_up_tokenization_spaces": false,
		"tokenizer_class":              "GPT2Tokenizer",
	}
	for _, role := range gpt2Roles {
		cfg[role] = nil // else the class has <|endoftext|> there
	}
	for role, content := range t.roles {
		cfg[role] = content
	}
	return indented(cfg)
}

// inline and indented write JSON without HTML's escapes. What they are given cannot fail.
func inline(v any) []byte   { return marshal(v, "") }
func indented(v any) []byte { return append(marshal(v, "  "), '\n') }

func marshal(v any, indent string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		panic(err) // strings, numbers and structs of them
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}
