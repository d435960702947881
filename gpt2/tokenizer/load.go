package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrNone is what [Load] returns, wrapped, for a directory that carries no tokenizer.
var ErrNone = errors.New("no tokenizer.json, and no vocab.json with merges.txt")

// CarriedFiles are the files of a directory that say how its text becomes ids, read here or not.
var CarriedFiles = []string{"tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json",
	"special_tokens_map.json", "added_tokens.json", "encoder.json", "vocab.bpe", "vocab.txt", "tokenizer.model",
	"spiece.model", "sentencepiece.bpe.model", "chat_template.jinja", "chat_template.json"}

// foreign are files of tokenizers that are not read, each with the kind of tokenizer.
var foreign = []struct{ name, kind string }{
	{"tokenizer.model", "SentencePiece"}, {"spiece.model", "SentencePiece"},
	{"sentencepiece.bpe.model", "SentencePiece"}, {"vocab.txt", "WordPiece"},
}

// pairs are the names of a vocabulary and of its merges: Hugging Face's and OpenAI's, with the same content.
var pairs = [][2]string{{"vocab.json", "merges.txt"}, {"encoder.json", "vocab.bpe"}}

// Bounds on what files may ask for, with room over what is in use.
const (
	maxFile     = 64 << 20 // bytes of a file; GPT-2's largest has 3.5 MB, the largest in use 35 MB
	maxVocab    = 1 << 24  // V; the largest in use is 2^18
	maxAdded    = 1 << 10  // bytes of an added token
	maxAllAdded = 4 << 20  // bytes of all added tokens together
)

// Open reads the tokenizer in a directory, or in one file of the form of tokenizer.json.
func Open(path string) (*Tokenizer, error) {
	info, err := os.Stat(path)
	switch base := filepath.Base(path); {
	case err != nil:
		return nil, err
	case info.IsDir():
		return Load(os.DirFS(path))
	case slices.ContainsFunc(pairs, func(p [2]string) bool { return p[0] == base || p[1] == base }):
		return Load(os.DirFS(filepath.Dir(path)))
	default:
		for _, f := range foreign {
			if f.name == base {
				return nil, notRead(base, f.kind)
			}
		}
		return Load(oneFile(path))
	}
}

// oneFile is a directory that holds one file, as its tokenizer.json.
type oneFile string

