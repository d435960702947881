package gpt2

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"gpt2scope/gpt2/tokenizer"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/lazyregexp"
	"gpt2scope/weights"
)

// A checkpoint becomes a model in one way, whatever its form: the names of its tensors are brought to those of
// [Config.Params], matrices of torch.nn.Linear are transposed, and what is left over is named.

// prefixes are what programs put before the names of a model's tensors: transformers, torch.compile, DataParallel,
// Lightning and peft.
var prefixes = []string{"transformer.", "_orig_mod.", "module.", "base_model.model.", "model."}

// heads are what other uses of a GPT-2 add to it: a value or a reward, a classifier, a choice among texts.
var heads = lazyregexp.New(`^(\w*head|score|classifier|summary|qa_outputs)\.`)

// linear are the matrices of a layer's products: (inputs, outputs) in transformers, (outputs, inputs) in nanoGPT.
var linear = lazyregexp.New(`^h\.\d+\.(attn\.c_attn|attn\.c_proj|mlp\.c_fc|mlp\.c_proj)\.weight$`)

// masks are the causal masks that were saved with the parameters.
var masks = lazyregexp.New(`^h\.\d+\.attn\.(bias|masked_bias)$`)

// plainName returns the name of a tensor without the prefixes.
func plainName(name string, prefixes []string) string {
	for again := true; again; {
		again = false
		for _, p := range prefixes {
			if rest, ok := strings.CutPrefix(name, p); ok {
				name, again = rest, true
			}
		}
	}
	return name
}

// prefixesOf returns the prefixes of a checkpoint: those known, and the one of its embedding.
func prefixesOf(c *weights.Checkpoint) []string {
	for _, name := range c.Names() {
		own, ok := strings.CutSuffix(plainName(name, prefixes), ".wte.weight")
		if ok {
			return append([]string{own + ".", strings.TrimSuffix(own, "transformer")}, prefixes...)
		}
	}
	return prefixes
}

// mapping counts what was done to a checkpoint's tensors.
type mapping struct {
	renamed, transposed, narrowed, zeros int
	ignored                              []string
}

// mapTensors brings a checkpoint's tensors to the names, layout and types of the model's.
func mapTensors(c *weights.Checkpoint) (*weights.Checkpoint, *mapping, error) {
	m := &mapping{ignored: c.Rest}
	plain := map[string]weights.Tensor{}
	biases, prefixes := false, prefixesOf(c)
	for t := range c.All() {
		name := plainName(t.Name, prefixes)
		plain[name] = t
		biases = biases || strings.HasPrefix(name, "h.") && strings.HasSuffix(name, ".bias") && !masks().MatchString(name)
	}
	// The matrix of queries, keys and values tells the layout: it has three times as many outputs as inputs.
	shape := plain["h.0.attn.c_attn.weight"].Shape
	transpose := len(shape) == 2 && shape[0] == 3*shape[1]
	var more []weights.Tensor
	if transpose && !biases { // nanoGPT's bias=False
		for name, t := range plain {
			base, ok := strings.CutSuffix(name, ".weight")
			if ok && (strings.HasPrefix(name, "h.") || base == "ln_f") && plain[base+".bias"].Shape == nil && len(t.Shape) > 0 {
				zero, err := weights.NewTensor(base+".bias", t.Shape[:1], constant(0))
				if err != nil {
					return nil, nil, err
				}
				more = append(more, zero)
			}
		}
	}
	m.zeros = len(more)
	_, embedded := plain["wte.weight"]
	mapped, err := c.Map(func(t weights.Tensor) (_ weights.Tensor, err error) {
		name := plainName(t.Name, prefixes)
		if name == "lm_head.weight" && !embedded { // one of two names of the same matrix was kept
			name = "wte.weight"
		}
		if len(t.Name) > len(name) && t.Name != "transformer."+name {
			m.renamed++
		}
		switch {
		case transpose && linear().MatchString(name) && len(t.Shape) == 2 && t.DType.IsFloat():
			t, err = t.Transposed()
			m.transposed++
		case t.DType == weights.F64:
			t, err = t.Float32()
			m.narrowed++
		}
		t.Name = name
		return t, err
	}, more...)
	return mapped, m, err
}

// said returns the line that reports the mapping, "" if the checkpoint is as transformers writes it.
func (m *mapping) said(c *weights.Checkpoint) string {
	var parts []string
	count := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf(what, n))
		}
	}
	count(m.renamed, "%d renamed")
	count(m.transposed, "%d transposed")
	count(m.narrowed, "%d narrowed to float32")
	count(m.zeros, "%d biases that it lacks are 0")
	if len(m.ignored) > 0 {
		parts = append(parts, "ignored: "+strings.Join(humanize.First(m.ignored, 6), ", "))
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: %d tensors (%s)", filepath.Base(c.File()), len(c.Names()), strings.Join(parts, "; "))
}

