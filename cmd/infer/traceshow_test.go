package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	tracecmd "gpt2scope/cmd/infer/trace"
	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/load"
	"gpt2scope/traces/tables"
)

// samples are captures by Nsight Systems of a run on a GPU.
var samples = []string{"../../traces/samples/eager.sqlite", "../../traces/samples/graph.sqlite"}

// TestTraceShow: in every format the rows sum to the wall time.
func TestTraceShow(t *testing.T) {
	var table tables.Table
	unmarshal(t, mustInfer(t, "trace", "show", samples[0], "--by", "kernel", "--format", "json").stdout, &table)
	rows, err := csv.NewReader(strings.NewReader(mustInfer(t, "trace", "show", samples[0], "--by", "kernel", "--format", "csv").stdout)).ReadAll()
	if err != nil || len(rows) != len(table.Rows)+1 || rows[0][8] != "time_ns" || rows[0][9] != "share_percent" {
		t.Fatalf("%d rows, error %v", len(rows), err)
	}
	sums, percent := [2]int64{}, 0.0
	for i, r := range table.Rows {
		ns, _ := strconv.ParseInt(rows[i+1][8], 10, 64)
		p, _ := strconv.ParseFloat(rows[i+1][9], 64)
		sums[0], sums[1], percent = sums[0]+r.Exclusive, sums[1]+ns, percent+p
	}
	if sums[0] != table.Wall || sums[1] != table.Wall || table.Wall == 0 || math.Abs(percent-100) > 0.01 {
		t.Errorf("JSON and CSV sum to %d ns of %d, %g %%", sums, table.Wall, percent)
	}
	contains(t, mustInfer(t, "trace", "show", samples[0], "--by", "kernel").stdout, fmt.Sprintf("%.3f", float64(table.Wall)/1e3), "unaccounted")
	contains(t, mustInfer(t, "trace", "show", samples[0]).stdout, "decode step  h.0.attn.sdpa", "prefill  sample", "idle: launch latency")

	// Incomplete: no shares, and the reason follows the line of trust.
	out := mustInfer(t, "trace", "show", lostKernel(t), "--by", "kernel").stdout
	if _, reasons, _ := strings.Cut(out, "\ntrust: shares mislead, for 1 reason"); !strings.HasPrefix(reasons[strings.Index(reasons, "\n")+1:], "! ") || strings.Contains(out, "100.00") {
		t.Errorf("an incomplete trace:\n%s", out)
	}
	checkFailure(t, infer(t, "trace", "show", kineto, "--by", "stage"), exitFailure, kineto, "no pass")
	checkFailure(t, infer(t, "trace", "show", traceFile(t, &traces.Header{Tool: "gpt2scope"})), exitFailure, "no work")
}

