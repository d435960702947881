package exec

import (
	"errors"
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

// TestStepsArePersistent: on a stub that computes, steps launched one by one have the tokens and the logits of mode
// persistent, for run orders that repeat layers, beyond the context, and after stops.
func TestStepsArePersistent(t *testing.T) {
	lib, c := onStub(t, "STUB_COMPUTES")
	m := randomModel(t, small)
	for _, o := range []gpt2.Options{{Layers: []int{0}, Context: 64}, {Layers: []int{1, 0, 1}, Context: 14}} {
		for _, how := range []gpt2.Sampling{{}, {Temperature: 1, Seed: 3}} {
			var want []gpt2.Token
			logits := make([]float32, m.Config.Vocab)
			for _, singly := range []bool{false, true} {
				b, notices := persistentOn(t, lib, Options{})
				if singly {
					b, notices = stepsOn(t, lib, Options{})
				}
				s := session(t, m, b, o)
				c.Reset()
				tokens := generate(t, s, []int32{5, 4, 3, 2, 1}, gpt2.Generation{Tokens: 40, IgnoreEOS: true, Sampling: how})
				got := make([]float32, m.Config.Vocab)
				if err := s.Runner().Read(gpt2.BufLogits, 0, got); err != nil {
					t.Fatal(err)
				}
				if err := s.Runner().Read(gpt2.BufX, 0, make([]float32, 1)); err == nil || !strings.Contains(err.Error(), "logits only") {
					t.Errorf("activations of a decode step: %v", err)
				}
				if len(*notices) > 0 {
					t.Errorf("notices %q", *notices)
				}
				if !singly {
					want, logits = tokens, got
					continue
				}
				if calls := c.Calls(); slices.Contains(calls, "gs_decode") || slices.Contains(calls, "gs_graph_launch") || countOf(calls, "gs_decode_one")%(5*len(o.Layers)+1) != 0 {
					t.Errorf("%d launches of single steps, %d of whole ones", countOf(calls, "gs_decode_one"), countOf(calls, "gs_decode"))
				}
				if !slices.Equal(idsOf(tokens), idsOf(want)) || !slices.Equal(got, logits) {
					t.Errorf("layers %v, %+v: tokens %v, want %v", o.Layers, how, idsOf(tokens), idsOf(want))
				}
			}
		}
	}
}

// TestStepsRecorded: each step of the program is a kernel of the recording, and so it is measured.
func TestStepsRecorded(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	b, _ := stepsOn(t, lib, Options{Recorder: RecorderStamps})
	s := session(t, m, b, gpt2.Options{})
	to := record.New("test", "1")
	if err := s.Record(to); err != nil {
		t.Fatal(err)
	}
	generate(t, s, []int32{1, 2, 3}, gpt2.Generation{Tokens: 20, IgnoreEOS: true})
	if err := s.StopRecording(); err != nil {
		t.Fatal(err)
	}
	passes, kernels := ofDecode(to.Trace())
	plan := s.Runner().Plan(samplingPass(1, 1))
	if len(passes) < 15 {
		t.Fatalf("%d decode steps", len(passes))
	}
	for _, pass := range passes {
		if of := kernels[pass.ID]; len(of) != len(plan.Steps)-1 || of[0].Name != "gs_decode_one" || of[0].Step != 1 || of[0].Grid[0] == 0 {
			t.Fatalf("%d kernels, the first %+v", len(of), of[0])
		}
	}
	c.Reset()
	r := s.Runner().(*Runner)
	if _, err := r.Measure(t.Context(), []int32{1}, r.decodePass(), 1); err != nil || countOf(c.Calls(), "gs_decode_one")%(measureSteps*(len(plan.Steps)-2)) != 0 || slices.Contains(c.Calls(), "gs_embed") {
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
				if _, err := r.Prefill(t.Context(), []int32{1, 2}, samplingPass(1, 2)); err != nil {
					t.Fatal(err)
				}
				if err := r.Decode(t.Context(), 20, func([]gpt2.Token) bool { return true }); err == nil || !strings.Contains(err.Error(), "SM 3") {
					t.Fatal(err)
				}
				c.Reset()
				decoded(t, r, nil, 20)
			} else {
				decoded(t, r, make([]int32, 3*batch), 20)
			}
			if calls := c.Calls(); slices.Contains(calls, "gs_decode_one") || !slices.Contains(calls, "gs_attention") {
				t.Error("steps of the program were launched")
			}
			if len(*notices) != 1 || !strings.Contains((*notices)[0], f.words) || !strings.Contains(b.Describe().Fallback, f.words) {
				t.Errorf("notices %q, want one with %q", *notices, f.words)
			}
		})
	}
}

// TestStepsFail: a launch that fails ends the call with an error that names the step; the next call goes on.
func TestStepsFail(t *testing.T) {
	lib, c := onStub(t)
	b, _ := stepsOn(t, lib, Options{})
	r := prepared(t, randomModel(t, small), c, b, gpt2.Options{})
	decoded(t, r, []int32{1, 2, 3}, 3)
	c.Fail("gs_decode_one", 13) // of the second decode step, which has 11
	n := 0
	err := r.Decode(t.Context(), 5, func([]gpt2.Token) bool { n++; return true })
	if stage := (*gpt2.StageError)(nil); !errors.As(err, &stage) || !strings.Contains(err.Error(), "attn.sdpa") || n != 0 {
		t.Fatalf("%d tokens, then %v", n, err)
	}
	c.Reset()
	if tokens := decoded(t, r, nil, 5); tokens[0].Position != 7 {
		t.Errorf("goes on at %+v", tokens[0])
	}
}

func first[A, B any](a A, _ B) A { return a }

// TestTailAt: the tokens of a call are divided into launches as in mode persistent.
func TestTailAt(t *testing.T) {
	for i := range 20 {
		if got := tailAt(7+i, 7, cuda.DecodeTokens); got != i%cuda.DecodeTokens {
			t.Errorf("token %d: %d before it", i, got)
		}
	}
	if got := tailAt(10, 7, 1); got != 0 {
		t.Errorf("drawn by another kernel: %d", got)
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