// argument reads a whole number of a checkpoint's arguments; 0 if it is not there.
func argument(args map[string]any, name string) (int, error) {
	v, ok := args[name]
	if !ok || v == nil {
		return 0, nil
	}
	if n, ok := v.(int64); ok && n > 0 && n <= maxParameters {
		return int(n), nil
	}
	return 0, fmt.Errorf("the checkpoint has %s = %v; it must be a positive whole number", name, v)
}

// configOf returns the configuration of a checkpoint that says the number of heads and, by its tensors, the rest.
// Activation and end of text are those of the program that the form is of: llm.c computes the tanh form of GELU,
// nanoGPT the exact one.
func configOf(c *weights.Checkpoint, args map[string]any) (Config, error) {
	config := defaults
	rows := func(name string) (n, width int) {
		if t, ok := c.Tensor(name); ok && len(t.Shape) == 2 {
			return t.Shape[0], t.Shape[1]
		}
		return 0, 0
	}
	config.Vocab, config.Channels = rows("wte.weight")
	config.Positions, _ = rows("wpe.weight")
	_, config.Inner = rows("h.0.mlp.c_fc.weight")
	for {
		if n, _ := rows(fmt.Sprintf("h.%d.attn.c_attn.weight", config.Layers)); n == 0 {
			break
		}
		config.Layers++
	}
	var err error
	if config.Heads, err = argument(args, "n_head"); err != nil {
		return Config{}, err
	}
	for name, found := range map[string]int{"n_layer": config.Layers, "n_embd": config.Channels,
		"vocab_size": config.Vocab, "block_size": config.Positions} {
		if said, err := argument(args, name); err != nil {
			return Config{}, err
		} else if said != 0 && said != found {
			return Config{}, fmt.Errorf("the checkpoint has %s = %d, and its tensors are those of %d", name, said, found)
		}
	}
	if config.Heads == 0 {
		return Config{}, errors.New("the checkpoint says no n_head, and no tensor tells the number of heads")
	}
	if config.Activation = GELUErf; c.Form == weights.FormLLMC {
		config.Activation = GELUNew
	}
	if config.Vocab >= 50257 && c.Form == weights.FormLLMC {
		config.BOS, config.EOS = 50256, 50256
	}
	return config, config.Check()
}

// readConfig reads the model's configuration: what the checkpoint says of itself, else config.json. source names it in
// messages.
func (m *Model) readConfig(files fs.FS) (source string, err error) {
	c := m.checkpoint
	if c.Args != nil {
		if m.Config, err = configOf(c, c.Args); c.Form != weights.FormLLMC {
			m.note("the file does not say which GELU the model was trained with: this is the exact one, nanoGPT's since 2023; " +
				"--activation gelu_new is that of older ones")
		}
		return "its header", err
	}
	const file = "config.json"
	data, err := readFile(files, file)
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w; a Hugging Face GPT-2 directory has one", file, humanize.Cause(err))
	}
	var mini struct { // minGPT's configuration of a run
		Heads any            `json:"n_head"`
		Model map[string]any `json:"model"`
	}
	if json.Unmarshal(data, &mini) == nil && mini.Model != nil && c.Form == weights.FormTorch && mini.Heads == nil {
		args := map[string]any{}
		if n, ok := mini.Model["n_head"].(float64); ok {
			args["n_head"] = int64(n)
		} else if name, ok := mini.Model["model_type"].(string); ok && miniHeads[name] > 0 {
			args["n_head"] = miniHeads[name]
		}
		m.Config, err = configOf(c, args)
		m.Config.Activation = GELUNew
		return file, err
	}
	if m.Config, err = ParseConfig(data); err != nil {
		return "", err
	}
	return file, json.Unmarshal(data, &m.config)
}

// miniHeads are the heads of minGPT's models by name (karpathy/minGPT, mingpt/model.py).
var miniHeads = map[string]int64{
	"openai-gpt": 12, "gpt2": 12, "gpt2-medium": 16, "gpt2-large": 20, "gpt2-xl": 25, "gopher-44m": 16, "gpt-mini": 6,
	"gpt-micro": 4, "gpt-nano": 3,
}

// definedTokenizer returns the tokenizer that a form without tokenizer files has by its program, and where it is from:
// the characters of nanoGPT's meta.pkl, else GPT-2's. It is nil if no program defines one.
func (m *Model) definedTokenizer(files fs.FS) (t *tokenizer.Tokenizer, from string, err error) {
	if m.checkpoint.Args == nil {
		return nil, "", nil
	}
	program := "llm.c"
	if m.checkpoint.Form == weights.FormTorch {
		program = "nanoGPT without a meta.pkl"
		if data, err := readFile(files, "meta.pkl"); err == nil {
			chars, err := weights.ReadCharacters("meta.pkl", data)
			if err == nil && len(chars) != m.Config.Vocab {
				err = fmt.Errorf("meta.pkl has %d characters, and the model %d tokens", len(chars), m.Config.Vocab)
			}
			if err == nil {
				t, err = tokenizer.Characters(chars)
			}
			return t, "the characters of meta.pkl", err
		}
	}
	if m.Config.Vocab < 50257 {
		return nil, "", nil
	}
	if data, err := readFile(files, "gpt2_tokenizer.bin"); err == nil && program == "llm.c" {
		tokens, err := weights.LLMCTokens(data)
		if err != nil {
			return nil, "", fmt.Errorf("gpt2_tokenizer.bin: %w", err)
		}
		for id, token := range tokens {
			if piece := tokenizer.GPT2().AppendPiece(nil, int32(id)); string(piece) != token && token != tokenizer.EndOfText {
				return nil, "", fmt.Errorf("gpt2_tokenizer.bin has %q as token %d, which is %q in GPT-2's tokenizer: only that "+
					"is known for llm.c", shorten([]byte(token)), id, piece)
			}
		}
	}
	return tokenizer.GPT2(), "GPT-2's, which " + program + " uses", nil
}

