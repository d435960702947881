package main

import (
	"encoding/csv"
	"strings"
	"testing"

	"gpt2scope/traces/diff"
)

// TestTraceDiff compares an eager with a graph capture in every format.
func TestTraceDiff(t *testing.T) {
	var got diff.Comparison
	unmarshal(t, mustInfer(t, "trace", "diff", samples[0], samples[1], "--format", "json").stdout, &got)
	if got.FileA != samples[0] || len(got.Rows) != 21 || got.Tests != 10 || got.Alpha != 0.05 || !strings.Contains(got.A, "H200") {
		t.Errorf("%+v", got)
	}
	rows, err := csv.NewReader(strings.NewReader(mustInfer(t, "trace", "diff", samples[0], samples[1], "--format", "csv").stdout)).ReadAll()
	if err != nil || len(rows) != len(got.Rows)+1 || rows[0][3] != "verdict" {
		t.Fatalf("%d rows, error %v", len(rows), err)
	}
	for i, r := range got.Rows {
		if c := rows[i+1]; c[1] != r.Phase || c[2] != r.Name || c[3] != string(r.Verdict) || (c[14] != "") != (r.P != nil) {
			t.Errorf("CSV has %q, JSON %+v", c, r)
		}
	}
	out := mustInfer(t, "trace", "diff", samples[0], samples[1]).stdout
	contains(t, out, "! work comes by: single launches in A, CUDA graphs in B", "prefill  whole pass", "too few", "  ~  ", "10 rows tested, 7 changed", "11 rows have too few passes")
	out = mustInfer(t, "trace", "diff", samples[0], samples[0]).stdout
	if strings.Contains(out, "!") || !strings.Contains(out, "0 changed") {
		t.Errorf("compared with itself:\n%s", out)
	}
	if out := mustInfer(t, "trace", "diff", samples[0], samples[1], "--alpha", "0.001").stdout; !strings.Contains(out, "10 rows tested, 0 changed") {
		t.Errorf("alpha 0.001:\n%s", out)
	}

	before, after := "../../traces/samples/gpt2-L12-graph-stamps.json.gz", "../../traces/samples/gpt2-L12-graph-stamps-after.json.gz"
	contains(t, mustInfer(t, "trace", "diff", before, after, "--gate", "5%", "--format", "markdown").stdout, "! build: A and B both say (devel)", "| --: |", "decode step  sample |")
	for _, c := range []struct {
		gate   string
		status int
		fact   string
	}{
		{"5%", exitGate, "3 rows take longer by more than 5 %: decode step whole pass +33.8 %, decode step sample +589.5 %, decode step wte+wpe +33.3 %"},
		{"100", exitGate, "1 row takes longer by more than 100 %: decode step sample"},
		{"1000", exitOK, ""},
		{"-1", exitUsage, "--gate"},
	} {
		r := infer(t, "trace", "diff", after, before, "--gate", c.gate)
		if r.status != c.status || !strings.Contains(r.stderr, c.fact) {
			t.Errorf("--gate %s: status %d: %s", c.gate, r.status, r.stderr)
		}
	}
	if r := infer(t, "trace", "diff", "sample:bad", "sample:steady", "--gate", "5%"); r.status != exitFailure || !strings.Contains(r.stderr, "enough passes") {
		t.Errorf("too few passes: status %d: %s", r.status, r.stderr)
	}

	contains(t, mustInfer(t, "trace", "diff", samples[0], kineto).stdout, "B has no pass of a model outside its warm-up, so that there are no stages to compare: the rows are by kernel; --infer finds",
		"n: kernels and copies\n", "hold for the kernels and copies of these two runs")
	checkFailure(t, infer(t, "trace", "diff", samples[0], "no-such-file"), exitFailure, "no-such-file")
	for _, c := range []struct{ args, fact string }{
		{"trace diff a", "two traces"},
		{"trace diff a b --alpha 0", "--alpha"},
		{"trace diff a b --format zebra", "table, csv, json or markdown"},
		{"trace diff a b --by phase", "--by phase"},
	} {
		checkFailure(t, infer(t, strings.Fields(c.args)...), exitUsage, c.fact)
	}
}
