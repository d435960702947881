package exec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/internal/stub"
	"gpt2scope/record"
	"gpt2scope/traces"
	"gpt2scope/weights"
)

// These tests of short prompts in the decode kernel run on the stub library.

// TestPromptsAreEager: on a stub that computes, short prompts in the kernel, and by single steps, have the tokens and
// logits of mode eager: at the start of a text and after others, greedy and drawn; decode steps go on from them.
func TestPromptsAreEager(t *testing.T) {
	lib, c := onStub(t, "STUB_COMPUTES")
	m := randomModel(t, small)
	for _, how := range []gpt2.Sampling{{}, {Temperature: 1, Seed: 3}} {
		var want []int32
		var logits []float32
		for _, mode := range []string{"eager", "persistent", "steps"} {
			b, notices := backendOn(t, lib, Options{Mode: Eager}), new([]string)
			switch mode {
			case "persistent":
				b, notices = persistentOn(t, lib, Options{})
			case "steps":
				b, notices = stepsOn(t, lib, Options{})
			}
			s := session(t, m, b, gpt2.Options{Layers: []int{1, 0}, Context: 64})
			r := s.Runner().(*Runner)
			r.SetSampling(how)
			c.Reset()
			var got []int32
			var rows []float32
			text := []int32{9, 8, 7, 6, 5, 4, 3, 2}
			for _, T := range []int{3, 8, 1, 2, 7} {
				got = append(got, idsOf(decoded(t, r, text[:T], 2))...)
			}
			for _, T := range []int{1, 5} {
				prefill(t, r, text[:T], gpt2.Pass{Batch: 1, Tokens: T, Logits: gpt2.LogitsLast})
				rows = append(rows, logitsOf(t, r)...)
			}
			if r.Position() != 3+8+1+2+7+5*2+1+5 || len(*notices) > 0 {
				t.Errorf("%s: at %d, notices %q", mode, r.Position(), *notices)
			}
			if mode == "eager" {
				want, logits = got, rows
				continue
			}
			calls := c.Calls()
			launches, each := countOf(calls, "gs_persistent"), 1
			if mode == "steps" {
				launches, each = countOf(calls, "gs_persistent_one"), 11
			}
			if steps := 7 + 5; mode == "persistent" && how.Temperature == 0 && launches != steps || launches < steps*each || slices.Contains(calls, "gs_embed") || slices.Contains(calls, "gs_attention") {
				t.Errorf("%s: %d launches, %v", mode, launches, calls)
			}
			if err := r.Read(gpt2.BufX, 0, rows[:1]); err == nil || !strings.Contains(err.Error(), "logits only") {
				t.Errorf("%s: activations of a prompt: %v", mode, err)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, %+v: tokens %v, want %v", mode, how, got, want)
			}
			closeTo(t, mode, rows, logits, bounds[weights.BF16])
		}
	}
}

// TestPromptsByPass: which passes run in the decode kernel.
func TestPromptsByPass(t *testing.T) {
	lib, c := onStub(t)
	last := func(T int) gpt2.Pass { return gpt2.Pass{Batch: 1, Tokens: T, Logits: gpt2.LogitsLast} }
	for name, f := range map[string]struct {
		pass     gpt2.Pass
		options  Options
		layers   int
		sampling gpt2.Sampling
		inKernel bool
	}{
		"one token":               {pass: samplingPass(1, 1), inKernel: true},
		"two":                     {pass: samplingPass(1, 2), inKernel: true},
		"eight":                   {pass: samplingPass(1, 8), inKernel: true},
		"nine":                    {pass: samplingPass(1, 9)},
		"the last row":            {pass: last(8), inKernel: true},
		"all rows":                {pass: gpt2.Pass{Batch: 1, Tokens: 8, Logits: gpt2.LogitsAll}},
		"no row":                  {pass: gpt2.Pass{Batch: 1, Tokens: 8}},
		"a stage":                 {pass: gpt2.Pass{Batch: 1, Tokens: 8, Until: "h.0.attn.sdpa"}},
		"two sequences":           {pass: samplingPass(2, 4)},
		"sampled by the host":     {pass: last(4), sampling: gpt2.Sampling{RepeatPenalty: 2}},
		"four rows of the stub":   {pass: samplingPass(1, 4), layers: 3, inKernel: true},
		"five, too many for that": {pass: samplingPass(1, 5), layers: 3},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := persistentOn(t, lib, f.options)
			if f.layers == 0 {
				f.layers = 2
			}
			r := prepared(t, randomModel(t, fmt.Sprintf("random:L=%d,C=64,NH=4,V=257,T=256", f.layers)), c, b, gpt2.Options{Batch: f.pass.Batch})
			r.SetSampling(f.sampling)
			for range 3 {
				c.Reset()
				prefill(t, r, make([]int32, f.pass.Batch*f.pass.Tokens), f.pass)
				if calls := c.Calls(); slices.Contains(calls, "gs_persistent") != f.inKernel || countOf(calls, "gs_persistent") > 1 {
					t.Errorf("in one kernel %v", !f.inKernel)
				}
			}
			n, err := r.Launches(f.pass)
			if err != nil || (n == 1) != f.inKernel {
				t.Errorf("%d launches: %v", n, err)
			}
			c.Reset()
			if times, err := r.Measure(t.Context(), make([]int32, f.pass.Batch*f.pass.Tokens), f.pass, 1); f.pass.Until == "" && (err != nil || len(times) != 1 || slices.Contains(c.Calls(), "gs_persistent") != f.inKernel) {
				t.Errorf("measured: %v", err)
			}
		})
	}
}

