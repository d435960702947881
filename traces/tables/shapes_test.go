package tables

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/samples"
	"gpt2scope/traces/stages"
)

// TestShapesAgreeWithPyTorch compares the table by shape with what PyTorch's profiler itself
// prints of the same run, grouped by the shapes of inputs.
func TestShapesAgreeWithPyTorch(t *testing.T) {
	for _, named := range []bool{false, true} { // ranges make passes, which do not hide operators
		tr := samples.Load(t, "pytorch/kineto.json.gz")
		if named && !stages.OfRanges(tr, nil) {
			t.Fatal("the recording has no ranges")
		}
		table, err := Summarize(tr, ByShape, -1)
		if err != nil {
			t.Fatal(err)
		}
		// PyTorch writes 12.345us, and 1.234ms of longer times.
		as := func(ns int64, like string) string {
			if strings.HasSuffix(like, "ms") {
				return strconv.FormatFloat(float64(ns)/1e6, 'f', 3, 64) + "ms"
			}
			return strconv.FormatFloat(float64(ns)/1e3, 'f', 3, 64) + "us"
		}
		rows := map[string]*OpRow{}
		for i := range table.Ops {
			r := &table.Ops[i]
			rows[r.Name+" "+r.Inputs] = r
		}
		all, compared := samples.CSV(t, "pytorch/kineto.key_averages.csv"), 0
		for _, m := range all {
			inputs := strings.ReplaceAll(m["Input Shapes"], " ", "")
			r := rows[m["Name"]+" "+inputs]
			if r == nil && inputs == "[]" { // without inputs
				r = rows[m["Name"]+" "]
			}
			if r == nil {
				t.Errorf("%s of %s has no row", m["Name"], inputs)
				continue
			}
			// PyTorch takes the time in which the profiler itself worked from an operator around it,
			// and counts its kernels twice.
			if slices.ContainsFunc(tr.Events, func(o traces.Event) bool {
				return o.Kind == traces.KindOverhead && slices.ContainsFunc(tr.Events, func(e traces.Event) bool {
					return e.Kind == traces.KindOp && e.Name == r.Name && e.Inputs == r.Inputs && e.Time < o.End() && o.Time < e.End()
				})
			}) {
				continue
			}
			compared++
			got := []string{fmt.Sprint(r.Calls), as(r.SelfCPU, m["Self CPU"]), as(r.CPU, m["CPU total"]), as(r.SelfGPU, m["Self CUDA"]), as(r.GPU, m["CUDA total"])}
			want := []string{m["# of Calls"], m["Self CPU"], m["CPU total"], m["Self CUDA"], m["CUDA total"]}
			if !slices.Equal(got, want) {
				t.Errorf("%s of %s: calls, CPU and CUDA %v, and PyTorch has %v", m["Name"], inputs, got, want)
			}
		}
		if compared < len(all)-3 || len(all) < 20 {
			t.Errorf("%d of %d rows are compared", compared, len(all))
		}
	}
}
