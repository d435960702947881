package judge

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/internal/samples"
	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(b)) }

// TestMeasure: each number of a recording that was made for it.
func TestMeasure(t *testing.T) {
	stream := traces.Stream(1, 0, 1, 7)
	launched := fixtures.Launched(1, 0, 10, 20, 120) // idle before: 20 ns from call to start
	launched[1].Grid, launched[1].Block, launched[1].Registers = [3]int32{50, 1, 1}, [3]int32{256, 1, 1}, 32
	second := fixtures.Launched(2, 15, 25, 130, 230) // queued behind the first
	second[1].Grid, second[1].Block, second[1].Registers = [3]int32{200, 1, 1}, [3]int32{256, 1, 1}, 32
	copied := traces.Plain(traces.KindMemcpy, traces.Stream(1, 0, 1, 8), "Memcpy HtoD (Pinned -> Device)", 200, 60)
	copied.Bytes, copied.Correlation = 6000, 3
	call := traces.Plain(traces.KindRuntime, traces.API(1, 1), "cudaMemcpyAsync", 190, 5)
	call.Correlation = 3
	wait := traces.Plain(traces.KindRuntime, traces.API(1, 1), "cudaStreamSynchronize", 240, 30)
	in := traces.Plain(traces.KindOp, traces.Thread(1, 1), "aten::item", 235, 40)
	sampled := func(at int64, v float64) traces.Event {
		e := traces.Plain(traces.KindCounter, traces.Lane{Kind: traces.LaneCounter}, "SMs Active [Throughput %]", at, 0)
		e.Value = v
		return e
	}
	launched[1].Counters = &traces.Counters{traces.CounterOccupancy: 20}
	second[1].Counters = &traces.Counters{traces.CounterOccupancy: 60}
	last := traces.Plain(traces.KindKernel, stream, "uncalled", 280, 20)
	h := &traces.Header{Devices: []traces.Device{{SMs: 100, WarpsPerSM: 64, BlocksPerSM: 32, RegistersPerSM: 65536, SharedPerSM: 200 << 10}}}
	tr := fixtures.Trace(h, append(append(launched, second...), copied, call, wait, in, last, sampled(-10, 10), sampled(160, 30))...)
	r := require.Value(Measure(tr, -1))(t)
	if r.Wall != 280 || r.PassesFrom != window.FromNothing || r.Before != 0 {
		t.Errorf("%d ns, passes from %q, %d ns before", r.Wall, r.PassesFrom, r.Before)
	}
	// From 20 to 300: kernels 20-120, 130-230 and 280-300, the copy 200-260.
	for key, want := range map[string]float64{"kernel_time": 220, "kernels": 3, "kernel_median": 100, "gpu_busy_percent": 100 * (100 + 130 + 20) / 280., "compute_percent": 100 * 220 / 280.,
		"transfer_time": 60, "h2d_pinned_copies": 1, "h2d_pinned_bytes": 6000, "h2d_pinned_time": 60, "h2d_pinned_gb_per_s": 100, "cpu_gpu_overlap_percent": 100 * 230 / 250.,
		"compute_copy_overlap_percent": 50, "launches": 3, "launch_latency": 20, "synchronisations": 1, "synchronisation_time": 30, "correlated_percent": 75,
		"grid_fill_percent": (50*100 + 100*100) / 200., "theoretical_occupancy_percent": 100, "achieved_occupancy_percent": 40, "sm_utilisation_percent": (140*10 + 140*30) / 280.,
		// Depth: 1 from 20, 2 from 25 to 120, 1 to 195, 2 to 230, 1 to 260, 0 to 280, 1.
		"queue_depth": (5 + 2*95 + 75 + 2*35 + 30 + 20) / 280., "queue_depth_max": 2} {
		if got, ok := r.value(key); !ok || !near(got, want) {
			t.Errorf("%s is %v (%v), not %v", key, got, ok, want)
		}
	}
	if x := r.find("synchronisations"); len(x.Where) != 1 || x.Where[0] != "cudaStreamSynchronize in aten::item: 0.000030 ms in 1 call" {
		t.Errorf("the host waited in %q", x.Where)
	}
	if x := r.find("warp_efficiency_percent"); x.Key == "" || x.Value != nil || !strings.Contains(x.RecordWith, "ncu") {
		t.Errorf("warp efficiency: %+v", x)
	}
	if x := r.find("d2h_pinned_bytes"); x.Key != "" {
		t.Errorf("there is no copy from the GPU: %+v", x)
	}
	answers := map[string]Answer{}
	for _, c := range r.Checks {
		answers[c.Question[:20]] = c.Answer
	}
	if len(answers) != 6 || answers["Do transfers take lo"] != No || answers["Do the threads of wa"] != Unknown {
		t.Errorf("answers %v", answers)
	}
}

