package exec

import (
	"slices"
	"strings"
	"testing"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/internal/stub"
	"gpt2scope/record"
)

// These tests of decode=steps run on the stub library.

// stepsOn makes a backend with decode=steps, and collects its notices.
func stepsOn(t testing.TB, lib *cuda.Library, o Options) (*Backend, *[]string) {
	t.Helper()
	var notices []string
	o.Variants, o.Notice = map[string]string{variantDecode: variantSteps}, func(s string) { notices = append(notices, s) }
	return backendOn(t, lib, o), &notices
}

// TestStepsRecorded: each step of the program is a kernel of the recording, and so it is measured.
func TestStepsRecorded(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	b, _ := stepsOn(t, lib, Options{Recorder: RecorderStamps})
	s := session(t, m, b, gpt2.Options{})
	to := record.New("test", "1")
	must(t, s.Record(to))
	generate(t, s, []int32{1, 2, 3}, gpt2.Generation{Tokens: 20, IgnoreEOS: true})
	must(t, s.StopRecording())
	passes, kernels := ofDecode(to.Trace())
	plan := s.Runner().Plan(samplingPass(1, 1))
	if len(passes) < 15 {
		t.Fatalf("%d decode steps", len(passes))
	}
	for _, pass := range passes {
		if of := kernels[pass.ID]; len(of) != len(plan.Steps)-1 || of[0].Name != "gs_persistent_one" || of[0].Step != 1 || of[0].Grid[0] == 0 {
			t.Fatalf("%d kernels, the first %+v", len(of), of[0])
		}
	}
	c.Reset()
	r := s.Runner().(*Runner)
	if _, err := r.Measure(t.Context(), []int32{1}, r.decodePass(), 1); err != nil || countOf(c.Calls(), "gs_persistent_one")%(measureSteps*(len(plan.Steps)-2)) != 0 || slices.Contains(c.Calls(), "gs_embed") {
		t.Errorf("measured: %v", err)
	}
	if n, err := r.Launches(r.decodePass()); err != nil || n != len(plan.Steps)-1 {
		t.Errorf("%d launches of %d steps (%v)", n, len(plan.Steps), err)
	}
}

// TestStepsRefused: what mode persistent cannot run runs by the kernels of mode eager, and a notice says why, once.
func TestStepsRefused(t *testing.T) {
	lib, c := onStub(t)
	for name, f := range map[string]struct {
		options Options
		batch   int
		decode  stub.Decode
		words   string
	}{
		"batch":     {batch: 9, words: "9 sequences"},
		"no kernel": {decode: stub.Decode{Refusal: "no kernel for this"}, words: "no kernel for this"},
		"timeout":   {decode: stub.Decode{Timeout: 30, At: 2<<16 | 3}, words: "timed out"},
	} {
		t.Run(name, func(t *testing.T) {
			b, notices := stepsOn(t, lib, f.options)
			batch := max(1, f.batch)
			r := prepared(t, randomModel(t, small), c, b, gpt2.Options{Batch: batch})
			c.Reset()
			c.Decode(f.decode)
			if f.decode.Timeout > 0 {
				prefill(t, r, []int32{1, 2}, samplingPass(1, 2))
				if err := r.Decode(t.Context(), 20, func([]gpt2.Token) bool { return true }); err == nil || !strings.Contains(err.Error(), "SM 3") {
					t.Fatal(err)
				}
				c.Reset()
				decoded(t, r, nil, 20)
			} else {
				decoded(t, r, make([]int32, 3*batch), 20)
			}
			if calls := c.Calls(); slices.Contains(calls, "gs_persistent_one") || !slices.Contains(calls, "gs_attention") {
				t.Error("steps of the program were launched")
			}
			if len(*notices) != 1 || !strings.Contains((*notices)[0], f.words) || !strings.Contains(b.Describe().Fallback, f.words) {
				t.Errorf("notices %q, want one with %q", *notices, f.words)
			}
		})
	}
}

// countOf counts the calls of a name.
func countOf(calls []string, name string) (n int) {
	for _, c := range calls {
		if c == name {
			n++
		}
	}
	return n
}
