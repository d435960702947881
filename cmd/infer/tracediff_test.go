package main

import (
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	"gpt2scope/cmd/infer/trace"
)

// TestTraceDiff compares an eager with a graph capture in every format.
func TestTraceDiff(t *testing.T) {
	var got trace.DiffJSON
	if err := json.Unmarshal([]byte(mustInfer(t, "trace", "diff", samples[0], samples[1], "--format", "json").stdout), &got); err != nil {
		t.Fatal(err)
	}
	if got.FileA != samples[0] || len(got.Rows) != 21 || got.Tests != 10 || got.Alpha != 0.05 || !strings.Contains(got.A, "H200") {
		t.Errorf("%+v", got)
	}
	rows, err := csv.NewReader(strings.NewReader(mustInfer(t, "trace", "diff", samples[0], samples[1], "--format", "csv").stdout)).ReadAll()
	if err != nil || len(rows) != len(got.Rows)+1 || rows[0][3] != "verdict" {
		t.Fatalf("%d rows, error %v", len(rows), err)
	}
	for i, r := range got.Rows {
		if c := rows[i+1]; c[1] != r.Phase || c[2] != r.Name || c[3] != string(r.Verdict) || (c[18] != "") != (r.P != nil) {
			t.Errorf("CSV has %q, JSON %+v", c, r)
		}
	}
	out := mustInfer(t, "trace", "diff", samples[0], samples[1]).stdout
	for _, fact := range []string{"! the mode differs: eager in A, CUDA graphs in B", "prefill  whole pass", "too few", "  ~  ", "10 rows tested, 7 changed", "11 rows have too few passes", "shift, 95 %"} {
		if !strings.Contains(out, fact) {
			t.Errorf("the table lacks %q:\n%s", fact, out)
		}
	}
	out = mustInfer(t, "trace", "diff", samples[0], samples[0]).stdout
	if strings.Contains(out, "!") || !strings.Contains(out, "0 changed") {
		t.Errorf("compared with itself:\n%s", out)
	}
	if out := mustInfer(t, "trace", "diff", samples[0], samples[1], "--alpha", "0.001").stdout; !strings.Contains(out, "10 rows tested, 0 changed") || !strings.Contains(out, "shift, 99.9 %") {
		t.Errorf("alpha 0.001:\n%s", out)
	}

	// The largest change first, in the plan's order, by another column; the first rows; by layer.
	before, after := "../../traces/samples/gpt2-L12-graph-stamps.json.gz", "../../traces/samples/gpt2-L12-graph-stamps-after.json.gz"
	stages := func(args ...string) string {
		var d trace.DiffJSON
		if err := json.Unmarshal([]byte(mustInfer(t, append([]string{"trace", "diff", before, after, "--format", "json"}, args...)...).stdout), &d); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, r := range d.Rows {
			if r.Phase == "decode step" {
				names = append(names, r.Name)
			}
		}
		return strings.Join(names, ", ")
	}
	for args, want := range map[string]string{
		"--limit 2":                        "whole pass, idle, sample, h.N.mlp.c_proj+h.N.residual_2",
		"--limit 1":                        "whole pass, idle, sample",
		"--sort plan --limit 2":            "whole pass, idle, wte+wpe, h.N.ln_1+h.N.attn.c_attn",
		"--sort A --limit 2":               "whole pass, idle, sample, h.N.ln_1+h.N.attn.c_attn",
		"--by stage --sort plan --limit 3": "whole pass, idle, wte+wpe, h.0.ln_1+h.0.attn.c_attn, h.0.attn.sdpa",
		"--by layer --sort plan --limit 2": "whole pass, idle, outside the layers, h.0",
		"--by op --limit 1":                "whole pass, idle, Sample",
	} {
		if got := stages(strings.Fields(args)...); got != want {
			t.Errorf("%s: %s, not %s", args, got, want)
		}
	}
	contains(t, mustInfer(t, "trace", "diff", before, after, "--limit", "2").stdout, "\n15 more rows are not shown; --limit 0 shows all\n10 rows tested")
	checkFailure(t, infer(t, "trace", "diff", before, after, "--sort", "zebra"), exitUsage, "--sort zebra", "shift")

	contains(t, mustInfer(t, "trace", "diff", samples[0], kineto).stdout, "B has no pass of a model outside its warm-up, so that there are no stages to compare: the rows are by kernel; --infer finds")
	checkFailure(t, infer(t, "trace", "diff", samples[0], "no-such-file"), exitFailure, "no-such-file")
	for _, c := range []struct{ args, fact string }{
		{"trace diff a", "two traces"},
		{"trace diff a b c", `"c"`},
		{"trace diff a b --alpha 0", "--alpha"},
		{"trace diff a b --alpha NaN", "--alpha"},
		{"trace diff a b --format zebra", "table, csv or json"},
		{"trace diff a b --by launch", "--by launch"},
		{"trace diff a b --limit -1", "--limit -1"},
	} {
		checkFailure(t, infer(t, strings.Fields(c.args)...), exitUsage, c.fact)
	}
	if help := mustInfer(t, "trace", "diff", "--help").stdout; !strings.Contains(help, "Mann-Whitney") || !strings.Contains(help, "Benjamini") || !strings.Contains(help, "the change may lie outside") {
		t.Errorf("the help does not name its statistics:\n%s", help)
	}
}