// TestPageable: a call that copies pageable memory waits as long as it lasts; one that copies pinned memory does not.
func TestPageable(t *testing.T) {
	for memory, want := range map[string]float64{"Pageable": 100 * 90 / 130., "Pinned": 100} {
		copied := traces.Plain(traces.KindMemcpy, traces.Stream(1, 0, 1, 8), "Memcpy HtoD ("+memory+" -> Device)", 120, 30)
		call := traces.Plain(traces.KindRuntime, traces.API(1, 1), "cudaMemcpyAsync", 100, 40)
		copied.Correlation, call.Correlation = 2, 2
		events := append(fixtures.Launched(1, 0, 10, 20, 120), copied, call)
		r := require.Value(Measure(fixtures.Trace(&traces.Header{}, events...), -1))(t)
		if v, ok := r.value("cpu_gpu_overlap_percent"); !ok || !near(v, want) {
			t.Errorf("%s: %v %% overlap, expected %v", memory, v, want)
		}
	}
}

// TestRecorder: what would record what is missing is of the tool that recorded, and of no other maker's GPU.
func TestRecorder(t *testing.T) {
	for _, c := range []struct{ recorder, gpu, what, says string }{
		{traces.RecorderNsys, "NVIDIA H100", withMemory, "nsys profile --cuda-memory-usage=true"},
		{traces.RecorderKineto, "NVIDIA H100", withCalls, "ProfilerActivity.CPU"},
		{traces.RecorderKineto, "NVIDIA H100", withCounters, "ncu --set full"},
		{traces.RecorderKineto, "AMD Instinct MI300X", withMemory, "profile_memory=True"},
		{traces.RecorderKineto, "AMD Instinct MI300X", withCounters, "nothing whose files are read"},
		{traces.RecorderKineto, "AMD Instinct MI300X", withSamples, "nothing whose files are read"},
	} {
		h := &traces.Header{Recorder: c.recorder, Devices: []traces.Device{{Name: c.gpu}}}
		if how := (Indicator{RecordWith: recorder(c.what, h, 0)}).How(); !strings.Contains(how, c.says) || strings.Contains(c.gpu, "AMD") && strings.Contains(how, "nsys") {
			t.Errorf("%+v: %s", c, how)
		}
	}
}

// TestOverlap: kernels that run at a time are said to overlap.
func TestOverlap(t *testing.T) {
	events := append(fixtures.Launched(1, 0, 5, 10, 110), fixtures.Launched(2, 6, 9, 10, 110)...)
	events[3].Lane.ID++
	r := require.Value(Measure(fixtures.Trace(&traces.Header{}, events...), -1))(t)
	if v, ok := r.value("kernel_overlap_percent"); !ok || v != 50 || !strings.Contains(strings.Join(r.Notes, ""), "kernels overlap: their times sum to 0.000200 ms, in 0.000100 ms") {
		t.Errorf("%v %%: %q", v, r.Notes)
	}
}

// TestCommunication: kernels of NCCL are communication, and what runs beside them overlaps it.
func TestCommunication(t *testing.T) {
	on := func(stream int64, name string, from, length int64) traces.Event {
		e := traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, stream), name, from, length)
		e.Grid, e.Block = [3]int32{map[int64]int32{7: 80}[stream] + 20, 1, 1}, [3]int32{256, 1, 1}
		return e
	}
	h := &traces.Header{Devices: []traces.Device{{SMs: 100}}}
	r := require.Value(Measure(fixtures.Trace(h, on(7, "gemm", 0, 100), on(20, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 80, 60), on(21, "ncclKernel_SendRecv", 100, 20), on(7, "gemm", 130, 100)), -1))(t)
	for key, want := range map[string]float64{"communication_time": 60, "communication_overlap_percent": 50, "compute_percent": 100, "grid_fill_percent": 100} {
		if got, ok := r.value(key); !ok || !near(got, want) {
			t.Errorf("%s is %v (%v), not %v", key, got, ok, want)
		}
	}
	if r, err := Measure(samples.Load(t, "eager.sqlite"), -1); err != nil || r.find("communication_time").Key != "" || r.find("communication_overlap_percent").Key != "" {
		t.Errorf("a program that does not communicate: %v", err)
	}
}

