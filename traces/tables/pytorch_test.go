package tables

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/internal/samples"
	"gpt2scope/traces/stages"
)

// TestOpsAgreeWithPyTorch compares the table by operation with what PyTorch's profiler itself
// prints of the same run, summed over the shapes of inputs.
func TestOpsAgreeWithPyTorch(t *testing.T) {
	for _, named := range []bool{false, true} { // ranges make passes, which do not hide operators
		tr := samples.Load(t, "pytorch/kineto.json.gz")
		if named && !stages.OfRanges(tr, nil) {
			t.Fatal("the recording has no ranges")
		}
		table := fixtures.Must(Summarize(tr, ByOp, -1))(t)
		type sums struct { // in ns; slack is what rounding makes of times
			calls        float64
			times, slack [4]float64
		}
		theirs := map[string]*sums{}
		for _, m := range samples.CSV(t, "pytorch/kineto.key_averages.csv") {
			s := theirs[m["Name"]]
			if s == nil {
				s = new(sums)
				theirs[m["Name"]] = s
			}
			calls, _ := strconv.ParseFloat(m["# of Calls"], 64)
			s.calls += calls
			for i, column := range []string{"Self CPU", "CPU total", "Self CUDA", "CUDA total"} {
				number, unit := strings.TrimSuffix(m[column], "us"), 1e3
				if ms, ok := strings.CutSuffix(m[column], "ms"); ok {
					number, unit = ms, 1e6
				}
				v := fixtures.Must(strconv.ParseFloat(number, 64))(t)
				s.times[i] += v * unit
				s.slack[i] += 0.0006 * unit
			}
		}
		compared := 0
		for name, s := range theirs {
			i := slices.IndexFunc(table.Ops, func(r OpRow) bool { return r.Name == name })
			if i < 0 {
				t.Errorf("%s has no row", name)
				continue
			}
			// PyTorch takes the time in which the profiler itself worked from an operator around it,
			// and counts its kernels twice.
			if slices.ContainsFunc(tr.Events, func(o traces.Event) bool {
				return o.Kind == traces.KindOverhead && slices.ContainsFunc(tr.Events, func(e traces.Event) bool {
					return e.Kind == traces.KindOp && e.Name == name && e.Time < o.End() && o.Time < e.End()
				})
			}) {
				continue
			}
			compared++
			r := table.Ops[i]
			// An operator in one of its name, but with inputs of other shapes, counts twice there.
			inItself := slices.ContainsFunc(tr.Events, func(e traces.Event) bool {
				parent := table.Window.Parent(&e)
				return e.Kind == traces.KindOp && e.Name == name && parent != nil && parent.Name == name
			})
			for i, ns := range []int64{r.SelfCPU, r.CPU, r.SelfGPU, r.GPU} {
				if total := i == 1 || i == 3; total && inItself {
					continue
				}
				if math.Abs(float64(ns)-s.times[i]) > s.slack[i] || float64(r.Calls) != s.calls {
					t.Errorf("%s: %+v, and PyTorch has %v", name, r, *s)
				}
			}
		}
		if compared < len(theirs)-3 || len(theirs) < 15 {
			t.Errorf("%d of %d operations are compared", compared, len(theirs))
		}
	}
}
