package main

import (
	"encoding/binary"
	"math"
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
		data, err := os.ReadFile(filepath.Join(goldenModel, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == file {
			if data = damage(data); data == nil {
				continue
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
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
		"no weights":       {tensors, func([]byte) []byte { return nil }, []string{tensors}},
		"not safetensors":  {tensors, func([]byte) []byte { return []byte("To be, or not to be, that is the question") }, []string{tensors}},
		"tensor missing":   {tensors, replace(t, `h.1.ln_2.weight`, `h.1.ln_9.weight`), []string{"h.1.ln_2.weight", "config.json"}},
		"no config":        {config, func([]byte) []byte { return nil }, []string{config}},
		"config not JSON":  {config, func([]byte) []byte { return []byte("{ n_layer: 2 }") }, []string{config}},
		"layers a string":  {config, replace(t, `"n_layer": 2`, `"n_layer": "two"`), []string{config, "n_layer", `"two"`}},
		"too many layers":  {config, replace(t, `"n_layer": 2`, `"n_layer": 3`), []string{"h.2.", "config.json"}},
		"other vocabulary": {config, replace(t, `"vocab_size": 97`, `"vocab_size": 98`), []string{"wte.weight", "97", "98"}},
		"activation":       {config, replace(t, `"gelu_new"`, `"swish"`), []string{config, "activation_function", "swish", "gelu_new"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := damagedModel(t, c.file, c.damage)
			for _, args := range [][]string{{"--ids", "1,2"}, {"info"}, {"dump", "--ids", "1", "--stage", "ln_f", "--out", filepath.Join(t.TempDir(), "x.npy")}} {
				checkFailure(t, infer(t, append(args, "-m", dir)...), exitFailure, append(c.facts, dir)...)
			}
		})
	}
}

// TestNaNWeights puts a NaN and an infinity at places all over the weights.
func TestNaNWeights(t *testing.T) {
	for i, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		dir := damagedModel(t, "model.safetensors", func(b []byte) []byte {
			data := 8 + int(binary.LittleEndian.Uint64(b))
			at := data + (len(b)-data)/4*(i+1)/4*4
			binary.LittleEndian.PutUint32(b[at:], math.Float32bits(float32(bad)))
			return b
		})
		for _, device := range []string{"cpu", "reference"} {
			checkFailure(t, infer(t, "-m", dir, "--ids", "1,2", "--device", device), exitFailure, dir, "weight", "element", "damaged")
		}
	}
}

// TestBadInput is about input that fails, with status 1, and values on the command line that
// are wrong for the model, with status 2.
func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
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
		{"a file", exitFailure, []string{"-m", long}, []string{long, "it is a file", "config.json"}},
		{"an empty directory", exitFailure, []string{"-m", t.TempDir()}, []string{"model.safetensors", "Hugging Face"}},
		{"an unknown name", exitUsage, []string{"-m", "random:gpt3"}, []string{"random:gpt3", "gpt2-xl"}},
		{"an odd number of heads", exitUsage, []string{"-m", "random:C=10,NH=3"}, []string{"10", "3", "n_head"}},
		{"an absurd geometry", exitUsage, []string{"-m", "random:L=99999999"}, []string{"99999999", "n_layer"}},
		{"an unknown field", exitUsage, []string{"-m", "random:L=2,Q=3"}, []string{`"Q=3"`}},

		{"more layers than there are", exitUsage, []string{"-m", tiny, "--layers", "3"}, []string{"--layers 3", "2 layers"}},
		{"more layers to export", exitUsage, []string{"export", "-m", tiny, "--layers", "3", "--out", filepath.Join(dir, "never")}, []string{"--layers 3", "2 layers"}},
		{"a larger context", exitUsage, []string{"-m", tiny, "-c", "65"}, []string{"--context 65", "64 tokens"}},
		{"no GPU", exitFailure, []string{"-m", tiny, "--device", "cuda"}, []string{"--device cuda: "}},
		{"no second GPU", exitFailure, []string{"-m", tiny, "--device", "cuda:1"}, []string{"--device cuda:1: "}},
		{"a mode without a GPU", exitFailure, []string{"-m", tiny, "--mode", "eager"}, []string{"--mode is for a GPU, and none can be used: "}},
		{"a kernel on the CPU", exitFailure, []string{"bench", "kernel", "attn.sdpa", "-m", tiny, "--device", "cpu"}, []string{"infer bench kernel", "GPU"}},
		{"a kernel without a GPU", exitFailure, []string{"bench", "kernel", "attn.sdpa", "-m", tiny, "--device", "cuda"}, []string{"--device cuda: "}},

		{"a long prompt", exitFailure, []string{"-m", tiny, "-f", long}, []string{"100 tokens", "64", "shorten"}},
		{"a prompt for a longer context", exitFailure, []string{"-m", tiny, "-c", "8", "-p", "twelve chars"}, []string{"12 tokens", "holds 8", "--context", "64"}},
		{"a token beyond in a file", exitFailure, []string{"-m", tiny, "--ids", "@" + write("beyond", "1,257")}, []string{"beyond", "257", "number 2", "0 to 256"}},
		{"a token beyond", exitUsage, []string{"-m", tiny, "--ids", "1,257"}, []string{"257", "number 2", "0 to 256"}},
		{"a negative token", exitUsage, []string{"-m", tiny, "--ids", "-1"}, []string{"-1", "0 to 256"}},
		{"a token to show beyond", exitUsage, []string{"tokenize", "-m", tiny, "--ids", "300"}, []string{"300", "0 to 256"}},
		{"no prompt file", exitFailure, []string{"-m", tiny, "-f", "no/such/file"}, []string{"no/such/file", "no such file"}},
		{"a directory as prompt", exitFailure, []string{"-m", tiny, "-f", dir}, []string{dir, "directory"}},
		{"no ids file", exitFailure, []string{"-m", tiny, "--ids", "@no/such/file"}, []string{"no/such/file"}},
		{"a bad ids file", exitFailure, []string{"-m", tiny, "--ids", "@" + garbage}, []string{garbage, `"x4"`, "number 3"}},
		{"an empty ids file", exitFailure, []string{"-m", tiny, "--ids", "@" + empty}, []string{empty}},
		{"a prompt without a tokenizer", exitFailure, []string{"-m", noTokenizer, "-p", "x"}, []string{"no tokenizer", "--ids"}},
		{"a stop text without a tokenizer", exitFailure, []string{"-m", noTokenizer, "--ids", "1", "--stop", "x"}, []string{"--stop", "no tokenizer"}},
		{"pieces without a tokenizer", exitFailure, []string{"tokenize", "-m", noTokenizer, "--ids", "1"}, []string{"no tokenizer"}},

		{"no text", exitFailure, []string{"eval", "-m", tiny, "--text", "no/such/file"}, []string{"no/such/file"}},
		{"an empty text", exitFailure, []string{"eval", "-m", tiny, "--text", empty}, []string{empty, "empty"}},
		{"a directory as text", exitFailure, []string{"eval", "-m", tiny, "--text", dir}, []string{dir, "directory"}},
		{"a window beyond the context", exitUsage, []string{"eval", "-m", tiny, "--text", long, "--window", "65"}, []string{"--window 65", "64"}},
		{"a stride beyond the window", exitUsage, []string{"eval", "-m", tiny, "--text", long, "--window", "8", "--stride", "9"}, []string{"--stride 9", "8"}},
		{"a text without a tokenizer", exitFailure, []string{"eval", "-m", noTokenizer, "--text", long}, []string{"no tokenizer"}},

		{"no such stage", exitUsage, []string{"dump", "-m", tiny, "--stage", "h.0.attn", "--out", npy}, []string{"h.0.attn", "h.N.attn.c_attn", "lm_head"}},
		{"a stage of a layer that does not run", exitUsage, []string{"dump", "-m", tiny, "--layers", "1", "--stage", "h.1.ln_1", "--out", npy}, []string{"h.1.ln_1"}},
		{"no activations", exitUsage, []string{"dump", "-m", tiny, "--stage", "sample", "--out", npy}, []string{"sample", "tokens", "lm_head"}},
		{"stages that do not follow one another", exitUsage, []string{"dump", "-m", tiny, "--stage", "h.0.ln_1+h.0.residual_2", "--out", npy}, []string{"h.0.ln_1+h.0.residual_2", "follow one another", "give one of them"}},
		{"no directory for the array", exitFailure, []string{"dump", "-m", tiny, "--stage", "ln_f", "--out", filepath.Join(dir, "no/x.npy")}, []string{"no/x.npy", "no directory"}},
		{"a directory as array", exitFailure, []string{"dump", "-m", tiny, "--stage", "ln_f", "--out", dir}, []string{dir, "directory"}},
		{"a long prompt to dump", exitFailure, []string{"dump", "-m", tiny, "-f", long, "--stage", "ln_f", "--out", npy}, []string{"100 tokens", "64"}},
		{"an export into a file", exitFailure, []string{"export", "-m", tiny, "--out", long}, []string{long, "directory"}},

		{"a long prefill to show", exitUsage, []string{"info", "-m", tiny, "--prompt-len", "65"}, []string{"--prompt-len 65", "64"}},
		{"a long past to show", exitUsage, []string{"info", "-m", tiny, "--past", "64"}, []string{"--past 64", "63"}},
		{"a long prefill to measure", exitUsage, []string{"bench", "-m", tiny, "--phase", "prefill", "--prompt-len", "65"}, []string{"--prompt-len 65", "64"}},
		{"a long prefill after others", exitUsage, []string{"bench", "-m", tiny, "--phase", "prefill", "--prompt-len", "60", "--past", "10"}, []string{"--prompt-len 60 after --past 10", "at most 54"}},
		{"a long past to measure", exitUsage, []string{"bench", "-m", tiny, "--past", "64"}, []string{"--past 64", "63"}},
		{"a batch beyond reason", exitFailure, []string{"bench", "-m", "random:L=48,C=1600,NH=25,V=257", "--layers", "1", "--batch", "1048576"}, []string{"batch", "1048576", "4194304"}},
		{"a model beyond the memory", exitFailure, []string{"bench", "-m", "random:L=21,C=32768,NH=512,V=257"}, []string{"memory", "bytes"}},
		{"a model beyond the memory of the reference", exitFailure, []string{"bench", "-m", "random:L=21,C=32768,NH=512,V=257", "--device", "reference"}, []string{"memory", "float64"}},
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

// TestFullDisk writes to a device that is always full.
func TestFullDisk(t *testing.T) {
	const full = "/dev/full"
	if info, err := os.Stat(full); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Skip("there is no /dev/full here")
	}
	checkFailure(t, infer(t, "dump", "-m", tiny, "--stage", "lm_head", "--out", full), exitFailure, full, "full", "make room")
}

// TestEndlessText reads from a device that has no end.
func TestEndlessText(t *testing.T) {
	if _, err := os.Stat("/dev/zero"); err != nil || testing.Short() {
		t.Skip("there is no /dev/zero here, or the test is too long")
	}
	checkFailure(t, infer(t, "tokenize", "-m", tiny, "-f", "/dev/zero"), exitFailure, "/dev/zero", "larger than")
}
