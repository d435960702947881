package gpt2

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gpt2scope/gpt2/tokenizer"
	"gpt2scope/internal/humanize"
	"gpt2scope/weights"
)

// Model is a configuration, its weights and its tokenizer. The weights stay where they are (a file, embedded bytes, a
// generator) until a backend packs them. A Model is safe for concurrent use.
type Model struct {
	Config Config
	Name   string // where it came from: a directory, "openai-community/gpt2", "random:gpt2", "shakespeare"
	Source string // the directory or file that it is read from, "" if it is none

	// Tokenizer is nil if the directory has none and the vocabulary is not
	// GPT-2's; then the model takes and gives token ids only.
	Tokenizer *tokenizer.Tokenizer

	// Stored is the type of most weights in a GGUF file, such as "Q8_0"; "" if they are not in a GGUF file.
	Stored string

	checkpoint *weights.Checkpoint
	prefix     string // of the tensors' names in the checkpoint: "" or "transformer."
}

// Open opens a GGUF file (see [OpenGGUF]) or a Hugging Face GPT-2 directory: config.json, model.safetensors (single or
// sharded), and the tokenizer's files if there are any. A name that is no path, such as openai-community/gpt2, is
// looked up in the cache of the Hugging Face tools ([weights.FromHub]). Weights are read when a backend packs them.
func Open(name string) (*Model, error) {
	dir := name
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && weights.IsHubName(name) && !weights.IsGGUF(name):
		if dir, err = weights.FromHub(name); err != nil {
			return nil, fmt.Errorf("cannot open model %s: there is no such directory, and %w", name, err)
		}
	case err != nil:
		return nil, fmt.Errorf("cannot open model %s: %w; give a Hugging Face GPT-2 directory, a GGUF file, or random:gpt2",
			name, humanize.Cause(err))
	case !info.IsDir() && weights.IsGGUF(name):
		return OpenGGUF(name)
	case !info.IsDir():
		return nil, fmt.Errorf("cannot open model %s: it is a file, and not a GGUF file; give the directory that holds "+
			"config.json and model.safetensors", name)
	default:
		name, dir = filepath.Clean(dir), filepath.Clean(dir)
	}
	checkpoint, err := weights.Open(dir)
	if err != nil && dir != name {
		return nil, fmt.Errorf("model %s of the Hugging Face cache is not whole: %w; 'hf download %s' gets the rest", name,
			err, name)
	}
	if err != nil {
		return nil, err
	}
	m, err := NewModel(name, os.DirFS(dir), checkpoint)
	if err != nil {
		checkpoint.Close()
		return nil, err
	}
	m.Source = dir
	return m, nil
}

// NewModel makes a model of a checkpoint and the files that lie beside it: config.json and the tokenizer's. It owns the
// checkpoint from then on, unless it fails.
func NewModel(name string, files fs.FS, checkpoint *weights.Checkpoint) (*Model, error) {
	data, err := fs.ReadFile(files, "config.json")
	if err != nil {
		return nil, fmt.Errorf("model %s: cannot read config.json: %w; a Hugging Face GPT-2 directory has one", name,
			humanize.Cause(err))
	}
	config, err := ParseConfig(data)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", name, err)
	}
	m := &Model{Config: config, Name: name, checkpoint: checkpoint}
	if err := m.matchTensors("config.json", hasField(data, "tie_word_embeddings")); err != nil {
		return nil, fmt.Errorf("model %s: %w", name, err)
	}
	m.Tokenizer, err = tokenizer.Load(files)
	if errors.Is(err, tokenizer.ErrNone) {
		m.Tokenizer, err = defaultTokenizer(config.Vocab), nil
	}
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", name, err)
	}
	return m, nil
}

// defaultTokenizer returns the tokenizer that a vocabulary size stands for, or nil.
func defaultTokenizer(vocab int) *tokenizer.Tokenizer {
	switch {
	case vocab >= 50257: // larger ones are padded
		return tokenizer.GPT2()
	case vocab == 257:
		return tokenizer.Bytes()
	}
	return nil
}

func hasField(config []byte, name string) bool {
	var raw map[string]json.RawMessage
	return json.Unmarshal(config, &raw) == nil && raw[name] != nil
}

// matchTensors checks that the checkpoint has exactly the tensors that the configuration asks for, with their shapes.
// If the file holds an lm_head that differs from wte, the model is not tied, as in transformers; it is an error if the
// configuration ties them explicitly. source names the configuration in messages.
func (m *Model) matchTensors(source string, tiedIsExplicit bool) error {
	have := map[string]weights.Tensor{}
	for t := range m.checkpoint.All() {
		have[t.Name] = t
	}
	if _, ok := have["transformer.wte.weight"]; ok {
		m.prefix = "transformer."
	}
	if head, ok := have["lm_head.weight"]; ok && m.Config.Tied {
		same, err := sameTensor(head, have[m.prefix+"wte.weight"])
		if err != nil {
			return err
		}
		if !same && tiedIsExplicit {
			return errors.New("config.json ties lm_head to wte, but the checkpoint holds a different lm_head.weight; set " +
				"tie_word_embeddings to false to use it, or remove the tensor")
		}
		m.Config.Tied = same
	}
	for _, p := range m.Config.Params() {
		name := m.fileName(p.Name)
		t, ok := have[name]
		if !ok {
			return fmt.Errorf("the checkpoint has no tensor %s %v, which %s asks for", name, p.Shape, source)
		}
		if !slices.Equal(t.Shape, p.Shape) {
			return fmt.Errorf("tensor %s is %v in the checkpoint, but %s asks for %v", name, t.Shape, source, p.Shape)
		}
		if !t.DType.IsFloat() {
			return fmt.Errorf("tensor %s is %s; float32, float16 and bfloat16 are supported", name, t.DType)
		}
		delete(have, name)
	}
	if m.Config.Tied {
		delete(have, "lm_head.weight")
	}
	var rest []string
	for name := range have {
		// Causal masks are no parameters.
		if !strings.HasSuffix(name, ".attn.bias") && !strings.HasSuffix(name, ".attn.masked_bias") {
			rest = append(rest, name)
		}
	}
	if len(rest) > 0 {
		slices.Sort(rest)
		return fmt.Errorf("the checkpoint has %d tensors that %s does not account for, the first is %s; does the number of "+
			"layers (n_layer, %d) match?", len(rest), source, rest[0], m.Config.Layers)
	}
	return nil
}

