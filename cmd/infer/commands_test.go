package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
	"gpt2scope/reference/executor"
	"gpt2scope/weights"
)

func TestInfo(t *testing.T) {
	out := mustInfer(t, "info", "-m", tiny, "--layers", "1", "--batch", "2", "--prompt-len", "8", "--past", "5").stdout
	contains(t, out, "L=2 C=64 NH=4 HS=16 V=257", "context 64", "layers 1 of 2", "257 tokens", "cpu, weights float32",
		"prefill, B=2 T=8", "decode step, B=2, 5 tokens in the cache", "16 x 64 -> 192", "2 x 64 -> 192", "h.0.attn.c_attn", "lm_head", "total")
	if strings.Contains(out, "h.1.") {
		t.Errorf("info shows a layer that does not run:\n%s", out)
	}
	for _, stage := range []string{"h.0.ln_1\n", "h.0.mlp.gelu\n"} {
		if fused := mustInfer(t, "info", "-m", tiny, "--layers", "1").stdout; strings.Contains(fused, "  "+stage) {
			t.Errorf("fused, there is a step %q", stage)
		}
		if plain := mustInfer(t, "info", "-m", tiny, "--layers", "1", "--fused=false").stdout; strings.Count(plain, "  "+stage) != 2 {
			t.Errorf("unfused, there are not two steps %q", stage)
		}
	}
	if out := mustInfer(t, "info", "-m", "random:gpt2", "--layers", "1").stdout; !strings.Contains(out, "of 124,439,808 parameters") {
		t.Errorf("gpt2 has other parameters here:\n%s", out)
	}
	if out := mustInfer(t, "info", "-m", tiny, "--dtype", "bf16").stdout; !strings.Contains(out, "weights bfloat16") {
		t.Errorf("bf16 is not shown:\n%s", out)
	}
	whole := mustInfer(t, "info", "-m", "random:gpt2", "--dtype", "q8").stdout // 124,439,808 parameters of 1.0625 bytes
	contains(t, whole, "weights q8 (8-bit integers", "memory      weights 126.1 MiB")
	if out := mustInfer(t, "info", "-m", goldenModel).stdout; !strings.Contains(out, "give token ids") {
		t.Errorf("the lack of a tokenizer is not shown:\n%s", out)
	}
}

// logits evaluates ids with the reference executor.
func logits(t *testing.T, name string, ids []int32, layers int) []float32 {
	t.Helper()
	model, err := gpt2.Random(name)
	must(t, err)
	defer model.Close()
	s, err := gpt2.NewSession(context.Background(), model, executor.New(), gpt2.Options{Layers: gpt2.FirstLayers(layers)})
	must(t, err)
	defer s.Close()
	x := require.Value(s.Logits(context.Background(), ids, gpt2.LogitsAll))(t)
	return x
}

// TestEval computes the loss again, from logits of the reference.
func TestEval(t *testing.T) {
	const text = "If music be the food of love, play on, \xc3\xa9\xff\n"
	file := filepath.Join(t.TempDir(), "text")
	writeFile(t, file, text)
	model := require.Value(gpt2.Random(tiny))(t)
	ids := append([]int32{256}, model.Tokenizer.EncodeOrdinary(text)...)
	model.Close()
	for layers := 1; layers <= 2; layers++ {
		x := logits(t, tiny, ids[:len(ids)-1], layers)
		want := 0.0
		for i, id := range ids[1:] {
			row, sum := x[i*257:(i+1)*257], 0.0
			for _, v := range row {
				sum += math.Exp(float64(v))
			}
			want += (math.Log(sum) - float64(row[id])) / float64(len(text))
		}
		e := mustInfer(t, "eval", "-m", tiny, "--text", file, "--json", "--layers", fmt.Sprint(layers))
		var got struct {
			Loss, Perplexity float64
			BitsPerByte      float64 `json:"bits_per_byte"`
			Tokens, Bytes    int
			Window, Stride   int
			TokensPerS       float64 `json:"tokens_per_s"`
			Seconds          float64
			Configuration    cli.Setting
		}
		unmarshal(t, e.stdout, &got)
		if !(math.Abs(got.Loss-want) < 1e-5) || !(math.Abs(got.Perplexity-math.Exp(want)) < 1e-2) || !(math.Abs(got.BitsPerByte-want/math.Ln2) < 1e-5) {
			t.Errorf("%d layers: loss %g, perplexity %g, %g bits per byte; the loss should be %g", layers, got.Loss, got.Perplexity, got.BitsPerByte, want)
		}
		if got.Tokens != len(text) || got.Bytes != len(text) || got.Window != 64 || got.Stride != 32 || got.Configuration.Layers != layers || !(got.TokensPerS > 0) || !(got.Seconds > 0) {
			t.Errorf("%+v", got)
		}
		line := inferWith(t, context.Background(), text, "eval", "-m", tiny, "--text", "-", "--layers", fmt.Sprint(layers))
		if prefix := fmt.Sprintf("loss %.4f nats/token, perplexity ", got.Loss); line.status != 0 || !strings.HasPrefix(line.stdout, prefix) || line.stderr != "" {
			t.Errorf("as text: %+v, not %q...", line, prefix)
		}
	}
}

