package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/internal/samples"
	"gpt2scope/traces/load"
	"gpt2scope/traces/stages"
	"gpt2scope/traces/tables"
)

// apiCall is an API call with no work.
func apiCall(name string, time, duration int64) traces.Event {
	return traces.Plain(traces.KindRuntime, traces.API(1, 1), name, time, duration)
}

// copied is a copy with its call.
func copied(name string, id uint64, time, duration int64) []traces.Event {
	c := apiCall("cudaMemcpyAsync", time-10, 5)
	m := traces.Plain(traces.KindMemcpy, traces.Stream(1, 0, 1, 8), name, time, duration)
	c.Correlation, m.Correlation, m.Bytes = id, id, 1<<20
	return []traces.Event{c, m}
}

// cpuPasses makes passes of 1000 ns in which threads run steps for so long, 0 for not
// at all. Steps follow each other after gap ns, and passes begin every 1000 ns.
func cpuPasses(h *traces.Header, n int, gap int64, duration func(pass, tag, thread int) int64) []traces.Event {
	var events []traces.Event
	for i := range n {
		p := traces.Plain(traces.KindPass, traces.Thread(1, 1), h.Plans[0].Phase, int64(i)*1000, 0)
		p.Plan, p.ID = 0, uint64(i+1)
		at := p.Time
		var steps []traces.Event
		for tag := range h.Plans[0].Steps {
			longest := int64(0)
			for thread := range 4 {
				ns := duration(i, tag, thread)
				if ns == 0 {
					continue
				}
				s := traces.Plain(traces.KindStep, traces.Thread(1, int64(1+thread)), h.Plans[0].Steps[tag].Name, at, ns)
				s.Plan, s.Step, s.Parent = 0, int32(tag), p.ID
				steps = append(steps, s)
				longest = max(longest, ns)
			}
			at += longest + gap
		}
		p.Duration = at - p.Time
		events = append(append(events, p), steps...)
	}
	return events
}

