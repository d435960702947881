package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gpt2scope/cmd/infer/cli"
)

var update = flag.Bool("update", false, "write the files that tests compare with")

// TestPlanOfSamples: traces/samples/plan.json is what "infer info --json" prints for
// the run that the captures beside it show, without "gpu". What is fused does not
// depend on the GPU, so a library without one will do. Where this test fails because
// the fused steps changed, the captures are out of date too.
func TestPlanOfSamples(t *testing.T) {
	withStub(t)
	root, err := filepath.Abs("../..")
	must(t, err)
	c := exec.Command(os.Args[0], "info", "-m", "weights/shakespeare", "--layers", "1", "--device", "cuda", "--prompt-len", "6", "--json")
	c.Dir = root
	c.Env = append(os.Environ(), asInfer+"=1")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	text, err := c.Output()
	if err != nil {
		t.Fatalf("infer info: %v\n%s", err, &stderr)
	}
	var info infoJSON
	unmarshal(t, string(text), &info)
	info.GPU = nil // the plan alone
	var plan bytes.Buffer
	must(t, cli.WriteJSON(&plan, info))
	isStored(t, filepath.Join(root, "traces/samples/plan.json"), plan.Bytes())
}

// isStored checks that a file has a text. -update writes it.
func isStored(t *testing.T, path string, text []byte) {
	t.Helper()
	if *update {
		must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, text, 0o666)))
	}
	if stored, err := os.ReadFile(path); err != nil || !bytes.Equal(stored, text) {
		t.Errorf("%s is out of date (%v); go test ./cmd/infer -run %s -update writes it", path, err, t.Name())
	}
}
