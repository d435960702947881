package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// goldenModel has 2 layers, 24 channels, 4 heads, 97 tokens, a context of 16, and
// no tokenizer.
const goldenModel = "../../gpt2/testdata/models/plain"

// damagedModel copies the golden model and damages a file of the copy.
func damagedModel(t *testing.T, file string, damage func([]byte) []byte) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"config.json", "model.safetensors"} {
		data := readFile(t, filepath.Join(goldenModel, name))
		if name == file {
			if data = damage(data); data == nil {
				continue
			}
		}
		writeFile(t, filepath.Join(dir, name), string(data))
	}
	return dir
}

// replace returns a damage that puts one text in another's place.
func replace(t *testing.T, old, new string) func([]byte) []byte {
	return func(data []byte) []byte {
		if strings.Count(string(data), old) != 1 {
			t.Fatalf("the file does not hold %q once", old)
		}
		return []byte(strings.Replace(string(data), old, new, 1))
	}
}

// TestDamagedModels gives every command checkpoints with something wrong.
func TestDamagedModels(t *testing.T) {
	const config, tensors = "config.json", "model.safetensors"
	for name, c := range map[string]struct {
		file   string
		damage func([]byte) []byte
		facts  []string
	}{
		"truncated":        {tensors, func(b []byte) []byte { return b[:len(b)/2] }, []string{tensors, "bytes"}},
		"no config":        {config, func([]byte) []byte { return nil }, []string{config}},
		"other vocabulary": {config, replace(t, `"vocab_size": 97`, `"vocab_size": 98`), []string{"wte.weight", "97", "98"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := damagedModel(t, c.file, c.damage)
			for _, args := range [][]string{{"--ids", "1,2"}, {"info"}, {"dump", "--ids", "1", "--stage", "ln_f", "--out", filepath.Join(t.TempDir(), "x.npy")}} {
				checkFailure(t, infer(t, append(args, "-m", dir)...), exitFailure, append(c.facts, dir)...)
			}
		})
	}
}

