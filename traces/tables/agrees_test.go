package tables

import (
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/internal/samples"
	"gpt2scope/traces/stages"
	"gpt2scope/traces/window"
)

// TestStagesAgreeWithNsys: of an eager capture, the kernels of the steps are those that nsys stats has for their ranges.
func TestStagesAgreeWithNsys(t *testing.T) {
	got, want := map[string][2]int64{}, map[string][2]int64{}
	for _, r := range require.Value(Summarize(samples.Load(t, "eager.sqlite"), ByStage, -1))(t).Rows {
		if r.Kind == RowWork {
			got[r.Name] = [2]int64{got[r.Name][0] + int64(r.Kernels), got[r.Name][1] + r.Busy}
		}
	}
	for _, row := range samples.CSV(t, "eager.nvtx_kern_sum.csv") {
		name := strings.TrimPrefix(row["NVTX Range"], traces.Domain+":")
		if _, ok := got[name]; ok {
			n, ns := require.Value(strconv.ParseInt(row["Kern Inst"], 10, 64))(t), require.Value(strconv.ParseInt(row["Total Time (ns)"], 10, 64))(t)
			want[name] = [2]int64{want[name][0] + n, want[name][1] + ns}
		}
	}
	if !maps.Equal(got, want) || len(got) != 8 {
		t.Errorf("kernels and their ns are %v, and %v by nsys stats", got, want)
	}
}

// spreadText writes a spread as nsys does, which rounds a number that is exactly in the middle up.
func spreadText(s Spread) string {
	tenth := func(v float64) float64 {
		if 4*v == math.Trunc(4*v) {
			return math.Floor(v*10+0.5) / 10
		}
		return v
	}
	return fmt.Sprintf("mean %.1f, median %d, from %d to %d, deviation %.1f", tenth(s.Mean), s.Median, s.Min, s.Max, tenth(s.StdDev))
}

func nsysSpread(m map[string]string, prefix string) string {
	median, err := strconv.ParseFloat(m[prefix+"Med (ns)"], 64)
	if err != nil {
		return "no median in " + prefix
	}
	deviation := m[prefix+"StdDev (ns)"]
	if deviation == "" { // of a single value
		deviation = "0.0"
	}
	return fmt.Sprintf("mean %s, median %.0f, from %s to %s, deviation %s", m[prefix+"Avg (ns)"], math.Floor(median), m[prefix+"Min (ns)"], m[prefix+"Max (ns)"], deviation)
}

// operations are the names that nsys has for copies and sets.
var operations = []struct{ part, name string }{{"HtoD", "[CUDA memcpy Host-to-Device]"}, {"DtoH", "[CUDA memcpy Device-to-Host]"}, {"DtoD", "[CUDA memcpy Device-to-Device]"}, {"Memset", "[CUDA memset]"}}

