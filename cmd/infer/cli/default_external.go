//go:build external_weights

package cli

import (
	"errors"

	"gpt2scope/gpt2"
)

const defaultModelHelp = ""

// DefaultModel fails: this build carries no weights.
func DefaultModel() (*gpt2.Model, error) {
	return nil, errors.New("this build carries no weights (-tags external_weights); give a model with -m, such as " +
		"weights/shakespeare or random:gpt2")
}