// TestAdvise has, for each rule, a trace in which it finds what it looks for, with the
// gain as it was made, and one in which it does not.
func TestAdvise(t *testing.T) {
	two := func() *traces.Header { return fixtures.Plan("h.0.ln_1", "h.1.ln_1") }
	flat := func(ns int64) func(int, int) int64 { return func(int, int) int64 { return ns } }
	host := func() *traces.Header {
		h := two()
		h.Recorder, h.Devices = traces.RecorderHost, nil
		return h
	}
	ceilings := func(step int64) *traces.Header {
		h := two()
		for i := range h.Plans[0].Steps {
			h.Plans[0].Steps[i].Bytes = step
		}
		h.Ceilings = []traces.Ceiling{{Device: 0, Name: "read", Unit: "GB/s", Value: 2}}
		return h
	}
	gpu := func(h *traces.Header, edit func(*traces.Event), more ...traces.Event) *traces.Trace {
		return fixtures.Trace(h, append(fixtures.Passes(h, 0, 10, flat(10_000), edit), more...)...)
	}
	cpu := func(gap int64, duration func(pass, tag, thread int) int64) *traces.Trace {
		h := host()
		return fixtures.Trace(h, cpuPasses(h, 10, gap, duration)...)
	}
	inTen := func(name string, ns int64) []traces.Event { // 10 copies, in the time of the passes but after their kernels
		var events []traces.Event
		for i := range int64(10) {
			events = append(events, copied(name, uint64(1e6+i), 300_000+i*2*ns, ns)...)
		}
		return append(events, fixtures.Passes(two(), 300_000+20*ns+1e6, 1, flat(10_000), nil)...)
	}
	few := inTen("Memcpy HtoD (Pinned -> Device)", 10_000)
	for i := range few {
		few[i].Bytes = min(few[i].Bytes, 1000)
	}
	queued := func(gap int64) *traces.Trace {
		var events []traces.Event
		for i := range int64(10) {
			events = append(events, fixtures.Launched(uint64(i+1), i, i+1, 1000+i*(1000+gap), 2000+i*(1000+gap))...)
		}
		return fixtures.Trace(&traces.Header{}, events...)
	}
	// A launch follows the end of the work before: at once, or after a wait.
	lockstep := func(wait int64) *traces.Trace {
		var events []traces.Event
		for i := range int64(10) {
			at := i * 2000
			events = append(events, fixtures.Launched(uint64(i+1), at, at+10, at+100, at+1000)...)
			if wait > 0 {
				events = append(events, apiCall("cudaStreamSynchronize", at+20, wait))
			}
		}
		return fixtures.Trace(&traces.Header{}, events...)
	}
	holds := func(e traces.Event) *traces.Trace {
		second := fixtures.Passes(two(), 1_000_000, 1, flat(10_000), nil)
		return gpu(two(), nil, append(second, e)...)
	}
	loads := func(name string) *traces.Trace { return holds(apiCall(name, 500_000, 300_000)) }
	iterates := func(name string) *traces.Trace {
		return holds(traces.Plain(traces.KindRange, traces.Thread(1, 1), name, 500_000, 300_000))
	}
	// Work was queued on two streams in turn, with or without an event between them.
	streams := func(call string) *traces.Trace {
		var events []traces.Event
		for i := range int64(10) {
			at := fixtures.Launched(uint64(i+1), 2*i+1, 2*i+2, 1000+i*1500, 2000+i*1500)
			at[1].Lane.ID += i % 2
			events = append(append(events, apiCall(call, 2*i, 1)), at...)
		}
		return fixtures.Trace(&traces.Header{}, events...)
	}
	small := func(k *traces.Event) { k.Grid = [3]int32{25, 1, 1} }      // of 100 SMs
	fat := func(k *traces.Event) { k.Registers = 128; k.Block[0] = 64 } // 8 blocks of 2 warps by 65536 registers: 16 of 64 warps
	shared := func(k *traces.Event) { k.DynamicShared = 100 << 10 }     // 2 blocks of 8 warps
	named := func(name string) func(*traces.Event) { return func(k *traces.Event) { k.Name = name } }
	counted := func(efficiency float32) func(*traces.Event) {
		return func(k *traces.Event) {
			k.Counters = &traces.Counters{traces.CounterWarpEfficiency: float64(efficiency)}
		}
	}
	even := func(int, int, int) int64 { return 250 } // on 4 threads
	uneven := func(_, _, thread int) int64 { return []int64{100, 100, 100, 300}[thread] }
	one := func(_, tag, thread int) int64 {
		if tag == 1 && thread > 0 {
			return 0
		}
		return 250
	}
	inside := func(k *traces.Event) {
		k.Inside = &traces.Inside{SMs: 100, Parts: traces.Parts{Weights: 1000, Inputs: 4000, Compute: 3000, Imbalance: 2000}}
	}
	dram := func(percent float32) func(*traces.Event) {
		return func(k *traces.Event) {
			fat(k)
			k.Counters = &traces.Counters{traces.CounterDRAMThroughput: float64(percent)}
		}
	}
	tested := map[string]bool{}
	for _, c := range []struct {
		rule    string
		with    *traces.Trace
		gain    int64
		facts   []string // in the sentence, the rows and what to try
		without *traces.Trace
	}{
		{"copies", gpu(two(), nil, inTen("Memcpy HtoD (Pinned -> Device)", 50_000)...), 500_000, []string{"0.500 ms, longer than the kernels with 0.220 ms", "Memcpy HtoD (Pinned -> Device): 0.500 ms in 10 events"},
			gpu(two(), nil, inTen("Memcpy HtoD (Pinned -> Device)", 20_000)...)},
		{"pageable", gpu(two(), nil, inTen("Memcpy HtoD (Pageable -> Device)", 10_000)...), 100_000, []string{"10 copies use memory that is pageable", "page-locked"},
			gpu(two(), nil, inTen("Memcpy HtoD (Pinned -> Device)", 10_000)...)},
		{"host-late", lockstep(0), 9 * 1000, []string{"9 gaps", "0.009 ms"}, queued(100)},
		{"launch-latency", lockstep(0), 9 * 100, []string{"0.000900 ms in 9 gaps", "CUDA graph"}, queued(100)},
		{"sync", lockstep(1500), 9 * 1100, []string{"9 times", "cudaStreamSynchronize: 0.015 ms in 10 calls"}, lockstep(0)},
		{"dependency", queued(500), 9 * 500, []string{"9 gaps.", "programmatic dependent launch"}, queued(0)},
		{"sm-waits", gpu(two(), inside), 20 * 6000, []string{"0.080 ms for what others compute, and 0.040 ms for the last", "decode step, h.N.ln_1: 0.120 ms in 20 steps", "trace report"}, gpu(two(), nil)},
		{"sm-waits", gpu(ceilings(10_000), inside), 20 * 5000, []string{"0.080 ms"}, gpu(ceilings(20_000), inside)}, // no more than what is above the floor
		{"small-grid", gpu(two(), small), 20 * 7500, []string{"20 kernels have fewer blocks than the GPU has SMs (100)", "decode step, h.N.ln_1: kernel0 of 25 blocks: 0.100 ms in 10 kernels"}, gpu(two(), nil)},
		{"occupancy", gpu(two(), fat), 20 * 7500, []string{"20 kernels", "with 25 %, limited by registers (128 registers", "__launch_bounds__"}, gpu(two(), nil)},
		{"occupancy", gpu(two(), shared), 20 * 7500, []string{"with 25 %, limited by shared memory", "less shared memory per block"}, gpu(two(), small)},
		{"occupancy", gpu(two(), dram(30)), 20 * 7500, nil, gpu(two(), dram(71))}, // memory near its peak
		{"occupancy", gpu(ceilings(10_000), fat), 20 * 5000, nil, gpu(ceilings(15_000), fat)},
		{"floor", gpu(ceilings(8000), nil), 20 * 6000, []string{"2 stages take more than 2 times the floor: 0.200 ms, of which the floor is 0.080 ms", "decode step, h.N.ln_1: 0.200 ms in 20 calls"}, gpu(ceilings(12_000), nil)},
		{"small-grid", gpu(ceilings(8000), small), 20 * 6000, []string{"25 blocks"}, gpu(ceilings(8000), nil)}, // no more than what is above the floor
		{"warm-up", loads("cuLibraryLoadData"), 300_000, []string{"cuLibraryLoadData: 0.300 ms in 1 call"}, loads("cudaMalloc")},
		{"allocation", loads("cudaMalloc"), 300_000, []string{"cudaMalloc: 0.300 ms in 1 call"}, loads("cuLibraryLoadData")},
		{"data-loading", iterates("enumerate(DataLoader)#_Iter.__next__"), 300_000, []string{"0.300 ms in 1 gap", "num_workers"}, iterates("forward")},
		{"event", streams("cudaStreamWaitEvent"), 9 * 500, []string{"9 gaps"}, streams("cudaEventRecord")},
		{"unaligned", gpu(two(), named("cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_32x6_tn_align1")), 200_000, []string{"20 products read fewer than 16 bytes", "s16816gemm_bf16_64x64_32x6_tn_align1 of 1,000 blocks: 0.200 ms in 20 kernels", "50304"},
			gpu(two(), named("cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_32x6_tn_align8"))},
		{"float32", gpu(two(), named("ampere_sgemm_128x64_tn")), 200_000, []string{"20 products in float32 without tensor cores, in 0.200 ms", "TF32"}, gpu(two(), named("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n"))},
		{"elementwise", gpu(fixtures.Plan("h.0.a", "h.0.b", "h.0.c"), named("void at::native::vectorized_elementwise_kernel<4, at::native::tanh_kernel_cuda(int)>(int)")), 10 * (2*10_000 + 2*20),
			[]string{"10 runs of elementwise kernels (30 kernels in all)", "3 kernels in a row: tanh, tanh, tanh: 0.300 ms in 10 runs", "torch.compile"}, gpu(two(), named("vectorized_elementwise_kernel"))},
		{"small-copies", gpu(two(), nil, few...), 10 * (10_000 + 10), []string{"10 copies have at most", "of 1000 B"}, gpu(two(), nil)},
		{"divergence", gpu(two(), counted(25)), 20 * 7500, []string{"In 20 kernels fewer than 80 %", "kernel0 with 25 %"}, gpu(two(), counted(90))},
		{"imbalance", cpu(0, uneven), 20 * 150, []string{"2.00 times the mean", "decode step, h.N.ln_1"}, cpu(0, even)},
		{"imbalance", cpu(0, one), 10 * 250 * 3 / 4, []string{"1.60 times the mean of 4 threads", "0.002 ms of 0.005 ms", "decode step, h.N.ln_1: 0.005 ms in 20 runs"}, cpu(0, even)},
		{"barriers", cpu(100, even), 10 * 100, []string{"10 gaps, in which the threads meet"}, cpu(0, even)},
		{"between-passes", cpu(0, even), 9 * 500, []string{"9 gaps", "other things"}, cpu(0, func(int, int, int) int64 { return 500 })},
		{"floor", func() *traces.Trace {
			h := host()
			h.Plans[0].Steps[0].Bytes = 100
			h.Ceilings = []traces.Ceiling{{Device: -1, Name: "read", Unit: "GB/s", Value: 1}}
			return fixtures.Trace(h, cpuPasses(h, 10, 0, even)...)
		}(), 10 * 150, []string{"1 stage takes"}, cpu(0, even)},
	} {
		tested[c.rule] = true
		a := require.Value(Advise(c.with, -1))(t)
		i := slices.IndexFunc(a.Hints, func(h Hint) bool { return h.Rule == c.rule })
		if i < 0 {
			t.Errorf("%s finds nothing; there are %+v, %q", c.rule, a.Hints, a.Notes)
			continue
		}
		h := a.Hints[i]
		if h.Gain != c.gain {
			t.Errorf("%s could gain %d, not %d: %+v", c.rule, h.Gain, c.gain, h)
		}
		text := h.Text + "\n" + strings.Join(h.Rows, "\n") + "\n" + h.Try
		fixtures.Says(t, c.rule, text, c.facts...)
		if h.Percent == nil || *h.Percent != 100*float64(h.Gain)/float64(a.Wall) {
			t.Errorf("%s: %v %% of %d", c.rule, h.Percent, a.Wall)
		}
		if !slices.IsSortedFunc(a.Hints, func(x, y Hint) int { return int(y.Gain - x.Gain) }) {
			t.Errorf("not by gain: %+v", a.Hints)
		}
		b := require.Value(Advise(c.without, -1))(t)
		for _, h := range b.Above(1) {
			if h.Rule == c.rule {
				t.Errorf("%s finds in a trace without it: %+v", c.rule, h)
			}
		}
	}
	for _, r := range Rules {
		if !tested[r.ID] {
			t.Errorf("rule %s is not tested", r.ID)
		}
	}
}

