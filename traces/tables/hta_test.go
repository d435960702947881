package tables

import (
	"slices"
	"strconv"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/internal/samples"
	"gpt2scope/traces/window"
)

// htaFigures reads what Holistic Trace Analysis says of recordings: values by recording, and by
// analysis and item.
func htaFigures(t *testing.T) map[string]map[[2]string]string {
	t.Helper()
	figures := map[string]map[[2]string]string{}
	for _, row := range samples.CSV(t, "pytorch/hta.csv") {
		name := row["recording"]
		if figures[name] == nil {
			figures[name] = map[[2]string]string{}
		}
		figures[name][[2]string{row["analysis"], row["item"]}] = row["value"]
	}
	return figures
}

// TestAgreesWithHTA compares what HTA and these tables define alike: how long the GPU computes,
// copies and idles from its first work to its last; which gaps the host causes; the launches that HTA knows.
func TestAgreesWithHTA(t *testing.T) {
	all := htaFigures(t)
	if len(all) < 6 {
		t.Fatalf("%d recordings", len(all))
	}
	for name, want := range all {
		folder := "pytorch/"
		if !slices.Contains(samples.Glob(t, "pytorch/*.json.gz"), folder+name) {
			folder = "stages/"
		}
		tr := samples.Load(t, folder+name)
		// HTA adds begins in floating point, whose last digit is a ns.
		near := func(analysis, item string, got, tolerance int64) {
			t.Helper()
			v, err := strconv.ParseInt(want[[2]string{analysis, item}], 10, 64)
			if err != nil || got < v-tolerance || got > v+tolerance {
				t.Errorf("%s: %s, %s is %d, and HTA has %q", name, analysis, item, got, want[[2]string{analysis, item}])
			}
		}

		table := fixtures.Must(Summarize(tr, ByKernel, -1))(t)
		var kernels []window.Interval
		for _, e := range table.Window.Work {
			if e.Kind == traces.KindKernel {
				kernels = append(kernels, window.Interval{From: e.Time, To: e.End()})
			}
		}
		work := int64(len(table.Window.Work))
		idle, host := int64(0), int64(0)
		for _, g := range table.Gaps {
			idle += g.Length()
			for _, c := range g.Causes {
				if c.Name == IdleHost || c.Name == IdleSync || c.Name == IdleCopy {
					host += g.Length() // the call came after the work before it had ended: HTA's "host_wait"
					break
				}
			}
		}
		computing := window.Length(window.Union(kernels))
		near("temporal", "kernel_time", table.Wall, 1)
		near("temporal", "compute_time", computing, work)
		near("temporal", "idle_time", idle, work)
		near("temporal", "non_compute_time", table.Wall-computing-idle, work)
		near("idle", "host_wait", host, work+5) // which HTA rounds to 10 ns

		// HTA pairs these calls alone: not cuLaunchKernelEx of cuBLAS and Triton, and no graph.
		known := map[string]bool{"cudaLaunchKernel": true, "cudaLaunchKernelExC": true, "cudaMemcpyAsync": true, "cudaMemsetAsync": true}
		found, _ := table.Window.Launches(table.Time)
		count, api, busy, delay := int64(0), int64(0), int64(0), int64(0)
		for _, l := range found {
			if known[l.Call.Name] {
				count, api, busy, delay = count+1, api+l.Call.Duration, busy+l.Busy, delay+l.Delay()
			}
		}
		near("launches", "count", count, 0)
		near("launches", "cpu_duration", api, 0)
		near("launches", "gpu_duration", busy, 0)
		near("launches", "launch_delay", delay, count)
	}
}
