//go:build external_weights

package main

import "testing"

// TestNoModel says what to do in a build without weights.
func TestNoModel(t *testing.T) {
	for _, args := range [][]string{nil, {"info"}, {"tokenize", "-p", "x"}, {"eval", "--text", "x"}, {"bench"}} {
		checkFailure(t, infer(t, args...), exitFailure, "no weights", "-m", "random:gpt2")
	}
}
