package gpt2

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpt2scope/gpt2/tokenizer"
	"gpt2scope/internal/ggufwrite"
	"gpt2scope/internal/require"
	"gpt2scope/weights"
)

// OpenModel opens a model, or makes a random one, that is closed after the test.
func OpenModel(t testing.TB, name string) *Model {
	t.Helper()
	open := Open
	if strings.HasPrefix(name, RandomPrefix) {
		open = Random
	}
	m := require.Value(open(name))(t)
	t.Cleanup(func() { m.Close() })
	return m
}

// ggufParam is a parameter's name in a GGUF file, and whether the file has the transpose.
type ggufParam struct {
	name      string
	transpose bool
}

// ggufOf lists the parameters of a GPT-2 with so many layers as llama.cpp names them.
func ggufOf(layers int) map[string]ggufParam {
	all := map[string]ggufParam{
		"wte.weight": {"token_embd.weight", false}, "wpe.weight": {"position_embd.weight", false}, "lm_head.weight": {"output.weight", false},
		"ln_f.weight": {"output_norm.weight", false}, "ln_f.bias": {"output_norm.bias", false},
	}
	for l := range layers {
		for from, to := range map[string]string{"ln_1": "attn_norm", "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv",
			"attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"} {
			for _, part := range []string{"weight", "bias"} {
				all[fmt.Sprintf("h.%d.%s.%s", l, from, part)] = ggufParam{fmt.Sprintf("blk.%d.%s.%s", l, to, part),
					part == "weight" && !strings.HasPrefix(from, "ln_")}
			}
		}
	}
	return all
}