// TestTogether: what counts together, and what does not, is said.
func TestTogether(t *testing.T) {
	if r, err := Measure(samples.Load(t, "pytorch/two.sqlite"), -1); err != nil || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "2 processes") {
		t.Errorf("two processes: %q, %v", r.Notes, err)
	}
	tr := fixtures.Trace(&traces.Header{}, traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "k", 0, 10), traces.Plain(traces.KindKernel, traces.Stream(1, 3, 1, 7), "k", 5, 10))
	if r, err := Measure(tr, 3); err != nil || len(r.Notes) == 0 || !strings.Contains(r.Notes[0], "GPU 0: 1 kernel, busy") || !strings.Contains(r.Notes[1], "GPU 3: 1 kernel, busy 0.000 of 0.000 ms; it alone is shown") {
		t.Errorf("two GPUs: %q, %v", r.Notes, err)
	}
	holds := func(process, time int64, bytes float64) traces.Event {
		e := traces.Plain(traces.KindCounter, traces.Lane{Kind: traces.LaneCounter, Process: process}, traces.MemoryAllocated, time, 0)
		e.Value = bytes
		return e
	}
	tr = fixtures.Trace(&traces.Header{}, traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "k", 0, 100), holds(1, 5, 100), holds(2, 10, 50), holds(1, 20, 60), holds(2, 30, 70))
	if v, ok := require.Value(Measure(tr, -1))(t).value("memory_peak"); v != 150 || !ok {
		t.Errorf("two processes hold %v bytes together, %v", v, ok)
	}
	launch, late := traces.Plain(traces.KindRuntime, traces.API(1, 1), "cudaLaunchKernel", 0, 5), traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "k", 20, 5)
	launch.Correlation, late.Correlation = 1, 1
	r := require.Value(Measure(fixtures.Trace(&traces.Header{}, launch, holds(1, 3, 100), late), -1))(t) // both are over when the GPU works
	for key, want := range map[string]float64{"synchronisations": 0, "correlated_percent": 100, "memory_peak": 100} {
		if v, ok := r.value(key); v != want || !ok {
			t.Errorf("%s is %v (%v), not %v", key, v, ok, want)
		}
	}
	if r, err := Measure(samples.Load(t, "eager.sqlite"), -1); err != nil || len(r.Notes) != 0 {
		t.Errorf("one process: %q, %v", r.Notes, err)
	}
	if r, err := Measure(samples.Load(t, "graph.sqlite"), -1); err != nil || r.Passes != 8 || r.WarmUpPasses != 0 {
		t.Errorf("%d passes, and %d of warm-up before them, not 8 and none: its graph is captured after the first, %v", r.Passes, r.WarmUpPasses, err)
	}
	if r, err := Measure(samples.Load(t, "pytorch/bad.sqlite"), -1); err != nil || r.PassesFrom != window.FromRepetition || r.Passes != 7 || r.WarmUpPasses != 1 {
		t.Errorf("%d passes and %d of warm-up, not the 7 and 1 that are steady of the 8 that ran: %v", r.Passes, r.WarmUpPasses, err)
	}
}

// TestGPUsOfProcesses: of two processes, each with its own GPU, the passes and waits of one say nothing of the other's GPU.
func TestGPUsOfProcesses(t *testing.T) {
	list := []*traces.Trace{samples.Load(t, "gpt2-L12-eager-cupti.json.gz"), samples.Load(t, "gpt2-L12-eager-cupti.json.gz")}
	alone := require.Value(Measure(list[0], -1))(t)
	for i, tr := range list {
		tr.Header.Base += int64(i) * 1e6
		tr.Header.Ranks = []traces.Rank{{Process: tr.Header.Process, Rank: i, OwnGPU: true}}
	}
	both := require.Value(traces.Merge(list, []string{"a", "b"}))(t)
	for _, m := range require.Value(tables.Summarize(both, tables.ByMemory, -1))(t).Memory { // none was open in the process
		if m.During != "" {
			t.Errorf("GPU %d has the most memory during %s", m.Device, m.During)
		}
	}
	for device := range int32(2) {
		r := require.Value(Measure(both, device))(t)
		if r.Passes != alone.Passes || r.WarmUpPasses != alone.WarmUpPasses || r.Wall != alone.Wall {
			t.Errorf("GPU %d: %d passes and %d of warm-up in %d ns, not %d and %d in %d ns", device, r.Passes, r.WarmUpPasses, r.Wall, alone.Passes, alone.WarmUpPasses, alone.Wall)
		}
		for _, x := range alone.Indicators {
			if got, ok := r.value(x.Key); x.Value != nil && (!ok || !near(got, *x.Value)) {
				t.Errorf("GPU %d: %s is %v, and %v of the process alone", device, x.Key, got, *x.Value)
			}
		}
	}
}

