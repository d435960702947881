package tables

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/load"
)

// nsysTable reads a table of nsys stats: rows by their first columns, and each column as a number.
func nsysTable(t *testing.T, capture, report string) []map[string]string {
	t.Helper()
	text, err := os.ReadFile("../samples/pytorch/" + capture + "." + report + ".csv")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(strings.TrimSpace(string(text)))).ReadAll()
	if err != nil || len(rows) < 2 {
		t.Fatal(err, len(rows))
	}
	var list []map[string]string
	for _, row := range rows[1:] {
		m := map[string]string{}
		for i, name := range rows[0] {
			m[name] = row[i]
		}
		list = append(list, m)
	}
	return list
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

// TestRangesAgreeWithNsys compares ranges and their projections with nvtx_sum and nvtx_gpu_proj_sum
// of nsys stats, to the nanosecond.
func TestRangesAgreeWithNsys(t *testing.T) {
	for _, capture := range []string{"steady", "bad"} {
		tr, err := load.Load("../samples/pytorch/" + capture + ".sqlite")
		if err != nil {
			t.Fatal(err)
		}
		table, err := Summarize(tr, ByRange, -1)
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, r := range table.Ranges {
			got = append(got, fmt.Sprintf("%s: %d, %d ns, %s; on the GPU %d ns, %s, %d", r.Name, r.Calls, r.Host, spreadText(r.Times), r.GPU, spreadText(r.Spans), r.Work))
		}
		for _, p := range nsysTable(t, capture, "nvtx_gpu_proj_sum") {
			for _, m := range nsysTable(t, capture, "nvtx_sum") {
				if m["Range"] == p["Range"] {
					want = append(want, fmt.Sprintf("%s: %s, %s ns, %s; on the GPU %s ns, %s, %s", m["Range"], m["Instances"], m["Total Time (ns)"], nsysSpread(m, ""),
						p["Total Proj Time (ns)"], nsysSpread(p, "Proj "), p["Total GPU Ops"]))
				}
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if len(want) < 3 || !slices.Equal(got, want) {
			t.Errorf("%s: ranges\n%s\nand nsys has\n%s", capture, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

var version = regexp.MustCompile(`_v\d+$`) // of an API function, which a recording leaves out

// TestExecutionsAgreeWithNsys compares kernels with their calls with cuda_kern_exec_sum of nsys
// stats.
func TestExecutionsAgreeWithNsys(t *testing.T) {
	for _, capture := range []string{"steady", "bad", "two"} {
		tr, err := load.Load("../samples/pytorch/" + capture + ".sqlite")
		if err != nil {
			t.Fatal(err)
		}
		table, err := Summarize(tr, ByExec, -1)
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, r := range table.Executions {
			queued := spreadText(r.Queued)
			if r.Waited == 0 {
				queued = "none"
			}
			got = append(got, fmt.Sprintf("%d %d %s %s: %d; API %s; %d queued %s; kernel %s; total %s", r.Process, r.Thread, r.Call, r.Name, r.Calls, spreadText(r.API), r.Waited, queued, spreadText(r.Kernel), spreadText(r.Total)))
		}
		for _, m := range nsysTable(t, capture, "cuda_kern_exec_sum") {
			queued := nsysSpread(m, "Q")
			if m["QCount"] == "0" {
				queued = "none"
			}
			want = append(want, fmt.Sprintf("%s %s %s %s: %s; API %s; %s queued %s; kernel %s; total %s", m["PID"], m["TID"], version.ReplaceAllString(m["API Name"], ""), m["Kernel Name"], m["Count"], nsysSpread(m, "A"), m["QCount"], queued, nsysSpread(m, "K"), nsysSpread(m, "T")))
		}
		slices.Sort(got)
		slices.Sort(want)
		if len(want) < 10 || !slices.Equal(got, want) {
			for i := range min(len(got), len(want)) {
				if got[i] != want[i] {
					t.Errorf("%s: row %d of %d and %d is\n%s\nand nsys has\n%s", capture, i, len(got), len(want), got[i], want[i])
					break
				}
			}
			if len(got) != len(want) {
				t.Errorf("%s: %d rows, and nsys has %d", capture, len(got), len(want))
			}
		}
	}
}

// TestSequences: a sequence counts where it does not overlap itself, and one that only occurs
// within a longer one is left out.
func TestSequences(t *testing.T) {
	var events []traces.Event
	for i, name := range strings.Split("a b c a b c x a b c b c", " ") {
		events = append(events, traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), name, int64(i)*100, 60))
	}
	table, err := Summarize(fixtures.Trace(&traces.Header{}, events...), BySequence, -1)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range table.Sequences {
		got = append(got, fmt.Sprintf("%d of %s: busy %d, %d in all", r.Count, strings.Join(r.Kernels, "-"), r.Busy, r.Span))
	}
	want := []string{"3 of a-b-c: busy 540, 780 in all", "4 of b-c: busy 480, 640 in all"}
	if !slices.Equal(got, want) {
		t.Errorf("sequences %q, not %q", got, want)
	}
	if _, err := Summarize(fixtures.Trace(&traces.Header{}, traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "a", 0, 1)), BySequence, -1); err == nil {
		t.Error("one kernel has sequences")
	}
}
