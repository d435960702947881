//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/cpu"
	gpuexec "gpt2scope/cuda/exec"
	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
	"gpt2scope/internal/stub"
	"gpt2scope/nvtx"
)

// recorded is one line of testdata/injection.c.
type recorded struct {
	kind, thread, domain, name, color, category, payload string
}

// recordRanges runs infer with the injection library attached and returns what that
// saw. It skips where the library or the NVTX headers are missing.
func recordRanges(t *testing.T, args ...string) []recorded {
	t.Helper()
	root, err := filepath.Abs("../..")
	must(t, err)
	missing := t.Skipf
	if os.Getenv("GPT2SCOPE_REQUIRE_NVTX") == "1" {
		missing = t.Fatalf
	}
	library := filepath.Join(root, "lib", nvtx.Library)
	if _, err := os.Stat(library); err != nil {
		missing("lib/%s is not built; build it with make nvtx", nvtx.Library)
	}
	include := ""
	for _, folder := range []string{os.Getenv("CUDA_HOME") + "/include", "/usr/local/cuda/include", root + "/build/cuda/nvidia/cu13/include"} {
		if _, err := os.Stat(folder + "/nvtx3/nvToolsExt.h"); err == nil {
			include = folder
			break
		}
	}
	if include == "" {
		missing("there are no NVTX headers in CUDA_HOME, /usr/local/cuda or build/cuda; make nvtx fetches them")
	}
	injection, file := stub.Compiled(t, "testdata", []string{"injection.c"}, nil, "-isystem", include), filepath.Join(t.TempDir(), "record")
	run := exec.Command(os.Args[0], args...)
	run.Env = append(os.Environ(), asInfer+"=1", "NVTX_INJECTION64_PATH="+injection, nvtx.LibraryEnv+"="+library, "GPT2SCOPE_NVTX_RECORD="+file)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("infer %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("the injection library was not loaded: %v", err)
	}
	var events []recorded
	for line := range strings.Lines(string(data)) {
		f := append(strings.Split(strings.TrimSuffix(line, "\n"), "\t"), "", "", "")
		events = append(events, recorded{f[0], f[1], f[2], f[3], f[4], f[5], f[6]})
	}
	return events
}

// TestNVTX compares what a tool sees of a run with the plans of its passes.
func TestNVTX(t *testing.T) {
	const text, tokens, layers = "ROMEO:", 4, 2
	events := recordRanges(t, "-p", text, "-n", fmt.Sprint(tokens), "--layers", fmt.Sprint(layers), "--temp", "0", "--ignore-eos")

	model := require.Value(cli.DefaultModel())(t)
	defer model.Close()
	ids := model.Tokenizer.Encode(text)
	backend := require.Value(cpu.New(cpu.Options{Threads: 1}))(t)
	defer backend.Close()

	domain, categories := "", map[string]string{}
	var ranges []recorded // and those that only name
	for _, e := range events {
		switch e.kind {
		case "domain":
			if e.name == "gpt2scope" {
				domain = e.domain
			}
		case "category":
			categories[e.domain] = e.name // its number stands where others have the domain
		case "push", "pop", "start", "end":
			ranges = append(ranges, e)
		}
	}
	if domain == "" {
		t.Fatal("there is no domain gpt2scope")
	}

	// What was seen, a line per range, indented as it nests, per thread.
	var got []string
	depth := map[string]int{}
	outside := map[string]int{} // ranges that are not of passes
	inPass := map[string]bool{}
	for _, e := range ranges {
		if e.domain != domain {
			t.Errorf("an event is in domain %s, not in gpt2scope: %v", e.domain, e)
		}
		if e.kind == "pop" {
			if depth[e.thread]--; depth[e.thread] < 0 {
				t.Fatalf("a range was closed on thread %s that was not open there", e.thread)
			}
			inPass[e.thread] = inPass[e.thread] && depth[e.thread] > 0
			continue
		}
		if depth[e.thread] == 0 {
			inPass[e.thread] = categories[e.category] == "Pass"
		}
		if inPass[e.thread] {
			got = append(got, fmt.Sprintf("%s%s %s %s %s", strings.Repeat("  ", depth[e.thread]), e.name, e.color, categories[e.category], e.payload))
		} else {
			outside[e.name+" "+e.color]++
		}
		depth[e.thread]++
	}
	for thread, n := range depth {
		if n != 0 {
			t.Errorf("%d ranges were left open on thread %s", n, thread)
		}
	}

	// What the plans say.
	blue := fmt.Sprintf("%08x", uint32(nvtx.Blue))
	var want []string
	pass := func(name string, length, position int) {
		p := backend.Fuse(gpt2.Forward(model.Config, gpt2.FirstLayers(layers), gpt2.Pass{Batch: 1, Tokens: length, Logits: gpt2.LogitsLast, Sample: true}))
		want = append(want, fmt.Sprintf("%s %s Pass %d", name, blue, position))
		slot := -1
		for _, s := range p.Steps {
			if s.Slot() != slot && s.Slot() >= 0 {
				want = append(want, fmt.Sprintf("  h.%d %s Layer %d", s.Layer(), blue, s.Layer()))
			}
			indent, payload := "    ", s.Layer()
			if slot = s.Slot(); slot < 0 {
				indent, payload = "  ", position
			}
			want = append(want, fmt.Sprintf("%s%s %s %s %d", indent, s.Name(), blue, s.Op(), payload))
		}
	}
	pass("prefill", len(ids), 0)
	for i := range tokens - 1 {
		pass("decode step", 1, len(ids)+i)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the ranges are not the plan's:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, name := range []string{
		fmt.Sprintf("open model %08x", uint32(nvtx.Blue)),
		fmt.Sprintf("make session %08x", uint32(nvtx.Blue)),
		fmt.Sprintf("pack weights %08x", uint32(nvtx.Yellow)),
		fmt.Sprintf("allocate KV cache %08x", uint32(nvtx.Cyan)),
	} {
		if outside[name] != 1 {
			t.Errorf("range %q was seen %d times, want once; there were %v", name, outside[name], outside)
		}
	}
	// All ranges are in one row: they are of one thread.
	for _, e := range ranges {
		if (e.kind == "push" || e.kind == "pop") && e.thread != ranges[0].thread {
			t.Errorf("a range is on thread %s, the first on %s: %v", e.thread, ranges[0].thread, e)
		}
	}
}

// TestNVTXOfPersistent: a launch of decode steps in one kernel is a range that says how many;
// under a profiler there are none unless they are asked for.
func TestNVTXOfPersistent(t *testing.T) {
	withStub(t)
	for _, asked := range []string{"", "1"} {
		t.Setenv(gpuexec.ProfileEnv, asked)
		var launches []string
		steps := 0
		for _, e := range recordRanges(t, "-p", "ROMEO:", "-n", "20", "--ignore-eos", "--temp", "0", "--device", "cuda", "--mode", "persistent") {
			switch {
			case e.kind == "push" && strings.HasPrefix(e.name, "decode x"):
				launches = append(launches, strings.TrimPrefix(e.name, "decode x"))
			case e.kind == "push" && e.name == "decode step":
				steps++
			}
		}
		if got := strings.Join(launches, " "); asked == "1" && (got != "16 3" || steps != 0) || asked == "" && (got != "" || steps < 19) {
			t.Errorf("%s=%q: launches of %q steps, %d steps one by one", gpuexec.ProfileEnv, asked, got, steps)
		}
	}
}