func (f oneFile) Open(name string) (fs.File, error) {
	if name != "tokenizer.json" {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return os.Open(string(f))
}

func notRead(name, kind string) error {
	return fmt.Errorf("%s: a %s tokenizer, which is not GPT-2's and not supported", name, kind)
}

// Load reads the tokenizer in a Hugging Face model directory: tokenizer.json, or else vocab.json and merges.txt, or
// else encoder.json and vocab.bpe, which OpenAI calls them.
//
// Of a tokenizer.json, it takes a BPE model over the byte alphabet, the ByteLevel pre-tokenizer with or without
// add_prefix_space and use_regex, and added tokens. Everything else that would change the ids is an error: another
// model, dropout, a normalizer, a post-processor that adds tokens, a vocabulary without all 256 bytes. Truncation and
// padding belong to batches and are not applied.
//
// tokenizer_config.json and special_tokens_map.json say which token is [Tokenizer.EOT]. An add_prefix_space in
// tokenizer_config.json counts more than that in tokenizer.json, as in Hugging Face's transformers. They and
// added_tokens.json also name added tokens, beside those of tokenizer.json; without tokenizer.json <|endoftext|> is one
// wherever the vocabulary has it.
//
// A directory without these files is [ErrNone]. Nothing tells then how the model's text becomes ids, least of all the
// size of its vocabulary. Other errors name the file and what is wrong in it. Load trusts nothing in the files: it does
// not panic, and needs memory in proportion to their size, which is bounded.
func Load(fsys fs.FS) (*Tokenizer, error) {
	var cfg config
	for _, name := range []string{"special_tokens_map.json", "tokenizer_config.json"} { // the later one counts more
		if data, err := readFile(fsys, name); err == nil {
			if err := unmarshal(data, &cfg); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if cfg.AddBOS || cfg.AddEOS {
		return nil, errors.New("tokenizer_config.json: add_bos_token and add_eos_token, which add tokens to every text, " +
			"are not supported: set them to false")
	}

	data, err := readFile(fsys, "tokenizer.json")
	if err == nil {
		t, err := parseTokenizer(fsys, data, &cfg)
		if err != nil {
			return nil, fmt.Errorf("tokenizer.json: %w", err)
		}
		return t, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return loadVocabMerges(fsys, &cfg)
}

// readFile reads a whole file of at most maxFile bytes. Errors name the file.
func readFile(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: larger than %d MiB, which no tokenizer needs", name, maxFile>>20)
	}
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("%s: not UTF-8 text", name)
	}
	return data, nil
}

// unmarshal is json.Unmarshal with an error that a person can read: json's own writes out Go's type.
func unmarshal(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		where := "at the top"
		if wrongType.Field != "" {
			where = "in " + wrongType.Field
		}
		return fmt.Errorf("unexpected %.40s %.80s", wrongType.Value, where)
	}
	return err
}

// config is what counts here of tokenizer_config.json and special_tokens_map.json.
type config struct {
	Class       string `json:"tokenizer_class"`
	PrefixSpace *bool  `json:"add_prefix_space"`
	AddBOS      bool   `json:"add_bos_token"`
	AddEOS      bool   `json:"add_eos_token"`

	BOS             configToken   `json:"bos_token"`
	EOS             configToken   `json:"eos_token"`
	UNK             configToken   `json:"unk_token"`
	SEP             configToken   `json:"sep_token"`
	PAD             configToken   `json:"pad_token"`
	CLS             configToken   `json:"cls_token"`
	Mask            configToken   `json:"mask_token"`
	AdditionalToken []configToken `json:"additional_special_tokens"`

	Decoder map[string]addedToken `json:"added_tokens_decoder"` // by id
}

// A configToken is a special token, which files give as a string, as an object or as null.
type configToken struct {
	addedToken
	named bool // the file says it, or that there is none
}

func (c *configToken) UnmarshalJSON(data []byte) error {
	c.addedToken, c.named = addedToken{}, true
	var err error
	switch {
	case data[0] == '"':
		err = unmarshal(data, &c.Content)
	case data[0] == '{':
		err = unmarshal(data, &c.addedToken)
	case string(data) != "null":
		err = fmt.Errorf("a special token is neither a string nor an object: %.40s", data)
	}
	c.Special = true
	return err
}

// special returns the special tokens that are named, in the order in which transformers adds them.
func (c *config) special() []addedToken {
	var tokens []addedToken
	for _, tok := range append([]configToken{c.BOS, c.EOS, c.UNK, c.SEP, c.PAD, c.CLS, c.Mask}, c.AdditionalToken...) {
		if tok.Content != "" {
			tokens = append(tokens, tok.addedToken)
		}
	}
	return tokens
}

// roles returns the content of the tokens that have a role, by the name that files give the role.
func (c *config) roles() map[string]string {
	roles := make(map[string]string)
	for name, tok := range map[string]configToken{"bos_token": c.BOS, "eos_token": c.EOS, "unk_token": c.UNK,
		"sep_token": c.SEP, "pad_token": c.PAD, "cls_token": c.CLS, "mask_token": c.Mask} {
		if tok.Content != "" {
			roles[name] = tok.Content
		}
	}
	return roles
}

// parseTokenizer reads a tokenizer.json and what lies beside it.
func parseTokenizer(fsys fs.FS, data []byte, cfg *config) (*Tokenizer, error) {
	var file struct {
		Version       *string         `json:"version"`
		Added         []addedToken    `json:"added_tokens"`
		Normalizer    json.RawMessage `json:"normalizer"`
		PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
		PostProcessor json.RawMessage `json:"post_processor"`
		Decoder       json.RawMessage `json:"decoder"`
		Model         *struct {
			Type         *string         `json:"type"`
			Dropout      float64         `json:"dropout"`
			Prefix       string          `json:"continuing_subword_prefix"`
			Suffix       string          `json:"end_of_word_suffix"`
			IgnoreMerges bool            `json:"ignore_merges"`
			Vocab        json.RawMessage `json:"vocab"`
			Merges       json.RawMessage `json:"merges"`
		} `json:"model"`
	}
	if err := unmarshal(data, &file); err != nil {
		return nil, err
	}
	if file.Version != nil && *file.Version != "1.0" {
		return nil, fmt.Errorf("version is %q; only 1.0 is supported", *file.Version)
	}
	m := file.Model
	switch {
	case m == nil:
		return nil, errors.New("no model")
	case m.Type != nil && *m.Type != "BPE":
		return nil, fmt.Errorf("model is %s; only BPE, GPT-2's, is supported", *m.Type)
	case m.Dropout != 0:
		return nil, fmt.Errorf("model.dropout is %v: it makes the ids random; set it to null", m.Dropout)
	case m.Prefix != "" || m.Suffix != "":
		return nil, errors.New("model.continuing_subword_prefix and end_of_word_suffix are not supported: GPT-2 has neither")
	case m.Vocab == nil || m.Merges == nil:
		return nil, errors.New("model.vocab or model.merges is missing")
	}

	prefixSpace, splitWords, err := parsePreTokenizer(file.PreTokenizer)
	if err != nil {
		return nil, err
	}
	if cfg.PrefixSpace != nil {
		prefixSpace = *cfg.PrefixSpace
	}
	if err := checkComponents(file.Normalizer, file.PostProcessor, file.Decoder); err != nil {
		return nil, err
	}

	vocab, err := parseVocab(m.Vocab)
	if err != nil {
		return nil, fmt.Errorf("model.vocab: %w", err)
	}
	merges, err := parseMerges(m.Merges)
	if err != nil {
		return nil, fmt.Errorf("model.merges: %w", err)
	}
	added, err := addedTokens(fsys, vocab, file.Added, cfg)
	if err != nil {
		return nil, err
	}
	return build(vocab, merges, added, cfg, func(t *Tokenizer) {
		t.prefixSpace, t.splitWords, t.ignoreMerges = prefixSpace, splitWords, m.IgnoreMerges
	})
}

// A component is a normalizer, pre-tokenizer, post-processor or decoder in tokenizer.json.
type component struct {
	Type string `json:"type"`

	PrefixSpace *bool `json:"add_prefix_space"` // ByteLevel
	UseRegex    *bool `json:"use_regex"`        // ByteLevel

	Single []map[string]json.RawMessage `json:"single"` // TemplateProcessing

	Normalizers   []json.RawMessage `json:"normalizers"` // Sequence
	Pretokenizers []json.RawMessage `json:"pretokenizers"`
	Processors    []json.RawMessage `json:"processors"`
	Decoders      []json.RawMessage `json:"decoders"`
}

// sequence returns the components of raw: those of a Sequence, none for null, otherwise raw itself. A Sequence inside
// a Sequence is returned as it is; nothing accepts it.
func sequence(raw json.RawMessage) ([]component, error) {
	if raw == nil || string(raw) == "null" {
		return nil, nil
	}
	var c component
	if err := unmarshal(raw, &c); err != nil {
		return nil, err
	}
	if c.Type != "Sequence" {
		return []component{c}, nil
	}
	parts := slices.Concat(c.Normalizers, c.Pretokenizers, c.Processors, c.Decoders)
	list := make([]component, len(parts))
	for i, part := range parts {
		if err := unmarshal(part, &list[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func parsePreTokenizer(raw json.RawMessage) (prefixSpace, useRegex bool, err error) {
	list, err := sequence(raw)
	if err != nil {
		return false, false, fmt.Errorf("pre_tokenizer: %w", err)
	}
	if len(list) != 1 || list[0].Type != "ByteLevel" {
		return false, false, fmt.Errorf("pre_tokenizer is %s; only ByteLevel, GPT-2's, is supported", typesOf(list))
	}
	c := list[0]
	if c.PrefixSpace == nil {
		return false, false, errors.New("pre_tokenizer: add_prefix_space is missing")
	}
	return *c.PrefixSpace, c.UseRegex == nil || *c.UseRegex, nil
}

// checkComponents refuses what would change the ids, or the text that they decode to.
func checkComponents(normalizer, postProcessor, decoder json.RawMessage) error {
	for _, c := range []struct {
		name    string
		raw     json.RawMessage
		most    int      // components
		allowed []string // their types
		instead string
	}{
		{"normalizer", normalizer, 0, nil, "none is supported, and GPT-2 has none"},
		{"post_processor", postProcessor, math.MaxInt, []string{"ByteLevel", "TemplateProcessing"},
			"only ByteLevel, GPT-2's, is supported"},
		{"decoder", decoder, 1, []string{"ByteLevel"}, "only ByteLevel, GPT-2's, is supported"},
	} {
		list, err := sequence(c.raw)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if len(list) > c.most || slices.ContainsFunc(list, func(l component) bool {
			return !slices.Contains(c.allowed,
				l.Type)
		}) {
			return fmt.Errorf("%s is %s; %s", c.name, typesOf(list), c.instead)
		}
		for _, part := range list {
			if slices.ContainsFunc(part.Single,
				func(item map[string]json.RawMessage) bool { return item["SpecialToken"] != nil }) {
				return fmt.Errorf("%s is %s and adds special tokens to every text, which is not supported", c.name, part.Type)
			}
		}
	}
	return nil
}

// typesOf names components in an error.
func typesOf(list []component) string {
	if len(list) == 0 {
		return "missing"
	}
	var names []string
	for _, c := range list {
		names = append(names, fmt.Sprintf("%.40q", c.Type))
	}
	return strings.Join(names[:min(len(names), 5)], " + ")
}

// loadVocabMerges reads vocab.json and merges.txt, under either of their names.
func loadVocabMerges(fsys fs.FS, cfg *config) (*Tokenizer, error) {
	var names [2]string
	var vocabData, mergesData []byte
	var vocabErr, mergesErr error
	noVocab, noMerges := true, true
	for i := 0; i < len(pairs) && noVocab && noMerges; i++ {
		names = pairs[i]
		vocabData, vocabErr = readFile(fsys, names[0])
		mergesData, mergesErr = readFile(fsys, names[1])
		noVocab, noMerges = errors.Is(vocabErr, fs.ErrNotExist), errors.Is(mergesErr, fs.ErrNotExist)
	}
	switch {
	case noVocab && noMerges:
		for _, f := range foreign {
			if _, err := fs.Stat(fsys, f.name); err == nil {
				return nil, notRead(f.name, f.kind)
			}
		}
		return nil, ErrNone
	case noMerges:
		return nil, fmt.Errorf("%s is there, but %s is missing: both are needed", names[0], names[1])
	case noVocab:
		return nil, fmt.Errorf("%s is there, but %s is missing: both are needed", names[1], names[0])
	case vocabErr != nil:
		return nil, vocabErr
	case mergesErr != nil:
		return nil, mergesErr
	}

	var valid json.RawMessage
	if err := unmarshal(vocabData, &valid); err != nil {
		return nil, fmt.Errorf("%s: %w", names[0], err)
	}
	vocab, err := parseVocab(valid)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", names[0], err)
	}
	lines := strings.Split(string(mergesData), "\n")
	merges := make([]mergeNames, 0, len(lines))
	for i, line := range lines {
		line = strings.TrimSuffix(line, "\r")
		if line == "" || strings.HasPrefix(line, "#version") {
			continue
		}
		m, err := splitMerge(line)
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", names[1], i+1, err)
		}
		merges = append(merges, m)
	}
	if _, ok := vocab[EndOfText]; ok {
		cfg.AdditionalToken = append(cfg.AdditionalToken, configToken{addedToken{Content: EndOfText, Special: true}, true})
	}
	added, err := addedTokens(fsys, vocab, nil, cfg)
	if err != nil {
		return nil, err
	}
	t, err := build(vocab, merges, added, cfg, func(t *Tokenizer) {
		t.prefixSpace, t.splitWords = cfg.PrefixSpace != nil && *cfg.PrefixSpace, true
	})
	if err != nil {
		return nil, fmt.Errorf("%s with %s and added tokens: %w", names[0], names[1], err)
	}
	return t, nil
}

// addedTokens returns the added tokens: those of tokenizer.json, then those with an id in tokenizer_config.json or
// added_tokens.json, by id, and then special tokens that are named but have none, which get the next ids. Of a token
// that tokenizer.json has too, transformers takes the flags from tokenizer_config.json.
func addedTokens(fsys fs.FS, vocab map[string]int32, added []addedToken, cfg *config) ([]addedToken, error) {
	own, special := len(added), cfg.special()
	byContent := make(map[string]addedToken)
	for _, tok := range special {
		byContent[tok.Content] = tok
	}
	var more []addedToken
	for key, tok := range cfg.Decoder {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %.40q is not an id", key)
		}
		tok.ID = int32(id)
		more = append(more, tok)
	}
	byID := func(a, b addedToken) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Content, b.Content)) }
	slices.SortFunc(more, byID)
	have := make(map[string]int) // index in added
	for i, tok := range added {
		have[tok.Content] = i
	}
	add := func(file string, tok addedToken, flags bool) error {
		i, ok := have[tok.Content]
		switch {
		case !ok:
			have[tok.Content] = len(added)
			added = append(added, tok)
		case added[i].ID != tok.ID:
			return fmt.Errorf("%s: added token %.40q has id %d, but elsewhere %d", file, tok.Content, tok.ID, added[i].ID)
		case flags:
			added[i] = tok
		}
		return nil
	}
	for _, tok := range more {
		if err := add("tokenizer_config.json", tok, true); err != nil {
			return nil, err
		}
	}
	data, err := readFile(fsys, "added_tokens.json")
	if err == nil {
		var tokens map[string]int32
		if err := unmarshal(data, &tokens); err != nil {
			return nil, fmt.Errorf("added_tokens.json: %w", err)
		}
		more = more[:0]
		for content, id := range tokens {
			tok, ok := byContent[content]
			if !ok {
				tok = addedToken{Content: content, Normalized: true}
			}
			tok.ID = id
			more = append(more, tok)
		}
		slices.SortFunc(more, byID)
		for _, tok := range more {
			if err := add("added_tokens.json", tok, false); err != nil {
				return nil, err
			}
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	slices.SortFunc(added[own:], byID)

	next := int32(len(vocab))
	for _, tok := range added {
		if tok.ID >= next && tok.ID < math.MaxInt32 {
			next = tok.ID + 1
		}
	}
	for _, tok := range special {
		if _, ok := have[tok.Content]; ok {
			continue
		}
		id, ok := vocab[tok.Content]
		if !ok {
			id = next
			next++
		}
		tok.ID = id
		_ = add("", tok, false) // it is new
	}
	return added, nil
}

// tokens reads JSON token by token. Duplicate keys are for the caller to find.
func tokens(data []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// parseVocab reads a JSON object from pieces, in the byte alphabet, to ids. The JSON is valid.
func parseVocab(data []byte) (map[string]int32, error) {
	dec := tokens(data)
	if t, err := dec.ReadToken(); err != nil || t.Kind() != '{' {
		return nil, errors.New("not a JSON object from pieces to ids")
	}
	vocab := make(map[string]int32, len(data)/32)
	for {
		t, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		if t.Kind() == '}' {
			return vocab, nil
		}
		piece := t.String()
		if t, err = dec.ReadToken(); err != nil || t.Kind() != '0' {
			return nil, fmt.Errorf("the id of %.40q is not a number", piece)
		}
		id, err := strconv.ParseInt(t.String(), 10, 64)
		if err != nil || id < 0 || id >= maxVocab {
			return nil, fmt.Errorf("the id of %.40q is %.40s; expected an integer from 0 to %d", piece, t.String(), maxVocab-1)
		}
		if _, ok := vocab[piece]; ok {
			return nil, fmt.Errorf("%.40q occurs twice", piece)
		}
		vocab[piece] = int32(id)
	}
}

// A mergeNames is a merge as files spell it.
type mergeNames struct{ left, right string }

// parseMerges reads a JSON array of merges, each "a b" or ["a", "b"]. The JSON is valid.
func parseMerges(data []byte) ([]mergeNames, error) {
	dec := tokens(data)
	if t, err := dec.ReadToken(); err != nil || t.Kind() != '[' {
		return nil, errors.New("not a JSON array")
	}
	var merges []mergeNames
	for {
		t, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		switch t.Kind() {
		case ']':
			return merges, nil
		case '"':
			line := t.String()
			if strings.HasPrefix(line, "#version") {
				continue
			}
			m, err := splitMerge(line)
			if err != nil {
				return nil, fmt.Errorf("merge %d: %w", len(merges)+1, err)
			}
			merges = append(merges, m)
		case '[':
			var pair []string
			for dec.PeekKind() == '"' {
				t, _ := dec.ReadToken()
				pair = append(pair, t.String())
			}
			if t, err := dec.ReadToken(); err != nil || t.Kind() != ']' || len(pair) != 2 {
				return nil, notMerge(len(merges) + 1)
			}
			merges = append(merges, mergeNames{pair[0], pair[1]})
		default:
			return nil, notMerge(len(merges) + 1)
		}
	}
}

func notMerge(n int) error { return fmt.Errorf(`merge %d is neither "a b" nor ["a", "b"]`, n) }

func splitMerge(line string) (mergeNames, error) {
	left, right, ok := strings.Cut(line, " ")
	if !ok || left == "" || right == "" || strings.Contains(right, " ") {
		return mergeNames{}, fmt.Errorf("%.40q is not two pieces separated by a space", line)
	}
	return mergeNames{left, right}, nil
}

// byteOf is the inverse of alphabet: the byte of each character, -1 for those that are not in it.
var byteOf = func() (bytes [256 + 68]int16) {
	for c := range bytes {
		bytes[c] = -1
	}
	for b, c := range alphabet {
		bytes[c] = int16(b)
	}
	return bytes
}()

// fromAlphabet returns the bytes that s spells in the byte alphabet, and false if it has another character.
func fromAlphabet(s string) (string, bool) {
	b := make([]byte, 0, 32)
	for _, c := range s {
		if int(c) >= len(byteOf) || byteOf[c] < 0 {
			return "", false
		}
		b = append(b, byte(byteOf[c]))
	}
	return string(b), true
}

// build makes a tokenizer of what files hold, and checks it. vocab and merges are in the byte alphabet; options
// sets the fields that are neither.
func build(vocab map[string]int32, merges []mergeNames, added []addedToken, cfg *config,
	options func(*Tokenizer)) (*Tokenizer, error) {
	t := &Tokenizer{
		modelSize: len(vocab),
		pieces:    make([]string, len(vocab), len(vocab)+len(added)),
		literal:   make(map[int32]bool),
		bpe:       bpe{merges: newMergeTable(len(merges))},
		added:     make([]addedToken, 0, len(added)),
		eot:       -1,
	}
	options(t)

	// The vocabulary. As there are as many ids as pieces, ids that are in range and distinct leave no gap.
	filled := make([]bool, len(vocab))
	for name, id := range vocab {
		if int(id) >= len(vocab) {
			return nil, fmt.Errorf("the vocabulary has %d pieces, but %.40q has id %d: ids must be 0 to %d, without a gap",
				len(vocab), name, id, len(vocab)-1)
		}
		if filled[id] {
			return nil, fmt.Errorf("id %d of the vocabulary belongs to two pieces, one of them %.40q", id, name)
		}
		filled[id] = true
		if piece, ok := fromAlphabet(name); ok && name != "" {
			t.pieces[id] = piece
		} else {
			t.pieces[id] = name
			t.literal[id] = true
		}
	}
	for b, c := range alphabet {
		id, ok := vocab[string(c)]
		if !ok {
			return nil, fmt.Errorf("the vocabulary has no token for byte 0x%02X (%q): text with it could not be encoded", b, c)
		}
		t.byteID[b] = id
	}

	var both []byte
	for i, m := range merges {
		left, ok := vocab[m.left]
		if !ok {
			return nil, fmt.Errorf("merge %d of %.40q and %.40q: the vocabulary does not have the first", i+1, m.left, m.right)
		}
		right, ok := vocab[m.right]
		if !ok {
			return nil, fmt.Errorf("merge %d of %.40q and %.40q: the vocabulary does not have the second", i+1, m.left, m.right)
		}
		both = append(append(both[:0], m.left...), m.right...)
		id, ok := vocab[string(both)]
		if !ok {
			return nil, fmt.Errorf("merge %d of %.40q and %.40q: the vocabulary does not have the piece that they make", i+1,
				m.left, m.right)
		}
		if t.literal[left] || t.literal[right] {
			continue // no text is encoded to these
		}
		t.merges.set(pairOf(left, right), merge{rank: int32(i), id: id}) // of two equal pairs the later rank counts
	}

	// Added tokens: those that the vocabulary has keep its id, the others take the next free ones in order.
	seen, total := make(map[string]bool), 0
	for _, tok := range added {
		if tok.Content == "" {
			return nil, fmt.Errorf("the added token with id %d is empty", tok.ID)
		}
		if total += len(tok.Content); len(tok.Content) > maxAdded || total > maxAllAdded {
			return nil, fmt.Errorf("added token %.40q makes added tokens too long: at most %d bytes each and %d together are "+
				"supported", tok.Content, maxAdded, maxAllAdded)
		}
		if seen[tok.Content] {
			return nil, fmt.Errorf("added token %.40q occurs twice", tok.Content)
		}
		seen[tok.Content] = true
		want, ok := vocab[tok.Content]
		if !ok {
			want = int32(len(t.pieces))
			t.pieces = append(t.pieces, tok.Content)
			t.literal[want] = true
		}
		if tok.ID != want {
			return nil, fmt.Errorf("added token %.40q: expected id %d, its id in the vocabulary or else the next id after it, "+
				"found %d", tok.Content, want, tok.ID)
		}
		if t.pieces[want] != tok.Content {
			return nil, fmt.Errorf("added token %.40q is also a piece of the vocabulary, where the byte alphabet gives it "+
				"other bytes: %.40q", tok.Content, t.pieces[want])
		}
		t.added = append(t.added, tok)
	}
	slices.SortFunc(t.added, func(a, b addedToken) int { return cmp.Compare(a.ID, b.ID) })
	eos := cfg.EOS.Content
	if eos == "" {
		eos = EndOfText
	}
	if id, ok := vocab[eos]; ok {
		t.eot = id
	}
	for _, tok := range t.added {
		if tok.Content == eos {
			t.eot = tok.ID
		}
	}
	t.roles = cfg.roles()
	if strings.HasPrefix("GPT2TokenizerFast", cfg.Class) && t.eot >= 0 && eos == EndOfText { // its defaults
		for role, named := range map[string]bool{"bos_token": cfg.BOS.named, "eos_token": cfg.EOS.named,
			"unk_token": cfg.UNK.named} {
			if t.roles[role] == "" && !named {
				t.roles[role] = EndOfText
			}
		}
	}
	maps.DeleteFunc(t.roles, func(_, content string) bool { return !seen[content] }) // naming it would make it one
	t.finish()
	return t, nil
}
