package gpt2

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gpt2scope/internal/files"
	"gpt2scope/internal/humanize"
	"gpt2scope/weights"
)

// Files of an adapter, as peft writes them.
var adapterFiles = []string{"adapter_model.safetensors", "adapter_model.bin"}

const adapterConfig = "adapter_config.json"

// adapterFixed lists the fields of adapter_config.json that would change the mathematics, with the values for which
// they do not.
var adapterFixed = map[string]string{
	"peft_type": `"LORA"`, "use_dora": "false", "bias": `"none"`, "modules_to_save": "[]", "lora_bias": "false",
	"use_qalora": "false", "alora_invocation_tokens": "null", "layer_replication": "null", "use_bdlora": "null",
	"trainable_token_indices": "null", "target_parameters": "null",
}

// adapterStarts are the init_lora_weights of an adapter that leave the base model as it is.
var adapterStarts = []string{"", "null", "true", "false", `"gaussian"`, `"eva"`, `"orthogonal"`}

// lora is what an adapter adds to a matrix W (inputs, outputs): scale * A^T B^T.
// Source: Hu et al., "LoRA" (2021), equation 3; peft, tuners/lora/layer.py, get_delta_weight.
type lora struct {
	a, b  []float32 // (rank, inputs), (outputs, rank)
	rank  int
	scale float64
}

// Adapt adds the LoRA adapter in a directory to the model's matrices, when these are read. The directory stays the
// caller's; nothing of it is used afterwards.
func (m *Model) Adapt(dir string) error {
	if err := m.adapt(dir); err != nil {
		return fmt.Errorf("adapter %s: %w", dir, err)
	}
	return nil
}

func (m *Model) adapt(dir string) error {
	data, err := files.Read(filepath.Join(dir, adapterConfig), 1<<20)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w; give a directory that peft's save_pretrained wrote", adapterConfig,
			humanize.Cause(err))
	}
	raw, err := parseObject(adapterConfig, data)
	if err != nil {
		return err
	}
	if err := checkFixed(adapterConfig, raw, adapterFixed); err != nil {
		return err
	}
	if start := string(raw["init_lora_weights"]); !slices.Contains(adapterStarts, start) {
		return fmt.Errorf("%s has init_lora_weights = %s, which changes the base model too: merge it by peft's merge_and_unload",
			adapterConfig, start)
	}
	o := adapterOptions{rank: 8, alpha: 8}
	r := fieldReader{file: adapterConfig, raw: raw}
	r.read(into{"r": &o.rank, "lora_alpha": &o.alpha, "use_rslora": &o.root, "rank_pattern": &o.ranks,
		"alpha_pattern": &o.alphas})
	if r.err != nil {
		return r.err
	}
	var c *weights.Checkpoint
	for _, name := range adapterFiles {
		if c, err = weights.OpenFile(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return err
	}
	defer c.Close()
	added := map[string]lora{} // by parameter
	parts, prefixes := 0, prefixesOf(c)
	for t := range c.All() {
		name, part, ok := strings.Cut(plainName(t.Name, prefixes), ".lora_")
		matrix, known := m.checkpoint.Tensor(name + ".weight")
		if !ok || !known || !linear().MatchString(matrix.Name) || part != "A.weight" && part != "B.weight" {
			return fmt.Errorf("tensor %s adapts something else than a matrix of a layer (attn.c_attn, attn.c_proj, mlp.c_fc, "+
				"mlp.c_proj), which is not supported: merge it by peft's merge_and_unload", t.Name)
		}
		one, ok := added[matrix.Name]
		if !ok {
			if one, err = o.of("transformer." + name); err != nil {
				return err
			}
		}
		want := []int{one.rank, matrix.Shape[0]}
		if part == "B.weight" {
			want = []int{matrix.Shape[1], one.rank}
		}
		if !slices.Equal(t.Shape, want) {
			return fmt.Errorf("tensor %s is %v, and the model's %s with r = %d asks for %v", t.Name, t.Shape, matrix.Name,
				one.rank, want)
		}
		values := make([]float32, t.Elements())
		if err := t.ReadFloat32(values, 0); err != nil {
			return err
		}
		if part == "A.weight" {
			one.a = values
		} else {
			one.b = values
		}
		added[matrix.Name] = one
		parts++
	}
	if parts == 0 || parts != 2*len(added) {
		return fmt.Errorf("it has %d tensors for %d matrices; it must have a lora_A and a lora_B for each", parts, len(added))
	}
	m.checkpoint, err = m.checkpoint.Map(func(t weights.Tensor) (weights.Tensor, error) {
		l, ok := added[t.Name]
		if !ok {
			return t, nil
		}
		return weights.NewTensor(t.Name, t.Shape, func(dst []float32, off int) error {
			if err := t.ReadFloat32(dst, off); err != nil {
				return err
			}
			l.add(dst, off, t.Shape[0], t.Shape[1])
			return nil
		})
	})
	if err == nil {
		m.note(fmt.Sprintf("the adapter %s of rank %d is added to %d matrices", dir, o.rank, len(added)))
	}
	return err
}

// adapterOptions say how much of an adapter is added to a matrix.
type adapterOptions struct {
	rank          int
	alpha         float64
	root          bool               // alpha is divided by the root of the rank
	ranks, alphas map[string]float64 // of modules that a regular expression matches
}

// of returns what a module is adapted by, without the matrices. Of patterns that match, the first counts in the order
// in which peft writes them (peft, utils/other.py, get_pattern_key).
func (o *adapterOptions) of(module string) (lora, error) {
	values := [2]float64{float64(o.rank), o.alpha}
	for i, patterns := range []map[string]float64{o.ranks, o.alphas} {
		for _, pattern := range slices.Sorted(maps.Keys(patterns)) {
			match, err := regexp.Compile(`^(.*\.)?(` + pattern + `)$`)
			if err != nil {
				return lora{}, fmt.Errorf("%s has the pattern %q, which is not read: %w", adapterConfig, pattern, err)
			}
			if match.MatchString(module) {
				values[i] = patterns[pattern]
				break
			}
		}
	}
	rank := values[0]
	if rank < 1 || rank > 1<<16 || rank != math.Trunc(rank) {
		return lora{}, fmt.Errorf("%s has the rank %g for %s; it must be a positive whole number", adapterConfig, rank, module)
	}
	if o.root {
		rank = math.Sqrt(rank)
	}
	return lora{rank: int(values[0]), scale: values[1] / rank}, nil
}

// add adds to elements of W, from off on. W is (inputs, outputs).
func (l lora) add(dst []float32, off, inputs, outputs int) {
	column := make([]float64, l.rank) // of A
	for i := range dst {
		in, out := (off+i)/outputs, (off+i)%outputs
		if i == 0 || out == 0 {
			for k := range column {
				column[k] = float64(l.a[k*inputs+in])
			}
		}
		sum := 0.0
		for k, b := range l.b[out*l.rank : (out+1)*l.rank] {
			sum += column[k] * float64(b)
		}
		dst[i] += float32(l.scale * sum)
	}
}
