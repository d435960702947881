package rules

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// order lists the packages of the module from the top down. A package imports only packages that stand after it.
var order = strings.Fields(`
	cmd/infer cmd/infer/layers cmd/infer/tasks cmd/infer/bench cmd/infer/trace cmd/infer/learn cmd/infer/cli
	cuda/cupti/testdata/fake internal/stub
	traces/internal/samples traces/internal/fixtures internal/chromium
	learn/page learn layers/plot auto layers
	schedule tasks/samples tasks/plot tasks
	predict/grade predict measure
	cuda/inject cuda/workbench cpu cuda/exec cuda/persistent energy cuda/cupti cuda/nvml cuda
	nvtx/annotate reference/executor traces/stages weights/shakespeare gpt2 gpt2/tokenizer
	traces/report traces/pprof traces/diff traces/judge traces/tables traces/window traces/counters traces/load traces/nsys traces/samples
	internal/album internal/chart internal/table
	` + leaves)

// leaves import only leaves; all packages may import them.
const leaves = `
	record ceilings weights traces nvtx reference glossary
	internal/console internal/journal internal/checkout internal/ggufwrite internal/require
	internal/lazyregexp internal/webpage internal/place internal/stats internal/files internal/memory internal/humanize`

// others names the packages that may import a module of others, by the beginning of its path.
var others = map[string]string{
	"github.com/NVIDIA/go-nvml":          "cuda/nvml",
	"github.com/chromedp":                "internal/chromium",
	"github.com/dlclark/regexp2":         "gpt2/tokenizer",
	"github.com/go-json-experiment/json": "weights traces gpt2/tokenizer",
	"github.com/google/pprof":            "traces/pprof",
	"github.com/ianlancetaylor/demangle": "cuda/cupti",
	"github.com/klauspost/compress":      "traces",
	"github.com/klauspost/pgzip":         "traces",
	"github.com/rivo/uniseg":             "gpt2/tokenizer",
	"github.com/schollz/progressbar":     "cmd/infer/cli",
	"github.com/spf13":                   "cmd/infer cmd/infer/layers cmd/infer/tasks cmd/infer/bench cmd/infer/trace cmd/infer/learn cmd/infer/cli",
	"github.com/tiktoken-go/tokenizer":   "gpt2/tokenizer",
	"golang.org/x/perf":                  "learn layers traces/diff",
	"golang.org/x/sync":                  "predict predict/grade",
	"golang.org/x/sys":                   "cpu cuda/inject record predict weights internal/journal",
	"golang.org/x/term":                  "internal/console cmd/infer/cli",
	"golang.org/x/text":                  "gpt2/tokenizer cmd/infer/cli",
	"gonum.org/v1/gonum":                 "layers predict",
	"gonum.org/v1/plot":                  "internal/chart",
	"google.golang.org/protobuf":         "gpt2/tokenizer",
	"gorgonia.org/tensor":                "reference/executor",
}

// without names packages that must not import another one, although it stands below them: libraries draw no pictures
// and print no tables.
var without = map[string]string{
	"internal/album": "gpt2 cuda traces cpu",
	"internal/chart": "gpt2 cuda traces cpu",
	"internal/table": "gpt2 cuda traces cpu",
}

// imports lists what the packages of the module import, tests aside.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	c := exec.Command("go", "list", "-f", `{{if or .GoFiles .CgoFiles}}{{.ImportPath}} {{join .Imports " "}}{{end}}`, module+"/...")
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v", c, err)
	}
	found := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		if paths := strings.Fields(line); len(paths) > 0 {
			found[strings.TrimPrefix(paths[0], module+"/")] = paths[1:]
		}
	}
	return found
}

// Imports go one way, leaves import leaves, and a module of others is imported where it is listed.
func TestImports(t *testing.T) {
	code := imports(t)
	if len(code) < 20 {
		t.Fatalf("go list names %d packages, expected 20 at least", len(code))
	}
	leaf := strings.Fields(leaves)
	for _, name := range slices.Sorted(maps.Keys(code)) {
		at := slices.Index(order, name)
		if at < 0 {
			t.Errorf("package %s is not in order: add it, above what it imports", name)
			continue
		}
		for _, path := range code[name] {
			to, own := strings.CutPrefix(path, module+"/")
			switch {
			case own && slices.Index(order, to) < at:
				t.Errorf("%s imports %s, which does not stand below it", name, to)
			case own && slices.Contains(leaf, name) && !slices.Contains(leaf, to):
				t.Errorf("%s is a leaf and imports %s, which is none", name, to)
			case own && slices.Contains(strings.Fields(without[to]), name):
				t.Errorf("%s must not import %s", name, to)
			case !own && ofOthers(path):
				allowed := false
				for module, names := range others {
					inside := path == module || strings.HasPrefix(path, module+"/")
					allowed = allowed || inside && slices.Contains(strings.Fields(names), name)
				}
				if !allowed {
					t.Errorf("%s imports %s, which others does not allow", name, path)
				}
			}
		}
	}
}
