package exec

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/record"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// recorded runs text of a prompt and n decode steps, twice with a warm-up before, and returns the trace of the last.
func recorded(t *testing.T, mode Mode, prompt, n int) (*Runner, *traces.Trace) {
	t.Helper()
	lib, c := onStub(t)
	m, err := gpt2.Random(small)
	must(t, err)
	r := prepared(t, m, c, backendOn(t, lib, Options{Mode: mode}), gpt2.Options{})
	rec := record.New("test", "1")
	must(t, r.StartRecording(rec))
	if err := r.StartRecording(rec); err == nil {
		t.Error("it was recorded twice at once")
	}
	run := func() {
		must(t, r.Rewind(0))
		prefill(t, r, make([]int32, prompt), samplingPass(1, prompt))
		must(t, r.Decode(context.Background(), n, func([]gpt2.Token) bool { return true }))
	}
	warm := rec.WarmUp()
	run()
	run()
	warm()
	run()
	must(t, r.StopRecording())
	return r, rec.Trace()
}

// Each step of each pass has its kernels, in modes that launch them one by one or as a graph the same ones, and the
// table by stage accounts for the time.
func TestStamps(t *testing.T) {
	const steps = 100
	kernels := map[Mode]map[string]int{}
	for _, mode := range []Mode{Eager, Graph} {
		r, trace := recorded(t, mode, 20, steps)
		kernels[mode] = map[string]int{}
		found := traces.Examine(trace.Header, trace.Attribution)
		if traces.Misleads(found) {
			t.Errorf("%v: the trace misleads: %+v", mode, found)
		}
		decode := r.Plan(r.decodePass())
		positions := map[float64]bool{}
		var warmTo int64
		for _, e := range trace.Events {
			if e.WarmUp {
				warmTo = e.End()
			}
		}
		passes := map[uint64]*traces.Event{}
		for i := range trace.Events {
			if e := &trace.Events[i]; e.Kind == traces.KindPass && e.Time >= warmTo {
				passes[e.ID] = e
				if e.Name == gpt2.DecodePass {
					positions[e.Value] = true
				}
			}
		}
		if len(passes) != steps+1 || len(positions) != steps || !positions[20] || !positions[20+steps-1] {
			t.Errorf("%v: %d passes, decode steps at %d positions", mode, len(passes), len(positions))
		}
		calls := map[uint64]bool{}
		for _, e := range trace.Events {
			if e.Kind.IsCall() && e.Correlation != 0 {
				calls[e.Correlation] = true
			}
		}
		var last int64
		for i := range trace.Events {
			e := &trace.Events[i]
			if e.Kind != traces.KindKernel || e.Time < warmTo {
				continue
			}
			step, ok := trace.Header.Step(e)
			if !ok || passes[e.Parent] == nil || !calls[e.Correlation] {
				t.Fatalf("%v: a kernel is of no step, pass or call: %+v", mode, e)
			}
			if e.Time < last {
				t.Errorf("%v: %s begins before the kernel before it ends", mode, step.Name)
			}
			last = e.End()
			kernels[mode][trace.Header.Plans[e.Plan].Phase+" "+step.Name]++
		}
		for _, s := range decode.Steps {
			if n := kernels[mode][gpt2.DecodePass+" "+s.Name()]; n < steps || n%steps != 0 {
				t.Errorf("%v: %s has %d kernels in %d steps", mode, s.Name(), n, steps)
			}
		}
		if n := checkKernels(t, trace, r.Plan(r.backend.executed(samplingPass(1, 20), 256)), decode); n < steps+1 {
			t.Errorf("%v: %d passes were recorded", mode, n)
		}
		table, err := tables.Summarize(trace, tables.ByStage, -1)
		must(t, err)
		var sum, rest int64
		for _, row := range table.Rows {
			sum += row.Exclusive
			if row.Kind == tables.RowResidual || row.Name == tables.IdleUnknown {
				rest += row.Exclusive
			}
		}
		if sum != table.Wall || rest > table.Wall/50 {
			t.Errorf("%v: rows sum to %d of %d, %d of it not known", mode, sum, table.Wall, rest)
		}
		for _, p := range trace.Header.Plans {
			if want := map[bool]int{true: 32, false: 0}[mode.captures() && p.Phase == gpt2.PrefillPass]; p.Padded != want {
				t.Errorf("%v: %s of %d tokens is padded to %d, want %d", mode, p.Phase, p.Tokens, p.Padded, want)
			}
		}
	}
	for _, mode := range []Mode{Eager, Graph} {
		if a, b := fmt.Sprint(kernels[Eager]), fmt.Sprint(kernels[mode]); a != b {
			t.Errorf("kernels by stage: eager %s, %s %s", a, mode, b)
		}
	}
}

// checkKernels checks that each recorded pass has one kernel for each launch of its plan, in order, of the step's
// function, and within the time in which it was launched: the stub runs nothing later.
func checkKernels(t *testing.T, trace *traces.Trace, prefill, decode *gpt2.Plan) (passes int) {
	t.Helper()
	kernels := map[uint64][]*traces.Event{} // by pass
	calls := map[uint64]*traces.Event{}     // by correlation
	for i := range trace.Events {
		switch e := &trace.Events[i]; {
		case e.Kind == traces.KindKernel:
			kernels[e.Parent] = append(kernels[e.Parent], e)
		case e.Kind.IsCall() && e.Correlation != 0:
			calls[e.Correlation] = e
		}
	}
	for i := range trace.Events {
		pass := &trace.Events[i]
		if pass.Kind != traces.KindPass {
			continue
		}
		passes++
		plan := prefill
		if pass.Name == gpt2.DecodePass {
			plan = decode
		}
		names, steps := launchesOf(plan)
		got := kernels[pass.ID]
		if len(got) != len(names) {
			t.Fatalf("a %s at %g has %d kernels, want %d", pass.Name, pass.Value, len(got), len(names))
		}
		for k, e := range got {
			if e.Plan != pass.Plan || int(e.Step) != steps[k] || e.Name != names[k] && (names[k] != "gs_linear" || !strings.HasPrefix(e.Name, libraryName)) {
				t.Fatalf("kernel %d of a %s is %q of step %d, want %q of step %d", k, pass.Name, e.Name, e.Step, names[k], steps[k])
			}
			call := calls[e.Correlation]
			if call == nil || e.Time < call.Time || e.End() > call.End() && e.Name == names[k] {
				t.Fatalf("kernel %d of a %s, %s, ran from %d to %d; its launch is %+v", k, pass.Name, e.Name, e.Time, e.End(), call)
			}
			if k > 0 && e.Time < got[k-1].End() {
				t.Fatalf("kernel %d of a %s begins before the one before it ends", k, pass.Name)
			}
		}
	}
	return passes
}

// A recording stops with its runner, and a runner records again.
func TestRecordAgain(t *testing.T) {
	r, _ := recorded(t, Graph, 3, 2)
	if err := r.StopRecording(); err != nil {
		t.Error(err)
	}
	rec := record.New("test", "2")
	must(t, r.StartRecording(rec))
	must(t, r.Rewind(0))
	prefill(t, r, []int32{1, 2}, samplingPass(1, 2))
}
