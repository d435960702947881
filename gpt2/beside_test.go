package gpt2_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/gpt2/tokenizer"
	"gpt2scope/internal/require"
	"gpt2scope/weights"
)

// exported writes a random model of V tokens with these files beside it; config.json gets more fields.
func exported(t *testing.T, vocab int, config map[string]any, files map[string]string) string {
	t.Helper()
	m := openModel(t, fmt.Sprintf("random:L=1,C=8,NH=1,V=%d,T=8", vocab))
	m.SetTokenizer(nil, "none")
	dir := filepath.Join(t.TempDir(), "model")
	must(t, m.Export(t.Context(), dir, gpt2.ExportOptions{DType: weights.F32}))
	fields := configOf(t, dir)
	maps.Copy(fields, config)
	putConfig(t, dir, fields)
	for name, text := range files {
		put(t, filepath.Join(dir, name), text)
	}
	return dir
}

func put[T string | []byte](t *testing.T, path string, data T) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(data), 0o666))
}

func putConfig(t *testing.T, dir string, fields map[string]any) {
	t.Helper()
	data := require.Value(json.Marshal(fields))(t)
	put(t, filepath.Join(dir, "config.json"), data)
}

func configOf(t *testing.T, dir string) (fields map[string]any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err == nil {
		err = json.Unmarshal(data, &fields)
	}
	must(t, err)
	return fields
}

// TestNoTokenizer: a tokenizer that is not known to be the model's is none, and the model takes ids.
func TestNoTokenizer(t *testing.T) {
	for name, c := range map[string]struct {
		vocab int
		files map[string]string
		want  string
	}{
		"no files":              {257, nil, "no tokenizer.json"},
		"no files, GPT-2's V":   {50257, nil, "no tokenizer.json"},
		"SentencePiece":         {50300, map[string]string{"spiece.model": "\n\x0e\n\x05<unk>"}, "spiece.model: not a model"},
		"WordPiece":             {50300, map[string]string{"vocab.txt": "[PAD]\n", "tokenizer_config.json": `{"tokenizer_class": "BertJapaneseTokenizer"}`}, "vocab.txt: its class"},
		"OpenAI's names":        {50300, map[string]string{"encoder.json": "{}", "vocab.bpe": "#version: 0.2\n"}, "encoder.json"},
		"a tokenizer not to be": {257, map[string]string{"tokenizer.json": "{"}, "tokenizer.json"},
	} {
		m := openModel(t, exported(t, c.vocab, nil, c.files))
		if m.Tokenizer != nil {
			t.Errorf("%s: it has a tokenizer from %s", name, m.TokenizerFrom)
			continue
		}
		if _, err := m.Encode("Hi"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v does not say %q", name, err, c.want)
		}
		m.SetTokenizer(tokenizer.PlainBytes(), "bytes")
		if ids, err := m.Encode("A"); err != nil || !slices.Equal(ids, []int32{65}) {
			t.Errorf("%s, as bytes: %v, %v", name, ids, err)
		}
	}
}

