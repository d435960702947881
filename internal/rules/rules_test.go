// Package rules tests which packages may import which.
package rules

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "gpt2scope"

// deps lists the packages that a package of the module is built from, with itself.
func deps(t *testing.T, dir string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", module+"/"+dir).Output()
	if err != nil {
		t.Fatalf("go list -deps %s: %v", dir, err)
	}
	list := strings.Fields(string(out))
	if !slices.Contains(list, module+"/"+dir) {
		t.Fatalf("go list -deps %s lists %d packages, and not the package itself", dir, len(list))
	}
	return list
}

// ofOthers tells whether a package is neither of the standard library nor of the module: the first element of its path
// is a host.
func ofOthers(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return strings.Contains(first, ".")
}

// TestBackendLinksNoReaders: a program that uses the CPU backend links no profile format, no statistics and no
// tensors.
func TestBackendLinksNoReaders(t *testing.T) {
	heavy := []string{"pprof", "golang.org/x/perf", "gorgonia"}
	for _, path := range deps(t, "cpu") {
		for _, word := range heavy {
			if ofOthers(path) && strings.Contains(path, word) {
				t.Errorf("cpu links %s", path)
			}
		}
	}
	// The export does: the words are those of today's libraries.
	if !slices.ContainsFunc(deps(t, "traces/pprof"), func(path string) bool { return ofOthers(path) && strings.Contains(path, "pprof") }) {
		t.Error("traces/pprof links no pprof: this test looks for the wrong word")
	}
}

// TestTracesIsALeaf: the record, its file and attribution are built from the standard library and what reads JSON and
// zstd and writes gzip, and of the module only from what writes numbers in words and compiles expressions.
func TestTracesIsALeaf(t *testing.T) {
	for _, path := range deps(t, "traces") {
		isOfFile := strings.HasPrefix(path, "github.com/go-json-experiment/json/") ||
			strings.HasPrefix(path, "github.com/klauspost/")
		isOwn := path == module+"/traces" || path == module+"/internal/humanize" || path == module+"/internal/lazyregexp"
		if ofOthers(path) && !isOfFile || strings.HasPrefix(path, module+"/") && !isOwn {
			t.Errorf("traces links %s", path)
		}
	}
}

// TestLibrariesDrawNothing: who imports the engine or the reader of recordings gets no renderer of pictures.
func TestLibrariesDrawNothing(t *testing.T) {
	for _, dir := range []string{"gpt2", "cpu", "cuda/exec", "traces/load"} {
		for _, path := range deps(t, dir) {
			if path == module+"/internal/chart" || strings.Contains(path, "gonum.org/v1/plot") {
				t.Errorf("%s links %s", dir, path)
			}
		}
	}
	if !slices.Contains(deps(t, "layers/plot"), "gonum.org/v1/plot") {
		t.Error("layers/plot links no gonum.org/v1/plot: this test looks for the wrong word")
	}
}
