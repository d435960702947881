package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
	"gpt2scope/layers"
)

// quickLayers are flags with which an experiment takes no time.
var quickLayers = []string{"layers", "--device", "cpu", "--threads", "1", "--repeat", "2", "--passes", "1", "--prompt-len", "16", "--past", "8", "--window", "16", "--no-floor", "--energy-seconds", "0", "--warm-up", "0", "--quiet"}

func withQuick(args ...string) []string { return append(slices.Clone(quickLayers), args...) }

// resultOf reads layers.json of a directory; nothing in it may be unknown.
func resultOf(t *testing.T, dir string) (r layers.Result) {
	t.Helper()
	decode(t, string(readFile(t, filepath.Join(dir, "layers.json"))), &r)
	return r
}

// rowsOf reads layers.csv, by the names of its columns.
func rowsOf(t *testing.T, dir string) (rows []map[string]string) {
	t.Helper()
	f := require.Value(os.Open(filepath.Join(dir, "layers.csv")))(t)
	defer f.Close()
	all := require.Value(csv.NewReader(f).ReadAll())(t)
	for _, line := range all[1:] {
		row := map[string]string{}
		for i, name := range all[0] {
			row[name] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// The shipped model with 1 to 3 layers on the CPU: what is there is what was measured, and
// what is counted is right.
func TestLayers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	args := withQuick("--range", "1-3", "--predict", "5,9", "--verify", "-o", dir)
	out := mustInfer(t, args...).stdout
	for _, part := range []string{"shakespeare, cpu (1 thread), f32", "bits per token", "results are in " + dir, "The model has 6 layers", "energy"} {
		if part != "energy" && !strings.Contains(out, part) {
			t.Errorf("the table has no %q:\n%s", part, out)
		}
	}
	r := resultOf(t, dir)
	if r.Version != 1 || len(r.Variants) != 3 || len(r.Fits) != 2 || len(r.Command) == 0 || r.Configuration["prompt_len"] != 16.0 {
		t.Fatalf("%+v", r)
	}
	lines := 0 // a busy machine may bend them
	for _, f := range r.Fits {
		if f.Rejected == "" {
			lines++
		}
		if trend := f.Trend(); (f.Rejected != "") != strings.HasPrefix(trend, "no line: ") || !strings.Contains(out, trend) {
			t.Errorf("%+v: %q", f, trend)
		}
	}
	if len(r.Predictions) != 2*lines || strings.Contains(out, "b, a layer") != (lines > 0) { // at two depths
		t.Fatalf("%d predictions by %d lines", len(r.Predictions), lines)
	}

	// Each measurement has its row: 2 repeats.
	values, busy := map[string][]float64{}, strings.Contains(out, "other programs ran there") // then recordings are skipped
	for _, row := range rowsOf(t, dir) {
		v, err := strconv.ParseFloat(row["value"], 64)
		if err != nil || row["layers"] != strconv.Itoa(len(strings.Fields(row["order"]))) || row["unit"] == "" {
			t.Errorf("%v", row)
		}
		key := row["kind"] + " " + row["variant"] + " " + row["metric"]
		values[key] = append(values[key], v)
	}
	for _, v := range []string{"depth 1", "depth 2", "depth 3", "verify 5", "verify 9"} {
		for _, m := range []string{"prefill time", "decode time"} {
			if n := len(values[v+" "+m]); n != 2 {
				t.Errorf("%s, %s: %d rows", v, m, n)
			}
		}
	}
	for i, v := range r.Variants {
		n := i + 1
		times, m := values["depth "+v.Label+" decode time"], v.Metrics["decode time"]
		if v.Label != strconv.Itoa(n) || !slices.Equal(v.Order, gpt2.FirstLayers(n)) || m.N != 2 || m.Low != slices.Min(times) || m.High != slices.Max(times) {
			t.Errorf("%v became %+v", times, v)
		}
	}
	for i, f := range r.Fits {
		if f.Phase != []string{"prefill", "decode"}[i] || !slices.Equal(f.Depths, []int{1, 2, 3}) {
			t.Errorf("%+v", f)
		}
	}
	for _, p := range r.Predictions {
		if p.Measured == nil || p.ErrorRate == nil || !(p.Low <= p.Value && p.Value <= p.High) || p.Layers != 5 && p.Layers != 9 {
			t.Errorf("%+v", p)
		}
	}
	for _, name := range []string{"layers.html", "time.svg", "time.png"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}

	// Again, nothing is measured; less is predicted.
	before, _ := os.ReadFile(filepath.Join(dir, "layers.csv"))
	mustInfer(t, withQuick("--range", "1-3", "--predict", "7", "--no-plots", "-o", dir)...)
	after, _ := os.ReadFile(filepath.Join(dir, "layers.csv"))
	if !bytes.Equal(before, after) && !busy { // what was skipped is tried again
		t.Error("what was measured was measured again")
	}
	if r := resultOf(t, dir); len(r.Predictions) != lines || lines > 0 && r.Predictions[0].Measured != nil {
		t.Errorf("%+v", r.Predictions)
	}
	checkFailure(t, infer(t, withQuick("--range", "1-4", "-o", dir)...), exitFailure, "layers.state is of another experiment", `found ["1","2","3"]`)
}

// Parts of an experiment, each with a journal of its own, are put together to what one run gives:
// the same command without --shard finds all done there, and prints the same tables.
func TestLayersShards(t *testing.T) {
	parent := t.TempDir()
	all := filepath.Join(parent, "all")
	args := withQuick("-m", tiny, "--no-plots", "--range", "1-3", "--predict", "4", "--verify", "--repeat", "3")
	merge := []string{"layers", "merge", "--no-plots", "-o", all}
	rows := map[string]int{}
	for _, shard := range []string{"1/3", "2/3", "3/3"} {
		dir := filepath.Join(parent, shard[:1])
		merge = append(merge, dir)
		mustInfer(t, append(args, "--shard", shard, "-o", dir)...)
		for _, row := range rowsOf(t, dir) {
			rows[fmt.Sprint(row["kind"], row["variant"], row["metric"], row["repeat"])]++
		}
	}
	merge = append(merge, merge[len(merge)-3]) // a part that is given twice counts once
	out := mustInfer(t, merge...).stdout
	if merged := rowsOf(t, all); len(merged) != len(rows) || len(rows) < 3*3*3 {
		t.Errorf("%d rows; the parts have %d", len(merged), len(rows))
	}
	for row, n := range rows {
		if n != 1 {
			t.Errorf("%s is in %d parts", row, n)
		}
	}
	before, _ := os.ReadFile(filepath.Join(all, "layers.csv"))
	if whole := mustInfer(t, append(args, "-o", all)...).stdout; whole != out {
		t.Errorf("one run prints\n%s\nthe parts put together\n%s", whole, out)
	}
	if after, _ := os.ReadFile(filepath.Join(all, "layers.csv")); !bytes.Equal(before, after) {
		t.Error("what the parts measured was measured again")
	}
	var r layers.Result
	if err := json.Unmarshal([]byte(mustInfer(t, append(merge, "--force", "--json")...).stdout), &r); err != nil || len(r.Variants) != 3 || len(r.Predicted) != 1 {
		t.Errorf("%v: %+v", err, r)
	}
	checkFailure(t, infer(t, append(args, "--shard", "2/3", "-o", filepath.Join(parent, "1"))...), exitFailure, `expected shard "2/3", found "1/3"`)
	checkFailure(t, infer(t, merge...), exitFailure, "--force")
	checkFailure(t, infer(t, "layers", "merge", filepath.Join(parent, "1"), "-o", filepath.Join(parent, "1"), "--force"), exitUsage, "--out")
	checkFailure(t, infer(t, "layers", "merge", all, "-o", filepath.Join(parent, "x")), exitFailure, "is not a part of an experiment")
}

// A text is predicted as "infer eval" says, and floors come from the ceilings.
func TestLayersText(t *testing.T) {
	text, dir := filepath.Join(t.TempDir(), "text"), t.TempDir()
	writeFile(t, text, strings.Repeat("Now is the winter of our discontent ", 5))
	mustInfer(t, withQuick("--no-plots", "-m", tiny, "--phase", "decode", "--range", "1,2", "--text", text, "-o", dir)...)
	for _, v := range resultOf(t, dir).Variants {
		var eval struct {
			Perplexity float64 `json:"perplexity"`
			Bits       float64 `json:"bits_per_byte"`
		}
		out := mustInfer(t, "eval", "-m", tiny, "--device", "cpu", "--threads", "1", "--layers", v.Label, "--text", text, "--window", "16", "--stride", "8", "--json").stdout
		unmarshal(t, out, &eval)
		if p, b := v.Metrics["perplexity"].Median, v.Metrics["bits per byte"].Median; math.Abs(p-eval.Perplexity) > 1e-6*p || math.Abs(b-eval.Bits) > 1e-6*b {
			t.Errorf("%s layers: %v and %v, not %+v", v.Label, p, b, eval)
		}
		for _, absent := range []string{"prefill time", "host memory", "bits per token"} {
			if _, ok := v.Metrics[absent]; ok {
				t.Errorf("%s was measured", absent)
			}
		}
	}
	if r := resultOf(t, dir); len(r.Fits) != 0 || !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "at least three depths") }) {
		t.Errorf("two depths have the line %+v; %q", r.Fits, r.Notes)
	}
}

