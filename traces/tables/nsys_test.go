package tables

import (
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/internal/samples"
)

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

var version = regexp.MustCompile(`_v\d+$`) // of an API function, which a recording leaves out

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
			table := fixtures.Must(Summarize(tr, ByKernel, -1))(t)
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
			return fmt.Sprintf("%s: %s ns in %s, %s", version.ReplaceAllString(m["Name"], ""), m["Total Time (ns)"], m["Num Calls"], nsysSpread(m, ""))
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
			table := fixtures.Must(Summarize(tr, ByRange, -1))(t)
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
			table := fixtures.Must(Summarize(tr, ByKernel, -1))(t)
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
