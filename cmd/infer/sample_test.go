package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gpt2scope/cmd/infer/cli"
)

var update = flag.Bool("update", false, "write traces/samples/plan.json and summaries")

// TestPlanOfSamples: traces/samples/plan.json is what "infer info --json" prints for
// the run that the captures beside it show, without "gpu". What is fused does not
// depend on the GPU, so a library without one will do. Where this test fails because
// the fused steps changed, the captures are out of date too.
func TestPlanOfSamples(t *testing.T) {
	withStub(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
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
	if err := json.Unmarshal(text, &info); err != nil {
		t.Fatal(err)
	}
	info.GPU = nil // the plan alone
	var plan bytes.Buffer
	if err := cli.WriteJSON(&plan, info); err != nil {
		t.Fatal(err)
	}
	got := plan.Bytes()
	path := filepath.Join(root, "traces/samples/plan.json")
	if *update {
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("traces/samples/plan.json is not the plan; go test ./cmd/infer -run TestPlanOfSamples -update writes it:\n%s", got)
	}
}