// TestSilent has, for rules that could be false, recordings of which they say nothing, or not what would be wrong there.
func TestSilent(t *testing.T) {
	sgemm := func(name, compute string) *traces.Trace {
		h := fixtures.Plan("h.0.a")
		h.Devices[0].Name, h.Devices[0].Compute = name, compute
		return fixtures.Trace(h, fixtures.Passes(h, 0, 10, func(int, int) int64 { return 10_000 },
			func(k *traces.Event) { k.Name = "sgemm_128x64_nt" })...)
	}
	kernels := func(edit func(i int, k *traces.Event)) *traces.Trace {
		h := fixtures.Plan("h.0.a", "h.1.a")
		i := 0
		return fixtures.Trace(h, fixtures.Passes(h, 0, 10, func(int, int) int64 { return 10_000 }, func(k *traces.Event) {
			edit(i, k)
			i++
		})...)
	}
	few := func(k *traces.Event) { k.Grid = [3]int32{24, 1, 1} }
	fat := func(k *traces.Event) { k.Registers, k.Block[0] = 128, 64 }
	// Copies of a few bytes after long work of the host, and within the GPU.
	copies := func(name string, every, ns int64) *traces.Trace {
		events := fixtures.Launched(99, 0, 5, 10, 20)
		for i := range int64(10) {
			c := copied(name, uint64(100+i), 1000+i*every, ns)
			c[1].Bytes = 8
			events = append(events, c...)
		}
		return fixtures.Trace(&traces.Header{}, events...)
	}
	ahead := func() *traces.Trace { // the call begins before the GPU runs dry, and the work 20 ns after
		var events []traces.Event
		for i := range int64(20) {
			events = append(events, fixtures.Launched(uint64(i+1), i*100+60, i*100+110, i*100+120, i*100+200)...)
		}
		return fixtures.Trace(&traces.Header{}, events...)
	}
	queued := func(compute string) *traces.Trace {
		var events []traces.Event
		for i := range int64(10) {
			events = append(events, fixtures.Launched(uint64(i+1), i, i+1, 1000+i*1500, 2000+i*1500)...)
		}
		return fixtures.Trace(&traces.Header{Devices: []traces.Device{{Name: "GPU", Compute: compute}}}, events...)
	}
	slowHost := func() *traces.Trace { // 1 ms of work of the host before each kernel of 1 us
		var events []traces.Event
		for i := range int64(10) {
			events = append(events, fixtures.Launched(uint64(i+1), i*1e6, i*1e6+10, i*1e6+20, i*1e6+1020)...)
		}
		return fixtures.Trace(&traces.Header{}, events...)
	}
	for name, c := range map[string]struct {
		trace  *traces.Trace
		rule   string
		silent string // "" where the rule finds nothing
	}{
		"a V100 has no bfloat16":        {sgemm("Tesla V100-SXM2-32GB", "7.0"), "float32", "bfloat16"},
		"a V100 has no TF32":            {sgemm("Tesla V100-SXM2-32GB", "7.0"), "float32", "TF32"},
		"a P100 has no tensor cores":    {sgemm("Tesla P100-PCIE-16GB", "6.0"), "float32", ""},
		"matrix cores of AMD are no":    {sgemm("AMD Instinct MI300X", "9.4"), "float32", ""},
		"NCCL has few blocks by design": {kernels(func(_ int, k *traces.Event) { few(k); k.Name = "ncclDevKernel_AllReduce" }), "small-grid", ""},
		"kernels fill the GPU together": {kernels(func(i int, k *traces.Event) {
			few(k)
			k.Lane.ID, k.Time, k.Duration = int64(i%2), k.Time-int64(i%2)*10_000, 9000
		}), "small-grid", ""},
		"tensor cores need few warps":         {kernels(func(_ int, k *traces.Event) { fat(k); k.Name = "nvjet_sm90_tst_192x128_64x5" }), "occupancy", ""},
		"the host's time is not the copies'":  {copies("Memcpy HtoD (Pinned -> Device)", 1_000_000, 1), "small-copies", ""},
		"copies within the GPU":               {copies("Memcpy DtoD (Device -> Device)", 1000, 900), "copies", ""},
		"the call began before":               {ahead(), "launch-latency", "queue work before"},
		"dependent launch is new":             {queued("8.0"), "dependency", "programmatic"},
		"a graph does not shorten other work": {slowHost(), "host-late", "graph"},
		"a loader is not mended by graphs":    {require.Value(load.Load("../testdata/cases/dataloader-bound.json.gz"))(t), "host-late", ""},
		"NCCL, as PyTorch records it":         {require.Value(load.Load("../testdata/cases/nccl-small-grid.json.gz"))(t), "small-grid", ""},
		"a V100, as PyTorch records it":       {require.Value(load.Load("../testdata/cases/float32-on-v100.json.gz"))(t), "float32", "TF32"},
		"a loader is mended by more workers":  {require.Value(load.Load("../testdata/cases/dataloader-bound.json.gz"))(t), "data-loading", "graph"},
		"one wait at the end is no loop":      {fixtures.Trace(&traces.Header{}, append(fixtures.Launched(1, 0, 10, 20, 100), apiCall("cudaDeviceSynchronize", 30, 80))...), "sync", ""},
		"code that is loaded is no late host": {samples.Load(t, "eager.sqlite"), "host-late", ""},
		"code that is loaded is no latency":   {samples.Load(t, "eager.sqlite"), "launch-latency", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := require.Value(Advise(c.trace, -1))(t)
			hints := a.Hints
			if c.silent == "" {
				hints = a.Above(5)
			}
			i := slices.IndexFunc(hints, func(h Hint) bool { return h.Rule == c.rule })
			switch {
			case c.silent == "" && i >= 0:
				t.Errorf("%+v", hints[i])
			case c.silent != "" && i < 0:
				t.Errorf("%s finds nothing; there are %+v", c.rule, a.Hints)
			case c.silent != "" && strings.Contains(hints[i].Text+hints[i].Try, c.silent):
				t.Errorf("%q in %+v", c.silent, hints[i])
			}
		})
	}
}

