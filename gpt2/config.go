package gpt2

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Activation is the nonlinearity between the two matrices of the MLP.
type Activation uint8

// The activations that a GPT-2 config.json may name.
const (
	GELUNew   Activation = iota // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), Hendrycks & Gimpel 2016
	GELUErf                     // 0.5 x (1 + erf(x / sqrt(2)))
	ReLU                        // max(x, 0)
	SiLU                        // x / (1 + exp(-x)), also called swish
	QuickGELU                   // x / (1 + exp(-1.702 x))
)

// activationNames are those of config.json; the first name of each activation is the one that is written.
// gelu_fast and gelu_accurate are the tanh form with the constant written in other ways, gelu_python is the exact one
// (transformers, activations.py).
var activationNames = [][]string{
	GELUNew: {"gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate"},
	GELUErf: {"gelu", "gelu_python"}, ReLU: {"relu"}, SiLU: {"silu", "swish"}, QuickGELU: {"quick_gelu"},
}

func parseActivation(name string) (Activation, error) {
	a := slices.IndexFunc(activationNames, func(names []string) bool { return slices.Contains(names, name) })
	if a < 0 {
		return 0, fmt.Errorf("activation_function is %q; supported are %s", name,
			strings.Join(slices.Concat(activationNames...), ", "))
	}
	return Activation(a), nil
}

// String gives the activation's name in config.json.
func (a Activation) String() string { return activationNames[a][0] }

// Config is the geometry and the mathematics of a model: the fields of a Hugging
// Face config.json that GPT-2 depends on.
type Config struct {
	Layers     int        `json:"layers"`    // L, n_layer
	Channels   int        `json:"channels"`  // C, n_embd
	Heads      int        `json:"heads"`     // NH, n_head; C is divisible by NH
	Positions  int        `json:"positions"` // n_positions, the longest context
	Vocab      int        `json:"vocab"`     // V, vocab_size
	Inner      int        `json:"inner"`     // width of the MLP, n_inner; 4 C if config.json has null or nothing
	Epsilon    float64    `json:"-"`         // layer_norm_epsilon
	Activation Activation `json:"-"`         // activation_function
	Tied       bool       `json:"tied"`      // tie_word_embeddings: lm_head is wte

	ScaleWeights        bool `json:"-"` // scale_attn_weights: scores are divided by sqrt(HS)
	ScaleByInverseLayer bool `json:"-"` // scale_attn_by_inverse_layer_idx: and by layer + 1

	BOS int `json:"-"` // bos_token_id; -1 if there is none
	EOS int `json:"-"` // eos_token_id; -1 if there is none
}

// defaults is what counts where files do not say another, but for the geometry.
var defaults = Config{Epsilon: 1e-5, Activation: GELUNew, Tied: true, ScaleWeights: true, BOS: -1, EOS: -1}

// HeadSize returns HS = C / NH.
func (c Config) HeadSize() int { return c.Channels / c.Heads }

// AttentionScale returns the factor on the scores q.k of a layer.
func (c Config) AttentionScale(layer int) float64 {
	s := 1.0
	if c.ScaleWeights {
		s /= math.Sqrt(float64(c.HeadSize()))
	}
	if c.ScaleByInverseLayer {
		s /= float64(layer + 1)
	}
	return s
}

// Param is a tensor that a model of some Config has: its name in the checkpoint,
// without the prefix "transformer.", and its shape.
type Param struct {
	Name  string
	Shape []int
}

// Elements returns the number of elements of the tensor.
func (p Param) Elements() int {
	n := 1
	for _, d := range p.Shape {
		n *= d
	}
	return n
}

// Params lists the tensors of the model in the checkpoint's order: embeddings, layers, final norm, and lm_head.weight
// if it is not tied. Matrices of the layers are in Conv1D layout: (inputs, outputs), row-major.
func (c Config) Params() []Param {
	C, F := c.Channels, c.Inner
	ps := []Param{
		{"wte.weight", []int{c.Vocab, C}},
		{"wpe.weight", []int{c.Positions, C}},
	}
	for l := range c.Layers {
		h := fmt.Sprintf("h.%d.", l)
		ps = append(ps,
			Param{h + "ln_1.weight", []int{C}}, Param{h + "ln_1.bias", []int{C}},
			Param{h + "attn.c_attn.weight", []int{C, 3 * C}}, Param{h + "attn.c_attn.bias", []int{3 * C}},
			Param{h + "attn.c_proj.weight", []int{C, C}}, Param{h + "attn.c_proj.bias", []int{C}},
			Param{h + "ln_2.weight", []int{C}}, Param{h + "ln_2.bias", []int{C}},
			Param{h + "mlp.c_fc.weight", []int{C, F}}, Param{h + "mlp.c_fc.bias", []int{F}},
			Param{h + "mlp.c_proj.weight", []int{F, C}}, Param{h + "mlp.c_proj.bias", []int{C}},
		)
	}
	ps = append(ps, Param{"ln_f.weight", []int{C}}, Param{"ln_f.bias", []int{C}})
	if !c.Tied {
		ps = append(ps, Param{"lm_head.weight", []int{c.Vocab, C}})
	}
	return ps
}

