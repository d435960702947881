//go:build external_weights

package main

import (
	"errors"

	"gpt2scope/gpt2"
)

const defaultModelHelp = ""

// defaultModel fails: this build carries no weights.
func defaultModel() (*gpt2.Model, error) {
	return nil, errors.New("this build carries no weights (-tags external_weights); give a model with -m, such as weights/shakespeare or random:gpt2")
}
