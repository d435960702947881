package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
)

// ErrNone is what [Load] returns, wrapped, for a directory that carries no tokenizer.
var ErrNone = errors.New("no tokenizer.json, vocab.json with merges.txt, spiece.model, tokenizer.model or vocab.txt")

// CarriedFiles are the files of a directory that say how its text becomes ids, read here or not.
var CarriedFiles = []string{"tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json",
	"special_tokens_map.json", "added_tokens.json", "encoder.json", "vocab.bpe", "vocab.txt", "tokenizer.model",
	"spiece.model", "sentencepiece.bpe.model", "chat_template.jinja", "chat_template.json"}

// others are files of tokenizers that are not GPT-2's, and what reads them where there is neither a tokenizer.json nor
// a pair.
var others = []struct {
	name string
	load func(d *folder, name string, data []byte, cfg *config) (*Tokenizer, error)
}{
	{"spiece.model", loadSentencePiece}, {"tokenizer.model", loadSentencePiece}, {"vocab.txt", loadBERT},
	{"sentencepiece.bpe.model", func(_ *folder, name string, _ []byte, _ *config) (*Tokenizer, error) {
		return nil, fmt.Errorf("%s: its ids are shifted by the class that reads it; save the tokenizer as tokenizer.json "+
			"(AutoTokenizer.from_pretrained and save_pretrained of transformers)", name)
	}},
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

// Open reads the tokenizer in a directory, or in one file: of the form of tokenizer.json, or one that [Load] reads
// alone.
func Open(path string) (*Tokenizer, error) {
	info, err := os.Stat(path)
	dir, base := os.DirFS(filepath.Dir(path)), filepath.Base(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return Load(os.DirFS(path))
	case slices.ContainsFunc(pairs, func(p [2]string) bool { return p[0] == base || p[1] == base }):
		return Load(dir)
	}
	data, err := (&folder{dir, make(map[string][]byte)}).read(base)
	if err != nil {
		return nil, err
	}
	own := "tokenizer.json"
	for _, o := range others {
		if o.name == base {
			own = base
		}
	}
	return (&folder{files: map[string][]byte{own: data}}).load()
}

// A folder is a directory of files, and what was read of them. Without an fs.FS it has nothing else.
type folder struct {
	fs.FS
	files map[string][]byte
}

// read returns a whole file of at most maxFile bytes. Errors name the file.
func (d *folder) read(name string) ([]byte, error) {
	if data, ok := d.files[name]; ok || d.FS == nil {
		if !ok {
			return nil, fs.ErrNotExist
		}
		return data, nil
	}
	f, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case len(data) > maxFile:
		return nil, fmt.Errorf("%s: larger than %d MiB, which no tokenizer needs", name, maxFile>>20)
	case !strings.HasSuffix(name, ".model") && !utf8.Valid(data):
		return nil, fmt.Errorf("%s: not UTF-8 text", name)
	}
	d.files[name] = data
	return data, nil
}

