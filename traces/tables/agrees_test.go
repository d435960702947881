package tables

import (
	"strconv"
	"strings"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/internal/samples"
)

// TestStagesAgreeWithNsys: of an eager capture, the steps' figures are those that
// nsys stats has for their ranges, to the nanosecond, where both define them.
func TestStagesAgreeWithNsys(t *testing.T) {
	tr := samples.Load(t, "eager.sqlite")
	table := fixtures.Must(Summarize(tr, ByStage, -1))(t)
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
	// nsys sums the numbers of its rows by the name of a range, and by the name of a column.
	nsys := func(report, name string) map[string]map[string]int64 {
		rows := map[string]map[string]int64{}
		for _, at := range samples.CSV(t, "eager."+report+".csv") {
			row := strings.TrimPrefix(at[name], traces.Domain+":")
			if rows[row] == nil {
				rows[row] = map[string]int64{}
			}
			for column, text := range at {
				n, _ := strconv.ParseInt(text, 10, 64) // others are texts
				rows[row][column] += n
			}
		}
		return rows
	}
	projected, kernels := nsys("nvtx_gpu_proj_sum", "Range"), nsys("nvtx_kern_sum", "NVTX Range")
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