// TestPromptsTimeout: a block that waits too long in a prompt ends the call with an error that names the step and its
// rows, also where nothing awaits a token; the session goes on by graphs.
func TestPromptsTimeout(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	for _, sample := range []bool{true, false} {
		b, _ := persistentOn(t, lib, Options{})
		r := prepared(t, m, c, b, gpt2.Options{})
		decoded(t, r, []int32{1, 2, 3}, 2)
		c.Reset()
		c.Decode(stub.Decode{Timeout: 1, At: 1<<16 | 3})
		pass := samplingPass(1, 5)
		pass.Sample = sample
		_, err := r.Prefill(t.Context(), make([]int32, 5), pass)
		var stage *gpt2.StageError
		if err == nil || sample && (!errors.As(err, &stage) || stage.Step != "h.0.attn.sdpa" || !strings.Contains(err.Error(), "T=5") || !strings.Contains(err.Error(), "SM 3 waited longer")) {
			t.Fatalf("sampled %v: %v", sample, err)
		}
		if err := r.persistent.kernel.Expired(); err != nil {
			t.Errorf("the work area is left as it is: %v", err)
		}
		c.Reset()
		if tokens := decoded(t, r, make([]int32, 5), 3); tokens[0].Position != 5+5 || slices.Contains(c.Calls(), "gs_persistent") {
			t.Errorf("goes on with %+v, %v", tokens, c.Calls())
		}
	}
}

// TestPromptsRecorded: a prompt in the kernel is a pass of the recording, with a kernel for each step, of which the
// parts of its time are known, sampled in the kernel or after it or not at all.
func TestPromptsRecorded(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, large)
	b, _ := persistentOn(t, lib, Options{Recorder: RecorderStamps})
	r := prepared(t, m, c, b, gpt2.Options{})
	to := record.New("test", "1")
	must(t, r.StartRecording(to))
	decoded(t, r, []int32{1, 2, 3}, 9)
	r.SetSampling(gpt2.Sampling{Temperature: 1, Seed: 1})
	decoded(t, r, []int32{1, 2, 3, 4, 5}, 2)
	prefill(t, r, []int32{1, 2, 3, 4}, gpt2.Pass{Batch: 1, Tokens: 4, Logits: gpt2.LogitsLast})
	must(t, r.StopRecording())
	trace := to.Trace()
	_, kernels := ofDecode(trace)
	steps := len(r.Plan(r.decodePass()).Steps)
	want := []struct {
		tokens, past, kernels int
		last                  string
	}{{3, 0, steps - 1, "decode_kernel (Sample)"}, {5, 12, steps - 1, "gs_sample"}, {4, 19, steps - 2, "decode_kernel (Linear)"}}
	n := 0
	for i := range trace.Events {
		e := &trace.Events[i]
		if e.Kind != traces.KindPass || e.WarmUp || e.Name == gpt2.DecodePass {
			continue
		}
		if n == len(want) {
			t.Fatalf("one more prompt: %+v", e)
		}
		of, w := kernels[e.ID], want[n]
		plan := trace.Header.Plans[e.Plan]
		if plan.Tokens != w.tokens || e.Value != float64(w.past) || len(of) != w.kernels || !strings.EqualFold(of[len(of)-1].Name, w.last) {
			t.Errorf("prompt %d: T=%d at %g, %d kernels, the last %q; want %+v", n, plan.Tokens, e.Value, len(of), of[len(of)-1].Name, w)
		}
		for i, k := range of {
			if step, ok := trace.Header.Step(k); (k.Inside == nil) != (k.Name == "gs_sample") || !ok || step.Name != r.Plan(samplingPass(1, w.tokens)).Steps[i+1].Name() {
				t.Errorf("prompt %d, kernel %d: %+v", n, i, k)
			}
		}
		n++
	}
	if n != len(want) {
		t.Errorf("%d prompts are recorded", n)
	}
	if trace.Header.Dropped != nil {
		t.Errorf("lost: %v", trace.Header.Dropped)
	}
}