// readInto reads a file of JSON, if it is there.
func (d *folder) readInto(name string, v any) error {
	data, err := d.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Load reads the tokenizer in a Hugging Face model directory: tokenizer.json as it declares itself, or else vocab.json
// with merges.txt or encoder.json with vocab.bpe, as OpenAI calls them, or else a model of SentencePiece (spiece.model,
// tokenizer.model), or else the vocab.txt of a BertTokenizer. What is not supported is an error that names it.
// Truncation and padding belong to batches and are not applied.
//
// tokenizer_config.json and special_tokens_map.json say which token is [Tokenizer.EOT]. An add_prefix_space in
// tokenizer_config.json counts more than that in tokenizer.json, as in Hugging Face's transformers; add_bos_token and
// add_eos_token count where there is no tokenizer.json. They and added_tokens.json also name added tokens, beside those
// of tokenizer.json; without tokenizer.json <|endoftext|> is one wherever the vocabulary has it.
//
// A directory without these files is [ErrNone]. Nothing tells then how the model's text becomes ids, least of all the
// size of its vocabulary. Other errors name the file and what is wrong in it. Load trusts nothing in the files: it does
// not panic, and needs memory in proportion to their size, which is bounded.
func Load(fsys fs.FS) (*Tokenizer, error) {
	return (&folder{fsys, make(map[string][]byte)}).load()
}

func (d *folder) load() (*Tokenizer, error) {
	var cfg config
	for _, name := range []string{"special_tokens_map.json", "tokenizer_config.json"} { // the later one counts more
		if err := d.readInto(name, &cfg); err != nil {
			return nil, err
		}
	}
	data, err := d.read("tokenizer.json")
	if err == nil {
		t, err := parseTokenizer(d, data, &cfg)
		if err != nil {
			return nil, fmt.Errorf("tokenizer.json: %w", err)
		}
		t.keep(d)
		return t, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	t, err := loadVocabMerges(d, &cfg)
	for i := 0; i < len(others) && errors.Is(err, ErrNone); i++ {
		name := others[i].name
		data, fail := d.read(name)
		if errors.Is(fail, fs.ErrNotExist) {
			continue
		}
		if t, err = nil, fail; err == nil {
			t, err = others[i].load(d, name, data, &cfg)
		}
	}
	if err != nil {
		return nil, err
	}
	// transformers heeds these only where there is no tokenizer.json.
	if cfg.AddBOS {
		t.before = append(t.before, t.withRole("bos_token")...)
	}
	if cfg.AddEOS {
		t.after = append(t.after, t.withRole("eos_token")...)
	}
	t.keep(d)
	return t, nil
}

// keep keeps the files that were read, if Files cannot write others in their place.
func (t *Tokenizer) keep(d *folder) {
	if t.pipe != nil || t.before != nil || t.after != nil {
		t.files = d.files
	}
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

	// Of classes that are not GPT-2's.
	Lowercase *bool `json:"do_lower_case"`
	Chinese   *bool `json:"tokenize_chinese_chars"`
	Accents   *bool `json:"strip_accents"`
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

// roleNames are the names that files give the roles of tokens, in the order in which transformers adds the tokens.
var roleNames = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// tokens returns the tokens of roleNames.
func (c *config) tokens() []configToken {
	return []configToken{c.BOS, c.EOS, c.UNK, c.SEP, c.PAD, c.CLS, c.Mask}
}

// special returns the special tokens that are named, in the order in which transformers adds them.
func (c *config) special() []addedToken {
	var tokens []addedToken
	for _, tok := range append(c.tokens(), c.AdditionalToken...) {
		if tok.Content != "" {
			tokens = append(tokens, tok.addedToken)
		}
	}
	return tokens
}

// parseTokenizer reads a tokenizer.json and what lies beside it.
func parseTokenizer(d *folder, data []byte, cfg *config) (*Tokenizer, error) {
	var file struct {
		Version       *string         `json:"version"`
		Added         []addedToken    `json:"added_tokens"`
		Normalizer    json.RawMessage `json:"normalizer"`
		PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
		PostProcessor json.RawMessage `json:"post_processor"`
		Decoder       json.RawMessage `json:"decoder"`
		Model         json.RawMessage `json:"model"`
	}
	if err := unmarshal(data, &file); err != nil {
		return nil, err
	}
	if file.Version != nil && *file.Version != "1.0" {
		return nil, fmt.Errorf("version is %q; only 1.0 is supported", *file.Version)
	}
	normalizers, err := read("normalizer", file.Normalizer, "normalizers", normalizers, nil)
	if err != nil {
		return nil, err
	}
	splitters, err := read("pre_tokenizer", file.PreTokenizer, "pretokenizers", splitters, func(p *part) {
		if p.kind == "ByteLevel" && cfg.PrefixSpace != nil {
			p.fields["add_prefix_space"] = strconv.AppendBool(nil, *cfg.PrefixSpace)
		}
	})
	if err != nil {
		return nil, err
	}
	decoders, err := read("decoder", file.Decoder, "decoders", undos, nil)
	if err != nil {
		return nil, err
	}
	one, err := read("model", file.Model, "", models, func(p *part) { p.kind = cmp.Or(p.kind, "BPE") })
	if err == nil && len(one) != 1 {
		err = errors.New("no model")
	}
	if err != nil {
		return nil, err
	}
	model := one[0]
	added, err := addedTokens(d, file.Added, cfg)
	if err != nil {
		return nil, err
	}
	p := &pipeline{normalizers: normalizers, splitters: slices.Concat(splitters...)}
	t, err := newPipeline(p, model, decoders, added, cfg)
	if err != nil {
		return nil, err
	}
	return t, t.frame(file.PostProcessor)
}

// loadVocabMerges reads vocab.json and merges.txt, under either of their names.
func loadVocabMerges(d *folder, cfg *config) (*Tokenizer, error) {
	var names [2]string
	var vocabData, mergesData []byte
	var vocabErr, mergesErr error
	noVocab, noMerges := true, true
	for i := 0; i < len(pairs) && noVocab && noMerges; i++ {
		names = pairs[i]
		vocabData, vocabErr = d.read(names[0])
		mergesData, mergesErr = d.read(names[1])
		noVocab, noMerges = errors.Is(vocabErr, fs.ErrNotExist), errors.Is(mergesErr, fs.ErrNotExist)
	}
	switch {
	case noVocab && noMerges:
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
	var merges []string
	for i, line := range strings.Split(string(mergesData), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if line == "" || strings.HasPrefix(line, "#version") {
			continue
		}
		if _, err := splitMerge(line); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", names[1], i+1, err)
		}
		merges = append(merges, line)
	}
	if _, ok := vocab[EndOfText]; ok {
		cfg.AdditionalToken = append(cfg.AdditionalToken, configToken{addedToken{Content: EndOfText, Special: true}, true})
	}
	t, err := parseTokenizer(d, likeGPT2(valid, merges, nil, false, nil), cfg)
	if err != nil {
		return nil, fmt.Errorf("%s with %s and added tokens: %w", names[0], names[1], err)
	}
	return t, nil
}

type object = map[string]any

// likeGPT2 is the tokenizer.json of a vocabulary and merges in the byte alphabet. Around a text go the tokens of ends,
// if it is not nil: none or one before it, none or one after.
func likeGPT2(vocab any, merges []string, added []addedToken, prefixSpace bool, ends *[2][]addedToken) []byte {
	var post any = byteLevel{"ByteLevel", true, false, true}
	if ends != nil {
		single, special := []object{{"Sequence": object{"id": "A", "type_id": 0}}}, object{}
		for i, tokens := range ends {
			for _, tok := range tokens {
				single = slices.Insert(single, i*len(single), object{"SpecialToken": object{"id": tok.Content, "type_id": 0}})
				special[tok.Content] = object{"id": tok.Content, "ids": []int32{tok.ID}, "tokens": []string{tok.Content}}
			}
		}
		post = object{"type": "TemplateProcessing", "single": single, "pair": append(single, object{"Sequence": object{"id": "B",
			"type_id": 1}}), "special_tokens": special}
	}
	return inline(object{
		"version": "1.0", "truncation": nil, "padding": nil, "normalizer": nil,
		"added_tokens":   append([]addedToken{}, added...),
		"pre_tokenizer":  byteLevel{"ByteLevel", prefixSpace, true, true},
		"post_processor": post,
		"decoder":        byteLevel{"ByteLevel", true, true, true},
		"model":          object{"type": "BPE", "vocab": vocab, "merges": append([]string{}, merges...)},
	})
}

// addedTokens returns the added tokens: those of tokenizer.json, then those with an id in tokenizer_config.json or
// added_tokens.json, by id, and then special tokens that are named but have none. Of a token that tokenizer.json has
// too, transformers takes the flags from tokenizer_config.json.
func addedTokens(d *folder, added []addedToken, cfg *config) ([]addedToken, error) {
	own, special := len(added), cfg.special()
	byID := func(a, b addedToken) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Content, b.Content)) }
	have, byContent := make(map[string]int), make(map[string]addedToken) // have: index in added
	for i, tok := range added {
		have[tok.Content] = i
	}
	for _, tok := range special {
		byContent[tok.Content] = tok
	}
	add := func(file string, tokens []addedToken, flags bool) error {
		slices.SortFunc(tokens, byID)
		for _, tok := range tokens {
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
		}
		return nil
	}
	var configured, named []addedToken
	for key, tok := range cfg.Decoder {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %.40q is not an id", key)
		}
		tok.ID = int32(id)
		configured = append(configured, tok)
	}
	var tokens map[string]int32
	if err := d.readInto("added_tokens.json", &tokens); err != nil {
		return nil, err
	}
	for content, id := range tokens {
		tok, ok := byContent[content]
		if !ok {
			tok = addedToken{Content: content, Normalized: true}
		}
		tok.ID = id
		named = append(named, tok)
	}
	if err := cmp.Or(add("tokenizer_config.json", configured, true), add("added_tokens.json", named, false)); err != nil {
		return nil, err
	}
	slices.SortFunc(added[own:], byID)
	for _, tok := range special {
		if _, ok := have[tok.Content]; !ok {
			have[tok.Content] = len(added)
			added = append(added, tok)
		}
	}
	return added, nil
}

