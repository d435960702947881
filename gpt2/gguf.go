package gpt2

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"gpt2scope/gpt2/tokenizer"
	"gpt2scope/weights"
)

// ggufNames maps the names of tensors in a GGUF file to those of a Hugging Face checkpoint, outside layers and in layer
// N (blk.N and h.N). The names are llama.cpp's (ggml-org/llama.cpp, gguf-py/gguf/constants.py, MODEL_ARCH.GPT2).
var ggufNames = map[string]string{
	"token_embd": "wte", "position_embd": "wpe", "output_norm": "ln_f", "output": "lm_head",
}

var ggufLayerNames = map[string]string{
	"attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj",
	"ffn_norm": "ln_2", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj",
}

// OpenGGUF opens a GPT-2 in a GGUF file, as llama.cpp converts and quantises them.
// Configuration and tokenizer are those of the file's metadata. Weights are read when a backend packs them, and those
// of few bits are widened to float32 then.
func OpenGGUF(path string) (*Model, error) {
	file, err := weights.OpenGGUF(path)
	if err != nil {
		return nil, err
	}
	m, err := newGGUF(filepath.Clean(path), file)
	if err != nil {
		file.Close()
		return nil, err
	}
	m.Source = path
	return m, nil
}

// newGGUF makes a model of an open file, which it owns from then on, unless it fails.
func newGGUF(name string, file *weights.GGUF) (*Model, error) {
	wrap := func(err error) error { return fmt.Errorf("model %s: %w", name, err) }
	config, err := ggufConfig(file)
	if err != nil {
		return nil, wrap(err)
	}
	parameters := map[string]string{} // by the name in the file
	for name, stored := range ggufNamesOf(config.Layers) {
		parameters[stored] = name
	}
	checkpoint, err := file.Map(func(t weights.Tensor) (_ weights.Tensor, err error) {
		if t.Name = cmp.Or(parameters[t.Name], t.Name); linear.MatchString(t.Name) && len(t.Shape) == 2 {
			t, err = t.Transposed() // (outputs, inputs) in the file
		}
		return t, err
	})
	if err != nil {
		return nil, wrap(err)
	}
	m := &Model{Config: config, Name: name, Stored: mostly(file), checkpoint: checkpoint}
	if _, err := m.matchTensors("the metadata"); err != nil {
		return nil, wrap(err)
	}
	if m.Tokenizer, err = ggufTokenizer(file, config.Vocab); err != nil {
		m.NoTokenizer = err
	} else {
		m.TokenizerFrom = "the GGUF file"
	}
	return m, nil
}

// mostly returns the type that most elements of the file have.
func mostly(file *weights.GGUF) string {
	elements := map[string]int{}
	for t := range file.All() {
		elements[file.Type(t.Name)] += t.Elements()
	}
	most := ""
	for _, name := range slices.Sorted(maps.Keys(elements)) {
		if elements[name] > elements[most] {
			most = name
		}
	}
	return most
}

// metadata reads typed values of a GGUF file. Its first error sticks.
type metadata struct {
	values map[string]any
	err    error
}

func (m *metadata) fail(key, want string) {
	if m.err == nil {
		m.err = fmt.Errorf("the metadata has %s = %s; it must be %s", key, shorten(fmt.Append(nil, m.values[key])), want)
	}
}

// int reads a whole number. A key that is needed must be there; otherwise dst stays as it is.
func (m *metadata) int(key string, dst *int, needed bool) {
	switch v := m.values[key].(type) {
	case uint64:
		*dst = int(min(v, math.MaxInt32))
	case int64:
		*dst = int(max(min(v, math.MaxInt32), math.MinInt32))
	case nil:
		if needed && m.err == nil {
			m.err = fmt.Errorf("the metadata has no %s; a GPT-2 file needs it", key)
		}
	default:
		m.fail(key, "a whole number")
	}
}

// float reads a number that was meant in decimals: 1e-5 is stored as the float32 nearest to it.
func (m *metadata) float(key string, dst *float64) {
	switch v := m.values[key].(type) {
	case float32:
		*dst, _ = strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', -1, 32), 64)
	case float64:
		*dst = v
	case nil:
	default:
		m.fail(key, "a number")
	}
}

// valueOf returns a value of a type, the zero value if the file does not have it. want names the type in messages.
func valueOf[T any](m *metadata, key, want string) (v T) {
	v, ok := m.values[key].(T)
	if !ok && m.values[key] != nil {
		m.fail(key, want)
	}
	return v
}

func (m *metadata) string(key string) string { return valueOf[string](m, key, "a string") }
func (m *metadata) bool(key string) bool     { return valueOf[bool](m, key, "true or false") }

