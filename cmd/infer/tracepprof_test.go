package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"gpt2scope/traces"
	"gpt2scope/traces/load"
	"gpt2scope/traces/tables"
)

// TestTracePprof: the file is a profile of the wall time, and a failure leaves what
// was there.
func TestTracePprof(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run.pb.gz")
	e := mustInfer(t, "trace", "pprof", samples[0], "-o", out)
	if e.stdout != "" || !strings.Contains(e.stderr, "go tool pprof -http=: "+out) {
		t.Errorf("stdout %q, stderr %q", e.stdout, e.stderr)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.Parse(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	tr, err := load.Load(samples[0])
	if err != nil {
		t.Fatal(err)
	}
	table, err := tables.Summarize(tr, tables.ByStage, -1)
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, s := range p.Sample {
		sum += s.Value[0]
	}
	if sum != table.Wall || sum == 0 {
		t.Errorf("the file sums to %d ns, the wall time is %d", sum, table.Wall)
	}

	checkFailure(t, infer(t, "trace", "pprof", "main.go", "-o", out), exitFailure, "main.go", "not a trace")
	empty := traceFile(t, &traces.Header{Tool: "gpt2scope"})
	checkFailure(t, infer(t, "trace", "pprof", empty, "-o", out), exitFailure, "no work")
	checkFailure(t, infer(t, "trace", "pprof", samples[0], "-o", out, "--gpu", "3"), exitFailure, "no work")
	if after, _ := os.ReadFile(out); !bytes.Equal(data, after) {
		t.Error("a failure changed the file")
	}
	if e := mustInfer(t, "trace", "pprof", lostKernel(t), "-o", out, "--quiet"); !strings.Contains(e.stderr, "would mislead") || strings.Contains(e.stderr, "go tool") {
		t.Errorf("an incomplete recording, quiet: stderr %q", e.stderr)
	}
	checkFailure(t, infer(t, "trace", "pprof", "x"), exitUsage, "--out")
	checkFailure(t, infer(t, "trace", "pprof", "x", "-o", out, "--gpu", "-7"), exitUsage, "--gpu")
	checkFailure(t, infer(t, "trace", "pprof", "a", "b", "-o", out), exitUsage, `"b"`)
}
