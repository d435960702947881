package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpt2scope/ceilings"
	"gpt2scope/cpu"
	"gpt2scope/cuda"
	"gpt2scope/internal/require"
	"gpt2scope/internal/stub"
	"gpt2scope/traces/tables"
)

// withStub makes the program use the CUDA library without CUDA, built with macros of
// cuda/testdata/stub.c. The home folder and the cache folder are empty ones. Sampled
// tokens count up: 1, 2, 3, ...
func withStub(t *testing.T, defines ...string) {
	t.Helper()
	t.Setenv("GPT2SCOPE_CUDA_LIB", stub.Build(t, defines...))
	stub.BLAS(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // where tuned products are stored too
	must(t, storeMadeUp())
	t.Setenv("HOME", t.TempDir())
}

// storeStub stores ceilings of the GPUs of the stub.
func storeStub(t *testing.T) {
	t.Helper()
	lib := require.Value(cuda.Open())(t)
	n := require.Value(lib.DeviceCount())(t)
	for i := range n {
		device, err := lib.Device(i)
		must(t, err)
		key, err := device.CeilingsKey()
		set := madeUp(key)
		set.Device = device.Info().Name
		for i := range set.Values { // so low that floors are not 0.000 us
			set.Values[i].Value /= 1e3
		}
		must(t, errors.Join(err, ceilings.Store(t.Context(), set)))
	}
}

// storeLow stores ceilings of one thread of this CPU that are far too low.
func storeLow(t *testing.T) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, isa := range cpu.ISAs() {
		set := madeUp(cpu.CeilingsKey(1, isa))
		for i := range set.Values {
			set.Values[i].Value /= 1e7
		}
		must(t, ceilings.Store(t.Context(), set))
	}
}

func TestGPUGenerates(t *testing.T) {
	withStub(t)
	var want []int32
	for i := range 20 {
		want = append(want, int32(i+1))
	}
	for _, args := range [][]string{
		{"--device", "cuda"}, {"--device", "cuda:0", "--mode", "eager"}, {"--device", "auto", "--mode", "graph", "--dtype", "f32"},

		{"--device", "cuda", "--variant", "attn.sdpa=naive", "--variant", "residual_1=norm"},
		{"--device", "cuda", "--mode", "persistent"}, {"--device", "cuda", "--mode", "persistent", "--temp", "0", "--context", "24"},
	} {
		p := parse(t, mustInfer(t, with(args, "-m", tiny, "-p", "ROMEO: what light", "-n", "20", "--ignore-eos", "--json")...).stdout)
		if !slices.Equal(p.IDs, want) || p.Setting.Device != "cuda" || p.Setting.GPU != "Stub 0" {
			t.Errorf("%q: %v, %+v", args, p.IDs, p.Setting)
		}
	}
}

// Mode persistent says once what it does not run, in words and in JSON; nothing if it runs
// all.
func TestGPUPersistent(t *testing.T) {
	withStub(t)
	run := func(args ...string) (ended, parsed) {
		t.Helper()
		e := mustInfer(t, with(args, "-m", tiny, "-p", "ROMEO:", "-n", "20", "--ignore-eos", "--json", "--device", "cuda", "--mode", "persistent")...)
		return e, parse(t, e.stdout)
	}
	if e, r := run("--temp", "0"); r.Setting.Mode != "persistent" || r.Setting.DType != "bf16" || r.Setting.Instead != "" || strings.Contains(e.stderr, "graph") {
		t.Errorf("greedy: %+v, %s", r.Setting, e.stderr)
	}
	checkFailure(t, infer(t, "-m", tiny, "-p", "ROMEO:", "--device", "cuda", "--mode", "persistent", "--dtype", "f32"), exitFailure, "takes weights in bf16 only", "--mode graph")
	for _, c := range []struct {
		args        []string
		mode, words string
	}{
		{[]string{"--temp", "0", "--profile", "--recorder", "cupti", "--no-baseline"}, "graph", "--recorder stamps sees them"},
	} {
		e, r := run(c.args...)
		if r.Setting.Mode != c.mode || (c.mode == "persistent") != strings.Contains(r.Setting.Instead, c.words) || strings.Count(e.stderr, c.words) != 1 {
			t.Errorf("%q: %+v, %s", c.args, r.Setting, e.stderr)
		}
	}
	for _, c := range []struct {
		model string
		args  []string
		mode  string
	}{{"random:L=1,C=384,NH=6,V=257,T=64", []string{"--temp", "0"}, "persistent"}, {"random:L=1,C=384,NH=6,V=257,T=64", nil, "persistent"}, {"random:L=1,C=384,NH=6,V=257,T=64", []string{"--dtype", "f32"}, "graph"}, {tiny, []string{"--temp", "0"}, "graph"}} {
		e := mustInfer(t, append([]string{"-m", c.model, "-p", "ROMEO:", "-n", "9", "--ignore-eos", "--json", "--device", "cuda"}, c.args...)...)
		if r := parse(t, e.stdout); r.Setting.Mode != c.mode || r.Setting.Instead != "" || strings.Contains(e.stderr, "graphs") {
			t.Errorf("mode auto of %s, %q: %+v, %s", c.model, c.args, r.Setting, e.stderr)
		}
	}
	for _, args := range [][]string{{"bench"}, {"bench", "--batch", "9"}} {
		e := mustInfer(t, with(args, "-m", tiny, "--device", "cuda", "--mode", "persistent", "--no-floor", "--repeat", "2")...)
		if !strings.Contains(e.stdout, "mode persistent") || strings.Contains(e.stdout, "there are 9") != (len(args) > 1) {
			t.Errorf("%q: %s", args, e.stdout)
		}
	}
	info := mustInfer(t, "info", "-m", tiny, "--device", "cuda", "--mode", "persistent")
	if !strings.Contains(info.stdout, "mode persistent (as requested)") || strings.Contains(info.stderr, "persistent") {
		t.Errorf("info: %s%s", info.stdout, info.stderr)
	}
}

