package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/load"
	"gpt2scope/traces/tables"
)

// The shipped model is recorded: the table sums, nothing is unknown, the baseline ran,
// and all commands read the file.
func TestProfile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.json.gz")
	r := infer(t, "-p", "ROMEO:", "-n", "40", "-s", "3", "--ignore-eos", "--device", "cpu", "--layers", "2", "--profile", "--trace", file, "--json")
	if r.status != 0 {
		t.Fatalf("status %d: %s", r.status, r.stderr)
	}
	var out result
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil || len(out.IDs) != 40 || out.Timings.DecodeMedian <= 0 {
		t.Fatalf("%v: %s", err, r.stdout)
	}
	contains(t, r.stderr, "recorder host", "trust: ", "1 prefill of 6 tokens, 39 decode steps", "warm-up is left out",
		"recording overhead: recording made a decode step", "h.N.mlp.c_proj+h.N.residual_2", "unaccounted",
		" GB/s  TFLOP/s  roofline %\n")
	for flag, want := range map[string]string{"--profile=stage": "h.1.ln_1+h.1.attn.c_attn\n", "--profile=phase": "  decode step\n"} {
		r := infer(t, "-p", "a", "-n", "4", "-s", "3", "--temp", "0", "--device", "cpu", "--layers", "2", "--no-baseline", flag)
		if r.status != 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %s", flag, r.stderr)
		}
	}
	r = infer(t, "-m", tiny, "--ids", "1", "-n", "4", "--device", "cpu", "--profile=kernel") // found before the text is made
	checkFailure(t, r, exitUsage, "--profile=kernel: a recording of the CPU has no ")
	checkFailure(t, infer(t, "-p", "a", "--profile=stages"), exitUsage, "--profile stages", "folded, stage")
	for _, by := range tables.Bys {
		switch by {
		case tables.ByKernel, tables.ByProcess, tables.ByPython, tables.ByMemory: // of a GPU, of PyTorch
			continue
		}
		if r := infer(t, "trace", "show", file, "--by", string(by)); r.status != 0 {
			t.Errorf("by %s: %s", by, r.stderr)
		}
	}
	for _, args := range [][]string{{"check", file}, {"advise", file}, {"diff", file, file}, {"report", file, "-o", file + ".html"}, {"pprof", file, "-o", file + ".pb.gz"}} {
		r := infer(t, append([]string{"trace"}, args...)...)
		isBusy := args[0] == "check" && strings.Contains(r.stdout, "other programs ran there") // the machine is
		if r.status != 0 && !isBusy {
			t.Errorf("trace %s: status %d: %s", args[0], r.status, r.stderr)
		}
	}
}

// A recording that cannot be is told of in a sentence.
func TestProfileBadInput(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"--profile", "--recorder", "zebra"}, 2, "auto, stamps or cupti"},
		{[]string{"--trace", ""}, 2, "--trace needs"},
		{[]string{"--recorder", "stamps"}, 2, "--profile or --trace"},
		{[]string{"--no-baseline"}, 2, "--profile or --trace"},
		{[]string{"--profile", "--recorder", "stamps", "--device", "cpu"}, 2, "is for a GPU"},
		{[]string{"--profile", "--device", "reference"}, 2, "does not record"},
		{[]string{"--trace", filepath.Join(t.TempDir(), "none", "x.json"), "--device", "cpu"}, 1, "none/x.json: cannot be written: there is no directory /"},
	} {
		checkFailure(t, infer(t, append([]string{"-m", tiny, "-n", "6", "-s", "1"}, c.args...)...), c.status, c.says)
	}
}

// A run that fails leaves no file.
func TestTraceLeavesNoFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.json")
	if r := infer(t, "-m", tiny, "--ids", "999", "--device", "cpu", "--trace", file); r.status != exitUsage {
		t.Errorf("status %d: %s", r.status, r.stderr)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("there is a file")
	}
}

// TestOverheadOfSeveralPrefills: beyond the context a text has several prefills. The overhead
// of recording is that of one of them, the mean, and says of how many.
func TestOverheadOfSeveralPrefills(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.json.gz")
	r := infer(t, "-m", tiny, "--ids", "1,2,3", "-n", "200", "-s", "3", "--ignore-eos", "--device", "cpu", "--threads", "1", "--profile=phase", "--trace", file, "--json")
	var out result
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil || r.status != 0 {
		t.Fatalf("%v: %s", err, r.stderr)
	}
	n := out.Timings.Prefills
	trace := require.Value(load.Load(file))(t)
	i := slices.IndexFunc(trace.Header.Overhead, func(o traces.Overhead) bool { return o.Phase == "prefill" })
	if out.Shifts < 2 || n != 1+out.Shifts || i < 0 {
		t.Fatalf("%d prefills, %d shifts, overhead %+v", n, out.Shifts, trace.Header.Overhead)
	}
	o := trace.Header.Overhead[i]
	if o.Passes != n || math.Abs(o.Recorded*float64(n)-1e6*out.Timings.Prefill) > 1 {
		t.Errorf("the overhead is %+v, of %d prefills that took %g ms together", o, n, out.Timings.Prefill)
	}
	contains(t, r.stderr, fmt.Sprintf("a prefill took %.1f us, ", o.Recorded/1e3))
	if args := (&generateFlags{flags: new(pflag.FlagSet)}).baselineArgs(&out); !slices.Contains(args, "--speculate=off") {
		t.Errorf("the baseline of a run without drafts may have some: %q", args)
	}
}
