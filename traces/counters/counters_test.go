package counters

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/internal/samples"
)

func open(t *testing.T, name string) []*Kernel {
	t.Helper()
	f := require.Value(os.Open("../samples/pytorch/" + name))(t)
	defer f.Close()
	s := require.Value(Read(f))(t)
	return s
}

// TestPagesAgree: the pages "details" and "raw" of one report of ncu have the same counters, to the
// digits that details prints.
func TestPagesAgree(t *testing.T) {
	details, raw := open(t, "steady.ncu-details.csv"), open(t, "steady.ncu-raw.csv")
	if len(details) != 24 || len(raw) != 24 {
		t.Fatalf("%d and %d kernels, not 24", len(details), len(raw))
	}
	for i, d := range details {
		r := raw[i]
		if d.Name != r.Name || d.Grid != r.Grid || d.Block != r.Block {
			t.Errorf("kernel %d is %s %v and %s %v", i, d.Name, d.Grid, r.Name, r.Grid)
		}
		for _, c := range traces.AllCounters {
			x, ok := d.Counters[c.Key]
			y, other := r.Counters[c.Key]
			if ok != other || !ok && c.Key != traces.CounterBranches || math.Abs(x-y) > 0.006*max(1, 100./32) {
				t.Errorf("kernel %d, %s: %v (%v) and %v (%v)", i, c.Key, x, ok, y, other)
			}
		}
	}
	// The numbers of a product, as ncu prints them.
	k := details[5]
	want := traces.Counters{"achieved_occupancy_percent": 13.95, "sm_throughput_percent": 7.68,
		"dram_throughput_percent": 12.15, "l1_throughput_percent": 18.99, "l2_throughput_percent": 19.83,
		"l1_hit_rate_percent": 0, "l2_hit_rate_percent": 40.10, "warp_efficiency_percent": 98.875, "branch_efficiency_percent": 98.45, "sm_active_percent": 46.761473981243256}
	if got := k.Counters; !strings.HasPrefix(k.Name, "nvjet") || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s has %v, not %v", k.Name, got, want)
	}
}

// TestJoin: the kernels of a recording get the counters of another run of the program. One of
// its passes was counted, without its last kernels.
func TestJoin(t *testing.T) {
	tr := samples.Load(t, "pytorch/steady.sqlite")
	s := open(t, "steady.ncu-details.csv")
	if j := Join(tr, s); j != (Joined{Kernels: 87, ByOrder: 51, ByName: 30}) {
		t.Errorf("%+v", j)
	}
	product := 0
	for _, e := range tr.Events {
		if e.Kind == traces.KindKernel && strings.Contains(e.Name, "48x64_64x15") {
			// c_attn of two layers: the first of each pass has the counters of the first.
			want := s[5+11*(product%2)].Counters[traces.CounterDRAMThroughput]
			if got, ok := e.Counters.Get(traces.CounterDRAMThroughput); !ok || got != want {
				t.Errorf("product %d has %v, not %v", product, got, want)
			}
			product++
		}
		if e.Kind == traces.KindKernel && strings.Contains(e.Name, "reduce_kernel<(int)512") && e.Counters != nil {
			t.Error("a kernel that was not counted has counters")
		}
	}
	if product != 6 {
		t.Errorf("%d products", product)
	}
}

