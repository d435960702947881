package exec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/internal/stub"
	"gpt2scope/nvtx"
	"gpt2scope/record"
	"gpt2scope/weights"
)

// These tests of mode persistent run on the stub library.

// persistentOn makes a backend in mode persistent, and collects its notices.
func persistentOn(t testing.TB, lib *cuda.Library, o Options) (*Backend, *[]string) {
	t.Helper()
	var notices []string
	o.Mode, o.Notice = Persistent, func(s string) { notices = append(notices, s) }
	return backendOn(t, lib, o), &notices
}

// more makes one more runner of a backend.
func more(t testing.TB, b *Backend, m *gpt2.Model) *Runner {
	t.Helper()
	r, err := b.Prepare(context.Background(), m, gpt2.Options{Batch: 1, Context: m.Config.Positions, Layers: gpt2.FirstLayers(m.Config.Layers)})
	must(t, err)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r.(*Runner)
}

// decoded runs n decode steps after a prompt, if one is given.
func decoded(t testing.TB, r *Runner, prompt []int32, n int) (tokens []gpt2.Token) {
	t.Helper()
	if prompt != nil {
		first, err := r.Prefill(t.Context(), prompt, samplingPass(r.options.Batch, len(prompt)/r.options.Batch))
		must(t, err)
		tokens = slices.Clone(first)
	}
	must(t, r.Decode(t.Context(), n, func(step []gpt2.Token) bool {
		tokens = append(tokens, step...)
		return true
	}))
	return tokens
}

// logitsOf reads the last row of logits of each sequence.
func logitsOf(t testing.TB, r gpt2.Runner) []float32 {
	t.Helper()
	gpu := r.(*Runner)
	logits := make([]float32, gpu.options.Batch*gpu.model.Config.Vocab)
	must(t, r.Read(gpt2.BufLogits, 0, logits))
	return logits
}

// ran runs n decode steps after a prompt in an emptied session, and returns the tokens and the last logits.
func ran(t testing.TB, s *gpt2.Session, prompt []int32, n int) ([]gpt2.Token, []float32) {
	t.Helper()
	must(t, s.Reset())
	return decoded(t, s.Runner().(*Runner), prompt, n), logitsOf(t, s.Runner())
}

// TestPersistentIsEager: on a stub that computes, the program of a plan gives the tokens and logits of its steps
// launched one by one: of the shipped model, which has gains, shifts and biases, for run orders that repeat and drop
// layers, and beyond the context. Prompts are too short to be padded, since the stub computes no idle rows.
func TestPersistentIsEager(t *testing.T) {
	lib, c := onStub(t, "STUB_COMPUTES")
	m, err := gpt2.Open("../../weights/shakespeare")
	must(t, err)
	defer m.Close()
	for _, run := range []struct {
		layers  []int
		context int
	}{{[]int{0}, 256}, {[]int{2, 0, 2}, 14}} {
		layers := run.layers
		var want []gpt2.Token
		var logits []float32
		for _, mode := range []Mode{Eager, Persistent} {
			b, notices := backendOn(t, lib, Options{Mode: mode}), new([]string)
			if mode == Persistent {
				b, notices = persistentOn(t, lib, Options{})
			}
			s := session(t, m, b, gpt2.Options{Layers: layers, Context: run.context})
			c.Reset()
			tokens := generate(t, s, []int32{5, 4, 3, 2, 1}, gpt2.Generation{Tokens: 40, IgnoreEOS: true})
			if (s.Stats().Shifts > 0) != (run.context < 20) || len(*notices) != 0 {
				t.Fatalf("%s: %+v, notices %q", mode, s.Stats(), *notices)
			}
			got := logitsOf(t, s.Runner())
			if mode == Eager {
				want, logits = tokens, got
				if ids := idsOf(want); len(slices.Compact(slices.Sorted(slices.Values(ids)))) < 6 {
					t.Fatalf("a text of too few different tokens: %v", ids)
				}
				continue
			}
			if calls := c.Calls(); !slices.Contains(calls, "gs_persistent") || countOf(calls, "gs_sample") > 1+s.Stats().Shifts {
				t.Errorf("layers %v: %d launches of decode steps, %d of sampling", layers, countOf(calls, "gs_persistent"), countOf(calls, "gs_sample"))
			}
			closeTo(t, fmt.Sprintf("layers %v: logits", layers), got, logits, bounds[weights.BF16])
			for i := range want {
				if tokens[i].ID != want[i].ID || tokens[i].Position != want[i].Position {
					t.Fatalf("layers %v: token %d is %+v, and %+v in mode eager", layers, i, tokens[i], want[i])
				}
			}
			err := s.Runner().Read(gpt2.BufX, 0, got)
			if err == nil || !strings.Contains(err.Error(), "logits only") {
				t.Errorf("activations of a decode step: %v", err)
			}
		}
	}
}

