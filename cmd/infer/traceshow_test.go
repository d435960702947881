package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"gpt2scope/traces"
)

// samples are captures by Nsight Systems of a run on a GPU.
var samples = []string{"../../traces/samples/eager.sqlite", "../../traces/samples/graph.sqlite"}

// TestTraceShow: in every format the rows sum to the wall time.
func TestTraceShow(t *testing.T) {
	for _, sample := range samples {
		for _, by := range []string{"stage", "kernel"} {
			var table struct {
				Source string
				Wall   int64
				Rows   []struct {
					Kind, Name string
					Exclusive  int64
				}
			}
			if err := json.Unmarshal([]byte(mustInfer(t, "trace", "show", sample, "--by", by, "--format", "json").stdout), &table); err != nil {
				t.Fatal(err)
			}
			sum := int64(0)
			for _, r := range table.Rows {
				sum += r.Exclusive
			}
			if sum != table.Wall || sum == 0 || !strings.Contains(table.Source, "NVIDIA H200") {
				t.Errorf("%s by %s: the rows sum to %d of %d; source %q", sample, by, sum, table.Wall, table.Source)
			}

			rows, err := csv.NewReader(strings.NewReader(mustInfer(t, "trace", "show", sample, "--by", by, "--format", "csv").stdout)).ReadAll()
			if err != nil || len(rows) != len(table.Rows)+1 || rows[0][8] != "time_ns" || rows[0][9] != "share_percent" {
				t.Fatalf("%d rows, error %v", len(rows), err)
			}
			sum = 0
			percent := 0.0
			for _, r := range rows[1:] {
				ns, _ := strconv.ParseInt(r[8], 10, 64)
				p, _ := strconv.ParseFloat(r[9], 64)
				sum, percent = sum+ns, percent+p
			}
			if sum != table.Wall || math.Abs(percent-100) > 0.01 {
				t.Errorf("%s by %s: the CSV sums to %d ns of %d, %g %%", sample, by, sum, table.Wall, percent)
			}

			wall := fmt.Sprintf("%.3f", float64(table.Wall)/1e3)
			for _, top := range []string{"0", "1", "3"} {
				out := mustInfer(t, "trace", "show", sample, "--by", by, "--top", top).stdout
				last := strings.Fields(strings.TrimSpace(out[strings.LastIndex(strings.TrimSpace(out), "\n"):]))
				if strings.Join(last, " ") != wall+" 100.00 wall time" {
					t.Errorf("%s by %s, top %s ends with %q, not %s", sample, by, top, last, wall)
				}
				if strings.Contains(out, " more\n") != (top != "0") {
					t.Errorf("%s by %s, top %s:\n%s", sample, by, top, out)
				}
			}
		}
	}
	out := mustInfer(t, "trace", "show", samples[0]).stdout
	for _, fact := range []string{"decode step  h.0.attn.sdpa", "prefill  sample", "idle: launch latency", "residual"} {
		if !strings.Contains(out, fact) {
			t.Errorf("the table lacks %q:\n%s", fact, out)
		}
	}

	// Incomplete: no shares.
	out = mustInfer(t, "trace", "show", lostKernel(t), "--by", "kernel").stdout
	if !strings.Contains(out, "shares are withheld") || strings.Contains(out, "100.00") {
		t.Errorf("shares of an incomplete trace:\n%s", out)
	}
	checkFailure(t, infer(t, "trace", "show", kineto), exitFailure, kineto, "no pass")
	empty := traceFile(t, &traces.Header{Tool: "gpt2scope"})
	checkFailure(t, infer(t, "trace", "show", empty), exitFailure, "no work")
}