// ggufFile writes a model as a GGUF file whose matrices, but for wpe, are of a type. edit may change it.
func ggufFile(t testing.TB, m *Model, kind uint32, edit func(f *ggufwrite.File)) string {
	t.Helper()
	f := &ggufwrite.File{}
	c := m.Config
	f.Value("general.architecture", "gpt2")
	f.Value("gpt2.block_count", uint32(c.Layers))
	f.Value("gpt2.embedding_length", uint32(c.Channels))
	f.Value("gpt2.feed_forward_length", uint32(c.Inner))
	f.Value("gpt2.context_length", uint32(c.Positions))
	f.Value("gpt2.attention.head_count", uint32(c.Heads))
	f.Value("gpt2.attention.layer_norm_epsilon", float32(c.Epsilon))
	if edit != nil {
		edit(f)
	}
	names := ggufOf(c.Layers)
	for _, p := range c.Params() {
		x := make([]float32, p.Elements())
		must(t, m.Read(p.Name, x, 0))
		to, shape, as := names[p.Name], p.Shape, uint32(ggufwrite.F32)
		if len(shape) == 2 && p.Name != "wpe.weight" {
			as = kind
		}
		if to.transpose {
			x, shape = turned(x, shape[0], shape[1]), []int{shape[1], shape[0]}
		}
		f.Tensor(to.name, as, shape, encoded(as, x))
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	must(t, os.WriteFile(path, f.Bytes(), 0o600))
	return path
}

// encoded is numbers as a file has them, in F32, or roughly in Q8_0.
func encoded(kind uint32, x []float32) (b []byte) {
	for i, v := range x {
		if kind == ggufwrite.F32 {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
			continue
		}
		if i%32 == 0 {
			b = append(b, 0x00, 0x24) // 1/64
		}
		b = append(b, byte(int8(64*v)))
	}
	return b
}

func turned(x []float32, rows, cols int) []float32 {
	y := make([]float32, len(x))
	for i := range x {
		y[i%cols*rows+i/cols] = x[i]
	}
	return y
}

// A model in a GGUF file that llama.cpp's gguf package wrote (testdata/make_gguf.py) has the configuration and
// the weights of the model that it was made of: the same bits in float32, and otherwise within half a unit of
// the type's last place.
func TestGGUF(t *testing.T) {
	source := OpenModel(t, "testdata/gguf")
	for name, c := range map[string]struct {
		error func(x, most float64) float64 // bound, of x and of the largest of its block
	}{
		"F32":  {func(x, most float64) float64 { return 0 }},
		"F16":  {func(x, most float64) float64 { return math.Abs(x)*0x1p-11 + 0x1p-25 }},
		"BF16": {func(x, most float64) float64 { return math.Abs(x) * 0x1p-8 }},
		// Half a step of 127, and the float16 scale's error in each of up to 127 steps.
		"Q8_0": {func(x, most float64) float64 { return most/127/2 + math.Abs(x)*0x1p-10 }},
	} {
		m := OpenModel(t, "testdata/gguf/"+strings.ToLower(name)+".gguf")
		if m.Config != source.Config {
			t.Errorf("%s: configuration %+v, expected %+v", name, m.Config, source.Config)
		}
		if end, ok := m.Tokenizer.EOT(); !ok || end != 256 || m.Tokenizer.VocabSize() != 257 {
			t.Errorf("%s: a tokenizer of %d tokens with the end of text %d (%v)", name, m.Tokenizer.VocabSize(), end, ok)
		}
		if m.Stored != name {
			t.Errorf("%s: Stored is %q", name, m.Stored)
		}
		for _, p := range source.Config.Params() {
			got, want := make([]float32, p.Elements()), make([]float32, p.Elements())
			must(t, m.Read(p.Name, got, 0))
			must(t, source.Read(p.Name, want, 0))
			blocks, transpose := want, ggufOf(2)[p.Name].transpose // blocks lie along the inputs
			if transpose {
				blocks = turned(want, p.Shape[0], p.Shape[1])
			}
			for i, x := range want {
				at := i
				if transpose {
					at = i%p.Shape[1]*p.Shape[0] + i/p.Shape[1]
				}
				most := 0.0
				if len(p.Shape) == 2 {
					for _, v := range blocks[at/32*32 : at/32*32+32] {
						most = max(most, math.Abs(float64(v)))
					}
				}
				if d := math.Abs(float64(got[i]) - float64(x)); d > c.error(float64(x), most) {
					t.Fatalf("%s: %s[%d] is %g, expected %g", name, p.Name, i, got[i], x)
				}
			}
		}
	}
}

// TestExportGGUF: what ExportGGUF writes has the parameters, the configuration and the ids of the model.
func TestExportGGUF(t *testing.T) {
	for name, text := range map[string]string{"random:L=2,C=32,NH=2,V=50259,T=8": "Hello<|endoftext|> world", "testdata/models/plain": "",
		"testdata/models/untied": "", "testdata/models/form-pytorch": "", "testdata/models/form-mingpt": "", "testdata/models/form-llmc-bf16": "",
		"testdata/gguf/q8_0.gguf": "ab<|endoftext|>c"} {
		m := OpenModel(t, name)
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := m.ExportGGUF(t.Context(), path, ExportOptions{DType: weights.F32}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := m.ExportGGUF(t.Context(), path, ExportOptions{DType: weights.F32}); err == nil {
			t.Errorf("%s: a file is replaced (%v)", name, err)
		}
		g := OpenModel(t, path)
		if g.Config != m.Config {
			t.Errorf("%s: configuration %+v, expected %+v", name, g.Config, m.Config)
		}
		for _, p := range m.Config.Params() {
			x, y := make([]float32, p.Elements()), make([]float32, p.Elements())
			if err := errors.Join(m.Read(p.Name, x, 0), g.Read(p.Name, y, 0)); err != nil || !slices.Equal(x, y) {
				t.Errorf("%s: %s differs (%v)", name, p.Name, err)
			}
		}
		if text != "" {
			want, err := m.Encode(text)
			got, err2 := g.Encode(text)
			if err := errors.Join(err, err2); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: ids %v, expected %v (%v)", name, got, want, err)
			}
		}
	}
	m := OpenModel(t, "testdata/models/relu")
	if err := m.ExportGGUF(t.Context(), filepath.Join(t.TempDir(), "m.gguf"), ExportOptions{DType: weights.F32}); err == nil ||
		!strings.Contains(err.Error(), "activation_function relu") {
		t.Errorf("a model that GGUF cannot say: %v", err)
	}
}

// A head of its own counts; one that is the same as the embeddings is tied.
func TestGGUFHead(t *testing.T) {
	for _, kind := range []uint32{ggufwrite.F32, ggufwrite.Q8_0} {
		random := OpenModel(t, "random:L=1,C=32,NH=1,V=300,T=8")
		x := make([]float32, 300*32)
		must(t, random.Read("wte.weight", x, 0))
		head := func(f *ggufwrite.File) { f.Tensor("output.weight", kind, []int{300, 32}, encoded(kind, x)) }
		same := OpenModel(t, ggufFile(t, random, kind, head))
		x[5] += 1
		other := OpenModel(t, ggufFile(t, random, kind, head))
		if !same.Config.Tied || other.Config.Tied {
			t.Errorf("type %d: tied %v with the same head, %v with another", kind, same.Config.Tied, other.Config.Tied)
		}
	}
}

// tokenizerValues adds a tokenizer to a file, as llama.cpp's converter does.
func tokenizerValues(t testing.TB, f *ggufwrite.File, tok *tokenizer.Tokenizer) {
	t.Helper()
	files := tok.Files()
	var ids map[string]int
	must(t, json.Unmarshal(files["vocab.json"], &ids))
	tokens, types := make([]string, len(ids)), make([]int32, len(ids))
	for token, id := range ids {
		tokens[id], types[id] = token, 1
	}
	end, _ := tok.EOT()
	types[end] = 3 // control
	f.Value("tokenizer.ggml.model", "gpt2")
	f.Value("tokenizer.ggml.pre", "gpt-2")
	f.Value("tokenizer.ggml.tokens", tokens)
	f.Value("tokenizer.ggml.token_type", types)
	if merges := strings.Split(strings.TrimSpace(string(files["merges.txt"])), "\n")[1:]; len(merges) > 0 {
		f.Value("tokenizer.ggml.merges", merges)
	}
	f.Value("tokenizer.ggml.bos_token_id", uint32(end))
	f.Value("tokenizer.ggml.eos_token_id", uint32(end))
}

// The tokenizer of the metadata gives GPT-2's ids, the end of text among them.
func TestGGUFTokenizer(t *testing.T) {
	for _, c := range []struct {
		vocab int
		tok   *tokenizer.Tokenizer
	}{{50257, tokenizer.GPT2()}, {257, tokenizer.Bytes()}} {
		random := OpenModel(t, fmt.Sprintf("random:L=1,C=32,NH=1,V=%d,T=8", c.vocab))
		m := OpenModel(t, ggufFile(t, random, ggufwrite.F32, func(f *ggufwrite.File) { tokenizerValues(t, f, c.tok) }))
		for _, text := range []string{"", "Hello world, it's 1234 o'clock.\n\n  <|endoftext|>ROMEO:\t你好", "\x00\xff<|endof"} {
			if got, want := m.Tokenizer.Encode(text), c.tok.Encode(text); !slices.Equal(got, want) {
				t.Errorf("V=%d: %q is %v, expected %v", c.vocab, text, got, want)
			}
		}
		end, ok := m.Tokenizer.EOT()
		if want, _ := c.tok.EOT(); !ok || end != want || m.Config.EOS != int(want) || m.Config.BOS != int(want) {
			t.Errorf("V=%d: end of text %d (%v), EOS %d, BOS %d, expected %d", c.vocab, end, ok, m.Config.EOS, m.Config.BOS,
				want)
		}
	}
	// Tokens that go around every text stay there in what is exported.
	random := OpenModel(t, "random:L=1,C=32,NH=1,V=257,T=8")
	m := OpenModel(t, ggufFile(t, random, ggufwrite.F32, func(f *ggufwrite.File) {
		tokenizerValues(t, f, tokenizer.Bytes())
		f.Value("tokenizer.ggml.add_bos_token", true)
		f.Value("tokenizer.ggml.add_eos_token", true)
	}))
	o, dir := ExportOptions{DType: weights.F32}, t.TempDir()
	must(t, cmp.Or(m.ExportGGUF(t.Context(), dir+"/m.gguf", o), m.Export(t.Context(), dir+"/hf", o)))
	for _, m := range []*Model{m, OpenModel(t, dir+"/m.gguf"), OpenModel(t, dir+"/hf")} {
		if got := m.Tokenizer.Encode("A"); !slices.Equal(got, []int32{256, 32, 256}) {
			t.Errorf("%s: %v", m.Name, got)
		}
	}
}

// FuzzGGUF: no GGUF file makes opening a model panic; what is accepted has every tensor that its configuration asks for.
func FuzzGGUF(f *testing.F) {
	random := OpenModel(f, "random:L=1,C=4,NH=1,V=257,T=4")
	data, err := os.ReadFile(ggufFile(f, random, ggufwrite.F32, func(w *ggufwrite.File) {
		tokenizerValues(f, w, tokenizer.Bytes())
	}))
	must(f, err)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "file.gguf")
		must(t, os.WriteFile(path, data, 0o600))
		m, err := OpenGGUF(path)
		if (m == nil) == (err == nil) {
			t.Fatalf("%v, %v", m, err)
		}
		if err != nil {
			if strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 4000 {
				t.Errorf("not a good error: %q", err)
			}
			return
		}
		defer m.Close()
		for _, p := range m.Config.Params() {
			x, err := m.Tensor(p.Name)
			if err != nil || !slices.Equal(x.Shape, p.Shape) {
				t.Fatalf("tensor %s: %v (%v), expected %v", p.Name, x.Shape, err, p.Shape)
			}
			if err := x.ReadFloat32(make([]float32, x.Elements()), 0); err != nil {
				t.Error(err)
			}
		}
		if m.Tokenizer != nil {
			m.Tokenizer.Encode("Hello <|endoftext|>")
		}
	})
}

