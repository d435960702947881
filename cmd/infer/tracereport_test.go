package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTraceReport(t *testing.T) {
	const in = "../../traces/samples/graph.sqlite"
	out := filepath.Join(t.TempDir(), "run.html")
	e := mustInfer(t, "trace", "report", in, "-o", out)
	if e.stdout != "" || !strings.Contains(e.stderr, "452 events") {
		t.Errorf("stdout %q, stderr %q", e.stdout, e.stderr)
	}
	page, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, fact := range []string{"<!doctype html>", "graph.sqlite", "5771.643", "NVIDIA H200"} {
		if !strings.Contains(string(page), fact) {
			t.Errorf("the page does not have %q", fact)
		}
	}
	if e := mustInfer(t, "trace", "report", in, "-o", "-", "--quiet"); e.stdout != string(page) || e.stderr != "" {
		t.Errorf("standard output has %d bytes, the file %d; stderr %q", len(e.stdout), len(page), e.stderr)
	}
}