// ParamsOf lists the parameters that a run order of layers needs, in the order of [Config.Params].
func (c Config) ParamsOf(layers []int) []Param {
	used := make([]bool, c.Layers)
	for _, l := range layers {
		used[l] = true
	}
	var needed []Param
	for _, p := range c.Params() {
		var layer int
		if n, _ := fmt.Sscanf(p.Name, "h.%d.", &layer); n == 0 || used[layer] {
			needed = append(needed, p)
		}
	}
	return needed
}

// Parameters returns the number of parameters of the model.
func (c Config) Parameters() (n int) {
	for _, p := range c.Params() {
		n += p.Elements()
	}
	return n
}

// Bounds on the fields of a Config, and on the rows (B*T) of a pass. They are far above any GPT-2, and low enough that
// no cost overflows: FLOPs are about twice the parameters times the rows.
const (
	maxLayers     = 1 << 12
	maxDim        = 1 << 20
	maxVocab      = 1 << 24
	maxParameters = 1 << 38
	maxRows       = 1 << 22
)

// Check says whether the geometry is one that can be run.
func (c Config) Check() error {
	for _, f := range []struct {
		name       string
		value, max int
	}{
		{"n_layer", c.Layers, maxLayers}, {"n_embd", c.Channels, maxDim}, {"n_head", c.Heads, maxDim},
		{"n_positions", c.Positions, maxDim}, {"vocab_size", c.Vocab, maxVocab}, {"n_inner", c.Inner, maxDim},
	} {
		if f.value < 1 || f.value > f.max {
			return fmt.Errorf("%s is %d; it must be from 1 to %d", f.name, f.value, f.max)
		}
	}
	if c.Channels%c.Heads != 0 {
		return fmt.Errorf("n_embd is %d, which %d heads (n_head) do not divide", c.Channels, c.Heads)
	}
	if hs := c.HeadSize(); hs > maxHeadSize {
		return fmt.Errorf("the head size n_embd / n_head is %d; the largest supported is %d", hs, maxHeadSize)
	}
	if n := c.Parameters(); n > maxParameters {
		return fmt.Errorf("the model would have %d parameters; at most %d are supported", n, maxParameters)
	}
	if !(c.Epsilon > 0) || c.Epsilon > 1 {
		return fmt.Errorf("layer_norm_epsilon is %g; it must be above 0 and at most 1", c.Epsilon)
	}
	return nil
}

// maxHeadSize bounds HS: the attention kernels keep a row of it in registers or shared memory.
const maxHeadSize = 512

// fixed lists the fields of config.json that would change the mathematics, with
// the one value that this engine implements. Any other value is an error.
var fixed = map[string]string{
	"model_type":          `"gpt2"`,
	"add_cross_attention": "false",
	"is_encoder_decoder":  "false",
	"pruned_heads":        "{}",
	"quantization_config": "null",
	"rope_scaling":        "null",
}

// ParseConfig reads a Hugging Face config.json. A field that changes the mathematics and is not supported is an error;
// fields that do not (dropout, generation defaults, training history) are passed over.
func ParseConfig(data []byte) (Config, error) {
	raw, err := parseObject("config.json", data)
	if err != nil {
		return Config{}, err
	}
	if err := checkFixed("config.json", raw, fixed); err != nil {
		return Config{}, err
	}
	c := defaults
	c.Layers, c.Channels, c.Heads, c.Vocab, c.Positions = 12, 768, 12, 50257, 1024 // those of transformers
	r := fieldReader{file: "config.json", raw: raw}
	var classes []string
	r.read(into{"architectures": &classes})
	isGPT2 := func(class string) bool { return strings.HasPrefix(class, "GPT2") }
	if !r.has("model_type") && len(classes) > 0 && !slices.ContainsFunc(classes, isGPT2) {
		return Config{}, fmt.Errorf("config.json has architectures = %s, and no model_type; only GPT-2's are supported",
			shorten(raw["architectures"]))
	}
	for _, names := range fieldNames {
		for _, other := range names[1:] {
			if !r.has(names[0]) && r.has(other) {
				raw[names[0]] = raw[other]
			}
		}
	}
	name := "gelu_new"
	r.read(into{"n_layer": &c.Layers, "n_embd": &c.Channels, "n_head": &c.Heads, "vocab_size": &c.Vocab,
		"n_positions": &c.Positions, "n_inner": &c.Inner, "layer_norm_epsilon": &c.Epsilon, "activation_function": &name,
		"scale_attn_weights": &c.ScaleWeights, "scale_attn_by_inverse_layer_idx": &c.ScaleByInverseLayer,
		"tie_word_embeddings": &c.Tied})
	if !r.has("n_inner") {
		c.Inner = 4 * c.Channels
	}
	for i, to := range []*int{&c.BOS, &c.EOS} {
		if ids := r.tokenIDs([]string{"bos_token_id", "eos_token_id"}[i]); len(ids) > 0 {
			*to = ids[0]
		}
	}
	if r.err != nil {
		return Config{}, r.err
	}
	if c.Activation, err = parseActivation(name); err != nil {
		return Config{}, fmt.Errorf("config.json: %w", err)
	}
	if err := c.Check(); err != nil {
		return Config{}, fmt.Errorf("config.json: %w", err)
	}
	return c, nil
}