// TestPersistentLaunches: a launch is of up to DecodeTokens steps, the last one of what is left; another one is in the
// stream while a launch's tokens are read; nothing else is called.
func TestPersistentLaunches(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	b, _ := persistentOn(t, lib, Options{})
	r := prepared(t, m, c, b, gpt2.Options{})
	last := decoded(t, r, make([]int32, 20), 1)[1]
	for _, n := range []int{1, 7, 8, 9, 100, 24} {
		c.Reset()
		read := 0
		must(t, r.Decode(t.Context(), n, func(step []gpt2.Token) bool {
			launched := min(n, countOf(c.Calls(), "gs_persistent")*cuda.PersistentTokens)
			if ahead := launched - read; ahead > 3*cuda.PersistentTokens || ahead < min(n-read, cuda.PersistentTokens+1) {
				t.Fatalf("%d of %d steps are launched when %d are read", launched, n, read)
			}
			if read++; step[0].ID != (last.ID+1)%257 || step[0].Position != last.Position+1 {
				t.Fatalf("token %d is %+v after %+v", read, step[0], last)
			}
			last = step[0]
			return true
		}))
		if want := slices.Repeat([]string{"gs_persistent"}, (n+cuda.PersistentTokens-1)/cuda.PersistentTokens); read != n || !slices.Equal(c.Calls(), want) {
			t.Errorf("%d steps, of which %d were read, call %v", n, read, c.Calls())
		}
	}
	if pos := deviceInts(t, r, posOffset, 2); int(pos[0]) != r.Position() || pos[1] != last.ID {
		t.Errorf("the device has position and token %v, the host %d and %d", pos, r.Position(), last.ID)
	}
	if err := r.Decode(t.Context(), 256, func([]gpt2.Token) bool { return true }); err == nil || !strings.Contains(err.Error(), "context of 256 tokens is full") {
		t.Errorf("steps beyond the context: %v", err)
	}
}

// TestPersistentFallsBack: for each reason decode steps run as graphs with the same tokens, and one notice says why.
func TestPersistentFallsBack(t *testing.T) {
	lib, c := onStub(t)
	for tool := nvtx.Tool(); tool != ""; tool = nvtx.Tool() {
		t.Setenv(tool, "")
	}
	for name, f := range map[string]struct {
		options Options
		model   string
		change  func(*gpt2.Config)
		batch   int
		decode  stub.Decode
		words   string
	}{
		"variant":      {options: Options{Variants: map[string]string{"attn.sdpa": "naive"}}, words: "--variant"},
		"recorder":     {options: Options{Recorder: RecorderCUPTI}, words: "--recorder stamps sees them"},
		"batch":        {batch: 9, words: "there are 9 sequences"},
		"activation":   {change: func(c *gpt2.Config) { c.Activation = gpt2.ReLU }, words: "activation is relu"},
		"scale":        {change: func(c *gpt2.Config) { c.ScaleByInverseLayer = true }, words: "h.1.attn.sdpa multiplies scores by 0.125, and its kernel by 1/sqrt(16)"},
		"inner":        {model: "random:L=2,C=64,NH=4,V=257,T=256,F=200", words: "the MLP is 200 wide"},
		"head size":    {decode: stub.Decode{Refusal: "heads of 16 elements: there is a kernel for 64"}, words: "heads of 16 elements: there is a kernel for 64"},
		"co-residency": {decode: stub.Decode{Status: 720}, words: "4 blocks cannot be resident at once"},
	} {
		t.Run(name, func(t *testing.T) {
			if f.model == "" {
				f.model = small
			}
			m := randomModel(t, f.model)
			if f.change != nil {
				f.change(&m.Config)
			}
			b, notices := persistentOn(t, lib, f.options)
			batch := max(1, f.batch)
			r := prepared(t, m, c, b, gpt2.Options{Batch: batch})
			c.Reset()
			c.Decode(f.decode)
			tokens := decoded(t, r, make([]int32, 3*batch), 20)
			tokens = append(tokens, decoded(t, r, nil, 20)...)
			for i, token := range tokens {
				if token.ID != int32(i/batch+1) || token.Position != 3+i/batch {
					t.Fatalf("token %d is %+v", i, token)
				}
			}
			if n := countOf(c.Calls(), "gs_persistent"); n > 1 || n == 1 && f.decode.Status == 0 || !slices.Contains(c.Calls(), "gs_graph_launch") {
				t.Errorf("%d launches of decode steps", n)
			}
			*notices = slices.DeleteFunc(*notices, func(n string) bool { return strings.Contains(n, "cupti cannot be used") }) // which is another matter
			if len(*notices) != 1 || !strings.Contains((*notices)[0], f.words) || !strings.Contains((*notices)[0], "graph") {
				t.Errorf("notices %q, want one with %q", *notices, f.words)
			}
			d := b.Describe()
			if said := d.Mode + " " + d.ModeReason + " " + d.Fallback; !strings.Contains(said, f.words) || (d.Mode == "graph") != (d.Fallback == "") {
				t.Errorf("the description says mode %s (%s), fallback %q", d.Mode, d.ModeReason, d.Fallback)
			}
		})
	}
}

