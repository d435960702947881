package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"gpt2scope/internal/require"
	"gpt2scope/traces"
)

// TestTraceExports: what a file has, standard output has, and a failure leaves the file that was there.
func TestTraceExports(t *testing.T) {
	for command, says := range map[string]string{"report": "452 events", "pprof": "go tool pprof -http=: ", "convert": "in steps"} {
		out := filepath.Join(t.TempDir(), "out")
		e := mustInfer(t, "trace", command, samples[1], "-o", out)
		data, err := os.ReadFile(out)
		if err != nil || e.stdout != "" || !strings.Contains(e.stderr, says) {
			t.Errorf("%s: stdout %q, stderr %q, error %v", command, e.stdout, e.stderr, err)
		}
		switch command {
		case "report":
			contains(t, string(data), "<!doctype html>", "graph.sqlite", "5771.643", "NVIDIA H200")
			if e := mustInfer(t, "trace", command, samples[1], "-o", "-"); e.stdout != string(data) {
				t.Errorf("standard output has %d bytes, the file %d", len(e.stdout), len(data))
			}
		case "pprof":
			p := require.Value(profile.Parse(bytes.NewReader(data)))(t)
			sum := int64(0)
			for _, s := range p.Sample {
				sum += s.Value[0]
			}
			if sum != 5771643 {
				t.Errorf("the stacks sum to %d ns", sum)
			}
		}
		checkFailure(t, infer(t, "trace", command, "main.go", "-o", out), exitFailure, "main.go", "not a trace")
		if command != "convert" {
			checkFailure(t, infer(t, "trace", command, traceFile(t, &traces.Header{Tool: "gpt2scope"}), "-o", out), exitFailure, "no work")
			checkFailure(t, infer(t, "trace", command, samples[1], "-o", out, "--gpu", "3"), exitFailure, "no work")
		}
		if after, _ := os.ReadFile(out); !bytes.Equal(data, after) {
			t.Errorf("%s: a failure changed the file", command)
		}
		checkFailure(t, infer(t, "trace", command, "x"), exitUsage, "--out")
	}
}
