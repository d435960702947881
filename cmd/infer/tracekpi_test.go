package main

import (
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/traces/judge"
	"gpt2scope/traces/window"
)

const pytorch = "../../traces/samples/pytorch/"

// TestTraceKPI: the table has each indicator of a capture, those before its passes apart, and what would record the
// others; the checklist answers.
func TestTraceKPI(t *testing.T) {
	out := mustInfer(t, "trace", "kpi", pytorch+"bad.sqlite", "--define").stdout
	contains(t, out, "of 7 passes; before it 322.", "ms of loading and warm-up (1 pass)", "HtoD, pageable", "117,447,680", "9.08", "not in this recording:\n", "record with nsys profile --gpu-metrics-devices=all",
		"cudaStreamSynchronize in forward: ", " ms in 147 calls", "Do transfers take longer than computing? YES\n", "Do the threads of warps diverge? UNKNOWN\n", "definitions:\n  kernel time: sum of the durations")
	var report judge.Report
	unmarshal(t, mustInfer(t, "trace", "kpi", pytorch+"bad.sqlite", "--json").stdout, &report)
	if report.Passes != 7 || report.WarmUpPasses != 1 || report.PassesFrom != window.FromRanges || len(report.Checks) != 6 || report.Notes == nil || !strings.Contains(report.Source, "H200") {
		t.Errorf("%+v", report)
	}
	for _, x := range report.Indicators {
		if (x.Value == nil) != (x.RecordWith != "") {
			t.Errorf("%s has the value %v and is recorded with %q", x.Key, x.Value, x.RecordWith)
		}
	}
	checkFailure(t, infer(t, "trace", "kpi", ownTrace(t, false)), exitFailure, "no work of a GPU", "trace show")
}

// TestCounters: counters of another run become columns, indicators, and part of a converted file.
func TestCounters(t *testing.T) {
	capture, counted := pytorch+"steady.sqlite", pytorch+"steady.ncu-details.csv"
	e := mustInfer(t, "trace", "show", capture, "--counters", counted, "--by", "kernel", "--sort", "DRAM %", "--limit", "1")
	contains(t, e.stdout, "achieved %", "warp eff. %", "17.6", "nvjet_sm90_tst_64x32_64x16_2x4_h_bz_splitK_bias_TNT")
	contains(t, e.stderr, "81 of 87 kernels have them, 51 by their place and 30 as the mean")
	contains(t, mustInfer(t, "trace", "show", capture, "--counters", counted, "--by", "stage").stdout, "L2 hit %", "layer 0")
	contains(t, mustInfer(t, "trace", "kpi", capture, "--counters", counted).stdout, "achieved occupancy              %                      12.77", "Do the threads of warps diverge? NO\n")

	converted := filepath.Join(t.TempDir(), "run.json.gz")
	mustInfer(t, "trace", "convert", capture, "--counters", counted, "-o", converted)
	contains(t, mustInfer(t, "trace", "kpi", converted).stdout, "achieved occupancy              %                      12.77")

	broken := filepath.Join(t.TempDir(), "x.csv")
	writeFile(t, broken, "a,b\n")
	checkFailure(t, infer(t, "trace", "show", capture, "--counters", broken), exitFailure, "--counters", "ncu --csv")
	checkFailure(t, infer(t, "trace", "show", capture, "--counters", broken+"x"), exitFailure, "--counters", "no such file")
	checkFailure(t, infer(t, "trace", "show", ownTrace(t, true), "--counters", counted), exitFailure, "none of the 24 kernels")
}

// TestSeveralFiles: the recordings of two ranks are one table and one page.
func TestSeveralFiles(t *testing.T) {
	files := []string{pytorch + "rank0.json.gz", pytorch + "rank1.json.gz"}
	rows := strings.Split(strings.TrimSpace(mustInfer(t, append([]string{"trace", "show", "--by", "process", "--format", "csv"}, files...)...).stdout), "\n")
	if len(rows) != 3 || !strings.HasPrefix(rows[1], "0,4587,0,3,238049280,") || !strings.HasPrefix(rows[2], "1,4588,0,3,0,") {
		t.Errorf("processes:\n%s", strings.Join(rows, "\n"))
	}
	contains(t, mustInfer(t, append([]string{"trace", "show", "--by", "kernel"}, files...)...).stdout, "174 kernels", "rank 0 is process 4587", "clocks: 2 files, aligned by the time of day")
	contains(t, mustInfer(t, "trace", "show", pytorch+"two.sqlite", "--by", "process").stdout, "4735", "4736", "1981.599")
	checkFailure(t, infer(t, "trace", "show", files[0], pytorch+"two.sqlite"), exitFailure, "recordings of one kind")
}