// TestOnce: the gains of all rules add up to no more than the wall time.
func TestOnce(t *testing.T) {
	for _, name := range append(samples.Glob(t, "*.sqlite"), samples.Glob(t, "pytorch/*.sqlite")...) {
		tr := samples.Load(t, name)
		stages.OfRanges(tr, nil)
		a := require.Value(Advise(tr, -1))(t)
		sum := int64(0)
		for _, h := range a.Hints {
			sum += h.Gain
		}
		if sum > a.Wall || sum == 0 {
			t.Errorf("%s: %d of %d ns", name, sum, a.Wall)
		}
	}
}

// TestAdviseQuiet: a run without faults has nothing to say.
func TestAdviseQuiet(t *testing.T) {
	h := fixtures.Plan("h.0.ln_1")
	a, err := Advise(fixtures.Trace(h, fixtures.Passes(h, 0, 10, func(int, int) int64 { return 1_000_000 }, nil)...), -1)
	if err != nil || len(a.Above(1)) != 0 {
		t.Errorf("%+v, error %v", a.Above(1), err)
	}
}

// TestTrustOf: records that were dropped make shares mislead.
func TestTrustOf(t *testing.T) {
	for dropped, trusted := range map[int64]bool{0: true, 3: false} {
		h := fixtures.Plan("h.0.ln_1")
		if dropped > 0 {
			h.Drop("kernels", dropped)
		}
		trust := TrustOf(fixtures.Trace(h, fixtures.Passes(h, 0, 10, func(int, int) int64 { return 1_000_000 }, nil)...))
		if trust.Trusted != trusted || (trust.Reasons() > 0) == trusted {
			t.Errorf("%d dropped: %+v", dropped, trust)
		}
	}
}

