package gpt2_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
)

// TestLoRA compares a model with an adapter with peft's merge of the two.
func TestLoRA(t *testing.T) {
	m := openModel(t, "testdata/models/plain")
	must(t, m.Adapt("testdata/lora"))
	if notes := strings.Join(m.Notes, " "); !strings.Contains(notes, "rank 3 is added to 8 matrices") {
		t.Errorf("notes %q", notes)
	}
	g := openGolden(t, "testdata/lora/expected.safetensors")
	for name, backend := range backends(t) {
		s := newSession(t, m, backend, gpt2.Options{})
		got, _, err := s.Activations(t.Context(), g.ints("ids"), "lm_head")
		must(t, err)
		mustBeClose(t, name, got, g.floats("lm_head"), 1e-5)
	}
}

func TestLoRARefuses(t *testing.T) {
	config := require.Value(os.ReadFile("testdata/lora/adapter_config.json"))(t)
	tensors := require.Value(os.ReadFile("testdata/lora/adapter_model.safetensors"))(t)
	for word, edit := range map[string]func(config, tensors string) (string, string){
		"peft_type": func(c, w string) (string, string) { return strings.Replace(c, `"LORA"`, `"IA3"`, 1), w },
		"use_dora": func(c, w string) (string, string) {
			return strings.Replace(c, `"use_dora": false`, `"use_dora": true`, 1), w
		},
		"rank 0 for":       func(c, w string) (string, string) { return strings.Replace(c, `"r": 3`, `"r": 0`, 1), w },
		"asks for [4":      func(c, w string) (string, string) { return strings.Replace(c, `"r": 3`, `"r": 4`, 1), w },
		"not a JSON":       func(c, w string) (string, string) { return "[", w },
		"merge_and_unload": func(c, w string) (string, string) { return c, strings.Replace(w, "h.0.mlp.c_fc", "h.0.mlp.c_xx", 1) },
		"changes the base": func(c, w string) (string, string) {
			return strings.Replace(c, `"init_lora_weights": true`, `"init_lora_weights": "pissa"`, 1), w
		},
		"is not read": func(c, w string) (string, string) { return strings.Replace(c, `"c_fc": 5`, `"(?=c_fc)": 5`, 1), w },
		"truncated":   func(c, w string) (string, string) { return c, w[:len(w)/2] },
	} {
		dir := t.TempDir()
		c, w := edit(string(config), string(tensors))
		for name, data := range map[string]string{"adapter_config.json": c, "adapter_model.safetensors": w} {
			put(t, filepath.Join(dir, name), data)
		}
		m := openModel(t, "testdata/models/plain")
		if err := m.Adapt(dir); err == nil || !strings.Contains(err.Error(), word) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%v, want %q", err, word)
		}
	}
	if err := openModel(t, "testdata/models/plain").Adapt(t.TempDir()); err == nil || !strings.Contains(err.Error(), "save_pretrained") {
		t.Errorf("no adapter: %v", err)
	}
}
