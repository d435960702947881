package learn

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// nvcc finds the compiler that 'make cuda' uses, "" if there is none.
func nvcc() string {
	for _, pattern := range []string{os.Getenv("CUDA_HOME") + "/bin/nvcc", "../build/cuda/bin/nvcc", "../build/cuda/nvidia/*/bin/nvcc"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[0]
		}
	}
	path, _ := exec.LookPath("nvcc")
	return path
}

// The CUDA C++ of all lessons compiles for compute capability 8.0 and 9.0. One file holds all, each lesson in a
// namespace, because the compiler takes longer to start than to compile.
func TestSourcesCompile(t *testing.T) {
	compiler := nvcc()
	if compiler == "" {
		t.Skip("there is no nvcc")
	}
	var all strings.Builder
	var seen []Source
	for _, l := range All() {
		for _, x := range []*Experiment{l.CPU, l.GPU} {
			if x == nil {
				continue
			}
			for _, s := range x.Sources {
				if slices.Contains(seen, s) {
					continue
				}
				seen = append(seen, s)
				if strings.Contains(s.Text, "#include") {
					t.Errorf("lesson %d: %s includes a header; NVRTC has none", l.Number, s.Name)
				}
				fmt.Fprintf(&all, "namespace source%d {\n#line 1 %q\n%s\n}\n", len(seen), s.Name, strings.ReplaceAll(s.Text, `extern "C"`, ""))
			}
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "all.cu"), []byte(all.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(compiler, "-fatbin", "-Werror", "all-warnings", "-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_90,code=sm_90", "-o", filepath.Join(dir, "all.fatbin"), filepath.Join(dir, "all.cu"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
