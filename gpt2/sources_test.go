package gpt2_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
	"gpt2scope/weights"
)

// TestNotes: what is done to a checkpoint of another form is said, and nothing of one as transformers writes it.
func TestNotes(t *testing.T) {
	for name, words := range map[string]string{
		"plain": "", "bare-names": "", "form-pytorch": "",
		"form-nanogpt": "characters of meta.pkl|8 transposed|13 biases that it lacks are 0|optimizer|exact one|--activation gelu_new",
		"form-mingpt":  "model.pt: |8 transposed",
		"form-llmc":    "model.bin: |8 transposed",
		"form-odd":     "28 narrowed|v_head.summary.weight",
		"form-linear":  "28 renamed|8 transposed",
	} {
		m := openModel(t, filepath.Join("testdata/models", name))
		got := strings.Join(m.Notes, "\n")
		for word := range strings.SplitSeq(words, "|") {
			if !strings.Contains(got, word) || words == "" && got != "" {
				t.Errorf("%s: notes %q, want %q", name, got, words)
			}
		}
	}
	m := openModel(t, "testdata/models/form-nanogpt/ckpt.pt") // the file alone
	if err := m.SetActivation("gelu_new"); err != nil || m.Config.Activation != gpt2.GELUNew || len(m.Notes) != 2 {
		t.Errorf("%v, %v, %q", err, m.Config.Activation, m.Notes)
	}
	if err := m.SetActivation("tanh"); err == nil || !strings.Contains(err.Error(), "gelu_new") {
		t.Errorf("tanh: %v", err)
	}
}

// editedModel writes the plain golden model with other tensors or fields of config.json.
func editedModel(t *testing.T, tensors func(map[string]weights.Tensor), config map[string]any) string {
	t.Helper()
	const plain = "testdata/models/plain"
	c := require.Value(weights.Open(plain))(t)
	defer c.Close()
	all := map[string]weights.Tensor{}
	for x := range c.All() {
		all[x.Name] = x
	}
	if tensors != nil {
		tensors(all)
	}
	var list []weights.Tensor
	for _, name := range slices.Sorted(maps.Keys(all)) {
		x := all[name]
		x.Name = name
		list = append(list, x)
	}
	dir := t.TempDir()
	must(t, weights.Write(t.Context(), filepath.Join(dir, weights.SingleFile), list, weights.WriteOptions{}))
	fields := configOf(t, plain)
	for name, value := range config {
		if fields[name] = value; value == nil {
			delete(fields, name)
		}
	}
	putConfig(t, dir, fields)
	return dir
}

