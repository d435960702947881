package learn

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/tasks"
)

// nvcc finds the compiler that 'make cuda' uses, "" if there is none.
func nvcc() string {
	for _, home := range []string{os.Getenv("CUDA_HOME"), "../build/cuda", "../build/cuda/nvidia/*"} {
		if found, _ := filepath.Glob(home + "/bin/nvcc"); len(found) > 0 {
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
	files, err := filepath.Glob("*.cu")
	if err != nil || len(files) == 0 {
		t.Fatalf("%q, %v", files, err)
	}
	var all strings.Builder
	for i, file := range files {
		text := source(file)
		if strings.Contains(text, "#include") {
			t.Errorf("%s includes a header; NVRTC has none", file)
		}
		text = strings.ReplaceAll(text, `extern "C"`, "")
		fmt.Fprintf(&all, "namespace source%d {\n#line 1 %q\n%s\n}\n", i, file, text)
	}
	for _, task := range tasks.All() {
		if task.Arrays != nil {
			all.WriteString(strings.ReplaceAll(task.Template(), `extern "C"`, ""))
		}
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "all.cu"), []byte(all.String()), 0o600))
	c := exec.Command(compiler, "-fatbin", "-Werror", "all-warnings", "-gencode", "arch=compute_80,code=sm_80",
		"-gencode", "arch=compute_90,code=sm_90", "-o", filepath.Join(dir, "all.fatbin"), filepath.Join(dir, "all.cu"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
