package cpu

import (
	"context"
	"slices"
	"strings"
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/record"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// TestRecording compares a recorded session with one that is not: the tokens are the same, and each pass has each step
// once on each thread.
func TestRecording(t *testing.T) {
	const threads, prompt, steps = 2, 9, 12
	m := newModel(t, "random:L=2,C=64,NH=4,V=257,T=64")
	b := newBackend(t, Options{Threads: threads})
	run := func(rec *record.Recorder) (ids []int32, plans [2]*gpt2.Plan) {
		s := newSession(t, m, b, gpt2.Options{})
		if rec != nil {
			must(t, s.Record(rec))
			if err := s.Record(rec); err == nil {
				t.Error("a second recorder was accepted while one was recording")
			}
		}
		for token, err := range s.Generate(context.Background(), make([]int32, prompt),
			gpt2.Generation{Tokens: steps + 1, IgnoreEOS: true}) {
			must(t, err)
			ids = append(ids, token.ID)
		}
		for range 2 { // the second does nothing
			must(t, s.StopRecording())
		}
		plans[0] = s.Runner().Plan(gpt2.Pass{Batch: 1, Tokens: prompt, Logits: gpt2.LogitsLast, Sample: true})
		plans[1] = s.Runner().Plan(gpt2.Pass{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true})
		return ids, plans
	}
	want, _ := run(nil)
	rec := record.New("test", "1")
	got, plans := run(rec)
	if !slices.Equal(got, want) {
		t.Errorf("recorded tokens %v, others %v", got, want)
	}
	trace := rec.Trace()
	passes := map[uint64]*traces.Event{}
	ran := map[uint64]map[[2]int64]int{} // of a pass: how often a step ran on a thread
	last := map[traces.Lane]int64{}
	for i := range trace.Events {
		e := &trace.Events[i]
		switch e.Kind {
		case traces.KindPass:
			passes[e.ID] = e
			ran[e.ID] = map[[2]int64]int{}
			if want := float64(prompt + len(passes) - 2); len(passes) > 1 && (e.Value != want || e.Name != gpt2.DecodePass) {
				t.Errorf("pass %d is a %s at %g, want %g", len(passes), e.Name, e.Value, want)
			}
		case traces.KindStep:
			p := passes[e.Parent]
			if p == nil || e.Time < p.Time || e.End() > p.End() || e.Plan != p.Plan {
				t.Fatalf("a step lies outside its pass: %+v in %+v", e, p)
			}
			if e.Time < last[e.Lane] {
				t.Errorf("%s begins before the step before it ends", e.Name)
			}
			last[e.Lane] = e.End()
			if step, ok := trace.Header.Step(e); !ok || step.Name != e.Name {
				t.Errorf("step %q has tag %d of plan %d", e.Name, e.Step, e.Plan)
			}
			ran[e.Parent][[2]int64{int64(e.Step), e.Lane.ID}]++
		default:
			t.Errorf("an event of kind %v", e.Kind)
		}
	}
	if len(passes) != steps+1 {
		t.Fatalf("%d passes", len(passes))
	}
	for id, p := range passes {
		plan := plans[min(1, int(p.Value))]
		events := 0
		for at, n := range ran[id] {
			if n != 1 {
				t.Errorf("step %d ran %d times on thread %d", at[0], n, at[1])
			}
			events++
		}
		if want := (len(plan.Steps)-1)*threads + 1; events != want { // one thread samples
			t.Errorf("%s at %g has %d events of steps, want %d", p.Name, p.Value, events, want)
		}
	}
	for _, f := range traces.Examine(trace.Header, trace.Attribution) {
		if f.Misleads && !strings.Contains(f.Text, "CPU share") { // which is low on a busy machine
			t.Errorf("the trace misleads: %s", f.Text)
		}
	}
	table, err := tables.Summarize(trace, tables.ByStage, -1)
	must(t, err)
	sum := int64(0)
	for _, r := range table.Rows {
		sum += r.Exclusive
	}
	if sum != table.Wall {
		t.Errorf("rows sum to %d of %d ns", sum, table.Wall)
	}
}

// BenchmarkNoRecording measures what recording costs a pass when it is off.
func BenchmarkNoRecording(b *testing.B) {
	r := new(runner)
	c := &compiled{program: new(program)}
	for b.Loop() {
		note := r.recording.begin(r, c)
		if _, err := r.recording.stampsOf(c.program); err != nil {
			b.Fatal(err)
		}
		note.ran(r.recording)
		note.done(r.recording)
	}
}