// TestPersistentByCall: whether steps run in one kernel is decided at each call, by how it samples and whether it is
// recorded.
func TestPersistentByCall(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, large)
	b, notices := persistentOn(t, lib, Options{})
	r := prepared(t, m, c, b, gpt2.Options{})
	last := decoded(t, r, make([]int32, 3), 1)[1].ID
	check := func(what string, inKernel bool, said int) {
		t.Helper()
		c.Reset()
		for _, token := range decoded(t, r, nil, 5) {
			if last++; token.ID != last || (token.LogProb == -float32(last)) != r.state.sampling.LogProbs {
				t.Fatalf("%s: token %+v, want %d", what, token, last)
			}
		}
		if got := slices.Contains(c.Calls(), "gs_persistent"); got != inKernel || len(*notices) != said {
			t.Errorf("%s: in one kernel is %v, want %v; notices %q", what, got, inKernel, *notices)
		}
	}
	for range 2 {
		check("greedy", true, len(*notices))
		for _, f := range []struct {
			sampling gpt2.Sampling
			apart    bool
		}{
			{gpt2.Sampling{Temperature: 1, Seed: 2}, true},
			{gpt2.Sampling{Temperature: 1, TopK: 128, TopP: 0.9}, false},
			{gpt2.Sampling{Temperature: 1, TopK: 129}, true},
			{gpt2.Sampling{LogProbs: true}, false},
		} {
			r.SetSampling(f.sampling)
			check(fmt.Sprintf("%+v", f.sampling), true, 0)
			if calls := c.Calls(); slices.Contains(calls, "gs_sample") != f.apart || countOf(calls, "gs_persistent") > 1 != f.apart {
				t.Errorf("%+v: %v", f.sampling, calls)
			}
		}
		r.SetSampling(gpt2.Sampling{})
	}
	to := record.New("test", "")
	must(t, r.StartRecording(to))
	check("recorded", true, 0)
	r.SetSampling(gpt2.Sampling{Temperature: 1, Seed: 2})
	check("drawn and recorded", true, 0)
	r.SetSampling(gpt2.Sampling{})
	must(t, r.StopRecording())
	check("not recorded any more", true, 0)
	r.SetSampling(gpt2.Sampling{RepeatPenalty: 1.5})
	if len(*notices) != 1 || !strings.Contains((*notices)[0], "the host samples") {
		t.Errorf("sampling on the host: notices %q", *notices)
	}
}

