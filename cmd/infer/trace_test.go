package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"gpt2scope/learn"
	"gpt2scope/traces"
	"gpt2scope/traces/judge"
	embedded "gpt2scope/traces/samples"
)

// kineto is a small trace of PyTorch's profiler, with one kernel.
const kineto = "../../traces/testdata/kineto.json"

// traceFile writes a trace.
func traceFile(t *testing.T, h *traces.Header, events ...traces.Event) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.json")
	var b bytes.Buffer
	must(t, traces.Write(&b, "", h, events))
	writeFile(t, path, b.String())
	return path
}

// lostKernel is a trace in which a kernel has no correlation id.
func lostKernel(t *testing.T) string {
	return traceFile(t, &traces.Header{Tool: "gpt2scope", Recorder: traces.RecorderCUPTI, Clock: traces.Clock{Domain: "cupti", Uncertainty: 30}, Events: 1},
		traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "gemm", 0, 10))
}

func TestTraceCheck(t *testing.T) {
	contains(t, mustInfer(t, "trace", "check", kineto).stdout, "PyTorch, recorder kineto, NVIDIA H200", "1 kernel,", "1 copy or set has no API call", "can be trusted")
	cpu := ownTrace(t, false)
	out := mustInfer(t, "trace", "check", cpu).stdout
	if !strings.Contains(out, "host        ") || strings.Contains(out, "GPU") || strings.Contains(out, "host and device agree") {
		t.Errorf("the check of a recording of the CPU speaks of a GPU:\n%s", out)
	}
	if e := mustInfer(t, "trace", "convert", cpu, "-o", filepath.Join(t.TempDir(), "cpu.json")); !strings.Contains(e.stderr, " steps\n") || strings.Contains(e.stderr, "kernel") {
		t.Errorf("the conversion of a recording of the CPU speaks of kernels: %s", e.stderr)
	}
	lost := lostKernel(t)
	e := infer(t, "trace", "check", lost)
	if e.status != exitFailure || !strings.Contains(e.stdout, "! 1 kernel has no correlation id") || strings.Contains(e.stdout, "can be trusted") || !strings.Contains(e.stdout, "agree to 30 ns") {
		t.Errorf("status %d:\n%s", e.status, e.stdout)
	}
	checkOneLine(t, e.stderr, lost, "would mislead", "1 reason")

	e = infer(t, "trace", "check", "--json", lost)
	var got judge.Trust
	if err := json.Unmarshal([]byte(e.stdout), &got); err != nil || e.status != exitFailure || got.Trusted || got.Counts.WithoutCorrelation != 1 || len(got.Findings) == 0 {
		t.Errorf("status %d, %+v, error %v", e.status, got, err)
	}

	// One of nothing is not to be trusted.
	e = inferWith(t, t.Context(), `{"traceEvents":[]}`, "trace", "check", "-")
	if e.status != exitFailure || !strings.Contains(e.stdout, "! the recording has nothing to make a table of") || strings.Contains(e.stdout, "can be trusted") {
		t.Errorf("status %d:\n%s", e.status, e.stdout)
	}
}

// TestTraceCheckPlan: captures of both modes have the steps of their plan, and each change of the plan is found.
func TestTraceCheckPlan(t *testing.T) {
	const folder = "../../traces/samples/"
	text := string(readFile(t, folder+"plan.json"))
	changed := filepath.Join(t.TempDir(), "plan.json")
	for _, c := range []struct{ capture, tokens, from, to, want string }{
		{"eager", "8", "tag", "tag", ""},
		{"graph", "8", "tag", "tag", ""},
		{"eager", "7", "tag", "tag", `! "decode step" was run 7 times; 7 tokens take 6`},
		{"graph", "8", `"h.0.attn.sdpa"`, `"h.0.attn"`, "! a decode step at position 6 has 8 steps, the plan 8; step 2 is h.0.attn.sdpa in h.0, expected h.0.attn in h.0"},
		{"eager", "8", `"slot": 0`, `"slot": 1`, "! a prefill at position 0 has 8 steps, the plan 8; step 1 is h.0.ln_1+h.0.attn.c_attn in h.0, expected h.0.ln_1+h.0.attn.c_attn in h.0@1"},
		{"eager", "8", `"steps": [`, `"steps": [{"name": "wte"},`, "a decode step at position 6 has 8 steps, the plan 9; step 0 is wte+wpe in no layer, expected wte in h.0"},
	} {
		writeFile(t, changed, strings.ReplaceAll(text, c.from, c.to))
		e := infer(t, "trace", "check", folder+c.capture+".sqlite", "--plan", changed, "--tokens", c.tokens)
		if (e.status == 0) != (c.want == "") || !strings.Contains(e.stdout, c.want) {
			t.Errorf("%+v: status %d:\n%s", c, e.status, e.stdout)
		}
	}
	contains(t, infer(t, "trace", "check", "sample:bad", "--plan", folder+"plan.json").stdout, "! there is no pass in the domain gpt2scope")
	checkFailure(t, infer(t, "trace", "check", "sample:bad", "--plan", "main.go"), exitFailure, "main.go: it has no plans")
	checkFailure(t, infer(t, "trace", "check", "sample:bad", "--tokens", "8"), exitUsage, "add --plan FILE")
}