func TestGPUInfo(t *testing.T) {
	withStub(t)
	out := mustInfer(t, "info", "-m", tiny, "--device", "cuda", "--prompt-len", "40", "--variant", "attn.sdpa=naive").stdout
	contains(t, out,
		"cuda (Stub 0), mode graph (kernels were chosen by --variant, and the persistent kernel is one for all steps), weights bfloat16",
		"variant     attn.sdpa=naive", "GPU memory", "are free")

	var j infoJSON
	decode(t, mustInfer(t, "info", "-m", tiny, "--device", "cuda", "--json", "--prompt-len", "40").stdout, &j)
	if m := j.GPU.Memory; m.Weights <= 0 || m.Cache != 2*2*64*64*2 || m.Total != m.Weights+m.Cache+m.Activations+m.Work || m.Activations < 40*64*4 {
		t.Errorf("memory %+v", m)
	}
	if j.GPU.Name != "Stub 0" || j.GPU.Mode != "graph" || len(j.GPU.Variants) != 0 {
		t.Errorf("%+v", j.GPU)
	}
}

func TestGPUBadInput(t *testing.T) {
	gpu := []string{"-m", tiny, "--ids", "1,2,3", "-n", "2", "--device", "cuda"}
	long := []string{"-m", tiny, "-p", strings.Repeat("a", 20), "-n", "2", "--device", "cuda"}
	t.Run("no library", func(t *testing.T) {
		t.Setenv("GPT2SCOPE_CUDA_LIB", "/nowhere/lib.so")
		checkFailure(t, infer(t, gpu...), exitFailure, "--device cuda", "not built", "make cuda", "/nowhere/lib.so")
		checkFailure(t, infer(t, "-m", tiny, "--ids", "1", "-n", "1", "--mode", "graph"), exitFailure, "--mode is for a GPU", "not built")
	})
	for define, facts := range map[string][]string{
		"STUB_ABI=77": {"ABI version 77"}, "STUB_DRIVER=0": {"no NVIDIA driver"}, "STUB_DEVICES=0": {"GPU"}, "STUB_MAJOR=7": {"7.0", "7.5"},
	} {
		t.Run(define, func(t *testing.T) {
			withStub(t, define)
			checkFailure(t, infer(t, gpu...), exitFailure, append(facts, "--device cuda")...)
		})
	}
	t.Run("stub", func(t *testing.T) {
		withStub(t)
		for _, c := range []struct {
			args  []string
			facts []string
		}{
			{with(gpu, "--device", "cuda:99"), []string{"--device cuda:99", "GPU 99"}},
			{with(gpu, "--variant", "attn.sdpa=fast"), []string{"attn.sdpa", `"fast"`, "auto, naive"}},
			{with(gpu, "--variant", "attn=naive"), []string{`"attn"`, "attn.sdpa"}},
			{with(gpu, "--variant", "residual_1=naive"), []string{"residual_1", "gemm, norm"}},
			{[]string{"-m", tiny, "--ids", "1", "-n", "1", "--variant", "attn=naive"}, []string{`"attn"`}}, // auto does not hide it
		} {
			checkFailure(t, infer(t, c.args...), exitFailure, c.facts...)
		}
		t.Setenv("GPT2SCOPE_CUBLASLT", "/nowhere/libcublasLt.so.13")
		checkFailure(t, infer(t, long...), exitFailure, "cuBLASLt", "/nowhere/libcublasLt.so.13")
		mustInfer(t, gpu...) // its products are of few rows
	})
}

