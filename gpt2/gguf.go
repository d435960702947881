package gpt2

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

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
		if t.Name = cmp.Or(parameters[t.Name], t.Name); linear().MatchString(t.Name) && len(t.Shape) == 2 {
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

// newMetadata reads typed values of a GGUF file, but for lists. A number that was meant in decimals is one again: 1e-5 is
// stored as the float32 nearest to it.
func newMetadata(file *weights.GGUF) *fieldReader {
	raw := map[string]json.RawMessage{}
	for key, value := range file.Values {
		switch value.(type) {
		case []string, []int64: // long ones, which listOf reads
			raw[key] = json.RawMessage("[...]")
		default:
			raw[key], _ = json.Marshal(value) // but for infinite numbers, which are not there then
		}
	}
	return &fieldReader{file: "the metadata", raw: raw}
}

// listOf returns a list in a GGUF file, nil if the file does not have it. want names the type in messages.
func listOf[T any](r *fieldReader, file *weights.GGUF, key, want string) []T {
	list, ok := file.Values[key].([]T)
	if value := file.Values[key]; !ok && value != nil && r.err == nil {
		r.err = fmt.Errorf("the metadata has %s = %s; it must be %s", key, shorten(fmt.Append(nil, value)), want)
	}
	return list
}

// ggufConfig reads the configuration. The keys are those of the GGUF specification. What a GGUF file does not say is
// GPT-2's: scores divided by sqrt(HS), and gelu_new, which llama.cpp computes for every GPT-2.
func ggufConfig(file *weights.GGUF) (Config, error) {
	m := newMetadata(file)
	var arch string
	if m.read(into{"general.architecture": &arch}); m.err == nil && arch != "gpt2" {
		return Config{}, fmt.Errorf("it is a model of the architecture %q (general.architecture); only gpt2 is supported",
			shorten([]byte(arch)))
	}
	c := defaults
	needed := into{"gpt2.block_count": &c.Layers, "gpt2.embedding_length": &c.Channels,
		"gpt2.attention.head_count": &c.Heads, "gpt2.context_length": &c.Positions}
	m.read(needed)
	for _, key := range slices.Sorted(maps.Keys(needed)) {
		if m.err == nil && !m.has(key) {
			return Config{}, fmt.Errorf("the metadata has no %s; a GPT-2 file needs it", key)
		}
	}
	c.Inner = 4 * c.Channels
	keys := c.Heads
	m.read(into{"gpt2.feed_forward_length": &c.Inner, "gpt2.attention.layer_norm_epsilon": &c.Epsilon,
		"gpt2.attention.head_count_kv": &keys, "tokenizer.ggml.bos_token_id": &c.BOS,
		"tokenizer.ggml.eos_token_id": &c.EOS})
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

func ggufTokenizer(file *weights.GGUF, vocab int) (*tokenizer.Tokenizer, error) {
	m := newMetadata(file)
	list := func(key string) []string { return listOf[string](m, file, key, "a list of strings") }
	parts := tokenizer.Parts{Tokens: list("tokenizer.ggml.tokens"), Merges: list("tokenizer.ggml.merges"), EndOfText: -1,
		BOS: -1, Unknown: -1, Pad: -1}
	var model, split string
	types := listOf[int64](m, file, "tokenizer.ggml.token_type", "a list of whole numbers")
	m.read(into{"tokenizer.ggml.model": &model, "tokenizer.ggml.pre": &split,
		"tokenizer.ggml.eos_token_id": &parts.EndOfText, "tokenizer.ggml.bos_token_id": &parts.BOS,
		"tokenizer.ggml.unknown_token_id": &parts.Unknown, "tokenizer.ggml.padding_token_id": &parts.Pad,
		"tokenizer.ggml.add_space_prefix": &parts.PrefixSpace, "tokenizer.ggml.add_bos_token": &parts.AddBOS,
		"tokenizer.ggml.add_eos_token": &parts.AddEOS})
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