// TestPersistentLosesResidency: if no more launches fit in the middle of a call, the steps that were launched count,
// and the others run as graphs.
func TestPersistentLosesResidency(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	for _, at := range []int{1, 2, 9, 16, 17} {
		b, notices := persistentOn(t, lib, Options{})
		r := prepared(t, m, c, b, gpt2.Options{})
		c.Reset()
		n := 1
		decoded(t, r, make([]int32, 3), 0)
		if err := r.Decode(t.Context(), 60, func(step []gpt2.Token) bool {
			if n++; step[0].ID != int32(n) || step[0].Position != 2+n {
				t.Fatalf("token %d is %+v", n, step[0])
			}
			if n == at {
				c.Decode(stub.Decode{Status: 20001})
			}
			return true
		}); err != nil || n != 61 {
			t.Fatalf("%v after %d tokens", err, n)
		}
		if calls := c.Calls(); len(*notices) != min(1, at-1) || at > 1 && countOf(calls, "gs_graph_launch") < 60-(at+3*cuda.PersistentTokens) {
			t.Errorf("from token %d on no launch fits: notices %q, %d launches of graphs", at, *notices, countOf(calls, "gs_graph_launch"))
		}
	}
}

// TestPersistentTimeout: a block that waits too long ends the call with an error that names the step and the block;
// what was read counts, and the session goes on by graphs.
func TestPersistentTimeout(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, large)
	b, notices := persistentOn(t, lib, Options{})
	other := prepared(t, m, c, b, gpt2.Options{})
	decoded(t, other, make([]int32, 3), 1)
	for n := range 13 {
		late, each, sampling := 1+n%4, cuda.PersistentTokens, gpt2.Sampling{}
		switch n / 4 {
		case 1: // drawn in the kernel
			sampling = gpt2.Sampling{Temperature: 1, TopK: 40, Seed: 1}
		case 2: // a launch of one step, then one that samples
			each, sampling = 1, gpt2.Sampling{Temperature: 1, Seed: 1}
		}
		for step, name := range map[int]string{0: "h.0.ln_1+h.0.attn.c_attn", 1: "h.0.attn.sdpa", 8: "h.1.ln_2+h.1.mlp.c_fc+h.1.mlp.gelu", 10: "ln_f+lm_head"} {
			r := more(t, b, m)
			tokens := decoded(t, r, make([]int32, 3), 4)
			*notices = nil
			c.Reset()
			r.SetSampling(sampling)
			at, words := step<<16|3, "SM 3 waited longer than 2s for data of the others"
			if n == 12 {
				at, words = at|cuda.PersistentForWeights, "SM 3 waited longer than 1.75s for its weights"
			}
			c.Decode(stub.Decode{Timeout: late, At: at})
			err := r.Decode(t.Context(), 3*cuda.PersistentTokens+1, func(step []gpt2.Token) bool {
				tokens = append(tokens, step...)
				return true
			})
			var stage *gpt2.StageError
			if !errors.As(err, &stage) || stage.Step != name || !strings.Contains(err.Error(), words) {
				t.Fatalf("launch %d: %v; want an error of %s", late, err, name)
			}
			oneSentence(t, err)
			if want := 5 + (late-1)*each; len(tokens) != want || r.Position() != 3+want-1 {
				t.Fatalf("launch %d: %d tokens, want %d; position %d", late, len(tokens), want, r.Position())
			}
			if err := r.persistent.kernel.Expired(); err != nil {
				t.Errorf("launch %d leaves the work area as it is: %v", late, err)
			}
			c.Reset()
			next := decoded(t, r, nil, 5)
			calls := c.Calls()
			if slices.Contains(calls, "gs_persistent") || !slices.Contains(calls, "gs_graph_launch") || next[0].Position != r.Position()-4 {
				t.Errorf("launch %d: the session goes on with %v, tokens %+v", late, calls, next)
			}
			if pos := deviceInts(t, r, posOffset, 1)[0]; int(pos) != r.Position() {
				t.Errorf("launch %d: the device is at %d, the host at %d", late, pos, r.Position())
			}
			if said := strings.Join(*notices, "|"); late == 1 && strings.Count(said, "timed out") > 1 {
				t.Errorf("notices %q", said)
			}
		}
	}
	c.Reset()
	if decoded(t, other, nil, 9); !slices.Contains(c.Calls(), "gs_persistent") {
		t.Error("another session does not use the kernel any more")
	}
	r := more(t, b, m)
	c.Decode(stub.Decode{Timeout: 3, At: 1 << 16})
	_, err := r.Measure(t.Context(), []int32{1}, samplingPass(1, 1), 1)
	if stage := (*gpt2.StageError)(nil); !errors.As(err, &stage) || stage.Step != "h.0.attn.sdpa" {
		t.Errorf("measuring: %v", err)
	}
}