// readNPY reads a two-dimensional float32 array.
func readNPY(t *testing.T, path string) (rows, width int, x []float32) {
	t.Helper()
	data := readFile(t, path)
	if len(data) < 10 || string(data[:8]) != "\x93NUMPY\x01\x00" {
		t.Fatalf("%s does not begin as an array does", path)
	}
	end := 10 + int(binary.LittleEndian.Uint16(data[8:]))
	header := string(data[10:end])
	if _, err := fmt.Sscanf(header[strings.Index(header, "'shape'"):], "'shape': (%d, %d)", &rows, &width); err != nil {
		t.Fatalf("header %q: %v", header, err)
	}
	if !strings.Contains(header, "'<f4'") || len(data)-end != 4*rows*width {
		t.Fatalf("header %q, %d bytes follow", header, len(data)-end)
	}
	for at := end; at < len(data); at += 4 {
		x = append(x, math.Float32frombits(binary.LittleEndian.Uint32(data[at:])))
	}
	return rows, width, x
}

func TestDump(t *testing.T) {
	out := filepath.Join(t.TempDir(), "x.npy")
	ids := []int32{5, 200, 31, 7, 8}
	for layers := 1; layers <= 2; layers++ {
		e := mustInfer(t, "dump", "-m", tiny, "--ids", "5,200,31,7,8", "--stage", "lm_head", "--layers", fmt.Sprint(layers), "-o", out)
		if e.stdout != "" || !strings.Contains(e.stderr, "float32 [5, 257]") {
			t.Errorf("%+v", e)
		}
		rows, width, got := readNPY(t, out)
		want := logits(t, tiny, ids, layers)
		if rows != 5 || width != 257 || len(got) != len(want) {
			t.Fatalf("the array is [%d, %d]", rows, width)
		}
		for i := range want {
			if !(math.Abs(float64(got[i]-want[i])) <= 1e-5) {
				t.Fatalf("logit %d is %g, not %g", i, got[i], want[i])
			}
		}
	}
	for stage, width := range map[string]int{"wte+wpe": 64, "h.1.ln_1": 64, "h.0.attn.c_attn": 192, "h.1.attn.sdpa": 64, "h.0.mlp.c_fc": 256, "h.1.mlp.gelu": 256, "h.1.residual_2": 64, "ln_f": 64} {
		mustInfer(t, "dump", "-m", tiny, "-p", "abc", "--stage", stage, "-o", out, "--quiet")
		if rows, got, _ := readNPY(t, out); rows != 3 || got != width {
			t.Errorf("%s is [%d, %d], not [3, %d]", stage, rows, got, width)
		}
	}
}