// parseVocab reads a JSON object from pieces, in the byte alphabet, to ids. The JSON is valid.
func parseVocab(data []byte) (map[string]int32, error) {
	vocab := make(map[string]int32, len(data)/32)
	err := jsonv2.Unmarshal(data, &vocab) // which finds what occurs twice
	var wrong *jsonv2.SemanticError
	if errors.As(err, &wrong) && wrong.JSONPointer != "" {
		return nil, fmt.Errorf("the id of %.40q is %.40s; expected an integer from 0 to %d", wrong.JSONPointer.LastToken(),
			cmp.Or(string(wrong.JSONValue), "not a number"), maxVocab-1)
	}
	if errors.As(err, &wrong) {
		return nil, errors.New("not a JSON object from pieces to ids")
	}
	for piece, id := range vocab {
		if id < 0 || id >= maxVocab {
			return nil, fmt.Errorf("the id of %.40q is %d; expected an integer from 0 to %d", piece, id, maxVocab-1)
		}
	}
	return vocab, err
}

// A mergeNames is a merge as files spell it.
type mergeNames struct{ left, right string }

// parseMerges reads a JSON array of merges, each "a b" or each ["a", "b"].
func parseMerges(data []byte) (merges []mergeNames, err error) {
	var lines []string
	var pairs [][]string
	if json.Unmarshal(data, &lines) == nil {
		for i, line := range lines {
			if strings.HasPrefix(line, "#version") {
				continue
			}
			m, err := splitMerge(line)
			if err != nil {
				return nil, fmt.Errorf("merge %d: %w", i+1, err)
			}
			merges = append(merges, m)
		}
		return merges, nil
	}
	err = unmarshal(data, &pairs)
	for i, pair := range pairs {
		if err == nil && len(pair) == 2 {
			merges = append(merges, mergeNames{pair[0], pair[1]})
		} else if err == nil {
			err = fmt.Errorf("merge %d has %d parts", i+1, len(pair))
		}
	}
	if err != nil {
		err = fmt.Errorf(`neither a list of "a b" nor one of ["a", "b"]: %w`, err)
	}
	return merges, err
}

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

