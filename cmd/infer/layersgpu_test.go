package main

import (
	"slices"
	"strings"
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/require"
)

// On a GPU there are launches and device memory, predicted as "infer info" shows it, and
// the sweep is of the mode that was asked for.
func TestGPULayers(t *testing.T) {
	withStub(t)
	for _, mode := range []string{"graph", "persistent"} {
		dir := t.TempDir()
		mustInfer(t, "layers", "-m", tiny, "--device", "cuda", "--mode", mode, "--range", "1-3", "--repeat", "2", "--passes", "1", "--warm-up", "0", "--prompt-len", "16",
			"--past", "8", "--window", "16", "--no-floor", "--no-plots", "--energy-seconds", "0", "--predict", "4", "-o", dir)
		r := resultOf(t, dir)
		if len(r.Variants) != 3 || r.Configuration["mode"] != mode || r.Configuration["gpu"] != "Stub 0" || r.Configuration["dtype"] != "bf16" {
			t.Fatalf("mode %s: %+v", mode, r)
		}
		before := 0.0
		if mode == "persistent" {
			before = 0.5 // one launch, however many layers
		}
		for i, v := range r.Variants {
			m := v.Metrics
			if !slices.Equal(v.Order, []int{0, 1, 0}[:i+1]) || m["launches"].Median <= before || m["decode time"].N != 2 || m["predicted memory"].Median <= 0 {
				t.Errorf("mode %s, %s layers: %+v", mode, v.Label, m)
			}
			if mode != "persistent" {
				before = m["launches"].Median
			}
		}
		model := require.Value(gpt2.Random(tiny))(t)
		info := mustInfer(t, "info", "-m", tiny, "--device", "cuda", "--mode", mode, "--layers", "2", "--prompt-len", "16", "--past", "8").stdout
		if want := humanize.Size(int64(r.Variants[1].Metrics["predicted memory"].Median)); !strings.Contains(info, "GPU memory  "+want) {
			t.Errorf("mode %s: %s are predicted; info has\n%s", mode, want, info)
		}
		model.Close()
	}
}
