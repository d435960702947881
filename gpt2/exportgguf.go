package gpt2

import (
	"context"
	"fmt"
	"os"

	"gpt2scope/weights"
)

// ExportGGUF writes the model with its tokenizer as a GGUF file, as llama.cpp's convert_hf_to_gguf.py does. The file
// appears as a whole or not at all. If there is one, it is replaced only if o.Force is set, and never if the model was
// opened from it ([weights.ErrSamePlace]).
func (m *Model) ExportGGUF(ctx context.Context, path string, o ExportOptions) error {
	if err := weights.CheckOutput(path, m.Source); err != nil {
		return err
	}
	if _, err := os.Stat(path); err == nil && !o.Force {
		return fmt.Errorf("--out %s: the file is there; give another name, or --force to replace it", path)
	}
	values, err := m.ggufValues(o.DType)
	if err != nil {
		return fmt.Errorf("model %s as a GGUF file: %w", m.Name, err)
	}
	names := ggufNamesOf(m.Config.Layers)
	var tensors []weights.Tensor
	for _, p := range m.Config.Params() {
		t, err := m.Tensor(p.Name)
		if err == nil && linear().MatchString(p.Name) {
			t, err = t.Transposed()
		}
		if err != nil {
			return err
		}
		t.Name = names[p.Name]
		tensors = append(tensors, t)
	}
	return weights.WriteGGUF(ctx, path, values, tensors, names["wpe.weight"],
		weights.WriteOptions{DType: o.DType, Progress: o.Progress})
}

// ggufNamesOf maps the names of a model's parameters to those in a GGUF file.
func ggufNamesOf(layers int) map[string]string {
	names := map[string]string{}
	add := func(from, to string, of map[string]string) {
		for gguf, name := range of {
			for _, part := range []string{".weight", ".bias"} {
				names[from+name+part] = to + gguf + part
			}
		}
	}
	add("", "", ggufNames)
	for l := range layers {
		add(fmt.Sprintf("h.%d.", l), fmt.Sprintf("blk.%d.", l), ggufLayerNames)
	}
	return names
}

// ggufValues returns the metadata of the model. It is an error if a GGUF file cannot say what the model computes.
func (m *Model) ggufValues(dtype weights.DType) ([]weights.GGUFValue, error) {
	c := m.Config
	if c.Activation != GELUNew || !c.ScaleWeights || c.ScaleByInverseLayer {
		return nil, fmt.Errorf("it computes gelu_new and scores divided by sqrt(head size) only, and the model has "+
			"activation_function %s, scale_attn_weights %t, scale_attn_by_inverse_layer_idx %t", c.Activation, c.ScaleWeights,
			c.ScaleByInverseLayer)
	}
	fileType := uint32(0)
	if dtype == weights.BF16 {
		fileType = 32
	}
	values := []weights.GGUFValue{
		{"general.architecture", "gpt2"}, {"general.name", m.Name}, {"general.file_type", fileType},
		{"gpt2.block_count", uint32(c.Layers)}, {"gpt2.context_length", uint32(c.Positions)},
		{"gpt2.embedding_length", uint32(c.Channels)}, {"gpt2.feed_forward_length", uint32(c.Inner)},
		{"gpt2.attention.head_count", uint32(c.Heads)}, {"gpt2.attention.layer_norm_epsilon", float32(c.Epsilon)},
	}
	ids := []struct { // what ends a text counts more than what the tokenizer calls so
		role string
		id   int
	}{{"bos", c.BOS}, {"eos", c.EOS}, {"unknown", -1}, {"padding", -1}}
	if m.Tokenizer == nil {
		values = append(values, weights.GGUFValue{"tokenizer.ggml.model", "none"})
	} else {
		p, err := m.Tokenizer.Parts()
		if err == nil && len(p.Tokens) > c.Vocab {
			err = fmt.Errorf("the tokenizer has %d tokens, and the model %d", len(p.Tokens), c.Vocab)
		}
		if err != nil {
			return nil, fmt.Errorf("%w; --tokenizer none writes a file without one", err)
		}
		kinds := make([]int32, c.Vocab)
		for id := range kinds {
			if kinds[id] = ggufNormal; id >= len(p.Tokens) {
				kinds[id] = ggufUnused
				p.Tokens = append(p.Tokens, fmt.Sprintf("[PAD%d]", id))
			}
		}
		for _, id := range p.Special {
			kinds[id] = ggufControl
		}
		for _, id := range p.Added {
			kinds[id] = ggufUserDefined
		}
		values = append(values, []weights.GGUFValue{{"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.pre", "gpt-2"},
			{"tokenizer.ggml.tokens", p.Tokens}, {"tokenizer.ggml.token_type", kinds}, {"tokenizer.ggml.merges", p.Merges},
			{"tokenizer.ggml.add_space_prefix", p.PrefixSpace}, {"tokenizer.ggml.add_bos_token", p.AddBOS},
			{"tokenizer.ggml.add_eos_token", p.AddEOS}}...)
		for i, id := range []int{p.BOS, p.EndOfText, p.Unknown, p.Pad} {
			if ids[i].id < 0 {
				ids[i].id = id
			}
		}
	}
	for _, r := range ids {
		if r.id >= 0 {
			values = append(values, weights.GGUFValue{"tokenizer.ggml." + r.role + "_token_id", uint32(r.id)})
		}
	}
	return values, nil
}