// TestTraceRecordWithoutCUDA: a command that starts no CUDA runs all the same, its status is passed on, and one sentence
// says what is not there.
func TestTraceRecordWithoutCUDA(t *testing.T) {
	t.Setenv("GPT2SCOPE_CUPTI_RECORDER", os.Args[0]) // which nothing loads
	out := filepath.Join(t.TempDir(), "run.json")
	e := infer(t, "trace", "record", "-o", out, "--", "sh", "-c", "exit 3")
	if _, err := os.Stat(out); e.status != 3 || err == nil || strings.Count(e.stderr, "started CUDA") != 1 {
		t.Errorf("status %d, a file: %v; stderr %q", e.status, err == nil, e.stderr)
	}
}

// TestTraceMisleads: all commands that write a recording's times say so if shares of them would mislead.
func TestTraceMisleads(t *testing.T) {
	lost := lostKernel(t)
	for _, command := range []string{"convert", "pprof", "report"} {
		e := mustInfer(t, "trace", command, lost, "-o", filepath.Join(t.TempDir(), "out"), "--quiet")
		if e.stderr != lost+": shares of time would mislead; 'infer trace check "+lost+"' says why\n" {
			t.Errorf("%s: stderr %q", command, e.stderr)
		}
	}
}

func TestTraceUsage(t *testing.T) {
	for _, c := range []struct{ args, fact string }{
		{"trace", "give a command"},
		{"trace show x --by zebra", "stage, op, python, layer, phase, kernel, range, memory or process"},
		{"trace show x --format zebra", "table, csv or json"},
		{"trace chek x", "infer trace check"},
		{"trace check", "FILE"},
		{"trace check a b", `"b"`},
		{"trace convert a", "--out"},
		{"trace report a", "--out"},
		{"trace report -o x.html", "FILE"},
		{"trace check x --layers 2", "--layers does nothing in 'infer trace check'"},
		{"trace record --live --spool 17179869185GiB -- true", "a whole number of MiB or GiB"},
	} {
		checkFailure(t, infer(t, strings.Fields(c.args)...), exitUsage, c.fact)
	}
	checkFailure(t, infer(t, "trace", "check", "no-such-file"), exitFailure, "no-such-file")
}

// TestTraceEscapes: a name in a recording cannot move the cursor of the terminal, or colour it.
func TestTraceEscapes(t *testing.T) {
	const red = "\x1b[31m\u009b2J"
	h := &traces.Header{Tool: "tool" + red, Recorder: traces.RecorderNsys, Devices: []traces.Device{{Name: "GPU" + red + "\nline"}}, Incomplete: []string{red}, Notes: []string{red}}
	kernel := traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "k"+red, 100, 50)
	path := traceFile(t, h, kernel)
	for _, command := range []string{"show", "check", "kpi", "advise", "diff", "stages"} {
		args := []string{"trace", command, path}
		if command == "diff" {
			args = append(args, path)
		}
		r := infer(t, args...)
		if i := strings.IndexFunc(r.stdout+r.stderr, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }); i >= 0 || !strings.Contains(r.stdout, "GPU") {
			t.Errorf("trace %s writes control characters, or nothing: %q", command, r.stdout+r.stderr)
		}
	}
}

// Each sample is read by the command that is to show what it is good for, and so is what the lessons go on with.
func TestTraceSamples(t *testing.T) {
	t.Chdir(t.TempDir())
	tried, list := map[string]bool{}, mustInfer(t, "trace", "samples").stdout
	try := func(command string) {
		if !tried[command] {
			mustInfer(t, strings.Fields("trace "+command+" --quiet")...)
		}
		tried[command] = true
	}
	for _, s := range embedded.All() {
		if !strings.Contains(list, embedded.Prefix+s.Name+" ") || !strings.Contains(s.Try, embedded.Prefix+s.Name) {
			t.Errorf("the list does not say how to try %s:\n%s", s.Name, list)
		}
		try(s.Try)
	}
	for _, l := range learn.All() {
		if command, ok := strings.CutPrefix(l.GoOn, "infer trace "); ok {
			try(command)
		}
	}
	checkFailure(t, infer(t, "trace", "show", "sample:none"), exitFailure, "sample:none", "infer trace samples")
}