// matchTensors checks that the checkpoint has exactly the tensors that the configuration asks for, with their shapes,
// and returns the names of others that a GPT-2 may do without. If the file holds an lm_head that differs from wte, the
// model is not tied, as in transformers; it is an error if the configuration ties them explicitly. source names the
// configuration in messages.
func (m *Model) matchTensors(source string) (ignored []string, err error) {
	have := map[string]weights.Tensor{}
	for t := range m.checkpoint.All() {
		have[t.Name] = t
	}
	if head, ok := have["lm_head.weight"]; ok && m.Config.Tied {
		same, err := sameTensor(head, have["wte.weight"])
		if err != nil {
			return nil, err
		}
		if !same && m.config["tie_word_embeddings"] != nil {
			return nil, errors.New("config.json ties lm_head to wte, but the checkpoint holds a different lm_head.weight; set " +
				"tie_word_embeddings to false to use it, or remove the tensor")
		}
		m.Config.Tied = same
	}
	params := m.Config.Params()
	for i, p := range params {
		t, ok := have[p.Name]
		if !ok {
			return nil, fmt.Errorf("the checkpoint has no tensor %s %v, which %s asks for%s", p.Name, p.Shape, source,
				beside(params[i:], have))
		}
		if !t.DType.IsFloat() {
			return nil, fmt.Errorf("tensor %s is %s; float64, float32, float16 and bfloat16 are supported", p.Name, t.DType)
		}
		if !slices.Equal(t.Shape, p.Shape) {
			hint := ""
			if len(p.Shape) == 2 && slices.Equal(t.Shape, []int{p.Shape[1], p.Shape[0]}) {
				hint = ", its transpose"
			}
			return nil, fmt.Errorf("tensor %s is %v in the checkpoint%s, but %s asks for %v", p.Name, t.Shape, hint, source,
				p.Shape)
		}
		delete(have, p.Name)
	}
	if m.Config.Tied {
		delete(have, "lm_head.weight")
	}
	if bias, ok := have["lm_head.bias"]; ok {
		x := make([]float32, bias.Elements())
		err := bias.ReadFloat32(x, 0)
		if err != nil || slices.ContainsFunc(x, func(v float32) bool { return v != 0 }) {
			return nil, cmp.Or(err, errors.New("the checkpoint has an lm_head.bias that is not 0, which no GPT-2 has"))
		}
	}
	var rest []string
	for _, name := range slices.Sorted(maps.Keys(have)) {
		switch {
		case masks().MatchString(name):
		case heads().MatchString(name), name == "lm_head.bias":
			ignored = append(ignored, name)
		case strings.Contains(name, ".lora_"):
			return nil, fmt.Errorf("the checkpoint has the tensor %s of an adapter (LoRA): merge it with the model by peft's "+
				"merge_and_unload", name)
		default:
			rest = append(rest, name)
		}
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("the checkpoint has %d tensors that %s does not account for, the first is %s; does the "+
			"number of layers (n_layer, %d) match?", len(rest), source, rest[0], m.Config.Layers)
	}
	return ignored, nil
}

// beside names the first of the tensors that are no parameter of the model's.
func beside(missing []Param, have map[string]weights.Tensor) string {
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if !masks().MatchString(name) && !slices.ContainsFunc(missing, func(p Param) bool { return p.Name == name }) {
			return fmt.Sprintf("; it has %s %v: is that the same under another name?", name, have[name].Shape)
		}
	}
	return ""
}

// sameTensor compares an explicit lm_head with wte, bit by bit as float32.
func sameTensor(head, wte weights.Tensor) (bool, error) {
	if !slices.Equal(head.Shape, wte.Shape) {
		return false, nil
	}
	n := head.Elements()
	a, b := make([]float32, min(n, 1<<16)), make([]float32, min(n, 1<<16))
	for off := 0; off < n; off += len(a) {
		k := min(len(a), n-off)
		if err := cmp.Or(head.ReadFloat32(a[:k], off), wte.ReadFloat32(b[:k], off)); err != nil {
			return false, err
		}
		if !slices.EqualFunc(a[:k], b[:k], func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }) {
			return false, nil
		}
	}
	return true, nil
}
