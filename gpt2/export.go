package gpt2

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"gpt2scope/gpt2/tokenizer"
	"gpt2scope/weights"
)

// ExportOptions says how a model is written.
type ExportOptions struct {
	DType    weights.DType             // of the weights: float32 or bfloat16
	Force    bool                      // write into a directory that holds files, and replace those of the same names
	Progress func(written, size int64) // if not nil, is called with the bytes of weights written and their total
}

// Export writes the model as a Hugging Face directory: weights, config.json and the tokenizer's files. What lies in the
// directory that the model was opened from is carried over as it is: fields of config.json that are not of the
// geometry, the files of its tokenizer, generation_config.json. The directory appears as a whole or not at all, and may
// not be the one that the model was opened from ([weights.ErrSamePlace]). Unless o.Force is set, it must be new or
// empty ([weights.ErrNotEmpty]).
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
	config, err := m.configJSON(name)
	if err != nil {
		return err
	}
	files := map[string][]byte{"config.json": append(config, '\n')}
	carried := append(slices.Clone(tokenizer.CarriedFiles), generationFile)
	for _, name := range carried {
		if m.files == nil || m.otherTokenizer && name != generationFile {
			continue
		}
		data, err := fs.ReadFile(m.files, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("model %s: cannot copy %s: %w", m.Name, name, err)
		}
		files[name] = data
	}
	if m.Tokenizer != nil && (m.files == nil || m.otherTokenizer) {
		maps.Copy(files, m.Tokenizer.Files())
	}
	for _, stale := range carried {
		if _, err := os.Lstat(filepath.Join(dir, stale)); o.Force && err == nil && files[stale] == nil {
			return fmt.Errorf("directory %s holds the %s of another model; remove it, or choose another directory", dir, stale)
		}
	}
	folder := weights.Folder{Path: dir, Reads: []string{m.Source}, Force: o.Force}
	return folder.Write(ctx, func(dir string) error {
		options := weights.WriteOptions{DType: o.DType, Progress: o.Progress}
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

// configJSON returns the config.json of an export: that of the model's directory with what differs now, or a new one.
func (m *Model) configJSON(dtype string) ([]byte, error) {
	data, err := m.Config.JSON(dtype)
	if err != nil || m.config == nil {
		return data, err
	}
	var made map[string]json.RawMessage
	if err := json.Unmarshal(data, &made); err != nil {
		return nil, err
	}
	fields := maps.Clone(m.config)
	for _, names := range fieldNames {
		for i, name := range names {
			if i == 0 || fields[name] != nil {
				fields[name] = made[names[0]]
			}
		}
	}
	for _, name := range []string{"model_type", "vocab_size"} {
		if fields[name] == nil { // a default
			fields[name] = made[name]
		}
	}
	for _, name := range []string{"architectures", "tie_word_embeddings", "activation_function", "dtype"} {
		fields[name] = made[name]
	}
	if fields["torch_dtype"] != nil { // as older versions call it
		fields["torch_dtype"] = made["dtype"]
	}
	return json.MarshalIndent(fields, "", "  ")
}