// sameTensor compares an explicit lm_head with wte, byte by byte.
func sameTensor(head, wte weights.Tensor) (bool, error) {
	if head.DType != wte.DType || !slices.Equal(head.Shape, wte.Shape) {
		return false, nil
	}
	n := head.Bytes()
	a, b := make([]byte, min(n, 1<<18)), make([]byte, min(n, 1<<18))
	for off := int64(0); off < n; off += int64(len(a)) {
		k := min(int64(len(a)), n-off)
		if err := head.ReadBytes(a[:k], off); err != nil {
			return false, err
		}
		if err := wte.ReadBytes(b[:k], off); err != nil {
			return false, err
		}
		if !bytes.Equal(a[:k], b[:k]) {
			return false, nil
		}
	}
	return true, nil
}

// fileName returns a parameter's name in the checkpoint.
func (m *Model) fileName(name string) string {
	if name == "lm_head.weight" {
		return name
	}
	return m.prefix + name
}

// Tensor returns a parameter of the model by its name in [Config.Params].
func (m *Model) Tensor(name string) (weights.Tensor, error) {
	t, ok := m.checkpoint.Tensor(m.fileName(name))
	if !ok {
		return weights.Tensor{}, fmt.Errorf("model %s has no tensor %s", m.Name, name)
	}
	return t, nil
}

// Read copies len(dst) elements of a parameter, from element off on, as float32.
// A value that is not finite is an error.
func (m *Model) Read(name string, dst []float32, off int) error {
	t, err := m.Tensor(name)
	if err != nil {
		return err
	}
	if err := t.ReadFloat32(dst, off); err != nil {
		return err
	}
	if i := weights.FirstNonFinite(dst); i >= 0 {
		return fmt.Errorf("model %s: tensor %s holds %g at element %d; the checkpoint is damaged or was saved from a run "+
			"that diverged", m.Name, name, dst[i], off+i)
	}
	return nil
}

// Close releases the weights. Sessions that are ready keep running; new ones fail.
func (m *Model) Close() error { return m.checkpoint.Close() }

// tokenizerFiles are the files from which a directory's tokenizer may be read.
var tokenizerFiles = []string{"tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json",
	"special_tokens_map.json", "added_tokens.json"}

// ExportOptions says how a model is written.
type ExportOptions struct {
	DType    weights.DType             // of the weights: float32 or bfloat16
	Force    bool                      // write into a directory that holds files, and replace those of the same names
	Progress func(written, size int64) // if not nil, is called with the bytes of weights written and their total
}

// Export writes the model as a Hugging Face directory: weights, config.json and the tokenizer's files. The directory
// appears as a whole or not at all, and may not be the one that the model was opened from ([weights.ErrSamePlace]).
// Unless o.Force is set, it must be new or empty ([weights.ErrNotEmpty]).
func (m *Model) Export(ctx context.Context, dir string, o ExportOptions) error {
	var name string
	switch o.DType {
	case weights.F32:
		name = "float32"
	case weights.BF16:
		name = "bfloat16"
	default:
		return fmt.Errorf("cannot export as %s; float32 and bfloat16 are supported", o.DType)
	}
	var tensors []weights.Tensor
	for _, p := range m.Config.Params() {
		t, err := m.Tensor(p.Name)
		if err != nil {
			return err
		}
		if t.Name = p.Name; p.Name != "lm_head.weight" {
			t.Name = "transformer." + p.Name // as transformers writes it
		}
		tensors = append(tensors, t)
	}
	files := map[string][]byte{}
	if m.Tokenizer != nil {
		files = m.Tokenizer.Files()
	}
	config, err := m.Config.JSON(name)
	if err != nil {
		return err
	}
	files["config.json"] = append(config, '\n')
	for _, stale := range tokenizerFiles {
		if _, err := os.Lstat(filepath.Join(dir, stale)); o.Force && err == nil && files[stale] == nil {
			return fmt.Errorf("directory %s holds the %s of another model; remove it, or choose another directory", dir, stale)
		}
	}
	folder := weights.Folder{Path: dir, Reads: []string{m.Source}, Force: o.Force}
	return folder.Write(ctx, func(dir string) error {
		options := weights.WriteOptions{DType: o.DType, Metadata: map[string]string{"format": "pt"}, Progress: o.Progress}
		if err := weights.Write(ctx, filepath.Join(dir, weights.SingleFile), tensors, options); err != nil {
			return err
		}
		for file, data := range files {
			if err := weights.WriteFile(ctx, filepath.Join(dir, file), func(w io.Writer) error {
				_, err := w.Write(data)
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	})
}