func TestTokenize(t *testing.T) {
	e := mustInfer(t, "tokenize", "-m", "random:gpt2", "-p", "Hello, wörld")
	want := " 15496  \"Hello\"\n    11  \",\"\n   266  \" w\"\n 30570  \"ör\"\n   335  \"ld\"\n" // as Hugging Face's tokenizer has it
	if e.stdout != want || e.stderr != "" {
		t.Errorf("%+v, not %q", e, want)
	}
	var got struct {
		IDs           []int32
		Pieces, Bytes []string
	}
	const text = "h\u00e9\xff" // as bytes
	e = inferWith(t, context.Background(), text, "tokenize", "-m", tiny, "-f", "-", "--json")
	unmarshal(t, e.stdout, &got)
	data, err := hex.DecodeString(strings.Join(got.Bytes, ""))
	if err != nil || string(data) != text || len(got.IDs) != 4 || len(got.Pieces) != 4 || got.Pieces[0] != "h" {
		t.Errorf("%+v", got)
	}
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(got.IDs), " ", ","), "[]")
	if again := mustInfer(t, "tokenize", "-m", tiny, "--ids", list, "--json"); again.stdout != e.stdout {
		t.Errorf("its ids give %s, not %s", again.stdout, e.stdout)
	}
	if e := mustInfer(t, "tokenize", "-m", tiny); !strings.Contains(e.stdout, "256") || !strings.Contains(e.stdout, "<|endoftext|>") {
		t.Errorf("no text is %q", e.stdout)
	}
	// An empty text has no tokens; one newline at the end of a file is not part of its text.
	dir := t.TempDir()
	for content, want := range map[string]string{"": "[]", "\n": "[]", "\n\n": "[198]", "ab\n": "[64 65]", "ab\r\n": "[64 65]", "ab": "[64 65]", "ab\n\n": "[64 65 198]", "\r": "[201]", "a\nb": "[64 198 65]",
		"\xff\xfea\x00b\x00\n\x00": "[64 65]", "\xfe\xff\x00a\x00b": "[64 65]", "\xfe\xff\xd8\x3d\xde\x42": "[172 253 247 224]"} {
		file := filepath.Join(dir, "text")
		writeFile(t, file, content)
		for _, e := range []ended{mustInfer(t, "tokenize", "-m", tiny, "-f", file, "--json"), inferWith(t, context.Background(), content, "tokenize", "-m", tiny, "-f", "-", "--json")} {
			if err := json.Unmarshal([]byte(e.stdout), &got); err != nil || fmt.Sprint(got.IDs) != want {
				t.Errorf("a file of %q has tokens %v, %v; want %s", content, got.IDs, err, want)
			}
		}
	}
	if e := mustInfer(t, "tokenize", "-m", tiny, "-p", ""); e.stdout != "" {
		t.Errorf("an empty text has tokens %q", e.stdout)
	}
	if e := mustInfer(t, "tokenize", "-m", tiny, "-p", "ab\n"); strings.Count(e.stdout, "\n") != 3 {
		t.Errorf("-p leaves out a newline: %q", e.stdout)
	}
	generateJSON(t, "-m", tiny, "-p", "", "-n", "1") // begins with the end-of-text token
	if e := mustInfer(t, "tokenize", "-m", tiny, "--tokenizer", "bytes", "-p", "Aa"); e.stdout != "    65  \"A\"\n    97  \"a\"\n" {
		t.Errorf("bytes are %q", e.stdout)
	}
	mustInfer(t, "export", "-m", "random:gpt2,L=1,C=8,NH=1,T=8", "-o", filepath.Join(dir, "gpt2"))
	for _, path := range []string{filepath.Join(dir, "gpt2"), filepath.Join(dir, "gpt2", "tokenizer.json"), "gpt2"} {
		if e := mustInfer(t, "tokenize", "-m", "random:V=60000", "--tokenizer", path, "-p", "Hello"); e.stdout != " 15496  \"Hello\"\n" {
			t.Errorf("by the tokenizer %s: %q", path, e.stdout)
		}
	}
}

// TestGenerationConfig: its end of text counts, its sampling is shown, and used only when asked for.
func TestGenerationConfig(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	mustInfer(t, "export", "-m", tiny, "-o", dir, "--quiet")
	args := []string{"-m", dir, "-p", "ROMEO:", "-s", "3", "-n", "30", "--ignore-eos"}
	all := generateJSON(t, append(args, "--temp", "0")...)
	end := all.IDs[4]
	text := fmt.Sprintf(`{"eos_token_id": [256, %d], "do_sample": true, "temperature": 0.5, "top_k": 7, "max_new_tokens": 9}`, end)
	writeFile(t, filepath.Join(dir, "generation_config.json"), text)
	first := slices.Index(all.IDs, end) + 1
	if r := generateJSON(t, append(args, "--temp", "0", "--ignore-eos=false")...); r.Finish != "end_of_text" || !slices.Equal(r.IDs, all.IDs[:first]) {
		t.Errorf("it ends by %s with %v, want %v", r.Finish, r.IDs, all.IDs[:first])
	}
	r := generateJSON(t, append(args, "--generation-config")...)
	if s := r.Sampling; s.Temperature != 0.5 || s.TopK != 7 || s.RepeatPenalty != 1 || len(r.IDs) != 30 {
		t.Errorf("%+v, %d tokens", s, len(r.IDs))
	}
	if r = generateJSON(t, "-m", dir, "-p", "R", "--generation-config", "--top-k", "3", "--ignore-eos"); r.Sampling.TopK != 3 || len(r.IDs) != 9 {
		t.Errorf("%+v, %d tokens", r.Sampling, len(r.IDs))
	}
	if r = generateJSON(t, args...); r.Sampling.Temperature != 0.8 {
		t.Errorf("without --generation-config, %+v", r.Sampling)
	}
	if e := mustInfer(t, "info", "-m", dir); !strings.Contains(e.stdout, "temperature=0.5") || !strings.Contains(e.stdout, "the model's files") {
		t.Errorf("info says %.600s", e.stdout)
	}
}