// TestAdviseNotes: what cannot be judged is said, and an incomplete trace has no shares.
func TestAdviseNotes(t *testing.T) {
	lost := traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "lost", 10_000, 50)
	odd := append(copied("Memcpy", 50, 5000, 100), lost)
	a := require.Value(Advise(fixtures.Trace(&traces.Header{Incomplete: []string{"lost"}, Overhead: []traces.Overhead{{Phase: "decode step", Baseline: 100, Recorded: 120, Passes: 24}, {Phase: "prefill", Baseline: 100, Recorded: 130, Passes: 23}}}, append(append(fixtures.Launched(1, 0, 5, 10, 30), fixtures.Launched(2, 40, 50, 60, 70)...), odd...)...), -1))(t)
	text := strings.Join(a.Notes, "\n")
	fixtures.Says(t, "", text, "no pass", "shares are withheld, since they would mislead", "20.0 % longer", "does not say how many SMs", "occupancy: the recording does not say", "pageable: 1 copy or set", "does not say what steps cost")
	if strings.Contains(text, "30.0") {
		t.Errorf("23 passes do not tell what recording cost:\n%s", text)
	}
	if len(a.Hints) == 0 {
		t.Error("no hints")
	}
	for _, h := range a.Hints {
		if h.Percent != nil {
			t.Errorf("an incomplete trace has the share %v", *h.Percent)
		}
	}
	h := fixtures.Plan("h.0.ln_1")
	h.Plans[0].Steps[0].Bytes = 100
	a, err := Advise(fixtures.Trace(h, fixtures.Passes(h, 0, 5, func(int, int) int64 { return 100 }, nil)...), -1)
	if err != nil || !strings.Contains(fmt.Sprint(a.Notes), "infer bench ceilings") {
		t.Errorf("without ceilings: %q, error %v", a.Notes, err)
	}
	if _, err := Advise(fixtures.Trace(&traces.Header{}), -1); err == nil {
		t.Error("advice on an empty trace")
	}
}

