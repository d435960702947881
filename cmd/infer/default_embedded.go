//go:build !external_weights

package main

import (
	"gpt2scope/gpt2"
	"gpt2scope/weights/shakespeare"
)

const defaultModelHelp = "\n(default: the built-in Shakespeare model)"

// defaultModel opens the model that is embedded in the program.
func defaultModel() (*gpt2.Model, error) { return shakespeare.Open() }