// What a file says that this engine cannot do is refused, by name.
func TestGGUFRefused(t *testing.T) {
	random := OpenModel(t, "random:L=1,C=32,NH=1,V=257,T=8")
	words := func(model, split string, n int) func(f *ggufwrite.File) {
		return func(f *ggufwrite.File) {
			f.Value("tokenizer.ggml.model", model)
			f.Value("tokenizer.ggml.pre", split)
			f.Value("tokenizer.ggml.tokens", make([]string, n))
		}
	}
	for _, c := range []struct {
		edit func(f *ggufwrite.File)
		want []string
	}{
		{words("llama", "", 257), []string{`"llama"`, "only gpt2"}},
		{words("gpt2", "llama-bpe", 257), []string{`"llama-bpe"`, "only those of gpt-2"}},
		{words("gpt2", "gpt-2", 256), []string{"256 tokens", "257 rows"}},
		{words("gpt2", "gpt-2", 257), []string{"tokens 0 and 1 are both"}},
		{func(f *ggufwrite.File) { f.Value("gpt2.attention.head_count_kv", uint32(2)) }, []string{"2 heads of keys"}},
		{func(f *ggufwrite.File) { f.Value("tokenizer.ggml.bos_token_id", uint32(257)) }, []string{"bos_token_id = 257"}},
		{func(f *ggufwrite.File) { f.Value("tokenizer.ggml.tokens", "a") }, []string{"tokenizer.ggml.tokens = a", "list of strings"}},
		{func(f *ggufwrite.File) { f.Tensor("rope_freqs.weight", ggufwrite.F32, []int{1}, make([]byte, 4)) }, []string{"rope_freqs.weight", "the metadata does not account for"}},
	} {
		m, err := Open(ggufFile(t, random, ggufwrite.F32, c.edit))
		if err == nil { // a model without its tokenizer takes ids
			defer m.Close()
			err = m.NeedTokenizer()
		}
		if err == nil {
			t.Errorf("no error, expected %q", c.want)
		} else {
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, expected one that says %q", err, want)
				}
			}
		}
	}
	bare := func(values map[string]any) string {
		f := &ggufwrite.File{}
		for key, v := range values {
			f.Value(key, v)
		}
		path := filepath.Join(t.TempDir(), "bare.gguf")
		must(t, os.WriteFile(path, f.Bytes(), 0o600))
		return path
	}
	for _, c := range []struct {
		values map[string]any
		want   string
	}{
		{nil, `the architecture ""`},
		{map[string]any{"general.architecture": "llama"}, `the architecture "llama" (general.architecture); only gpt2`},
		{map[string]any{"general.architecture": uint32(1)}, "general.architecture = 1; it must be a string"},
		{map[string]any{"general.architecture": "gpt2"}, "has no gpt2.attention.head_count"},
		{map[string]any{"general.architecture": "gpt2", "gpt2.block_count": "x"}, "gpt2.block_count = \"x\"; it must be a whole number"},
		{map[string]any{"general.architecture": "gpt2", "gpt2.block_count": uint32(1), "gpt2.embedding_length": uint32(32), "gpt2.attention.head_count": uint32(1),
			"gpt2.context_length": uint32(8)}, "no matrix token_embd.weight"},
	} {
		if m, err := Open(bare(c.values)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, expected one that says %q", c.values, err, c.want)
			if m != nil {
				m.Close()
			}
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none.gguf")); err == nil ||
		!strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that does not exist: %v", err)
	}
}