// TestEndAtOnce: after its last token a process frees nothing, which on a GPU takes 100 ms; what it writes is whole. If a
// profiler is attached, all is freed.
func TestEndAtOnce(t *testing.T) {
	dir := t.TempDir()
	log, trace := filepath.Join(dir, "calls"), filepath.Join(dir, "run.json")
	withStub(t, `STUB_LOG="`+log+`"`)
	run := func(env []string, args ...string) (after []string) {
		t.Helper()
		os.Remove(log)
		c := exec.Command(os.Args[0], append([]string{"-m", tiny, "-p", "ROMEO:", "-n", "20", "-s", "1", "--ignore-eos", "--device", "cuda"}, args...)...)
		c.Env = append(append(os.Environ(), asInfer+"=1"), env...)
		out, err := c.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "decode 19 tokens") {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		text := readFile(t, log)
		calls := strings.Fields(string(text))
		last := len(calls) - 1
		for calls[last] != "gs_sample" && calls[last] != "gs_graph_launch" {
			last--
		}
		return calls[last+1:]
	}
	frees := func(calls []string) (n int) {
		for _, call := range calls {
			if strings.Contains(call, "free") || strings.Contains(call, "destroy") {
				n++
			}
		}
		return n
	}
	if after := run(nil); frees(after) > 0 {
		t.Errorf("after the last token it calls %v", after)
	}
	if after := run([]string{"NSYS_PROFILING_SESSION_ID=1"}); frees(after) < 5 {
		t.Errorf("with a profiler attached it calls only %v after the last token", after)
	}
	if after := run(nil, "--trace", trace, "--no-baseline"); slices.Contains(after, "gs_stream_destroy") { // what it recorded with is freed
		t.Errorf("after a recording it calls %v", after)
	}
	if e := mustInfer(t, "trace", "check", trace); e.stdout == "" {
		t.Error("the trace is not whole")
	}
}

// TestGPUPersistentProfile: a recording of mode persistent has the stages inside the kernel with what SMs
// waited for, whose columns sum to their times, in the table of --profile and in 'trace show';
// one of mode graph has none of this.
func TestGPUPersistentProfile(t *testing.T) {
	withStub(t)
	file := filepath.Join(t.TempDir(), "t.json.gz")
	args := []string{"-m", tiny, "-p", "ROMEO:", "-n", "40", "--ignore-eos", "--temp", "0", "--device", "cuda", "--profile", "--trace", file, "--no-baseline", "--json"}
	e := mustInfer(t, append(args, "--mode", "persistent")...)
	if r := parse(t, e.stdout); r.Setting.Mode != "persistent" || r.Setting.Instead != "" || r.Profile == nil {
		t.Errorf("%+v: %s", r.Setting, e.stderr)
	}
	headings := []string{"weights us", "inputs us", "compute us", "imbalance us"}
	contains(t, e.stderr, headings...)
	show := func(args ...string) string {
		return mustInfer(t, append([]string{"trace", "show", file}, args...)...).stdout
	}
	var table struct{ Folded []tables.Row }
	unmarshal(t, show("--json"), &table)
	inside := 0
	for _, r := range table.Folded {
		if r.Inside != nil {
			inside++
			if r.Inside.Sum() != r.Exclusive || r.Inside.Compute <= 0 {
				t.Errorf("%s: %d ns, inside %+v", r.Name, r.Exclusive, r.Inside)
			}
		}
	}
	if inside != 14 { // seven of the decode steps, and of the prompt, which is short
		t.Errorf("%d stages have times inside the kernel", inside)
	}
	mustInfer(t, append(args, "--mode", "graph")...)
	if text := show("--columns", "all"); strings.Contains(text, "inputs us") {
		t.Errorf("mode graph:\n%s", text)
	}
}
