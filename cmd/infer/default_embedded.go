//go:build !external_weights

package main

import (
	"gpt2scope/gpt2"
	"gpt2scope/weights"
	"gpt2scope/weights/shakespeare"
)

const defaultModelHelp = "\n(default: the built-in Shakespeare model)"

// defaultModel opens the checkpoint that is embedded in the binary.
func defaultModel() (*gpt2.Model, error) {
	checkpoint, err := weights.OpenFS(shakespeare.Files)
	if err != nil {
		return nil, err
	}
	return gpt2.NewModel("shakespeare", shakespeare.Files, checkpoint)
}
