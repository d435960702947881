package main

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write traces/samples/plan.json")

// TestPlanOfSamples: traces/samples/plan.json is what "infer info --json" prints for
// the run that the captures beside it show. What the GPU fuses does not depend on the
// GPU, so a library without one will do. Where this test fails because the fused
// steps changed, the captures are out of date too.
func TestPlanOfSamples(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skipf("the stub library needs a C compiler: %v", err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(t.TempDir(), "libgpt2scope_cuda.so")
	if out, err := exec.Command(cc, "-std=gnu11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-I", filepath.Join(root, "cuda"),
		filepath.Join(root, "cuda/testdata/stub.c"), "-o", library, "-lpthread", "-lm").CombinedOutput(); err != nil {
		t.Fatalf("building the stub library: %v\n%s", err, out)
	}
	c := exec.Command(os.Args[0], "info", "-m", "weights/shakespeare", "--layers", "1", "--device", "cuda", "--prompt-len", "6", "--json")
	c.Dir = root
	c.Env = append(os.Environ(), asInfer+"=1", "GPT2SCOPE_CUDA_LIB="+library)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	got, err := c.Output()
	if err != nil {
		t.Fatalf("infer info: %v\n%s", err, &stderr)
	}
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
