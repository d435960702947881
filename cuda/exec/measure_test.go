package exec

import (
	"testing"

	"gpt2scope/gpt2"
)

// Each step of a decode step on the stub is one launch, which Launches counts in all modes but persistent: there a
// decode step is one.
func TestLaunches(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	for _, mode := range modes {
		r := prepared(t, m, c, backendOn(t, lib, Options{Mode: mode}), gpt2.Options{})
		n, err := r.Launches(r.decodePass())
		if err != nil {
			t.Fatal(err)
		}
		want := len(r.Plan(r.decodePass()).Steps)
		if mode == Persistent {
			want = 1
		}
		if n != want {
			t.Errorf("mode %v: %d launches, want %d", mode, n, want)
		}
	}
}
