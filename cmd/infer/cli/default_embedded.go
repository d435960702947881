//go:build !external_weights

package cli

import (
	"gpt2scope/gpt2"
	"gpt2scope/weights/shakespeare"
)

const defaultModelHelp = "\n(default: the built-in Shakespeare model)"

// DefaultModel opens the model that is embedded in the program.
func DefaultModel() (*gpt2.Model, error) { return shakespeare.Open() }