// add adds tokens: those that the vocabulary has keep its id, the others take the next free ones in order, whatever id
// they name, as Hugging Face's tokenizers do.
func (t *Tokenizer) add(added []addedToken, vocab map[string]int32) error {
	seen, total, next := make(map[string]bool), 0, int32(len(vocab))
	for _, tok := range added {
		if tok.Content == "" {
			return fmt.Errorf("the added token with id %d is empty", tok.ID)
		}
		if total += len(tok.Content); len(tok.Content) > maxAdded || total > maxAllAdded {
			return fmt.Errorf("added token %.40q makes added tokens too long: at most %d bytes each and %d together are "+
				"supported", tok.Content, maxAdded, maxAllAdded)
		}
		if seen[tok.Content] {
			return fmt.Errorf("added token %.40q occurs twice", tok.Content)
		}
		seen[tok.Content] = true
		id, ok := vocab[tok.Content]
		if !ok {
			id = next
		}
		next = max(next, id+1)
		tok.ID = id
		t.added = append(t.added, tok)
	}
	slices.SortFunc(t.added, func(a, b addedToken) int { return cmp.Compare(a.ID, b.ID) })
	return nil
}

// setRoles finds the tokens that have a role.
func (t *Tokenizer) setRoles(vocab map[string]int32, cfg *config) {
	eos := cmp.Or(cfg.EOS.Content, EndOfText)
	if id, ok := vocab[eos]; ok {
		t.eot = id
	}
	added := make(map[string]bool)
	for _, tok := range t.added {
		if added[tok.Content] = true; tok.Content == eos {
			t.eot = tok.ID
		}
	}
	t.roles = make(map[string]string)
	gpt2Class := strings.HasPrefix("GPT2TokenizerFast", cfg.Class) && t.eot >= 0 && eos == EndOfText
	for i, tok := range cfg.tokens() {
		if gpt2Class && i < len(gpt2Roles) && tok.Content == "" && !tok.named { // its defaults
			tok.Content = EndOfText
		}
		if added[tok.Content] { // naming another token would make it one
			t.roles[roleNames[i]] = tok.Content
		}
	}
}