// TestPersistentDraws: tokens of one and of several sequences are drawn by the launches that decode, as many in a
// launch as the kernel that draws takes; where there is none for them, a launch is of one step and another kernel
// draws. Greedy launches stay as long as they are.
func TestPersistentDraws(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, large)
	for _, f := range []struct {
		batch, greedy, drawn int
	}{{1, 16, 16}, {2, 16, 16}, {3, 16, 1}, {5, 4, 2}} {
		b, notices := persistentOn(t, lib, Options{})
		r := prepared(t, m, c, b, gpt2.Options{Batch: f.batch})
		decoded(t, r, make([]int32, 3*f.batch), 0)
		const steps = 48
		for _, how := range []struct {
			gpt2.Sampling
			each  int  // steps of a launch
			apart bool // each is followed by a kernel that draws
		}{
			{gpt2.Sampling{}, f.greedy, false}, {gpt2.Sampling{Temperature: 1, TopK: 40, Seed: 1}, f.drawn, f.drawn == 1}, {gpt2.Sampling{LogProbs: true}, f.drawn, f.drawn == 1},
			{gpt2.Sampling{Temperature: 1, TopK: 200, Seed: 1}, 1, true}, {gpt2.Sampling{}, f.greedy, false},
		} {
			r.SetSampling(how.Sampling)
			c.Reset()
			tokens := decoded(t, r, nil, steps)
			calls, samples := c.Calls(), 0
			if how.apart {
				samples = steps
			}
			if n := countOf(calls, "gs_persistent"); len(tokens) != steps*f.batch || n != steps/how.each || countOf(calls, "gs_sample") != samples || len(*notices) > 0 {
				t.Errorf("%d sequences, %+v: %d tokens by %d launches, of which %d draw; want %d and %d; notices %q", f.batch, how.Sampling, len(tokens), n,
					countOf(calls, "gs_sample"), steps/how.each, samples, *notices)
			}
		}
	}
}

// TestPersistentSessions: sessions of a backend have programs of their own.
func TestPersistentSessions(t *testing.T) {
	lib, c := onStub(t, "STUB_COMPUTES")
	m := randomModel(t, small)
	b, _ := persistentOn(t, lib, Options{})
	prompts := [][]int32{{1, 2, 3}, {9, 8}}
	prepared(t, m, c, b, gpt2.Options{}) // closes the backend in the end
	var alone [2][]int32
	for i, prompt := range prompts {
		r := more(t, b, m)
		alone[i] = idsOf(decoded(t, r, prompt, 40))
	}
	var runners [2]*Runner
	var got [2][]int32
	for i, prompt := range prompts {
		runners[i] = more(t, b, m)
		got[i] = idsOf(decoded(t, runners[i], prompt, 0))
	}
	for range 8 {
		for i, r := range runners {
			got[i] = append(got[i], idsOf(decoded(t, r, nil, 5))...)
		}
	}
	for i := range got {
		if !slices.Equal(got[i], alone[i]) {
			t.Errorf("session %d beside another one: %v, alone %v", i, got[i], alone[i])
		}
	}
}