// TestProductNames: what the names of libraries' products say.
func TestProductNames(t *testing.T) {
	for name, want := range map[string][2]bool{
		"cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align1":                                                         {true, false},
		"cutlass_80_tensorop_f16_s16816gemm_f16_128x64_ldg4_nn_align4":                                                               {true, false},
		"cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_tn_align8":                                                                 {false, false},
		"cutlass_80_simt_sgemm_128x32_8x5_tn_align1":                                                                                 {false, true},
		"sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas": {false, true},
		"sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_stage4_aligna2_alignb2_alignc2_execute_kernel__5x_cublas":         {true, false},
		"void sgemm_largek_lds64<(bool)1, (bool)0, (int)5>(float *, const float *)":                                                  {false, true},
		"void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(cublasGemvParamsEx<int>)":                {false, true},
		"void gemvNSP_kernel<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 1, 32, 4, 1024>(cublasGemvParamsEx)":                {false, false},
		"nvjet_sm90_tst_192x128_64x5_2x1_v_bz_coopB_TNT":                                                                             {false, false},
		"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>":                                      {false, false},
		"cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4":                                                                       {false, false},
	} {
		if got := [2]bool{unaligned(name), withoutTensorCores(name)}; got != want {
			t.Errorf("%s: unaligned and without tensor cores are %v, not %v", name, got, want)
		}
	}
}