// TestBadInput is about input that fails, with status 1, and values on the command line that
// are wrong for the model, with status 2.
func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		writeFile(t, path, text)
		return path
	}
	long, garbage, empty := write("long", strings.Repeat("word ", 20)), write("garbage", "1 2 x4"), write("empty", "")
	npy := filepath.Join(dir, "x.npy")
	const noTokenizer = "random:L=1,C=8,NH=1,V=100,T=16"
	for _, c := range []struct {
		name   string
		status int
		args   []string
		facts  []string
	}{
		{"no model", exitFailure, []string{"-m", "no/such/place"}, []string{"no/such/place", "no such file", "random:gpt2"}},
		{"an empty directory", exitFailure, []string{"-m", t.TempDir()}, []string{"model.safetensors", "Hugging Face"}},
		{"an unknown name", exitUsage, []string{"-m", "random:gpt3"}, []string{"random:gpt3", "gpt2-xl"}},

		{"more layers than there are", exitUsage, []string{"-m", tiny, "--layers", "3"}, []string{"--layers 3", "2 layers"}},
		{"a larger context", exitUsage, []string{"-m", tiny, "-c", "65"}, []string{"--context 65", "64 tokens"}},
		{"no GPU", exitFailure, []string{"-m", tiny, "--device", "cuda"}, []string{"--device cuda: "}},
		{"a mode without a GPU", exitFailure, []string{"-m", tiny, "--mode", "eager"}, []string{"--mode is for a GPU, and none can be used: "}},
		{"a kernel on the CPU", exitFailure, []string{"bench", "kernel", "attn.sdpa", "-m", tiny, "--device", "cpu"}, []string{"the device is the CPU"}},

		{"a long prompt", exitFailure, []string{"-m", tiny, "-f", long}, []string{"100 tokens", "64", "shorten"}},
		{"a prompt for a longer context", exitFailure, []string{"-m", tiny, "-c", "8", "-p", "twelve chars"}, []string{"12 tokens", "holds 8", "--context", "64"}},
		{"a token beyond in a file", exitUsage, []string{"-m", tiny, "--ids", "@" + write("beyond", "1,257")}, []string{"257", "number 2", "0 to 256"}},
		{"a token beyond", exitUsage, []string{"-m", tiny, "--ids", "1,257"}, []string{"257", "number 2", "0 to 256"}},
		{"a tokenizer for a larger model", exitFailure, []string{"-m", tiny, "--tokenizer", "gpt2", "-p", "ROMEO"}, []string{"the prompt has token", "0 to 256", "--tokenizer gpt2"}},
		{"no such tokenizer", exitFailure, []string{"-m", tiny, "--tokenizer", "no/such", "-p", "x"}, []string{"--tokenizer no/such", "no such file", "gpt2"}},
		{"a directory without tokenizer", exitFailure, []string{"-m", tiny, "--tokenizer", t.TempDir(), "-p", "x"}, []string{"--tokenizer", "no tokenizer.json"}},
		{"no tokenizer asked for", exitFailure, []string{"-m", tiny, "--tokenizer", "none", "-p", "x"}, []string{"--tokenizer none", "--ids"}},
		{"UTF-16 cut short", exitFailure, []string{"-m", tiny, "-f", write("odd", "\xff\xfeH")}, []string{"odd", "UTF-16", "UTF-8"}},
		{"UTF-16 with half a character", exitFailure, []string{"-m", tiny, "-f", write("half", "\xfe\xff\x00H\xd8\x01")}, []string{"half", "UTF-16"}},
		{"UTF-32", exitFailure, []string{"-m", tiny, "-f", write("wide", "\xff\xfe\x00\x00H\x00\x00\x00")}, []string{"wide", "UTF-16"}},
		{"no defaults", exitFailure, []string{"-m", tiny, "--generation-config"}, []string{"--generation-config", "generation_config.json"}},
		{"no prompt file", exitFailure, []string{"-m", tiny, "-f", "no/such/file"}, []string{"no/such/file", "no such file"}},
		{"a bad ids file", exitUsage, []string{"-m", tiny, "--ids", "@" + garbage}, []string{`"x4"`, "number 3"}},
		{"a prompt without a tokenizer", exitFailure, []string{"-m", noTokenizer, "-p", "x"}, []string{"no tokenizer", "--ids"}},
		{"a stop text without a tokenizer", exitFailure, []string{"-m", noTokenizer, "--ids", "1", "--stop", "x"}, []string{"--stop", "no tokenizer"}},

		{"an empty text", exitFailure, []string{"eval", "-m", tiny, "--text", empty}, []string{empty, "empty"}},
		{"a stride beyond the window", exitUsage, []string{"eval", "-m", tiny, "--text", long, "--window", "8", "--stride", "9"}, []string{"--stride 9", "8"}},

		{"no such stage", exitUsage, []string{"dump", "-m", tiny, "--stage", "h.0.attn", "--out", npy}, []string{"h.0.attn", "h.N.attn.c_attn", "lm_head"}},
		{"a stage of a layer that does not run", exitUsage, []string{"dump", "-m", tiny, "--layers", "1", "--stage", "h.1.ln_1", "--out", npy}, []string{"h.1.ln_1"}},
		{"no directory for the array", exitFailure, []string{"dump", "-m", tiny, "--stage", "ln_f", "--out", filepath.Join(dir, "no/x.npy")}, []string{"no/x.npy", "no directory"}},
		{"an export into a file", exitFailure, []string{"export", "-m", tiny, "--out", long}, []string{long, "directory"}},
		{"a GGUF file in place of a directory", exitFailure, []string{"export", "-m", tiny, "--format", "gguf", "--out", dir}, []string{dir, "it is a directory; give the name of a file"}},

		{"a long prefill to show", exitUsage, []string{"info", "-m", tiny, "--prompt-len", "65"}, []string{"--prompt-len 65", "64"}},
		{"a long past to show", exitUsage, []string{"info", "-m", tiny, "--past", "64"}, []string{"--past 64", "63"}},
		{"a long prefill after others", exitUsage, []string{"bench", "-m", tiny, "--phase", "prefill", "--prompt-len", "60", "--past", "10"}, []string{"--prompt-len 60 after --past 10", "at most 54"}},
		{"a batch beyond reason", exitFailure, []string{"bench", "-m", "random:L=48,C=1600,NH=25,V=257", "--layers", "1", "--batch", "1048576"}, []string{"batch", "1048576", "4194304"}},
		{"a model beyond the memory", exitFailure, []string{"bench", "-m", "random:L=21,C=32768,NH=512,V=257"}, []string{"of memory (weights as", "KV cache", "are left", "--layers"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkFailure(t, infer(t, c.args...), c.status, c.facts...)
		})
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("temporary files are left: %q", left)
	}
	for _, path := range []string{npy, filepath.Join(dir, "never")} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s was made", path)
		}
	}
}

// TestEndlessText reads from a device that has no end.
func TestEndlessText(t *testing.T) {
	if _, err := os.Stat("/dev/zero"); err != nil || testing.Short() {
		t.Skip("there is no /dev/zero here, or the test is too long")
	}
	checkFailure(t, infer(t, "tokenize", "-m", tiny, "-f", "/dev/zero"), exitFailure, "/dev/zero", "larger than")
}