// ownTrace is a recording of ours with costs, ceilings and recording overhead: two decode steps of a layer and what is
// outside of it, on a GPU or by threads.
func ownTrace(t *testing.T, gpu bool) string {
	h := &traces.Header{
		Tool: "gpt2scope", Recorder: traces.RecorderCUPTI, Process: 7, DType: "bf16", Clock: traces.Clock{Domain: "cupti", Uncertainty: 30},
		Devices: []traces.Device{{ID: 0, Name: "NVIDIA\tH200", Compute: "9.0", SMs: 132, WarpsPerSM: 64, BlocksPerSM: 32, RegistersPerSM: 65536, SharedPerSM: 233472}},
		Plans: []traces.Plan{{Phase: "decode step", Batch: 1, Tokens: 1, Past: 5, Steps: []traces.Step{
			{Tag: 0, Name: "wte+wpe", Op: "Embed", Layer: -1, Slot: -1, FLOPs: 384, Bytes: 4600},
			{Tag: 1, Name: "h.0.attn.c_attn", Op: "Linear", FLOPs: 889_000, Bytes: 4_000_000}}}},
		Ceilings: []traces.Ceiling{{Device: 0, Name: "read", Unit: "GB/s", Value: 4000}, {Device: 0, Name: "bf16", Unit: "TFLOP/s", Value: 800},
			{Device: -1, Name: "read", Unit: "GB/s", Value: 4000}, {Device: -1, Name: "bf16", Unit: "TFLOP/s", Value: 800}},
		Overhead: []traces.Overhead{{Phase: "decode step", Baseline: 200_000, Recorded: 204_200, Passes: 64}},
		Energy:   []traces.Energy{{Device: 0, What: "decode", Millijoule: 20, Tokens: 2, Resolution: 1, Source: "total energy counter"}},
	}
	if !gpu {
		h.Recorder = traces.RecorderHost
	}
	var events []traces.Event
	thread, id := traces.Thread(7, 1), uint64(0)
	event := func(kind traces.Kind, lane traces.Lane, tag int32, start, end int64) *traces.Event {
		e := traces.Plain(kind, lane, h.Plans[0].Steps[max(0, tag)].Name, start, end-start)
		e.Plan, e.Step = 0, tag
		events = append(events, e)
		return &events[len(events)-1]
	}
	for i := range int64(2) {
		at := i * 10_000
		id++
		p := event(traces.KindPass, thread, -1, at, at+9_000)
		p.Name, p.ID, p.Value = "decode step", id, 5
		pass := id
		for tag := range int32(2) {
			from := at + 1000 + int64(tag)*3000
			if !gpu {
				event(traces.KindStep, thread, tag, from, from+2000).Parent = pass
				event(traces.KindStep, traces.Thread(7, 2), tag, from, from+1000).Parent = pass
				continue
			}
			id++
			event(traces.KindStep, thread, tag, from, from+900).ID = id
			c := event(traces.KindRuntime, traces.API(7, 1), tag, from+100, from+600)
			c.Name, c.Correlation = "cudaLaunchKernel", id
			k := event(traces.KindKernel, traces.Stream(7, 0, 1, 7), tag, from+700, from+2700)
			k.Name, k.Correlation, k.Registers, k.Grid, k.Block = "gemv\nkernel", id, 64, [3]int32{192, 2, 1}, [3]int32{128, 1, 1}
		}
	}
	traces.Sort(events)
	return traceFile(t, h, events...)
}

// lineOf returns the fields of the line that ends with a name.
func lineOf(t *testing.T, out, name string) []string {
	t.Helper()
	for _, line := range strings.Split(out, "\n") {
		if strings.HasSuffix(line, "  "+name) {
			return strings.Fields(strings.TrimSuffix(line, name))
		}
	}
	t.Fatalf("there is no line of %q in\n%s", name, out)
	return nil
}

// TestTraceShowOwn: what the tables of our own recordings say.
func TestTraceShowOwn(t *testing.T) {
	gpu, cpu := ownTrace(t, true), ownTrace(t, false)
	out := mustInfer(t, "trace", "show", gpu).stdout
	contains(t, out, "NVIDIA H200", "trust: whole; 4 kernels, all attributed to steps", "passes: 2 decode steps\n",
		"recording made a decode step 2.1 % longer: 204.2 us, 200.0 us without recording", "energy: decode 10.0 ± 0.50 mJ per token", "idle: host late", "idle: launch latency")
	// calls, kernels, host, GPU, time, share, median, FLOPs, bytes, GB/s, TFLOP/s, floor, roofline %, launches
	if got, want := strings.Join(lineOf(t, out, "decode step  h.0.attn.c_attn"), " "), "2 2 1.800 4.000 4.000 21.05 2.000 1.78 M 8 M 2000 0.445 2.000 50.0 2"; got != want {
		t.Errorf("the row is\n%s, not\n%s:\n%s", got, want, out)
	}
	out = mustInfer(t, "trace", "show", cpu).stdout
	// calls, events, threads, time, share, median, FLOPs, bytes, GB/s, TFLOP/s, floor, roofline %, imbalance
	if got, want := strings.Join(lineOf(t, out, "decode step  h.0.attn.c_attn"), " "), "2 4 6.000 4.000 21.05 1.500 1.78 M 8 M 2000 0.445 2.000 50.0 1.33"; got != want {
		t.Errorf("the row is\n%s, not\n%s:\n%s", got, want, out)
	}
	if !strings.Contains(out, "idle: synchronisation between threads") || strings.Contains(out, "GPU us") {
		t.Errorf("on the CPU:\n%s", out)
	}

	out = mustInfer(t, "trace", "show", gpu, "--by", "kernel").stdout
	contains(t, out, "the table is of the whole recording, from the first to the last work of the GPU; the others are of the passes\n")
	// count, GPU, time, share, min, median, max, grid, block, warps, registers, shared, occupancy, limit, waves, tail
	if got, want := strings.Join(lineOf(t, out, "gemv kernel"), " "), "4 8.000 8.000 53.33 2.000 2.000 2.000 2.000 0.000 2.000 0.100 192x2 128 4 64 0 50.0 registers 0.36 63.6"; got != want {
		t.Errorf("the row is\n%s, not\n%s:\n%s", got, want, out)
	}

	out = mustInfer(t, "trace", "show", gpu, "--by", "op").stdout
	if got, want := strings.Join(lineOf(t, out, "Linear"), " "), "0.800 4.44 1.800 0.900 4.000 50.00 4.000 2.000 2 2"; got != want {
		t.Errorf("the row is\n%s, not\n%s:\n%s", got, want, out)
	}
	contains(t, out, "Self CPU time total: 18.000 us\nSelf CUDA time total: 8.000 us\n")
	contains(t, mustInfer(t, "trace", "show", kineto, "--by", "op").stdout, "aten::linear", "Self CUDA time total: 4.524 us")

	checkFailure(t, infer(t, "trace", "show", cpu, "--by", "kernel"), exitFailure, "a recording of the CPU has no kernels")
	checkFailure(t, infer(t, "trace", "show", cpu, "--gpu", "0"), exitFailure, "a recording of the CPU has no GPU 0")
	for _, by := range []string{"stage", "kernel", "op"} {
		checkFailure(t, infer(t, "trace", "show", gpu, "--by", by, "--gpu", "3"), exitFailure, "no work of GPU 3", "what worked is GPU 0")
	}
}