// nsysReports say for each report of nsys stats what a recording has in its place: a line for each
// row, made of the recording and of the row.
var nsysReports = map[string]struct {
	ours   func(*testing.T, *traces.Trace) []string
	theirs func(map[string]string) string
}{
	"cuda_gpu_kern_sum": {
		func(t *testing.T, tr *traces.Trace) []string {
			table := require.Value(Summarize(tr, ByKernel, -1))(t)
			var lines []string
			for _, r := range byName(table) { // nsys does not tell launch shapes apart
				if r.Kind == RowWork {
					lines = append(lines, fmt.Sprintf("%s: %d ns in %d, %s", start(r.Name), r.Busy, r.Kernels, spreadText(r.Spread)))
				}
			}
			return lines
		},
		func(m map[string]string) string {
			return fmt.Sprintf("%s: %s ns in %s, %s", start(m["Name"]), m["Total Time (ns)"], m["Instances"], nsysSpread(m, ""))
		}},
	"cuda_api_sum": {
		func(t *testing.T, tr *traces.Trace) []string {
			return sums(tr, func(e *traces.Event) string {
				if e.Kind.IsCall() {
					return e.Name
				}
				return ""
			})
		},
		func(m map[string]string) string {
			return fmt.Sprintf("%s: %s ns in %s, %s", traces.CallName(m["Name"]), m["Total Time (ns)"], m["Num Calls"], nsysSpread(m, ""))
		}},
	"cuda_gpu_mem_time_sum": {
		func(t *testing.T, tr *traces.Trace) []string { return sums(tr, operation) },
		func(m map[string]string) string {
			return fmt.Sprintf("%s: %s ns in %s, %s", m["Operation"], m["Total Time (ns)"], m["Count"], nsysSpread(m, ""))
		}},
	"cuda_gpu_mem_size_sum": {
		func(t *testing.T, tr *traces.Trace) []string {
			bytes, count := map[string]int64{}, map[string]int{}
			for i := range tr.Events {
				if name := operation(&tr.Events[i]); name != "" {
					bytes[name] += tr.Events[i].Bytes
					count[name]++
				}
			}
			var lines []string
			for name, n := range count {
				lines = append(lines, fmt.Sprintf("%s: %.3f MB in %d", name, float64(bytes[name])/1e6, n))
			}
			return lines
		},
		func(m map[string]string) string {
			return fmt.Sprintf("%s: %s MB in %s", m["Operation"], m["Total (MB)"], m["Count"])
		}},
	"nvtx_sum": {
		func(t *testing.T, tr *traces.Trace) []string {
			return sums(tr, func(e *traces.Event) string {
				if e.Kind.IsRange() && e.Lane.Kind == traces.LaneThread {
					return nsysRange(tr, e)
				}
				return ""
			})
		},
		func(m map[string]string) string {
			return fmt.Sprintf("%s: %s ns in %s, %s", m["Range"], m["Total Time (ns)"], m["Instances"], nsysSpread(m, ""))
		}},
	"nvtx_gpu_proj_sum": {
		func(t *testing.T, tr *traces.Trace) []string {
			table := require.Value(Summarize(tr, ByRange, -1))(t)
			var lines []string
			for _, r := range table.Ranges {
				if r.Projected > 0 {
					lines = append(lines, fmt.Sprintf("%s: %d ns in %d, %s; %d", strings.TrimPrefix(r.Name, ":"), r.GPU, r.Projected, spreadText(r.Spans), r.Work))
				}
			}
			return lines
		},
		func(m map[string]string) string {
			return fmt.Sprintf("%s: %s ns in %s, %s; %s", strings.TrimPrefix(m["Range"], ":"), m["Total Proj Time (ns)"], m["Range Instances"], nsysSpread(m, "Proj "), m["Total GPU Ops"])
		}},
	"cuda_kern_exec_sum": {
		func(t *testing.T, tr *traces.Trace) []string {
			table := require.Value(Summarize(tr, ByKernel, -1))(t)
			return queued(byName(table))
		},
		nil, // several rows have one name: see TestAgreesWithNsys
	},
}

// queued has a line for each kernel that was launched: its queueing delays in microseconds.
func queued(rows []Row) []string {
	var lines []string
	for _, r := range rows {
		if r.Kind == RowWork && r.Queued > 0 {
			lines = append(lines, fmt.Sprintf("%s: %.0f us", r.Name, float64(r.Queued)/1e3))
		}
	}
	return lines
}

// start is the start of a name: a table of nsys that is not CSV cuts long ones.
func start(name string) string { return name[:min(len(name), 90)] }

// operation is nsys' name of a copy or set, "" for other events.
func operation(e *traces.Event) string {
	for _, o := range operations {
		if (e.Kind == traces.KindMemcpy || e.Kind == traces.KindMemset) && strings.Contains(e.Name, o.part) {
			return o.name
		}
	}
	return ""
}

// nsysRange is nsys' name of a range: with its domain, and a pass of this program by its kind.
func nsysRange(tr *traces.Trace, e *traces.Event) string {
	if e.Kind == traces.KindPass {
		return traces.Domain + ":" + tr.Header.Plans[e.Plan].Phase
	}
	return e.Domain + ":" + e.Name
}

// sums has a line for each name of events: the sum, the number and the spread of their durations.
func sums(tr *traces.Trace, name func(*traces.Event) string) []string {
	times := map[string][]int64{}
	for i := range tr.Events {
		if n := name(&tr.Events[i]); n != "" {
			times[n] = append(times[n], tr.Events[i].Duration)
		}
	}
	var lines []string
	for n, list := range times {
		sum := int64(0)
		for _, v := range list {
			sum += v
		}
		lines = append(lines, fmt.Sprintf("%s: %d ns in %d, %s", n, sum, len(list), spreadText(spreadOf(list))))
	}
	return lines
}

