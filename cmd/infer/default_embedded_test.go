//go:build !external_weights

package main

import (
	"slices"
	"strings"
	"testing"
)

// TestBuiltIn runs the model that is in the binary: one layer by default.
func TestBuiltIn(t *testing.T) {
	var texts []string
	for _, c := range []struct {
		layers []string
		want   string
	}{{nil, "layers 1 of 6"}, {[]string{"--layers", "2"}, "layers 2 of 6"}, {[]string{"--layers", "6"}, "layers 6 of 6"}} {
		e := mustInfer(t, append(c.layers, "-p", "ROMEO:", "-n", "60", "-s", "1")...)
		if m := closing.FindStringSubmatch(e.stderr[strings.LastIndex(e.stderr[:len(e.stderr)-1], "\n")+1:]); m == nil || !strings.Contains(m[0], c.want) {
			t.Errorf("%q closes with %q", c.layers, e.stderr)
		}
		texts = append(texts, e.stdout)
		if slices.Index(texts, e.stdout) != len(texts)-1 {
			t.Errorf("%q gives the text of fewer layers, %q", c.layers, e.stdout)
		}
	}
	if all := mustInfer(t, "-p", "ROMEO:", "-n", "60", "-s", "1", "--layers", "all").stdout; all != texts[len(texts)-1] {
		t.Errorf("--layers all gives %q, not %q", all, texts[len(texts)-1])
	}
	if e := mustInfer(t, "-n", "5", "-s", "1"); e.stdout == "" {
		t.Error("without a prompt there is no text")
	}
	info := mustInfer(t, "info").stdout
	contains(t, info, "L=6 C=384 NH=6 HS=64 V=257, context 1024", "layers 1 of 6", "tokenizer   257 tokens")
	checkFailure(t, infer(t, "--layers", "7"), exitUsage, "--layers 7", "6 layers")
}