// TestForms: what other versions and options of the tools write, in the form that they have.
func TestForms(t *testing.T) {
	const old = "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Kernel " +
		"Time\",\"Context\",\"Stream\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n"
	oldRow := func(name, unit, value string) string {
		return `"0","21","vector","127.0.0.1","add(float*,float*,int)","2020-Apr-07 17:01:05","1","7","GPU Speed Of Light","` + name + `","` + unit + `","` + value + "\"\n"
	}
	const details = "\"ID\",\"Process ID\",\"Kernel Name\",\"Block Size\",\"Grid Size\",\"Metric Name\",\"Metric " +
		"Unit\",\"Metric Value\",\"Rule Name\"\n"
	row := func(name, unit, value string) string {
		return `"0","21","add(float *, float *, int)","(256, 1, 1)","(4096, 1, 1)","` + name + `","` + unit + `","` + value +
			"\",\"\"\n"
	}
	const summed = "\"Process ID\",\"Process Name\",\"Kernel Name\",\"Block Size\",\"Grid " +
		"Size\",\"Device\",\"CC\",\"Invocations\",\"Section Name\",\"Metric Name\",\"Metric " +
		"Unit\",\"Minimum\",\"Maximum\",\"Average\"\n"
	for _, c := range []struct{ what, text, want string }{
		{"ncu of 2020: no grid, a line without text, other names", "==PROF== Connected to process 21\nsum is 3\n" + old + "\n" + oldRow("SOL FB", "%", "46.47") + oldRow("SOL L2", "%", "13.61") + oldRow("SOL TEX", "%", "9.5") + oldRow("SM [%]", "%", "7.25") +
			oldRow("Elapsed Cycles", "cycle", "10251") + oldRow("SM Active Cycles", "cycle", "5125.5") +
			"==PROF== Disconnected from process 21\n",
			"add(float*,float*,int) [0 0 0] map[dram_throughput_percent:46.47 l1_throughput_percent:9.5 l2_throughput_percent:13.61 sm_active_percent:50 sm_throughput_percent:7.25]"},
		{"ncu 2020.3", old + oldRow("SOL DRAM", "%", "39.60") + oldRow("SOL L1/TEX Cache", "%", "12.00") + oldRow("SOL L2 Cache", "%", "3.00"),
			"add(float*,float*,int) [0 0 0] map[dram_throughput_percent:39.6 l1_throughput_percent:12 l2_throughput_percent:3]"},
		{"ncu of 2024: rows of advice, a metric that is not there", details + row("", "", "") + row("DRAM Throughput", "%", "90.5") + row("L2 Hit Rate", "%", "n/a"),
			"add(float *, float *, int) [4096 1 1] map[dram_throughput_percent:90.5]"},
		{"a decimal comma", details + row("Elapsed Cycles", "cycle", "5.845") + row("SM Active Cycles", "cycle", "2.922,50") + row("DRAM Throughput", "%", "90,5") + row("Achieved Occupancy", "%", "7"),
			"add(float *, float *, int) [4096 1 1] map[achieved_occupancy_percent:7 dram_throughput_percent:90.5 sm_active_percent:50]"},
		{"commas of thousands", details + row("Elapsed Cycles", "cycle", "5,845") + row("SM Active Cycles", "cycle", "2,922.50"), "add(float *, float *, int) [4096 1 1] map[sm_active_percent:50]"},
		{"cycles in other units", details + row("Elapsed Cycles", "Kcycle", "5.8") + row("SM Active Cycles", "cycle", "2,922.50") + row("L2 Hit Rate", "%", "1"), "add(float *, float *, int) [4096 1 1] map[l2_hit_rate_percent:1]"},
		{"--metrics with names of NVIDIA's table for users of nvprof", details + row("dram__throughput.avg.pct_of_peak_sustained_elapsed", "%", "55.5") + row("smsp__cycles_active.avg.pct_of_peak_sustained_elapsed", "%", "44") +
			row("smsp__thread_inst_executed_per_inst_executed.ratio", "", "16"), "add(float *, float *, int) [4096 1 1] " +
			"map[dram_throughput_percent:55.5 sm_active_percent:44 warp_efficiency_percent:50]"},
		{"two names for one counter", details + row("dram__throughput.avg.pct_of_peak_sustained_elapsed", "%", "1") + row("DRAM Throughput", "%", "2") + row("SOL DRAM", "%", "3"), "add(float *, float *, int) [4096 1 1] map[dram_throughput_percent:2]"},
		{"spaces after commas", strings.ReplaceAll(old, ",", ", ") + oldRow("SOL FB", "%", "46.47"), "add(float*,float*,int) [0 0 0] map[dram_throughput_percent:46.47]"},
		{"--print-summary per-kernel", summed + `"1","v","add(float *)","(256, 1, 1)","(4096, 1, 1)","0","9.0","14","Occupancy","Achieved Occupancy","%","73.56","79.38","74.92"` + "\n" +
			`"1","v","add(float *)","(1, 1, 1)","(9, 1, 1)","0","9.0","2","Occupancy","Achieved Occupancy","%","3","3","3"` + "\n" +
			`"1","v","add(float *)","(256, 1, 1)","(4096, 1, 1)","0","9.0","14","Occupancy","DRAM Throughput","%","1","2","1.5"` + "\n",
			"add(float *) [4096 1 1] map[achieved_occupancy_percent:74.92 dram_throughput_percent:1.5]; add(float *) [9 1 1] map[achieved_occupancy_percent:3]"},
	} {
		s, err := Read(strings.NewReader(c.text))
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		var got []string
		for _, k := range s {
			got = append(got, fmt.Sprint(k.Name, " ", k.Grid, " ", k.Counters))
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s:\n%s\nnot\n%s", c.what, strings.Join(got, "; "), c.want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for _, text := range []string{"", "a,b\n1,2\n", "\"ID\",\"Kernel Name\",\"Metric Name\"\n",
		strings.Repeat("x\n", 20_000), "\x00\xff"} {
		if s, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%.20q is read as %d kernels", text, len(s))
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("\"ID\",\"Kernel Name\",\"Grid Size\",\"Metric Name\",\"Metric Value\"\n\"0\",\"k\",\"(1, 1, " +
		"1)\",\"Achieved Occupancy\",\"1,024.5\"\n"))
	f.Add([]byte("\"Kernel Name\",\"Invocations\",\"Metric Name\",\"Average\"\n==1==\n\"k\",\"2\",\"SOL FB\",\"1.024,5\"\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Read(strings.NewReader(string(b)))
		if err == nil {
			Join(fixtures.Trace(&traces.Header{}, traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "k", 0, 1)), s)
		}
	})
}

func TestBase(t *testing.T) {
	for name, want := range map[string]string{"void at::native::<unnamed>::softmax<float, (int)4>(T1 *)": "softmax",
		"at::vectorized_gather_kernel<16, long>(char *)": "vectorized_gather_kernel",
		"gemv": "gemv", "void (anonymous namespace)::f(int)": "f", "": "", "<": "<", "triton_poi_fused_add_0": "triton_poi_fused_add_0"} {
		if got := base(name); got != want {
			t.Errorf("%q is %q, not %q", name, got, want)
		}
	}
}