// TestPersistentSurvey: a survey counts the program and the work area, and says why there is no program.
func TestPersistentSurvey(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	b, notices := persistentOn(t, lib, Options{})
	o := gpt2.Options{Layers: []int{1, 0, 1}, Batch: 1, Context: 128}
	survey, err := b.Survey(m, o, samplingPass(1, 5), samplingPass(1, 1))
	if err != nil || len(*notices) != 0 {
		t.Fatal(err, *notices)
	}
	r := prepared(t, m, c, b, o)
	decoded(t, r, make([]int32, 5), 3)
	plan := r.Plan(r.decodePass())
	kernel, err := r.writer(plan).session().Bytes(plan)
	must(t, err)
	if want := r.memory.sampleWork.Size() + r.memory.attentionWork.Size() + kernel; survey.Work != want {
		t.Errorf("foretold %d bytes of work, and there are %d", survey.Work, want)
	}
	if folds := countOf(c.Calls(), "gs_fold"); folds != 2*2+1 { // two of each layer, however often it runs
		t.Errorf("%d LayerNorms were folded", folds)
	}
	c.Decode(stub.Decode{Refusal: "no kernel for this"})
	if _, err := b.Survey(m, o, samplingPass(1, 1)); err != nil || len(*notices) != 1 || !strings.Contains((*notices)[0], "no kernel for this") {
		t.Errorf("%v, notices %q", err, *notices)
	}
}

// TestPersistentFails: whatever fails, there is one sentence, nothing is left, and the session goes on.
func TestPersistentFails(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	for _, what := range []string{"gs_fold", "gs_persistent", "gs_persistent_work", "alloc", "gs_set", "gs_copy_now"} {
		for n := 1; ; n++ {
			c.Reset()
			b, _ := persistentOn(t, lib, Options{})
			r := prepared(t, m, c, b, gpt2.Options{})
			if _, err := r.Prefill(t.Context(), make([]int32, 12), samplingPass(1, 12)); err != nil { // too long for the kernel
				t.Fatal(err)
			}
			c.Reset()
			c.Fail(what, n)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			err := r.Decode(ctx, 30, func([]gpt2.Token) bool { return true })
			cancel()
			if err == nil {
				if n == 1 {
					t.Errorf("no call of %s", what)
				}
				break
			}
			oneSentence(t, err)
			if failed := (*cuda.Error)(nil); !errors.As(err, &failed) || r.Position() < 12 {
				t.Fatalf("%s number %d fails: %v at %d", what, n, err, r.Position())
			}
			c.Reset()
			at := r.Position()
			if tokens := decoded(t, r, nil, 10); tokens[0].Position != at+1 || !slices.Contains(c.Calls(), "gs_persistent") {
				t.Fatalf("after %s number %d failed: %+v, %v", what, n, tokens, c.Calls())
			}
		}
	}
}

// TestDraftsRefused: what verifies no drafts says so in a sentence, and goes without where drafts are only welcome.
func TestDraftsRefused(t *testing.T) {
	lib, c := onStub(t)
	for _, f := range []struct {
		how   string
		mode  Mode
		batch int
		model string
		temp  float64
		words string
	}{
		{"exits=2,2", Persistent, 1, small, 0, "a run of 2 layers has none beside those that draft"},
		{"exits", Persistent, 1, small, 0, ""},
		{"lookup=4", Persistent, 1, small, 0, "a pass verifies at most 3 here"},
		{"lookup", Graph, 1, small, 0, "verified in mode persistent only"},
		{"lookup", Persistent, 2, small, 0, "for one sequence, not a batch of 2"},
		{"lookup", Persistent, 1, "random:L=2,C=64,NH=4,V=5000,T=256", 1, "none for this model and way of sampling"},
		{"lookup", Persistent, 1, small, 0, ""},
		{"auto", Graph, 1, small, 0, ""},
		{"auto", Persistent, 1, "random:L=2,C=64,NH=4,V=5000,T=256", 1, ""},
	} {
		how, err := gpt2.ParseSpeculation(f.how)
		must(t, err)
		b := backendOn(t, lib, Options{Mode: f.mode})
		s := session(t, randomModel(t, f.model), b, gpt2.Options{Batch: f.batch})
		c.Reset()
		var failed error
		tokens := 0
		for _, err := range s.Generate(t.Context(), make([]int32, 3*f.batch), gpt2.Generation{Tokens: 20, IgnoreEOS: true, Speculate: how, Sampling: gpt2.Sampling{Temperature: f.temp}}) {
			if failed = err; err == nil {
				tokens++
			}
		}
		if f.words == "" && (failed != nil || tokens != 20) || f.words != "" && (failed == nil || !strings.Contains(failed.Error(), f.words)) {
			t.Errorf("%s in mode %s: %d tokens, %v; want %q", f.how, f.mode, tokens, failed, f.words)
		}
	}
}
