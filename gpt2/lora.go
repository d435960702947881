package gpt2

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
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
	"peft_type": `"LORA"`, "use_dora": "false", "bias": `"none"`, "modules_to_save": "[]", "rank_pattern": "{}",
	"alpha_pattern": "{}", "lora_bias": "false", "use_qalora": "false", "alora_invocation_tokens": "null",
}

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
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return fmt.Errorf("%s is not a JSON object: %w", adapterConfig, err)
	}
	if err := checkFixed(adapterConfig, raw, adapterFixed); err != nil {
		return err
	}
	l := lora{rank: 8}
	alpha, root := 8.0, false
	r := fieldReader{file: adapterConfig, raw: raw}
	r.int("r", &l.rank, true)
	r.float("lora_alpha", &alpha)
	r.bool("use_rslora", &root)
	if r.err != nil {
		return r.err
	}
	if l.rank < 1 || l.rank > 1<<16 {
		return fmt.Errorf("%s has r = %d; it must be positive", adapterConfig, l.rank)
	}
	if l.scale = alpha / float64(l.rank); root {
		l.scale = alpha / math.Sqrt(float64(l.rank))
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
	parts := 0
	for t := range c.All() {
		name, part, ok := strings.Cut(plainName(t.Name), ".lora_")
		matrix, known := m.checkpoint.Tensor(name + ".weight")
		if !ok || !known || !linear.MatchString(matrix.Name) || part != "A.weight" && part != "B.weight" {
			return fmt.Errorf("tensor %s adapts something else than a matrix of a layer (attn.c_attn, attn.c_proj, mlp.c_fc, "+
				"mlp.c_proj), which is not supported: merge it by peft's merge_and_unload", t.Name)
		}
		want := []int{l.rank, matrix.Shape[0]}
		if part == "B.weight" {
			want = []int{matrix.Shape[1], l.rank}
		}
		if !slices.Equal(t.Shape, want) {
			return fmt.Errorf("tensor %s is %v, and the model's %s with r = %d asks for %v", t.Name, t.Shape, matrix.Name,
				l.rank, want)
		}
		values := make([]float32, t.Elements())
		if err := t.ReadFloat32(values, 0); err != nil {
			return err
		}
		one, ok := added[matrix.Name]
		if !ok {
			one = l
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
		m.note(fmt.Sprintf("the adapter %s of rank %d is added to %d matrices", dir, l.rank, len(added)))
	}
	return err
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

// hasAdapter says whether a directory holds an adapter beside a model.
func hasAdapter(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, adapterConfig))
	return err == nil
}