// TestAgreesWithNsys compares every table of nsys stats that is stored beside a capture with what
// the capture has here, to the nanosecond: each row, and no others.
func TestAgreesWithNsys(t *testing.T) {
	elsewhere := map[string]string{"nvtx_kern_sum": "TestStagesAgreeWithNsys", "key_averages": "TestOpsAgreeWithPyTorch", "ncu-details": "TestPagesAgree", "ncu-raw": "TestPagesAgree", "hta": "TestAgreesWithHTA"}
	captures, compared := map[string]*traces.Trace{}, 0
	for _, name := range append(samples.Glob(t, "*.csv"), samples.Glob(t, "pytorch/*.csv")...) {
		base, report, ok := strings.Cut(strings.TrimSuffix(path.Base(name), ".csv"), ".")
		if !ok {
			report = base
		}
		r, ok := nsysReports[report]
		if !ok {
			if elsewhere[report] == "" {
				t.Errorf("no test compares %s", name)
			}
			continue
		}
		capture := path.Join(path.Dir(name), base+".sqlite")
		if captures[capture] == nil {
			captures[capture] = samples.Load(t, capture)
		}
		got := r.ours(t, captures[capture])
		var want []string
		delays := map[string]float64{}
		for _, m := range samples.CSV(t, name) {
			if r.theirs != nil {
				want = append(want, r.theirs(m))
				continue
			}
			mean, _ := strconv.ParseFloat(m["QAvg (ns)"], 64)
			n, _ := strconv.ParseFloat(m["QCount"], 64)
			delays[m["Kernel Name"]] += n * mean
		}
		for kernel, ns := range delays {
			if ns > 0 {
				want = append(want, fmt.Sprintf("%s: %.0f us", kernel, ns/1e3))
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			only := func(a, b []string) string {
				return strings.Join(slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) }), "\n  ")
			}
			t.Errorf("%s: only here\n  %s\nonly in nsys stats\n  %s", name, only(got, want), only(want, got))
		}
		compared++
	}
	if compared < 25 {
		t.Errorf("%d tables are compared", compared)
	}
}