// constant is a tensor of one value.
func constant(value float32, shape ...int) weights.Tensor {
	x, err := weights.NewTensor("", shape, func(dst []float32, _ int) error {
		for i := range dst {
			dst[i] = value
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	return x
}

// TestOddModels opens models with other names, tensors beside, and fields of config.json under other names.
func TestOddModels(t *testing.T) {
	type tensors = map[string]weights.Tensor
	move := func(from, to string) func(tensors) {
		return func(all tensors) { all[to] = all[from]; delete(all, from) }
	}
	add := func(name string, x weights.Tensor) func(tensors) { return func(all tensors) { all[name] = x } }
	prefixed := func(prefix string) func(tensors) {
		return func(all tensors) {
			for _, name := range slices.Collect(maps.Keys(all)) {
				move(name, prefix+name)(all)
			}
		}
	}
	m := openModel(t, "testdata/models/plain")
	c := m.Config
	for name, test := range map[string]struct {
		tensors func(tensors)
		config  map[string]any
		words   string // of the error, "" for none
	}{
		"compiled":          {prefixed("_orig_mod."), nil, ""},
		"parallel":          {prefixed("module."), nil, ""},
		"lightning":         {prefixed("model."), nil, ""},
		"peft":              {prefixed("base_model.model."), nil, ""},
		"of a program":      {prefixed("policy.gpt2."), nil, ""},
		"both":              {prefixed("module._orig_mod."), nil, ""},
		"classifier":        {add("score.weight", constant(1, 2, c.Channels)), nil, ""},
		"two heads":         {add("multiple_choice_head.summary.bias", constant(1, 1)), nil, ""},
		"bias of 0":         {add("lm_head.bias", constant(0, c.Vocab)), nil, ""},
		"bias":              {add("lm_head.bias", constant(1, c.Vocab)), nil, "lm_head.bias|not 0"},
		"only lm_head":      {move("transformer.wte.weight", "lm_head.weight"), nil, ""},
		"twice":             {add("wte.weight", constant(1, c.Vocab, c.Channels)), nil, "wte.weight|remove one"},
		"misnamed":          {move("transformer.wpe.weight", "transformer.wpe.embedding"), nil, "wpe.weight|it has wpe.embedding|is that the same"},
		"adapter":           {add("h.0.attn.c_attn.lora_A.weight", constant(1, 4, c.Channels)), nil, "LoRA|merge_and_unload"},
		"question":          {add("qa_outputs.bias", constant(1, 2)), nil, ""},
		"extra":             {add("h.9.ln_1.weight", constant(1, c.Channels)), nil, "h.9.ln_1.weight|n_layer"},
		"one transposed":    {add("transformer.h.0.mlp.c_fc.weight", constant(1, c.Inner, c.Channels)), nil, "h.0.mlp.c_fc.weight|its transpose"},
		"n_ctx":             {nil, map[string]any{"n_positions": nil, "n_ctx": c.Positions}, ""},
		"other names":       {nil, map[string]any{"n_embd": nil, "hidden_size": c.Channels, "n_layer": nil, "num_hidden_layers": c.Layers, "n_head": nil, "num_attention_heads": c.Heads, "n_positions": nil, "max_position_embeddings": c.Positions}, ""},
		"another model":     {nil, map[string]any{"model_type": nil, "architectures": []string{"GPTNeoForCausalLM"}}, "architectures|GPTNeo"},
		"no positions":      {nil, map[string]any{"n_positions": nil}, "config.json asks for [1024"},
		"another activaton": {nil, map[string]any{"activation_function": "tanh"}, "quick_gelu"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := gpt2.Open(editedModel(t, test.tensors, test.config))
			if err == nil {
				defer m.Close()
			}
			for word := range strings.SplitSeq(test.words, "|") {
				if (err == nil) != (word == "") || err != nil && !strings.Contains(err.Error(), word) {
					t.Errorf("%v, want %q", err, test.words)
				}
			}
		})
	}
}

// TestLLMCTokenizer: the vocabulary beside a model of llm.c must be GPT-2's.
func TestLLMCTokenizer(t *testing.T) {
	dir := t.TempDir()
	header := make([]byte, 1024)
	header[0], header[1], header[2], header[3], header[4], header[8] = 0xc8, 0xd7, 0x34, 0x01, 1, 2
	good, err := weights.LLMCTokens(append(bytes.Clone(header), "\x01!\x01?"...))
	if err != nil || !slices.Equal(good, []string{"!", "?"}) {
		t.Errorf("%q, %v", good, err)
	}
	if _, err = weights.LLMCTokens(append(bytes.Clone(header), "\x01!\x05"...)); err == nil || !strings.Contains(err.Error(), "truncated") {
		t.Errorf("truncated: %v", err)
	}
	wrong := append(bytes.Clone(header), "\x01!\x01?"...)
	// A whole model of GPT-2's vocabulary, as small as it can be.
	const V, C = 50257, 1
	b := header
	for i, x := range []int{20240326, 3, 2, V, 1, 1, C, V} {
		b[4*i], b[4*i+1], b[4*i+2], b[4*i+3] = byte(x), byte(x>>8), byte(x>>16), byte(x>>24)
	}
	b = append(b, make([]byte, 4*(V*C+2*C+4*C+3*C*C+3*C+C*C+C+4*C*C+4*C+4*C*C+C+2*C))...)
	path := filepath.Join(dir, "gpt2_124M.bin")
	put(t, path, b)
	m := openModel(t, dir)
	if m.Tokenizer == nil || !strings.Contains(fmt.Sprint(m.Notes), "GPT-2's, which llm.c uses") || m.Config.EOS != 50256 {
		t.Errorf("tokenizer %v, notes %q, end %d", m.Tokenizer, m.Notes, m.Config.EOS)
	}
	put(t, filepath.Join(dir, "gpt2_tokenizer.bin"), wrong)
	if m := openModel(t, dir); m.Tokenizer != nil || !strings.Contains(fmt.Sprint(m.NoTokenizer), `"?" as token 1`) {
		t.Errorf("another vocabulary: %v", m.NoTokenizer)
	}
	copied, err := os.ReadFile(path)
	if err != nil || os.WriteFile(filepath.Join(dir, "copy.bin"), copied, 0o666) != nil {
		t.Fatal(err)
	}
	if _, err := gpt2.Open(dir); err == nil || !strings.Contains(err.Error(), "give one of these files") {
		t.Errorf("two models: %v", err)
	}
}