// TestEnds: which tokens end a text, by config.json and generation_config.json.
func TestEnds(t *testing.T) {
	for _, c := range []struct {
		config     any
		generation string // "" for none
		want       string
	}{
		{nil, "", "[]"},
		{7, "", "[7]"},
		{[]int{7, 5}, "", "[5 7]"},
		{7, `{"eos_token_id": 9}`, "[9]"},
		{7, `{"eos_token_id": [7, 9]}`, "[7 9]"},
		{7, `{"eos_token_id": null}`, "[7]"},
		{7, `{"temperature": 0.7}`, "[7]"},
		{50256, "", "[]"},
		{-1, "", "[]"},
	} {
		files := map[string]string{}
		if c.generation != "" {
			files["generation_config.json"] = c.generation
		}
		m := openModel(t, exported(t, 300, map[string]any{"eos_token_id": c.config}, files))
		ends := []int32{}
		for id := range int32(m.Config.Vocab) {
			if m.EndsText(id) {
				ends = append(ends, id)
			}
		}
		if fmt.Sprint(ends) != c.want {
			t.Errorf("config.json %v, generation_config.json %s: ends %v, want %s", c.config, c.generation, ends, c.want)
		}
	}
	for _, text := range []string{"{", "[1]", `{"eos_token_id": "x"}`, `{"eos_token_id": [1.5]}`} {
		dir := exported(t, 300, nil, map[string]string{"generation_config.json": text})
		if _, err := gpt2.Open(dir); err == nil || !strings.Contains(err.Error(), "generation_config.json") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestDefaults: a generation_config.json as transformers understands it.
func TestDefaults(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                   "temp 0, top-k 0, top-p 0, min-p 0, penalty 1, 0 tokens",
		`{"temperature": 0.7}`: "temp 0, top-k 0, top-p 0, min-p 0, penalty 1, 0 tokens",
		`{"do_sample": true}`:  "temp 1, top-k 50, top-p 1, min-p 0, penalty 1, 0 tokens",
		`{"do_sample": true, "temperature": 0.7, "top_k": 0, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.2,
			"max_new_tokens": 99, "num_beams": 1, "length_penalty": 1.0, "early_stopping": false, "eos_token_id": 5}`: "temp 0.7, " +
			"top-k 0, top-p 0.9, min-p 0.05, penalty 1.2, 99 tokens",
		`{"num_beams": 4}`:                          "num_beams = 4",
		`{"suppress_tokens": [3]}`:                  "suppress_tokens = [3]",
		`{"do_sample": true, "temperature": -1}`:    "temperature",
		`{"do_sample": true, "temperature": 0}`:     "positive",
		`{"do_sample": true, "temperature": "hot"}`: `temperature = "hot"`,
	} {
		m := openModel(t, exported(t, 300, nil, map[string]string{"generation_config.json": text}))
		d, err := m.Defaults()
		got := fmt.Sprintf("temp %g, top-k %d, top-p %g, min-p %g, penalty %g, %d tokens", d.Temperature, d.TopK, d.TopP, d.MinP,
			d.RepeatPenalty, d.Tokens)
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != want || !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestExportCarries: an export keeps what it does not understand.
func TestExportCarries(t *testing.T) {
	files := map[string]string{"generation_config.json": `{"eos_token_id": [5], "temperature": 0.7}`,
		"spiece.model": "\x00\xff", "vocab.txt": "[PAD]\n"}
	config := map[string]any{"pad_token_id": 3.0, "resid_pdrop": 0.3, "eos_token_id": []any{5.0, 6.0}, "id2label": map[string]any{"0": "a"},
		"torch_dtype": "float32", "n_inner": nil, "bos_token_id": 4.0}
	dir := exported(t, 300, config, files)
	m := openModel(t, dir)
	out := filepath.Join(t.TempDir(), "out")
	m.Config.Layers = 1
	must(t, m.Export(t.Context(), out, gpt2.ExportOptions{DType: weights.BF16}))
	want, got := configOf(t, dir), configOf(t, out)
	want["dtype"], want["torch_dtype"] = "bfloat16", "bfloat16"
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("config.json is %v, want %v", got, want)
	}
	for name, text := range files {
		if data, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(data) != text {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	m.SetTokenizer(tokenizer.Bytes(), "bytes")
	other := filepath.Join(t.TempDir(), "other")
	must(t, m.Export(t.Context(), other, gpt2.ExportOptions{DType: weights.F32}))
	if _, err := os.Stat(filepath.Join(other, "spiece.model")); err == nil || openModel(t, other).Tokenizer == nil {
		t.Errorf("the tokenizer given is not the export's; spiece.model: %v", err)
	}
}

// An adapter beside a model is not left out without a word.
func TestAdapterBeside(t *testing.T) {
	dir := exported(t, 300, nil, map[string]string{"adapter_config.json": "{}"})
	if _, err := gpt2.Open(dir); err == nil || !strings.Contains(err.Error(), "adapter_config.json") {
		t.Errorf("it opens: %v", err)
	}
}
