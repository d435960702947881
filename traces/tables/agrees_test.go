package tables

import (
	"encoding/csv"
	"os"
	"strconv"
	"strings"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/samples"
)

// nsysRows reads what nsys stats says of a capture: numbers by the name of a row,
// summed where rows have the same, and by the name of a column.
func nsysRows(t *testing.T, path, name string) map[string]map[string]int64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil || len(lines) < 2 {
		t.Fatalf("%s: %d lines, error %v", path, len(lines), err)
	}
	rows := map[string]map[string]int64{}
	for _, line := range lines[1:] {
		at := map[string]string{}
		for i, column := range lines[0] {
			at[column] = line[i]
		}
		row := strings.TrimPrefix(at[name], traces.Domain+":")
		if rows[row] == nil {
			rows[row] = map[string]int64{}
		}
		for column, text := range at {
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				rows[row][column] += n
			}
		}
	}
	return rows
}

// TestStagesAgreeWithNsys: of an eager capture, the steps' figures are those that
// nsys stats has for their ranges, to the nanosecond, where both define them.
func TestStagesAgreeWithNsys(t *testing.T) {
	tr := samples.Load(t, "eager.sqlite")
	table, err := Summarize(tr, ByStage, -1)
	if err != nil {
		t.Fatal(err)
	}
	steps := map[string]*Row{} // of all phases
	for _, r := range table.Rows {
		if r.Kind != RowWork {
			continue
		}
		sum := steps[r.Name]
		if sum == nil {
			sum = &Row{}
			steps[r.Name] = sum
		}
		sum.Calls, sum.Kernels, sum.Host, sum.Busy = sum.Calls+r.Calls, sum.Kernels+r.Kernels, sum.Host+r.Host, sum.Busy+r.Busy
	}
	spans := map[string]int64{}
	for _, e := range traces.Project(tr.Header, tr.Events) {
		spans[e.Name] += e.Duration
	}
	projected := nsysRows(t, "../samples/eager.nvtx_gpu_proj_sum.csv", "Range")
	kernels := nsysRows(t, "../samples/eager.nvtx_kern_sum.csv", "NVTX Range")
	if len(steps) != 8 {
		t.Errorf("%d steps", len(steps))
	}
	for name, r := range steps {
		p, k := projected[name], kernels[name]
		if p == nil || k == nil {
			t.Errorf("nsys stats has no range %q", name)
			continue
		}
		for what, v := range map[string][2]int64{
			"calls":          {int64(r.Calls), p["Range Instances"]},
			"kernels":        {int64(r.Kernels), p["Total GPU Ops"]},
			"host ns":        {r.Host, p["Total Range Time (ns)"]},
			"span on GPU ns": {spans[name], p["Total Proj Time (ns)"]},
			"kernels ns":     {r.Busy, k["Total Time (ns)"]},
			"kernels of it":  {int64(r.Kernels), k["Kern Inst"]},
		} {
			if v[0] != v[1] || v[0] == 0 {
				t.Errorf("%s: %s %d, and %d by nsys stats", name, what, v[0], v[1])
			}
		}
	}
}