// TestOpsAgreeWithPyTorch compares the table by operation with what PyTorch's profiler itself
// prints of the same run, summed over the shapes of inputs.
func TestOpsAgreeWithPyTorch(t *testing.T) {
	for _, named := range []bool{false, true} { // ranges make passes, which do not hide operators
		tr := samples.Load(t, "pytorch/kineto.json.gz")
		if named && !stages.OfRanges(tr, nil) {
			t.Fatal("the recording has no ranges")
		}
		table := require.Value(Summarize(tr, ByOp, -1))(t)
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
				v := require.Value(strconv.ParseFloat(number, 64))(t)
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

// TestAgreesWithHTA compares what HTA and these tables define alike: how long the GPU computes,
// copies and idles from its first work to its last; which gaps the host causes; the launches that HTA knows.
func TestAgreesWithHTA(t *testing.T) {
	all := map[string]map[[2]string]string{} // values by recording, and by analysis and item
	for _, row := range samples.CSV(t, "pytorch/hta.csv") {
		if all[row["recording"]] == nil {
			all[row["recording"]] = map[[2]string]string{}
		}
		all[row["recording"]][[2]string{row["analysis"], row["item"]}] = row["value"]
	}
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

		table := require.Value(Summarize(tr, ByKernel, -1))(t)
		var kernels []window.Interval
		for _, e := range table.Window.Work {
			if e.Kind == traces.KindKernel {
				kernels = append(kernels, window.Interval{From: e.Time, To: e.End()})
			}
		}
		work := int64(len(table.Window.Work))
		idle, host := int64(0), int64(0)
		for g := range table.Gaps {
			idle += g.Length()
			for _, c := range g.Causes {
				if c.Name != IdleLaunch && c.Name != IdleDependency && c.Name != IdleEvent {
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
				count, api, delay = count+1, api+l.Call.Duration, delay+window.Delay(l.Call, l.First)
			}
		}
		for _, e := range table.Window.Work {
			if call := table.Window.CallOf(e); call != nil && known[call.Name] {
				busy += e.Duration
			}
		}
		near("launches", "count", count, 0)
		near("launches", "cpu_duration", api, 0)
		near("launches", "gpu_duration", busy, 0)
		near("launches", "launch_delay", delay, count)
	}
}

// Stamps end when a kernel's last block is done; CUDA's records go on until the kernel has handed over to the next one,
// and the next one begins early (programmatic dependent launch). So by stamps there is idle time before a kernel that
// is the kernel's own by CUDA's records: a stage with the idle time before it takes as long by both.
func TestRecordersAgree(t *testing.T) {
	// From one graph to the next: the time between is the second stage's by one recorder and the first's by the other.
	const begin = "wte+wpe, h.0.ln_1+h.0.attn.c_attn"
	named := func(stage string) string {
		if strings.Contains(begin, stage) {
			return begin
		}
		return stage
	}
	for _, name := range []string{"shipped-graph", "gpt2-L1-graph", "gpt2-L12-graph"} {
		perStep := func(recorder string) (stages, kernels map[string]float64, whole float64) {
			trace := samples.Load(t, name+"-"+recorder+".json.gz")
			if trace.Header.Recorder != recorder {
				t.Fatalf("%s was recorded by %s", name, trace.Header.Recorder)
			}
			table := require.Value(Summarize(trace, ByStage, -1))(t)
			explained(t, trace, table)
			var steps float64
			for _, p := range table.Passes {
				if p.Phase == "decode step" {
					steps = float64(p.Count)
				}
			}
			stages, kernels = map[string]float64{}, map[string]float64{}
			for _, r := range table.Rows {
				if r.Phase == "decode step" && r.Kind == RowWork {
					stages[named(r.Name)] += float64(r.Exclusive) / steps
					kernels[named(r.Name)] += float64(r.Kernels) / steps
				}
			}
			for g := range table.Gaps {
				if g.Next == nil || g.Before == nil {
					continue
				}
				if step, ok := trace.Header.Step(g.Next); ok && trace.Header.Plans[g.Next.Plan].Phase == "decode step" {
					for _, c := range g.Causes {
						if c.Name == IdleDependency {
							stages[named(step.Name)] += float64(c.Time) / steps
						}
					}
				}
			}
			for _, ns := range stages {
				whole += ns
			}
			return stages, kernels, whole
		}
		stamps, kernels, whole := perStep(traces.RecorderStamps)
		cupti, others, wholeCUPTI := perStep(traces.RecorderCUPTI)
		if len(stamps) == 0 || len(stamps) != len(cupti) {
			t.Fatalf("%s: %d stages by stamps, %d by cupti", name, len(stamps), len(cupti))
		}
		if ratio := whole / wholeCUPTI; ratio < 0.96 || ratio > 1.04 {
			t.Errorf("%s: a decode step takes %.0f ns by stamps, %.0f ns by cupti", name, whole, wholeCUPTI)
		}
		for stage, ns := range stamps {
			if kernels[stage] != others[stage] {
				t.Errorf("%s: %s has %g kernels by stamps, %g by cupti", name, stage, kernels[stage], others[stage])
			}
			most := 600 + 0.04*ns
			if stage == begin { // CUPTI takes its own time there, once for a graph
				most += 1500
			}
			if off := cupti[stage] - ns; math.Abs(off) > most {
				t.Errorf("%s: %s takes %.0f ns by stamps, %.0f ns by cupti", name, stage, ns, cupti[stage])
			}
		}
	}
}

// explained checks that next to nothing of a recording of our own is unexplained.
func explained(t *testing.T, trace *traces.Trace, table *Table) {
	t.Helper()
	checkSum(t, table)
	if found := traces.Examine(trace.Header, trace.Attribution); traces.Misleads(found) {
		t.Errorf("the recording misleads: %+v", found)
	}
	if trace.InSteps != trace.Kernels || trace.Kernels == 0 {
		t.Errorf("%d of %d kernels are of steps", trace.InSteps, trace.Kernels)
	}
	if len(trace.Header.Overhead) == 0 || len(trace.Header.Ceilings) == 0 {
		t.Error("recording overhead or ceilings are not known")
	}
}

// TestOwnRecordingsAreExplained has the modes of which TestRecordersAgree has no recordings.
func TestOwnRecordingsAreExplained(t *testing.T) {
	for _, name := range []string{"gpt2-L12-eager-cupti", "gpt2-L12-eager-stamps", "gpt2-L12-persistent-stamps"} {
		trace := samples.Load(t, name+".json.gz")
		explained(t, trace, require.Value(Summarize(trace, ByStage, -1))(t))
	}
}
