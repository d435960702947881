package gpt2

import (
	"encoding/json"
	"errors"
	"fmt"
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

	// Tokenizer is the model's own, and never one that only fits its size. If it is nil, the model takes and gives token
	// ids only.
	Tokenizer     *tokenizer.Tokenizer
	TokenizerFrom string // where it comes from, "" if it is nil
	NoTokenizer   error  // why it is nil

	// Notes are sentences about how the files were read: what was renamed, transposed, ignored, and what they left open.
	Notes []string

	// Stored is the type of most weights in a GGUF file, such as "Q8_0"; "" if they are not in a GGUF file.
	Stored string

	// Generation has the fields of generation_config.json, nil if there is none.
	Generation map[string]json.RawMessage

	checkpoint     *weights.Checkpoint        // its tensors have the names of Config.Params
	files          fs.FS                      // the directory, nil if the model is not one
	config         map[string]json.RawMessage // config.json, nil if the configuration is not from there
	ends           []int                      // ids that end a text, beside Config.EOS
	otherTokenizer bool                       // Tokenizer is not of files
}

// Open opens a GGUF file (see [OpenGGUF]), a Hugging Face GPT-2 directory: config.json, model.safetensors or
// pytorch_model.bin (single or sharded), and the tokenizer's files if there are any; or a checkpoint of nanoGPT, minGPT
// or llm.c, its directory or the file alone. A name that is no path, such as openai-community/gpt2, is looked up in the
// cache of the Hugging Face tools ([weights.FromHub]). Weights are read when a backend packs them.
func Open(name string) (*Model, error) {
	dir := weights.ExpandHome(name)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && weights.IsHubName(name) && !weights.IsGGUF(name):
		if dir, err = weights.FromHub(name); err != nil {
			return nil, fmt.Errorf("cannot open model %s: there is no such directory, and %w", name, err)
		}
	case err != nil:
		return nil, fmt.Errorf("cannot open model %s: %w; give a Hugging Face GPT-2 directory, a GGUF file, or random:gpt2",
			name, humanize.Cause(err))
	case !info.IsDir() && weights.IsGGUF(dir):
		return OpenGGUF(dir)
	case !info.IsDir() && (filepath.Base(dir) == "config.json" || strings.HasSuffix(dir, ".index.json")):
		return Open(filepath.Dir(dir))
	default:
		name, dir = filepath.Clean(dir), filepath.Clean(dir)
	}
	source, open := dir, weights.Open
	if info != nil && !info.IsDir() {
		dir, open = filepath.Dir(dir), weights.OpenFile
	}
	checkpoint, err := open(source)
	if err != nil && info == nil {
		return nil, fmt.Errorf("model %s of the Hugging Face cache is not whole: %w; '%s' gets the rest", name, err,
			weights.HubCommand(name))
	}
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, adapterConfig)); source == dir && err == nil {
		checkpoint.Close()
		return nil, fmt.Errorf("model %s: %s lies beside the model, and it is not said whether the adapter belongs to it: "+
			"move the adapter's files to a directory of their own, and apply it by --lora DIR", name, adapterConfig)
	}
	m, err := NewModel(name, os.DirFS(dir), checkpoint)
	if err != nil {
		checkpoint.Close()
		return nil, err
	}
	if m.Source = source; filepath.Base(source) == weights.SingleFile { // which an export into dir would write over
		m.Source = dir
	}
	return m, nil
}

// NewModel makes a model of a checkpoint and the files that lie beside it: config.json and the tokenizer's. It owns the
// checkpoint from then on, unless it fails.
func NewModel(name string, files fs.FS, checkpoint *weights.Checkpoint) (_ *Model, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("model %s: %w", name, err)
		}
	}()
	checkpoint, mapped, err := mapTensors(checkpoint)
	if err != nil {
		return nil, err
	}
	m := &Model{Name: name, checkpoint: checkpoint}
	source, err := m.readConfig(files)
	if err != nil {
		return nil, err
	}
	ignored, err := m.matchTensors(source)
	if err != nil {
		return nil, err
	}
	mapped.ignored = append(mapped.ignored, ignored...)
	m.note(mapped.said(checkpoint))
	if err := m.readBeside(files); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Model) note(sentence string) {
	if sentence != "" {
		m.Notes = append(m.Notes, sentence)
	}
}

// SetActivation takes another activation than the files say, by its name in config.json.
func (m *Model) SetActivation(name string) error {
	a, err := parseActivation(name)
	if err != nil {
		return err
	}
	m.Config.Activation = a
	m.Notes = slices.DeleteFunc(m.Notes, func(note string) bool { return strings.Contains(note, "--activation") })
	return nil
}

// Tensor returns a parameter of the model by its name in [Config.Params].
func (m *Model) Tensor(name string) (weights.Tensor, error) {
	t, ok := m.checkpoint.Tensor(name)
	if !ok {
		return weights.Tensor{}, fmt.Errorf("model %s has no tensor %s", m.Name, name)
	}
	return t, nil
}

// Matrices returns the type in which the checkpoint holds all matrices, "" if there are several.
func (m *Model) Matrices() (d weights.DType) {
	for _, p := range m.Config.Params() {
		t, _ := m.checkpoint.Tensor(p.Name)
		if len(p.Shape) > 1 && d != "" && t.DType != d {
			return ""
		}
		if len(p.Shape) > 1 {
			d = t.DType
		}
	}
	return d
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
