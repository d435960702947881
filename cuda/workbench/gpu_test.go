package workbench

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
)

// TestGPU checks every kernel of every stage at the shapes of gpt2. It is skipped where there is no GPU, unless
// GPT2SCOPE_REQUIRE_GPU=1 says that there must be one.
func TestGPU(t *testing.T) {
	lib, err := cuda.Open()
	var dev *cuda.Device
	if err == nil {
		dev, err = lib.Device(0)
	}
	var missing *cuda.UnavailableError
	if errors.As(err, &missing) && os.Getenv("GPT2SCOPE_REQUIRE_GPU") != "1" {
		t.Skipf("needs a GPU: %v", err)
	}
	must(t, err)
	config := gpt2.Config{Layers: 12, Channels: 768, Heads: 12, Positions: 1024, Vocab: 50257, Inner: 3072, Epsilon: 1e-5, ScaleWeights: true}
	for stage := range gpt2.NumStages {
		for name, sizes := range map[string]gpt2.Sizes{"f32": f32, "bf16": bf16} {
			for _, pass := range []struct{ T, past int }{{1, 500}, {40, 0}} {
				t.Run(fmt.Sprintf("%s/%s/T=%d", stage.Info().Name, name, pass.T), func(t *testing.T) {
					r, err := Run(t.Context(), lib, dev, Options{Config: config, Stage: stage, B: 2, T: pass.T, Past: pass.past, Sizes: sizes, Repeat: 3})
					must(t, err)
					for _, k := range r.Kernels {
						t.Logf("%s %s: error %.1e, %v %s", k.Variant, k.Parameters, k.Error, k.Median, k.Note)
						if k.Note == "" && !k.Right {
							t.Errorf("%s %s: error %g, at most %g is right", k.Variant, k.Parameters, k.Error, r.Tolerance)
						}
					}
					if k := r.Kernels[0]; k.Note != "" {
						t.Errorf("%s, which takes every shape, does not run: %s", k.Variant, k.Note)
					}
				})
			}
		}
	}
}