// fieldNames are the fields of the geometry, each with the other names under which transformers knows it.
var fieldNames = [][]string{{"n_layer", "num_hidden_layers"}, {"n_embd", "hidden_size"},
	{"n_head", "num_attention_heads"}, {"n_positions", "max_position_embeddings", "n_ctx"}}

// JSON writes the configuration as a Hugging Face config.json. dtype is the
// name of the type that the weights beside it have: "float32" or "bfloat16".
func (c Config) JSON(dtype string) ([]byte, error) {
	id := func(v int) any {
		if v < 0 {
			return nil
		}
		return v
	}
	return json.MarshalIndent(map[string]any{
		"architectures":                   []string{"GPT2LMHeadModel"},
		"model_type":                      "gpt2",
		"dtype":                           dtype,
		"n_layer":                         c.Layers,
		"n_embd":                          c.Channels,
		"n_head":                          c.Heads,
		"n_positions":                     c.Positions,
		"n_ctx":                           c.Positions,
		"vocab_size":                      c.Vocab,
		"n_inner":                         c.Inner,
		"layer_norm_epsilon":              c.Epsilon,
		"activation_function":             c.Activation.String(),
		"scale_attn_weights":              c.ScaleWeights,
		"scale_attn_by_inverse_layer_idx": c.ScaleByInverseLayer,
		"tie_word_embeddings":             c.Tied,
		"bos_token_id":                    id(c.BOS),
		"eos_token_id":                    id(c.EOS),
		"attn_pdrop":                      0.0,
		"embd_pdrop":                      0.0,
		"resid_pdrop":                     0.0,
	}, "", "  ")
}

// checkFixed returns an error if a field of a JSON object, in a file, has another value than the one given.
func checkFixed(file string, raw map[string]json.RawMessage, fixed map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(fixed)) {
		got, ok := raw[name]
		if !ok || string(got) == "null" {
			continue
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, got); err != nil || compact.String() != fixed[name] {
			return fmt.Errorf("%s has %s = %s; only %s is supported", file, name, shorten(got), fixed[name])
		}
	}
	return nil
}

// fieldReader takes typed fields out of a JSON object, in a file; its first error sticks.
type fieldReader struct {
	file string
	raw  map[string]json.RawMessage
	err  error
}

// has tells whether the field is there and not null.
func (r *fieldReader) has(name string) bool {
	v, ok := r.raw[name]
	return ok && string(v) != "null"
}

// into has a pointer for each field that is read.
type into map[string]any

// kinds are what a field must be, by the type of its pointer.
var kinds = map[string]string{"*int": "a whole number", "*float64": "a number", "*bool": "true or false",
	"*string": "a string", "*[]string": "a list of names", "*map[string]float64": "an object of numbers"}

// read takes fields; those that are not there change nothing.
func (r *fieldReader) read(fields into) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		r.decode(name, kinds[fmt.Sprintf("%T", fields[name])], fields[name])
	}
}

func (r *fieldReader) decode(name, kind string, to any) {
	if r.err != nil || !r.has(name) {
		return
	}
	if err := json.Unmarshal(r.raw[name], to); err != nil {
		r.err = fmt.Errorf("%s has %s = %s; it must be %s", r.file, name, shorten(r.raw[name]), kind)
	}
}

// tokenIDs reads an id or a list of ids, nil if the field is not there.
func (r *fieldReader) tokenIDs(name string) (ids []int) {
	if !r.has(name) || json.Unmarshal(r.raw[name], &ids) == nil {
		return ids
	}
	ids = make([]int, 1)
	r.decode(name, "a token id or a list of them", &ids[0])
	return ids
}

// shorten cuts a value from a file so that it fits in a sentence.
func shorten(v []byte) string {
	const most = 60
	if len(v) > most {
		return string(v[:most]) + "..."
	}
	return string(v)
}