// TestMissing: a recording without API calls says for each indicator of the host what records it.
func TestMissing(t *testing.T) {
	r := require.Value(Measure(fixtures.Trace(&traces.Header{}, traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "k", 0, 10)), -1))(t)
	for _, key := range []string{"cpu_gpu_overlap_percent", "queue_depth", "launch_latency", "starved_percent", "synchronisations", "correlated_percent", "sm_utilisation_percent", "theoretical_occupancy_percent"} {
		if x := r.find(key); x.Value != nil || x.RecordWith == "" {
			t.Errorf("%s: %+v", key, x)
		}
	}
	if _, err := Measure(fixtures.Trace(&traces.Header{}, traces.Plain(traces.KindOp, traces.Thread(1, 1), "aten::mm", 0, 10)), -1); err == nil || !strings.Contains(err.Error(), "no work of a GPU") {
		t.Errorf("a recording of the CPU: %v", err)
	}
}

// TestGPUMetrics: the samples of nsys --gpu-metrics-devices are utilisation.
func TestGPUMetrics(t *testing.T) {
	tr := samples.Load(t, "pytorch/metrics.sqlite")
	r := require.Value(Measure(tr, -1))(t)
	for _, key := range []string{"sm_utilisation_percent", "tensor_utilisation_percent", "dram_bandwidth_percent"} {
		v, ok := r.value(key)
		if busy, _ := r.value("gpu_busy_percent"); !ok || v <= 0 || v > busy {
			t.Errorf("%s is %v (%v); the GPU works %v %% of the time", key, v, ok, busy)
		}
	}
}

// TestAgreesWithNsys compares copies, kernels and API calls with the tables of nsys stats of the
// same capture. Passes and what is before them are all of it.
func TestAgreesWithNsys(t *testing.T) {
	r := require.Value(Measure(samples.Load(t, "pytorch/bad.sqlite"), -1))(t)
	for keys, c := range map[string]struct{ report, column, operation string }{
		"kernel_time":                           {"cuda_gpu_kern_sum", "Total Time (ns)", ""},
		"kernels":                               {"cuda_gpu_kern_sum", "Instances", ""},
		"h2d_pageable_time h2d_pinned_time":     {"cuda_gpu_mem_time_sum", "Total Time (ns)", "Host-to-Device"},
		"h2d_pageable_copies h2d_pinned_copies": {"cuda_gpu_mem_time_sum", "Count", "Host-to-Device"},
		"h2d_pageable_bytes h2d_pinned_bytes":   {"cuda_gpu_mem_size_sum", "Total (MB)", "Host-to-Device"},
		"d2h_pageable_time d2h_pinned_time":     {"cuda_gpu_mem_time_sum", "Total Time (ns)", "Device-to-Host"},
		"d2h_pageable_copies d2h_pinned_copies": {"cuda_gpu_mem_time_sum", "Count", "Device-to-Host"},
	} {
		got, want := 0.0, 0.0
		for key := range strings.FieldsSeq(keys) {
			if x := r.find(key); x.Value != nil {
				got += *x.Value
				if x.Before != nil {
					got += *x.Before
				}
			}
		}
		for _, row := range samples.CSV(t, "pytorch/bad."+c.report+".csv") {
			if v, err := strconv.ParseFloat(row[c.column], 64); err == nil && strings.Contains(row["Operation"], c.operation) {
				want += v
			}
		}
		if strings.HasSuffix(c.column, "(MB)") { // to the KB
			got, want = math.Round(got/1e3), math.Round(1e3*want)
		}
		if want == 0 || got != want {
			t.Errorf("%s: %v, and nsys has %v", keys, got, want)
		}
	}
	if r.PassesFrom != window.FromRepetition || r.Passes != 7 || r.WarmUpPasses != 1 {
		t.Errorf("%d passes and %d of warm-up, not the 7 and 1 that are steady of the 8 that ran", r.Passes, r.WarmUpPasses)
	}
}