// TestCaptures: the faults of programs that were made with them are found in their captures.
func TestCaptures(t *testing.T) {
	for name, facts := range map[string]map[string][]string{
		"bad.sqlite": {"float32": {"63 products in float32"},
			"elementwise":  {"14 runs", "8 kernels in a row: Mul scalar, pow, Mul scalar, add, Mul scalar, tanh, add scalar, Mul"},
			"small-copies": {"140 copies", "112 copies"}, "pageable": {"133 copies use", "at 9.1 GB/s"},
			"sync": {"cudaStreamSynchronize in forward: 0.990 ms in 147 calls"}},
		"kineto.json.gz": {"host-late": {"in aten::addmm: 0.521 ms in 24 gaps", "in forward: 0.984 ms in 79 gaps"}},
		"unaligned.sqlite": {"unaligned": {"3 products read fewer than 16 bytes", "in 0.385 ms",
			"cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1 of 800 blocks"}},
	} {
		tr := samples.Load(t, "pytorch/"+name)
		if name == "bad.sqlite" && !stages.OfRanges(tr, nil) {
			t.Fatal("it has no ranges")
		}
		for _, h := range require.Value(Advise(tr, -1))(t).Hints {
			fixtures.Says(t, h.Rule, h.Text+strings.Join(h.Rows, "\n"), facts[h.Rule]...)
			delete(facts, h.Rule)
		}
		for rule := range facts {
			t.Errorf("%s finds nothing", rule)
		}
	}
}

