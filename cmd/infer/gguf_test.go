package main

import (
	"strings"
	"testing"
)

// 8-bit weights of a file are held as 8-bit weights if that is asked for, and otherwise a line says how.
func TestGGUF(t *testing.T) {
	q8 := "../../gpt2/testdata/gguf/q8_0.gguf"
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
