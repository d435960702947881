package gpt2

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"

	"gpt2scope/gpt2/tokenizer"
	"gpt2scope/internal/humanize"
)

// generationFile holds which tokens end a text, and how the model's makers sample.
const generationFile = "generation_config.json"

// maxBeside bounds a file that lies beside the weights.
const maxBeside = 16 << 20

// readFile reads a file that lies beside the weights, without the byte order mark that some editors begin a text with.
func readFile(files fs.FS, name string) ([]byte, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBeside+1))
	if err == nil && len(data) > maxBeside {
		err = fmt.Errorf("larger than %d MiB, which no model needs", maxBeside>>20)
	}
	return bytes.TrimPrefix(data, []byte("\ufeff")), err
}

func parseObject(file string, data []byte) (fields map[string]json.RawMessage, err error) {
	err = json.Unmarshal(data, &fields)
	if errors.As(err, new(*json.UnmarshalTypeError)) || err == nil && fields == nil {
		err = errors.New("it is another value")
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not a JSON object: %w", file, err)
	}
	return fields, nil
}

// readBeside reads what lies in a directory beside the weights and the configuration: the tokenizer, and how texts are
// generated. A model whose tokenizer cannot be read takes ids.
func (m *Model) readBeside(files fs.FS) error {
	m.files, m.TokenizerFrom = files, "the model's files"
	var err error
	if m.Tokenizer, err = tokenizer.Load(files); errors.Is(err, tokenizer.ErrNone) {
		t, from, defined := m.definedTokenizer(files)
		if t != nil && defined == nil {
			m.note("the tokenizer is " + from)
		}
		if t != nil || defined != nil {
			m.SetTokenizer(t, from)
			err = defined
		}
	}
	if err != nil {
		m.Tokenizer, m.TokenizerFrom, m.NoTokenizer = nil, "", err
	}
	m.ends = (&fieldReader{raw: m.config}).tokenIDs("eos_token_id") // which ParseConfig has read without an error
	data, err := readFile(files, generationFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", generationFile, humanize.Cause(err))
	}
	if m.Generation, err = parseObject(generationFile, data); err != nil {
		return err
	}
	r := fieldReader{file: generationFile, raw: m.Generation}
	if ends := r.tokenIDs("eos_token_id"); ends != nil {
		m.ends = ends
	}
	return r.err
}

// EndsText tells whether a token ends a text: those that generation_config.json names, else config.json's.
func (m *Model) EndsText(id int32) bool {
	return int(id) == m.Config.EOS && m.Generation["eos_token_id"] == nil || slices.Contains(m.ends, int(id))
}

// SetTokenizer gives the model another tokenizer than its files have; nil for none. from says which one.
func (m *Model) SetTokenizer(t *tokenizer.Tokenizer, from string) {
	m.Tokenizer, m.TokenizerFrom, m.otherTokenizer, m.NoTokenizer = t, from, true, nil
	if t == nil {
		m.TokenizerFrom, m.NoTokenizer = "", errors.New(from)
	}
}

// NeedTokenizer returns an error that says why there is none.
func (m *Model) NeedTokenizer() error {
	if m.Tokenizer != nil {
		return nil
	}
	return fmt.Errorf("model %s has no tokenizer that can be used: %w", m.Name, m.NoTokenizer)
}

// Defaults is how a generation_config.json says that texts are generated.
type Defaults struct {
	Sampling
	Tokens int // max_new_tokens, 0 if it does not say
}

// unused are fields of generation_config.json that change no token of a GPT-2's text.
var unused = []string{"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "transformers_version",
	"_from_model_config", "use_cache", "max_length", "cache_implementation", "output_attentions", "output_hidden_states",
	"output_scores", "output_logits", "return_dict_in_generate", "chat_format", "trust_remote_code"}

// ChangesNoToken tells whether a field of generation_config.json changes no token before the end of a text.
func ChangesNoToken(field string) bool { return slices.Contains(unused, field) }

// Defaults returns what the model's generation_config.json asks for, as transformers understands it: greedy unless
// do_sample is true. What it asks for beyond that is an error.
func (m *Model) Defaults() (Defaults, error) {
	if m.Generation == nil {
		return Defaults{}, fmt.Errorf("model %s has no %s", m.Name, generationFile)
	}
	var sample bool
	temperature, topP, minP, penalty, topK, tokens := 1.0, 1.0, 0.0, 1.0, 50, 0
	known := map[string]any{"do_sample": &sample, "temperature": &temperature, "top_k": &topK, "top_p": &topP,
		"min_p": &minP, "repetition_penalty": &penalty, "max_new_tokens": &tokens}
	for _, name := range slices.Sorted(maps.Keys(m.Generation)) {
		value := m.Generation[name]
		if to := known[name]; to != nil {
			if err := json.Unmarshal(value, to); err != nil {
				return Defaults{}, fmt.Errorf("%s has %s = %s, which is no value for it", generationFile, name, shorten(value))
			}
		} else if !slices.Contains(unused, name) && !neutral(value) {
			return Defaults{}, fmt.Errorf("%s asks for %s = %s, which is not supported", generationFile, name, shorten(value))
		}
	}
	if !sample {
		temperature, topK, topP, minP = 0, 0, 0, 0
	}
	d := Defaults{Sampling{Temperature: temperature, TopK: topK, TopP: topP, MinP: minP, RepeatPenalty: penalty}, tokens}
	err := d.Check()
	if err == nil && (tokens < 0 || sample && temperature == 0) {
		err = errors.New("max_new_tokens and temperature must be positive")
	}
	if err != nil {
		return Defaults{}, fmt.Errorf("%s: %w", generationFile, err)
	}
	return d, nil
}

// neutral tells whether a value switches something off, as the values do that transformers has by default.
func neutral(value json.RawMessage) bool {
	text := strings.Join(strings.Fields(string(value)), "")
	x := math.NaN()
	return slices.Contains([]string{"null", "false", "[]", "{}", `""`}, text) ||
		json.Unmarshal(value, &x) == nil && (x == 0 || x == 1)
}