// TestChecks: what the indicators say decides the answers, and each answer that is not no says what to do next.
func TestChecks(t *testing.T) {
	launchBound := map[string]float64{"kernel_median": 2000, "launch_latency": 8000, "starved_percent": 80, "compute_percent": 10}
	with := func(values map[string]float64, key string, v float64) map[string]float64 {
		values = maps.Clone(values)
		values[key] = v
		return values
	}
	costs := &tables.Table{Rows: []tables.Row{{Kind: tables.RowWork, Exclusive: 1000, Bytes: 4000, Floor: 800, Bound: "bytes"}, {Kind: tables.RowWork, Exclusive: 100}}}
	for i, want := range []string{"by the bytes of the stages they move 4 GB/s; at the measured ceiling their bytes need 80.0 %", "is not in this recording"} {
		c := checklist(&Report{}, &tables.Table{Rows: costs.Rows[i:]})
		if at := slices.IndexFunc(c, func(k Check) bool { return strings.Contains(k.Question, "memory bandwidth") }); !strings.Contains(c[at].Evidence, want) || (c[at].Answer == Yes) != (i == 0) {
			t.Errorf("%+v", c[at])
		}
	}
	idle := &tables.Table{Rows: []tables.Row{{Kind: tables.RowIdle, Name: tables.IdleSync, Exclusive: 5e5}, {Kind: tables.RowIdle, Name: tables.IdleHost, Exclusive: 2e5}, {Kind: tables.RowIdle, Name: tables.IdleHost, Exclusive: 1e5}}}
	for _, c := range []struct {
		question       string // a word of it
		values         map[string]float64
		answer         Answer
		evidence, next string
	}{
		{"transfers", map[string]float64{"transfer_time": 3e5, "compute_percent": 20, "compute_copy_overlap_percent": 10, "h2d_pageable_time": 1e5}, Yes, "copies and sets run for 0.300 ms, kernels for 0.200 ms; a kernel runs beside them for 10.0 %", "pinned memory"},
		{"transfers", map[string]float64{"transfer_time": 3e5, "compute_percent": 20, "compute_copy_overlap_percent": 80}, Yes, "80.0 %", "in large pieces"},
		{"transfers", map[string]float64{"transfer_time": 1e5, "compute_percent": 20}, No, "0.100 ms", ""},
		{"transfers", map[string]float64{"transfer_time": 0, "compute_percent": 20}, No, "there are no copies and sets; kernels run for 0.200 ms", ""},
		{"transfers", map[string]float64{"compute_percent": 20}, Unknown, "is not in this recording", ""},
		{"CPU be faster", launchBound, Unknown, "faster if it needs less than 10.0 times their time", "measure the same work on the CPU"},
		{"CPU be faster", with(launchBound, "compute_percent", 2), Yes, "less than 50.0 times", "measure"},
		{"CPU be faster", with(launchBound, "starved_percent", 20), No, "no work for 20.0 %", ""},
		{"CPU be faster", with(launchBound, "kernel_median", 9000), No, "takes 9.00 us", ""},
		{"CPU be faster", with(launchBound, "launch_latency", 0), No, "none was launched on an idle GPU", ""},
		{"CPU be faster", map[string]float64{"launch_latency": 0, "starved_percent": 78}, Unknown, "no kernel ran", ""},
		{"poorly used", map[string]float64{"gpu_busy_percent": 30}, Yes, "works for 30.0 % of the time; idle: synchronisation 0.500 ms, host late 0.300 ms", "infer trace advise"},
		{"poorly used", map[string]float64{"gpu_busy_percent": 95, "grid_fill_percent": 20}, Yes, "blocks for 20.0 % of the SMs", "grids of more blocks"},
		{"poorly used", map[string]float64{"gpu_busy_percent": 95, "grid_fill_percent": 90, "sm_utilisation_percent": 30}, Yes, "30.0 % of the SMs are active", "infer trace advise"},
		{"poorly used", map[string]float64{"gpu_busy_percent": 95, "grid_fill_percent": 90}, No, "95.0 %", ""},
		{"poorly used", nil, Unknown, "work of a GPU is not in this recording", "record with nsys"},
		{"memory bandwidth", map[string]float64{"dram_throughput_percent": 80, "sm_throughput_percent": 20}, Yes, "80.0 % of the memory's peak bandwidth on average, and 20.0 % of what the SMs can do", "fewer bytes"},
		{"memory bandwidth", map[string]float64{"dram_throughput_percent": 10, "sm_throughput_percent": 90}, No, "10.0 %", "the SMs are the limit"},
		{"memory bandwidth", map[string]float64{"dram_throughput_percent": 10, "sm_throughput_percent": 10}, No, "10.0 %", "neither is at its limit"},
		{"memory bandwidth", map[string]float64{"dram_bandwidth_percent": 40, "compute_percent": 50}, Yes, "80.0 %", "fewer bytes"},
		{"memory usage", map[string]float64{"memory_peak_percent": 95, "memory_peak": 1 << 30}, Yes, "at most 1.00 GiB are held, 95.0 %", "smaller batches"},
		{"memory usage", map[string]float64{"memory_peak_percent": 50}, No, "50.0 %", ""},
		{"diverge", map[string]float64{"warp_efficiency_percent": 40}, Yes, "40.0 % of the threads", "same branch"},
		{"diverge", map[string]float64{"warp_efficiency_percent": 99}, No, "99.0 %", ""},
	} {
		report := &Report{Wall: 1e6, Indicators: []Indicator{{Key: "gpu_busy_percent", RecordWith: "nsys"}}}
		for key, v := range c.values {
			report.Indicators = slices.Insert(report.Indicators, 0, Indicator{Key: key, Value: &v})
		}
		checks := checklist(report, idle)
		got := checks[slices.IndexFunc(checks, func(k Check) bool { return strings.Contains(k.Question, c.question) })]
		if got.Answer != c.answer || !strings.Contains(got.Evidence, c.evidence) || !strings.Contains(got.Next, c.next) || c.answer == No && c.next == "" && got.Next != "" {
			t.Errorf("%v: %+v", c.values, got)
		}
	}
}
