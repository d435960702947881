package exec

import (
	"strings"
	"testing"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/internal/stub"
	"gpt2scope/record"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// ofDecode returns the passes of a trace that are decode steps, after the warm-up, and the kernels of each.
func ofDecode(trace *traces.Trace) (passes []*traces.Event, kernels map[uint64][]*traces.Event) {
	kernels = map[uint64][]*traces.Event{}
	warm := int64(0)
	for i := range trace.Events {
		switch e := &trace.Events[i]; {
		case e.WarmUp:
			warm = e.End()
		case e.Kind == traces.KindPass && e.Name == gpt2.DecodePass && e.Time >= warm:
			passes = append(passes, e)
		case e.Kind == traces.KindKernel:
			kernels[e.Parent] = append(kernels[e.Parent], e)
		}
	}
	return passes, kernels
}

// TestPersistentRecorded: in mode persistent each decode step of a launch is a pass of the recording, with a kernel for
// each step of the program, of which the parts of its time are those that the stub writes; the table sums to wall time,
// and no pass runs as a graph.
func TestPersistentRecorded(t *testing.T) {
	const steps = 100
	r, trace := recorded(t, Persistent, 20, steps)
	if found := traces.Examine(trace.Header, trace.Attribution); traces.Misleads(found) {
		t.Errorf("the trace misleads: %+v", found)
	}
	if said := r.backend.Describe(); said.Mode != "persistent" || said.Fallback != "" || trace.Header.Recorder != traces.RecorderStamps {
		t.Errorf("mode %s, fallback %q, recorder %s", said.Mode, said.Fallback, trace.Header.Recorder)
	}
	plan := r.Plan(r.decodePass())
	passes, kernels := ofDecode(trace)
	if len(passes) != steps {
		t.Fatalf("%d decode steps are recorded, want %d", len(passes), steps)
	}
	calls := map[uint64]int{}
	for n, pass := range passes {
		of := kernels[pass.ID]
		if pass.Value != float64(20+n) || len(of) != len(plan.Steps)-1 {
			t.Fatalf("decode step %d is at %g, with %d kernels", n, pass.Value, len(of))
		}
		calls[of[0].Correlation]++
		for i, e := range of {
			if step, _ := trace.Header.Step(e); step.Name != plan.Steps[i+1].Name() || e.Correlation != of[0].Correlation || e.Grid[0] != 4 {
				t.Fatalf("kernel %d of a decode step is of %s: %+v", i, step.Name, e)
			}
			if i > 0 && e.Time != of[i-1].End() {
				t.Fatalf("kernel %d begins %d ns after the one before it ends", i, e.Time-of[i-1].End())
			}
			in := e.Inside
			if in == nil || in.Parts.Sum() != e.Duration || in.SMs != 4-(i+1)%2 {
				t.Fatalf("kernel %d of %d ns: %+v", i, e.Duration, in)
			}
			if i == 0 {
				continue
			}
			// Block b of SMs blocks: ready at b, inputs at 100+b, outputs at 400+10b; 0.1 % is the drift of the clock, and 2 ns
			// are what rounding leaves.
			last, b := int64(400+10*(in.SMs-1)), int64(in.SMs-1)
			before := int64(400 + 10*(7-in.SMs-1)) // when the step before, in which 3 or 4 SMs have a part, ends
			want := traces.Parts{Weights: 1000 - before + b/2, Inputs: 100, Compute: 300 + 9*b/2, Imbalance: 10 * b / 2}
			near := func(got, want int64) bool { return got-want <= 4 && want-got <= 4 }
			if !near(e.Duration, 1000+last-before) || !near(in.Weights, want.Weights) || !near(in.Inputs, want.Inputs) || !near(in.Compute, want.Compute) || !near(in.Imbalance, want.Imbalance) {
				t.Fatalf("kernel %d of %d ns: %+v, want %+v", i, e.Duration, in.Parts, want)
			}
		}
	}
	if len(calls) != (steps+cuda.PersistentTokens-1)/cuda.PersistentTokens {
		t.Errorf("%d launches of %d decode steps", len(calls), steps)
	}
	for i := range trace.Events {
		if e := &trace.Events[i]; e.Kind == traces.KindKernel && e.Name == "gs_sample" && e.Parent == passes[0].ID {
			t.Error("a decode step ran as a graph")
		}
	}

	table, err := tables.Summarize(trace, tables.ByFolded, -1)
	must(t, err)
	var sum int64
	for _, f := range table.Folded {
		sum += f.Exclusive
		if inside := f.Kind == tables.RowWork && f.Phase == gpt2.DecodePass; inside != (f.Inside != nil) || inside && f.Inside.Sum() != f.Exclusive {
			t.Errorf("%s %s: %d ns, inside %+v", f.Phase, f.Name, f.Exclusive, f.Inside)
		}
	}
	if sum != table.Wall {
		t.Errorf("rows sum to %d of %d ns", sum, table.Wall)
	}
}

// TestPersistentEachSM: the times of each SM are kept of each n-th decode step of the recording, whichever launch it is
// in, and sum to the time of the step.
func TestPersistentEachSM(t *testing.T) {
	for _, steps := range []int{5, 40, 200} {
		_, trace := recorded(t, Persistent, 20, steps)
		passes, kernels := ofDecode(trace)
		var kept []int
		for n, pass := range passes {
			of := kernels[pass.ID]
			if of[0].Inside.Each == nil {
				continue
			}
			kept = append(kept, n)
			for i, e := range of {
				parts := 0
				for _, p := range e.Inside.Each {
					if p == (traces.Parts{}) {
						continue
					}
					if parts++; p.Sum() != e.Duration {
						t.Fatalf("step %d of %d ns: %+v", i, e.Duration, e.Inside)
					}
				}
				if parts != e.Inside.SMs || len(e.Inside.Each) != 4 {
					t.Fatalf("step %d: %d of %d SMs have a part, want %d", i, parts, len(e.Inside.Each), e.Inside.SMs)
				}
			}
		}
		if steps < 40 {
			continue
		}
		every := 27 // the warm-up is counted too
		if steps > 100 {
			every = 81
		}
		for i, n := range kept {
			if n != kept[0]+i*every || kept[0] >= every || kept[len(kept)-1]+every < steps {
				t.Fatalf("of %d decode steps those of %v have the times of each SM, want each %d-th", steps, kept, every)
			}
		}
	}
}

// TestPersistentRecordingEnds: a recording of decode steps that stop early, or whose launch fails or waits too long,
// has the passes that ran, and frees what it used.
func TestPersistentRecordingEnds(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	for what, f := range map[string]struct {
		fail string
		nth  int
		late bool
		keep int
		stop bool // it is StopRecording that fails
	}{"stops early": {keep: 3}, "launch fails": {fail: "gs_persistent", nth: 3}, "copy fails": {fail: "gs_copy_now", nth: 1, stop: true}, "no memory": {fail: "alloc", nth: 1}, "late": {late: true}} {
		b, _ := persistentOn(t, lib, Options{})
		before := c.Live()
		r, err := b.Prepare(t.Context(), m, gpt2.Options{Batch: 1, Context: 256, Layers: gpt2.FirstLayers(2)})
		must(t, err)
		run := r.(*Runner)
		decoded(t, run, make([]int32, 20), 1)
		to := record.New("test", "1")
		must(t, run.StartRecording(to))
		if f.fail != "" {
			c.Fail(f.fail, f.nth)
		}
		if f.late {
			c.Decode(stub.Decode{Timeout: 4, At: 1 << 16})
		}
		read := 0
		err = run.Decode(t.Context(), 60, func([]gpt2.Token) bool { read++; return f.keep == 0 || read < f.keep })
		if (err == nil) != (f.keep > 0 || f.stop) {
			t.Errorf("%s: %v after %d tokens", what, err, read)
		}
		if !f.stop {
			c.Fail("", 0)
		}
		c.Decode(stub.Decode{})
		err = run.StopRecording()
		c.Fail("", 0)
		if (err != nil) != f.stop && f.fail != "gs_persistent" && f.fail != "alloc" {
			t.Errorf("%s: stopping: %v", what, err)
		}
		if passes, _ := ofDecode(to.Trace()); err == nil && len(passes) < read {
			t.Errorf("%s: %d passes are recorded, and %d tokens were read", what, len(passes), read)
		}
		if err := r.Close(); err != nil && !strings.Contains(err.Error(), "stub") {
			t.Errorf("%s: %v", what, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if live := c.Live(); live != before {
			t.Errorf("%s: %d objects of the device are not freed", what, live-before)
		}
	}
}

// TestPersistentRecordedLong: more launches than there is room for stamps: the first ones are recorded, in order, each
// with its own times, and the others are counted.
func TestPersistentRecordedLong(t *testing.T) {
	lib, c := onStub(t)
	b, _ := persistentOn(t, lib, Options{})
	r := prepared(t, randomModel(t, small), c, b, gpt2.Options{})
	to := record.New("test", "1")
	must(t, r.StartRecording(to))
	const texts, n = 24, 200
	for range texts {
		must(t, r.Rewind(0))
		decoded(t, r, make([]int32, 20), n)
	}
	must(t, r.StopRecording())
	trace := to.Trace()
	passes, kernels := ofDecode(trace)
	lost := int64(0)
	for _, n := range trace.Header.Dropped {
		lost += n
	}
	if len(passes) != 4096 || lost != texts*n-4096 {
		t.Fatalf("%d decode steps, dropped %v", len(passes), trace.Header.Dropped)
	}
	last := int64(0)
	for i, pass := range passes {
		of := kernels[pass.ID]
		if len(of) != 12 || pass.Value != float64(20+i%n) || of[0].Time < last {
			t.Fatalf("decode step %d at %g has %d kernels from %d on; the one before ends at %d", i, pass.Value, len(of), of[0].Time, last)
		}
		for k, e := range of {
			if k > 0 && (e.Duration < 900 || e.Duration > 1100) {
				t.Fatalf("step %d of decode step %d takes %d ns", k, i, e.Duration)
			}
		}
		last = of[len(of)-1].End()
	}
}

// TestPersistentRecordedDrawn: where another kernel draws the tokens, each decode step is a launch of its own and that
// kernel its last step, with a launch and times of its own; and a recording goes on where sampling changes. Tokens that
// the decode kernel draws are recorded as greedy ones.
func TestPersistentRecordedDrawn(t *testing.T) {
	lib, c := onStub(t)
	b, notices := persistentOn(t, lib, Options{})
	r := prepared(t, randomModel(t, large), c, b, gpt2.Options{})
	to := record.New("test", "1")
	must(t, r.StartRecording(to))
	decoded(t, r, make([]int32, 20), 0)
	drawn := gpt2.Sampling{Temperature: 1, Seed: 1}
	for _, s := range []gpt2.Sampling{drawn, {}, drawn, {Temperature: 1, TopK: 40, LogProbs: true}} {
		r.SetSampling(s)
		decoded(t, r, nil, 30)
	}
	must(t, r.StopRecording())
	trace := to.Trace()
	if found := traces.Examine(trace.Header, trace.Attribution); traces.Misleads(found) || len(*notices) > 0 {
		t.Errorf("the trace misleads: %+v; notices %q", found, *notices)
	}
	passes, kernels := ofDecode(trace)
	if len(passes) != 120 {
		t.Fatalf("%d decode steps are recorded", len(passes))
	}
	calls := map[uint64]*traces.Event{}
	for i := range trace.Events {
		if e := &trace.Events[i]; e.Kind.IsCall() && e.Correlation != 0 {
			calls[e.Correlation] = e
		}
	}
	end := int64(0)
	for n, pass := range passes {
		of := kernels[pass.ID]
		last := of[len(of)-1]
		step, _ := trace.Header.Step(last)
		if pass.Value != float64(20+n) || len(of) != 12 || step.Name != "sample" || of[0].Time < end {
			t.Fatalf("decode step %d at %g has %d kernels from %d on, the last of %s", n, pass.Value, len(of), of[0].Time, step.Name)
		}
		end = last.End()
		if byOwn := n < 30 || n >= 60 && n < 90; byOwn != (last.Name == "gs_sample") || byOwn != (last.Inside == nil) || byOwn != (last.Correlation != of[0].Correlation) {
			t.Fatalf("decode step %d ends with %+v", n, last)
		}
		if call := calls[last.Correlation]; call == nil || last.Inside == nil && (call.Name != "cudaLaunchKernel" || last.Duration <= 0 || last.Time < of[len(of)-2].End()) {
			t.Fatalf("decode step %d: %+v, launched by %+v", n, last, call)
		}
	}
}
