package report

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
)

// evil is a name that would run if it were not text.
const evil = `</script><img src=x onerror="broken=1"><script>broken=1</script>{{.}}'"&`

// run is a made-up recording of passes on a GPU: for each step a call and a kernel.
type run struct {
	header traces.Header
	events []traces.Event
	now    int64
	id     uint64
}

func newRun(names ...string) *run {
	r := &run{header: traces.Header{Version: 1, Tool: "gpt2scope", Recorder: traces.RecorderCUPTI, Process: 1, Clock: traces.Clock{Domain: "cupti", Uncertainty: 1000}}}
	plan := traces.Plan{Phase: "decode step", Batch: 1, Tokens: 1}
	for i, name := range names {
		plan.Steps = append(plan.Steps, traces.Step{Tag: i, Name: name, Op: "Linear", Layer: -1, Slot: -1, FLOPs: int64(1+i) * 400_000, Bytes: int64(1+i) * 800_000})
	}
	r.header.Plans = []traces.Plan{plan}
	return r
}

// pass adds a pass: calls of 3 us each, kernels of some us behind them.
func (r *run) pass(rnd *rand.Rand, kernel string) {
	begin, gpu := r.now, r.now
	thread, api, stream := traces.Thread(1, 10), traces.API(1, 10), traces.Stream(1, 0, 1, 7)
	for tag, s := range r.header.Plans[0].Steps {
		r.id++
		step := traces.Plain(traces.KindStep, thread, s.Name, r.now, 4000)
		step.Plan, step.Step = 0, int32(tag)
		call := traces.Plain(traces.KindRuntime, api, "cudaLaunchKernel", r.now+500, 3000)
		call.Correlation = r.id
		gpu = max(gpu+rnd.Int64N(400), r.now+2000+rnd.Int64N(4000))
		k := traces.Plain(traces.KindKernel, stream, kernel, gpu, 800+rnd.Int64N(6000))
		k.Correlation, k.Grid, k.Block, k.Registers = r.id, [3]int32{12, 1, 1}, [3]int32{128, 1, 1}, 40
		gpu = k.End()
		r.events = append(r.events, step, call, k)
		r.now += 4000
	}
	pass := traces.Plain(traces.KindPass, thread, "decode step", begin, r.now-begin)
	pass.Plan = 0
	r.events = append(r.events, pass)
	r.now = max(r.now, gpu) + rnd.Int64N(3000)
}

// layered is a recording of three layers.
func layered() *traces.Trace {
	r, rnd := newRun("wte+wpe", "h.0.attn.c_attn", "h.0.residual_2+h.1.ln_1", "h.1.attn.c_attn", "h.1.residual_2+h.2.ln_1", "h.2.attn.c_attn", "ln_f+lm_head"), rand.New(rand.NewPCG(5, 6))
	for range 5 {
		r.pass(rnd, "gemm")
	}
	return fixtures.Trace(&r.header, r.events...)
}

// withCosts is a recording with costs, ceilings, recording overhead, energy and counters.
func withCosts(t *testing.T) *traces.Trace {
	t.Helper()
	r, rnd := newRun("wte+wpe", "h.0.ln_1+h.0.attn.c_attn", "h.0.attn.sdpa", "ln_f+lm_head"), rand.New(rand.NewPCG(1, 2))
	r.header.DType = "bf16"
	r.header.Devices = []traces.Device{{ID: 0, Name: "GPU of a test", Compute: "9.0", SMs: 132, Memory: 80 << 30, Bandwidth: 4.8e12, ClockHz: 1.98e9}}
	r.header.Ceilings = []traces.Ceiling{{Name: "read", Unit: "GB/s", Value: 4000}, {Name: "read", Unit: "GB/s", Value: 9000, Size: 30 << 20},
		{Name: "bf16", Unit: "TFLOP/s", Value: 800}, {Name: "f32", Unit: "TFLOP/s", Value: 50}}
	r.header.Overhead = []traces.Overhead{{Phase: "decode step", Baseline: 20_000, Recorded: 23_000, Passes: 100}}
	r.header.Energy = []traces.Energy{{What: "decode", Millijoule: 5000, Tokens: 100, Resolution: 7, Source: "total energy counter"}}
	for i := range 20 {
		r.pass(rnd, fmt.Sprintf("gemm_%d", i%3))
		power := traces.Plain(traces.KindCounter, traces.Lane{Kind: traces.LaneCounter}, "power", r.now, 0)
		power.Value = 300 + float64(i)
		r.events = append(r.events, power)
	}
	return fixtures.Trace(&r.header, r.events...)
}

// host is a recording of a CPU with two threads.
func host(t *testing.T) *traces.Trace {
	t.Helper()
	r := newRun("wte+wpe", "ln_f+lm_head")
	r.header.Recorder = traces.RecorderHost
	var events []traces.Event
	for p := range int64(10) {
		at := p * 10_000
		pass := traces.Plain(traces.KindPass, traces.Thread(1, 10), "decode step", at, 9000)
		pass.Plan = 0
		events = append(events, pass)
		for tag := range int32(2) {
			for thread := range int64(2) {
				e := traces.Plain(traces.KindStep, traces.Thread(1, 10+thread), "", at+int64(tag)*4000+thread*30, 3500)
				e.Plan, e.Step, e.Name = 0, tag, r.header.Plans[0].Steps[tag].Name
				events = append(events, e)
			}
		}
	}
	return fixtures.Trace(&r.header, events...)
}

// hostile has markup in every text.
func hostile() *traces.Trace {
	r := newRun(evil, evil+" 2")
	r.pass(rand.New(rand.NewPCG(1, 2)), evil)
	h := &r.header
	h.Tool, h.Release, h.Command, h.DType, h.Plans[0].Phase = evil, evil, []string{evil}, evil, evil
	h.Devices = []traces.Device{{Name: evil, Compute: evil}}
	h.Versions = map[string]string{evil: evil}
	h.Lanes = []traces.LaneName{{Lane: traces.Thread(1, 10), Name: evil}}
	h.NotRecorded = []string{evil}
	h.Incomplete = []string{evil}
	h.Overhead = []traces.Overhead{{Phase: evil}}
	h.Energy = []traces.Energy{{What: evil, Source: evil}}
	h.Ceilings = []traces.Ceiling{{Name: evil, Unit: evil, Value: 1}}
	open := traces.Plain(traces.KindRange, traces.Thread(1, 11), evil, 0, 0)
	open.Open, open.Domain = true, evil
	counter := traces.Plain(traces.KindCounter, traces.Lane{Kind: traces.LaneCounter}, evil, 10, 0)
	return fixtures.Trace(h, append(r.events, open, counter)...)
}