// Bad input is told at once, and leaves nothing behind.
func TestLayersBadInput(t *testing.T) {
	parent := t.TempDir()
	dir, short := filepath.Join(parent, "new"), filepath.Join(parent, "short")
	writeFile(t, short, "To be")
	for _, c := range []struct {
		args   string
		status int
		facts  []string
	}{
		{"--range 1-7 -o " + dir, 2, []string{"--range: depth 7", "6 layers", "random:gpt2"}},
		{"--verify -o " + dir, 2, []string{"--verify", "--predict"}},
		{"--drop 6 -o " + dir, 2, []string{"--drop 6", "layers 0 to 5"}},
		{"--layers 3 -o " + dir, 2, []string{"--layers", "--range"}},
		{"--phase train -o " + dir, 2, []string{"--phase train"}},
		{"--prompt-len 2000 -o " + dir, 2, []string{"--prompt-len 2000", "1,024 tokens"}},
		{"--text " + short + " --window 16 -o " + dir, 1, []string{"5 tokens, which is shorter than the window of 16"}},
		{"--text " + parent + "/none -o " + dir, 1, []string{"cannot read", "none"}},
		{"-m " + goldenModel + " --prompt-len 8 --past 4 --window 8 --text " + short + " -o " + dir, 1, []string{"no tokenizer"}},
		{"", 2, []string{"--out DIR"}},
		{"-o " + short, 1, []string{"--out " + short, "it is a file"}},
	} {
		args := withQuick(strings.Split(c.args, " ")...)
		if c.args == "" {
			args = quickLayers
		}
		checkFailure(t, infer(t, args...), c.status, c.facts...)
		if _, err := os.Stat(dir); err == nil {
			t.Fatalf("%s: the directory was made", c.args)
		}
	}
}
