package main

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// A GGUF file is a model like a Hugging Face directory: the logits of float32 weights have the same bits, those of
// other types differ by what the types round.
func TestGGUF(t *testing.T) {
	const folder = "../../gpt2/testdata/gguf"
	logits := func(model string, flags ...string) []float32 {
		out := filepath.Join(t.TempDir(), "logits.npy")
		mustInfer(t, append([]string{"dump", "-m", model, "--ids", "39,68,75,75,78", "--stage", "lm_head", "-o", out}, flags...)...)
		_, _, x := readNPY(t, out)
		return x
	}
	want := logits(folder)
	peak := 0.0
	for _, x := range want {
		peak = max(peak, math.Abs(float64(x)))
	}
	for name, bound := range map[string]float64{"f32": 0, "f16": 1e-3, "bf16": 3e-2, "q8_0": 5e-2} { // bench/peers.py has the same bounds
		got, worst := logits(filepath.Join(folder, name+".gguf")), 0.0
		for i := range want {
			worst = max(worst, math.Abs(float64(got[i]-want[i])))
		}
		if worst > bound*peak || bound > 0 && worst == 0 {
			t.Errorf("%s: logits differ by %.1e of the largest, expected at most %.0e, and more than 0 unless the type is f32", name, worst/peak, bound)
		}
	}
	// 8-bit weights are held as 8-bit weights if that is asked for, and otherwise a line says how.
	q8 := filepath.Join(folder, "q8_0.gguf")
	e := mustInfer(t, "-m", q8, "--ids", "39,72", "-n", "2", "--temp", "0")
	contains(t, e.stderr, "8-bit weights (Q8_0)", "--dtype q8")
	if e = mustInfer(t, "-m", q8, "--ids", "39,72", "-n", "2", "--temp", "0", "--dtype", "q8"); strings.Contains(e.stderr, "Q8_0") {
		t.Errorf("with --dtype q8, standard error is %q", e.stderr)
	}
	if e = mustInfer(t, "info", "-m", q8); !strings.Contains(e.stdout, "(GGUF, mostly Q8_0)") || !strings.Contains(e.stdout, "L=2 C=32 NH=2") {
		t.Errorf("info says %.200s", e.stdout)
	}
	if e = mustInfer(t, "info", "-m", q8, "--json"); !strings.Contains(e.stdout, `"gguf_type": "Q8_0"`) {
		t.Errorf("info --json says %.200s", e.stdout)
	}
}