// ggufConfig reads the configuration. The keys are those of the GGUF specification. What a GGUF file does not say is
// GPT-2's: scores divided by sqrt(HS), and gelu_new, which llama.cpp computes for every GPT-2.
func ggufConfig(file *weights.GGUF) (Config, error) {
	m := &metadata{values: file.Values}
	if arch := m.string("general.architecture"); m.err == nil && arch != "gpt2" {
		return Config{}, fmt.Errorf("it is a model of the architecture %q (general.architecture); only gpt2 is supported",
			shorten([]byte(arch)))
	}
	c := defaults
	m.int("gpt2.block_count", &c.Layers, true)
	m.int("gpt2.embedding_length", &c.Channels, true)
	m.int("gpt2.attention.head_count", &c.Heads, true)
	m.int("gpt2.context_length", &c.Positions, true)
	c.Inner = 4 * c.Channels
	m.int("gpt2.feed_forward_length", &c.Inner, false)
	m.float("gpt2.attention.layer_norm_epsilon", &c.Epsilon)
	m.int("tokenizer.ggml.bos_token_id", &c.BOS, false)
	m.int("tokenizer.ggml.eos_token_id", &c.EOS, false)
	keys := c.Heads
	m.int("gpt2.attention.head_count_kv", &keys, false)
	if m.err != nil {
		return Config{}, m.err
	}
	if keys != c.Heads {
		return Config{}, fmt.Errorf("it has %d heads of keys and values for %d of queries; GPT-2 has as many", keys, c.Heads)
	}
	wte, ok := file.Tensor("token_embd.weight")
	if !ok || len(wte.Shape) != 2 {
		return Config{}, fmt.Errorf("it has no matrix token_embd.weight, which every GPT-2 has")
	}
	c.Vocab = wte.Shape[0]
	for name, id := range map[string]*int{"tokenizer.ggml.bos_token_id": &c.BOS, "tokenizer.ggml.eos_token_id": &c.EOS} {
		if *id >= c.Vocab {
			return Config{}, fmt.Errorf("the metadata has %s = %d; the vocabulary has %d tokens", name, *id, c.Vocab)
		}
	}
	if err := c.Check(); err != nil {
		return Config{}, fmt.Errorf("the metadata as a config.json: %w", err)
	}
	return c, nil
}

// The types of tokens in tokenizer.ggml.token_type (ggml-org/llama.cpp, include/llama.h, llama_token_type).
const (
	ggufNormal      = 1
	ggufControl     = 3
	ggufUserDefined = 4
	ggufUnused      = 5
)

// ggufTokenizer reads the tokenizer.
func ggufTokenizer(file *weights.GGUF, vocab int) (*tokenizer.Tokenizer, error) {
	m := &metadata{values: file.Values}
	list := func(key string) []string { return valueOf[[]string](m, key, "a list of strings") }
	parts := tokenizer.Parts{Tokens: list("tokenizer.ggml.tokens"), Merges: list("tokenizer.ggml.merges"), EndOfText: -1,
		BOS: -1, Unknown: -1, Pad: -1}
	model, split := m.string("tokenizer.ggml.model"), m.string("tokenizer.ggml.pre")
	types := valueOf[[]int64](m, "tokenizer.ggml.token_type", "a list of whole numbers")
	for key, id := range map[string]*int{"eos": &parts.EndOfText, "bos": &parts.BOS, "unknown": &parts.Unknown,
		"padding": &parts.Pad} {
		m.int("tokenizer.ggml."+key+"_token_id", id, false)
	}
	parts.PrefixSpace = m.bool("tokenizer.ggml.add_space_prefix")
	parts.AddBOS, parts.AddEOS = m.bool("tokenizer.ggml.add_bos_token"), m.bool("tokenizer.ggml.add_eos_token")
	switch {
	case m.err != nil:
		return nil, m.err
	case len(parts.Tokens) == 0 && (model == "" || model == "none" || model == "no_vocab"):
		return nil, errors.New("the GGUF file has none (tokenizer.ggml.tokens)")
	case model != "gpt2":
		return nil, fmt.Errorf("its tokenizer is of the kind %q (tokenizer.ggml.model); only gpt2, a byte-level BPE, is "+
			"supported", shorten([]byte(model)))
	case split != "" && split != "gpt-2" && split != "default":
		return nil, fmt.Errorf("its tokenizer splits words by the rules of %q (tokenizer.ggml.pre); only those of gpt-2 "+
			"are supported", shorten([]byte(split)))
	case len(parts.Tokens) != vocab:
		return nil, fmt.Errorf("its tokenizer has %d tokens, but token_embd.weight has %d rows", len(parts.Tokens), vocab)
	case types != nil && len(types) != vocab:
		return nil, fmt.Errorf("tokenizer.ggml.token_type has %d values for %d tokens", len(types), vocab)
	}
	for id, kind := range types {
		switch kind {
		case ggufControl:
			parts.Special = append(parts.Special, id)
		case ggufUserDefined:
			parts.Added = append(parts.Added, id)
		}
	}
	t, err := tokenizer.New(parts)
	if err != nil {
		return nil, fmt.Errorf("its tokenizer: %w", err)
	}
	return t, nil
}
