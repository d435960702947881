package exec

import (
	"testing"

	"gpt2scope/gpt2"
)

// Each step of a decode step on the stub is one launch, which Launches counts in both
// modes.
func TestLaunches(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	for _, mode := range modes {
		r := prepared(t, m, c, backendOn(t, lib, Options{Mode: mode}), gpt2.Options{})
		n, err := r.Launches(r.decodePass())
		if err != nil {
			t.Fatal(err)
		}
		if steps := len(r.Plan(r.decodePass()).Steps); n != steps {
			t.Errorf("mode %v: %d launches of %d steps", mode, n, steps)
		}
	}
}
