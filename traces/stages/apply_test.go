package stages

import (
	"bytes"
	"strings"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/load"
	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

// TestApply: a recording with inferred stages has every table of our own ones, also after it
// was written and read again, and it says that they are inferred.
func TestApply(t *testing.T) {
	for _, name := range []string{"hf-sdpa-f32-L1-prefill", "hf-sdpa-f16-L12-graph-static-decode", "hf-sdpa-bf16-L6-other-work", "compile-hf-f16-static-decode"} {
		t.Run(name, func(t *testing.T) {
			tr, found := inferSample(t, name, nil)
			stages := map[int64]string{}
			for _, k := range found.Kernels {
				if k.Stage != nil {
					stages[k.Start] = *k.Stage
				}
			}
			fixtures.Check(t, found.Apply(tr))
			var file bytes.Buffer
			w := traces.NewWriter(&file, tr.Header)
			for _, e := range tr.Events {
				w.Write(e) // errors stick
			}
			fixtures.Check(t, w.Close())
			again := fixtures.Must(load.Source{Path: name, Stream: &file}.Load())(t)
			for _, tr := range []*traces.Trace{tr, again} {
				if !strings.Contains(tr.Header.Describe(), "stages inferred, confidence 1.00") {
					t.Errorf("%s", tr.Header.Describe())
				}
				if tr.Passes != len(found.Passes) || traces.Misleads(traces.Examine(tr.Header, tr.Attribution)) {
					t.Errorf("%d passes of %d; %+v", tr.Passes, len(found.Passes), traces.Examine(tr.Header, tr.Attribution))
				}
				for i := range tr.Events {
					e := &tr.Events[i]
					s, ok := tr.Header.Step(e)
					if e.Kind != traces.KindKernel || ok && s.Name == NoStage {
						continue
					}
					if s.Name != stages[e.Time] {
						t.Fatalf("the kernel at %d has the step %q, not %q", e.Time, s.Name, stages[e.Time])
					}
				}
				for _, by := range tables.Bys {
					if _, err := tables.Summarize(tr, by, -1); err != nil && by != tables.BySM {
						t.Errorf("by %s: %v", by, err)
					}
				}
			}
			if err := found.Apply(tr); err == nil {
				t.Error("stages were inferred twice")
			}
		})
	}
}

// TestPlanOrder: the steps of an inferred plan are in the order of the model.
func TestPlanOrder(t *testing.T) {
	tr, found := inferSample(t, "compile-plain-f32-prefill", nil)
	fixtures.Check(t, found.Apply(tr))
	var names []string
	for _, s := range tr.Header.Plans[0].Steps {
		names = append(names, s.Name)
	}
	layer := func(n string) string {
		return strings.ReplaceAll("h.N.attn.c_attn h.N.attn.sdpa h.N.attn.c_proj h.N.residual_1+h.N.ln_2 h.N.mlp.c_fc h.N.mlp.gelu h.N.mlp.c_proj", "N", n)
	}
	want := "wte+wpe+h.0.ln_1 " + layer("0") + " h.0.residual_2+h.1.ln_1 " + layer("1") + " h.1.residual_2+h.2.ln_1 " + layer("2") + " h.2.residual_2+h.3.ln_1 " + layer("3") + " h.3.residual_2+ln_f lm_head"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("the plan is\n%s, want\n%s", got, want)
	}
}

// TestLengthsAreNoWarmUp: a prefill of a longer prompt before shorter ones is of another plan, and no
// warm-up.
func TestLengthsAreNoWarmUp(t *testing.T) {
	var events []traces.Event
	at := int64(0)
	for _, rows := range []int64{512, 64, 64, 64, 64, 64} {
		for _, k := range families[1].list(1, 4) {
			e := k.event
			if strings.Contains(e.Name, "layer_norm") {
				e.Grid = [3]int32{int32(rows), 1, 1}
			}
			e.Time, e.Duration = at, e.Duration*rows
			at += e.Duration + 1
			events = append(events, e)
		}
	}
	tr := traces.NewTrace(&traces.Header{Version: traces.Version, Recorder: traces.RecorderChrome}, events)
	found := fixtures.Must(Infer(tr, nil))(t)
	fixtures.Check(t, found.Apply(tr))
	if w := window.New(tr, 0); len(w.Passes) != 6 || len(w.WarmUp) != 0 {
		t.Errorf("%d passes, %d of warm-up; %s", len(w.Passes), len(w.WarmUp), found.Describe())
	}
}