// TestSummariesOfSamples: the captures that are committed give the tables that are committed beside them. go test
// ./cmd/infer -run TestSummariesOfSamples -update writes these.
func TestSummariesOfSamples(t *testing.T) {
	const dir = "../../traces/samples/"
	captures, err := filepath.Glob(dir + "*.sqlite")
	more, _ := filepath.Glob(dir + "*.json.gz")
	if captures = append(captures, more...); err != nil || len(captures) < 2 {
		t.Fatal(captures, err)
	}
	for _, capture := range captures {
		tr := require.Value(load.Load(capture))(t)
		for _, by := range tables.Bys {
			if (by == tables.ByRange || by == tables.ByProcess) && filepath.Ext(capture) != ".sqlite" { // one program's are enough
				continue
			}
			if by == tables.ByPython || by == tables.ByMemory { // which none of them has
				continue
			}
			base, _, _ := strings.Cut(filepath.Base(capture), ".")
			var b bytes.Buffer
			must(t, tracecmd.Show(&b, tr, tracecmd.ShowOptions{By: by, Format: "csv", GPU: -1}))
			isStored(t, fmt.Sprintf("%ssummaries/%s.%s.csv", dir, base, by), b.Bytes())
		}
	}
}

// TestFoldedByDefault: without --by the table has one row per stage over all layers, in the text and in CSV; JSON has
// these rows and those of each layer; --by stage has the latter.
func TestFoldedByDefault(t *testing.T) {
	const capture = "../../traces/samples/gpt2-xl-graph-stamps.json.gz"
	show := func(args ...string) string {
		return mustInfer(t, append([]string{"trace", "show", capture}, args...)...).stdout
	}
	text := show()
	contains(t, text, "  layers  calls", "decode step  h.N.ln_1+h.N.attn.c_attn\n", "\nlayers: how many the row sums; ")
	if strings.Contains(text, "h.7.") || text != show("--by", "folded") {
		t.Errorf("the table is not folded:\n%s", text)
	}
	contains(t, show("--by", "stage"), "decode step  h.7.ln_1+h.7.attn.c_attn\n")
	limited := show("--sort", "time", "--limit", "2", "--format", "csv")
	rows, err := csv.NewReader(strings.NewReader(limited)).ReadAll()
	if err != nil || len(rows) != 1+3+3+1 || rows[1][2] != "h.N.ln_2+h.N.mlp.c_fc+h.N.mlp.gelu" || rows[5][2] != "17 more" || rows[0][4] != "layers" || rows[1][4] != "48" {
		t.Errorf("%v\n%s", err, limited)
	}
}