// TestDumpNotFinite: dump writes what overflows, and says so.
func TestDumpNotFinite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	mustInfer(t, "export", "-m", tiny, "-o", dir, "--quiet")
	path := filepath.Join(dir, "model.safetensors")
	c, err := weights.Open(dir)
	must(t, err)
	var tensors []weights.Tensor
	for x := range c.All() {
		if x.Name == "transformer.ln_f.weight" {
			if x, err = weights.NewTensor(x.Name, x.Shape, func(dst []float32, _ int) error {
				for i := range dst {
					dst[i] = 3e38
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		tensors = append(tensors, x)
	}
	must(t, weights.Write(t.Context(), path, tensors, weights.WriteOptions{DType: weights.F32}))
	c.Close()
	out := filepath.Join(t.TempDir(), "x.npy")
	e := mustInfer(t, "dump", "-m", dir, "--ids", "1,2", "--stage", "ln_f", "-o", out, "--quiet")
	contains(t, e.stderr, "values of ln_f are not finite, the first ")
	if rows, width, _ := readNPY(t, out); rows != 2 || width != 64 {
		t.Errorf("the file has %d x %d values", rows, width)
	}
}

func TestExport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "er")
	if e := mustInfer(t, "export", "-m", tiny, "--out", dir); e.stdout != "" || !strings.Contains(e.stderr, "2 layers, 120,640 parameters as f32") {
		t.Errorf("%+v", e)
	}
	run := func(args ...string) []int32 {
		return generateJSON(t, append(args, "-p", "ROMEO:", "-n", "40", "-s", "7", "--ignore-eos")...).IDs
	}
	if a, b := run("-m", tiny), run("-m", dir); !slices.Equal(a, b) {
		t.Errorf("the model gives %v and its export %v", a, b)
	}
	gguf := filepath.Join(t.TempDir(), "m.gguf")
	mustInfer(t, "export", "-m", tiny, "--out", gguf)
	if a, b := run("-m", tiny), run("-m", gguf); !slices.Equal(a, b) {
		t.Errorf("the model gives %v and a GGUF file %v", a, b)
	}
	first := filepath.Join(t.TempDir(), "first")
	mustInfer(t, "export", "-m", dir, "--layers", "1", "--out", first, "--quiet")
	if a, b := run("-m", tiny, "--layers", "1"), run("-m", first); !slices.Equal(a, b) {
		t.Errorf("the first layer gives %v and its export %v", a, b)
	}
	half := filepath.Join(t.TempDir(), "half")
	mustInfer(t, "export", "-m", tiny, "--dtype", "bf16", "--out", half)
	full, rounded := filepath.Join(t.TempDir(), "full"), filepath.Join(t.TempDir(), "rounded")
	mustInfer(t, "export", "-m", half, "--out", full)
	mustInfer(t, "export", "-m", full, "--dtype", "bf16", "--out", rounded)
	x, errX := os.ReadFile(filepath.Join(half, "model.safetensors"))
	y, errY := os.ReadFile(filepath.Join(rounded, "model.safetensors"))
	if errX != nil || errY != nil || !bytes.Equal(x, y) {
		t.Errorf("bfloat16, through float32, is not what it was; %v %v", errX, errY)
	}
	a, errA := os.Stat(filepath.Join(dir, "model.safetensors"))
	b, errB := os.Stat(filepath.Join(half, "model.safetensors"))
	if errA != nil || errB != nil || b.Size() > a.Size()*6/10 {
		t.Errorf("float32 %v %v, bfloat16 %v %v", a, errA, b, errB)
	}
}

func TestBench(t *testing.T) {
	for _, c := range []struct {
		args         []string
		tokens, past float64
		text         string
	}{
		{[]string{"--past", "9"}, 1, 9, "decode step, B=1, 9 tokens in the cache"},
		{nil, 1, 32, "decode step, B=1, 32 tokens in the cache"},
		{[]string{"--past", "0"}, 1, 0, "decode step, B=1, 0 tokens in the cache"},
		{[]string{"--phase", "prefill", "--prompt-len", "7", "--logits", "all"}, 7, 0, "prefill, B=1 T=7, all rows of logits"},
		{[]string{"--phase", "prefill", "--prompt-len", "7", "--past", "9"}, 7, 9, "prefill, B=1 T=7, last row of logits, 9 tokens in the cache"},
		{[]string{"--phase", "prefill"}, 64, 0, "prefill, B=1 T=64, last row of logits"},
	} {
		args := append([]string{"bench", "-m", tiny, "--repeat", "5"}, c.args...)
		if out := mustInfer(t, args...).stdout; !strings.Contains(out, c.text) || !strings.Contains(out, "5 passes") || !strings.Contains(out, "layers 2 of 2") {
			t.Errorf("%q prints %q", args, out)
		}
		var got map[string]any
		unmarshal(t, mustInfer(t, append(args, "--json")...).stdout, &got)
		low, middle, high := got["p10_ms"].(float64), got["median_ms"].(float64), got["p90_ms"].(float64)
		if !(low > 0 && low <= middle && middle <= high) || got["tokens"] != c.tokens || got["past"] != c.past || !(got["gflop_per_s"].(float64) > 0) || !(got["gb_per_s"].(float64) > 0) {
			t.Errorf("%q gives %v", args, got)
		}
	}
}