// TestNoStages: a recording without passes of a model has another table, and each command says so. A table that was
// asked for is refused.
func TestNoStages(t *testing.T) {
	const cpu = "../../traces/testdata/kineto-cpu.json.gz"
	for file, by := range map[string]string{cpu: "op", kineto: "kernel"} {
		says := "the recording has no pass of a model, so it has no stages: the table is by " + by
		if by == "kernel" {
			says += "; --infer looks for the stages of a transformer"
		}
		head, rows, _ := strings.Cut(mustInfer(t, "trace", "show", file).stdout, "\n\n")
		if _, want, _ := strings.Cut(mustInfer(t, "trace", "show", file, "--by", by).stdout, "\n\n"); rows != want || !strings.Contains(head, "\n"+says+"\n") {
			t.Errorf("%s\n%s, not\n%s", head, rows, want)
		}
		contains(t, mustInfer(t, "trace", "advise", file).stdout, says)
		contains(t, mustInfer(t, "trace", "pprof", file, "-o", t.TempDir()+"/run.pb.gz").stderr, says+"\n")
		contains(t, mustInfer(t, "trace", "report", file, "-o", "-").stdout, strings.TrimPrefix(says, "the")) // a sentence of its own
		for _, asked := range []string{"stage", "folded"} {
			checkFailure(t, infer(t, "trace", "show", file, "--by", asked), exitFailure, "by "+by+" can be made")
		}
	}
	contains(t, mustInfer(t, "trace", "advise", cpu).stdout, "'infer trace show --by op' has the time of its operations")
}

// TestStandardInput: - is standard input for each command that reads a recording.
func TestStandardInput(t *testing.T) {
	for _, file := range []string{"../../traces/samples/eager.sqlite", "../../traces/samples/gpt2-L1-graph-cupti.json.gz"} {
		content := readFile(t, file)
		for _, command := range []string{"check", "advise", "show --by kernel --limit 3"} {
			words := strings.Fields(command)
			args := append([]string{"trace", words[0], "-"}, words[1:]...)
			got := inferWith(t, t.Context(), string(content), args...)
			args[2] = file
			if want := infer(t, args...); got != want {
				t.Errorf("%s: %+v, not %+v", command, got, want)
			}
		}
		for _, args := range [][]string{{"diff", "-", file}, {"diff", file, "-"}} {
			if e := inferWith(t, t.Context(), string(content), append([]string{"trace"}, args...)...); e.status != exitOK {
				t.Errorf("%q: %s", args, e.stderr)
			}
		}
	}
	checkFailure(t, inferWith(t, t.Context(), "", "trace", "show", "-"), exitFailure, "standard input is empty")
	checkFailure(t, infer(t, "trace", "diff", "-", "-"), exitUsage, "standard input", "not both")
}

// A column that is not there is answered with those that are, by the headings above them; each of them is taken.
func TestSortNames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.json.gz")
	mustInfer(t, "-m", tiny, "--device", "cpu", "-t", "1", "-p", "ab", "-n", "3", "--no-baseline", "--trace", file)
	for _, by := range []string{"stage", "layer", "op", "phase"} {
		e := infer(t, "trace", "show", file, "--by", by, "--sort", "loudness")
		_, list, ok := strings.Cut(strings.TrimSpace(e.stderr), "it must be one of ")
		if e.status != exitUsage || !ok {
			t.Fatalf("--by %s: exit %d: %s", by, e.status, e.stderr)
		}
		out := strings.ToLower(mustInfer(t, "trace", "show", file, "--by", by).stdout)
		for name := range strings.SplitSeq(list, ", ") {
			mustInfer(t, "trace", "show", file, "--by", by, "--sort", name)
			if name != "name" && !strings.Contains(out, name) {
				t.Errorf("--by %s: --sort offers %q, and the table has no such heading", by, name)
			}
		}
		if by == "stage" {
			contains(t, list, "events", "all threads", "% of wall", "gb/s")
		}
	}
	if e := infer(t, "trace", "show", file, "--format", "csv", "--sort", "loudness"); !strings.Contains(e.stderr, "kernels, host, busy, time, share") {
		t.Errorf("CSV has keys: %s", e.stderr)
	}
}
