package exec

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
	"gpt2scope/internal/stub"
	"gpt2scope/weights"
)

// These tests need no GPU: they run on the stub library, whose tokens count sampling launches.

var must = require.NoError

// prefill runs a prompt.
func prefill(t testing.TB, r gpt2.Runner, ids []int32, pass gpt2.Pass) {
	t.Helper()
	_, err := r.Prefill(t.Context(), ids, pass)
	must(t, err)
}

// onStub opens a stub library that finds its cuBLASLt.
func onStub(t testing.TB, defines ...string) (*cuda.Library, *stub.Control) {
	t.Helper()
	path := stub.Build(t, defines...)
	stub.BLAS(t)
	lib, err := cuda.OpenFile(path)
	must(t, err)
	c := stub.Open(t, path)
	c.Reset()
	return lib, c
}

func backendOn(t testing.TB, lib *cuda.Library, o Options) *Backend {
	t.Helper()
	b, err := NewOn(lib, o)
	must(t, err)
	return b
}

// prepared makes a runner, and checks in the end that nothing of it is left.
func prepared(t testing.TB, m *gpt2.Model, c *stub.Control, b *Backend, o gpt2.Options) *Runner {
	t.Helper()
	if o.Batch == 0 {
		o.Batch = 1
	}
	if o.Context == 0 {
		o.Context = m.Config.Positions
	}
	if o.Layers == nil {
		o.Layers = gpt2.FirstLayers(m.Config.Layers)
	}
	before := c.Live()
	r, err := b.Prepare(context.Background(), m, o)
	must(t, err)
	t.Cleanup(func() {
		for range 2 { // closing twice does nothing
			if err := errors.Join(r.Close(), b.Close()); err != nil {
				t.Error(err)
			}
		}
		if n := c.Live() - before; n != 0 {
			t.Errorf("%d allocations are left", n)
		}
	})
	return r.(*Runner)
}

const small = "random:L=2,C=64,NH=4,V=257,T=256"

// large is small with a vocabulary that is too large for the decode kernel to draw from all of it.
const large = "random:L=2,C=64,NH=4,V=400,T=256"

var modes = []Mode{Eager, Graph, Persistent}

func samplingPass(batch, tokens int) gpt2.Pass {
	return gpt2.Pass{Batch: batch, Tokens: tokens, Logits: gpt2.LogitsLast, Sample: true}
}

// oneSentence checks an error's text.
func oneSentence(t testing.TB, err error) {
	t.Helper()
	if text := err.Error(); text == "" || strings.ContainsAny(text, "\n\r") || strings.Contains(text, "%!") || strings.Contains(text, "<nil>") {
		t.Errorf("not one sentence: %q", text)
	}
}

func TestNewFails(t *testing.T) {
	t.Setenv("GPT2SCOPE_CUDA_LIB", filepath.Join(t.TempDir(), "none.so"))
	var missing *cuda.UnavailableError
	if _, err := New(Options{}); !errors.As(err, &missing) {
		t.Error(err)
	} else {
		oneSentence(t, err)
	}
	t.Setenv("GPT2SCOPE_CUDA_LIB", stub.Build(t, "STUB_MAJOR=7", "STUB_MINOR=5")) // a T4
	if _, err := New(Options{}); err == nil || !strings.Contains(err.Error(), "has no bfloat16: use float32, --dtype f32") {
		t.Error(err)
	}
	for _, mode := range []Mode{Eager, Graph, Auto} {
		b, err := New(Options{DType: weights.F32, Mode: mode})
		must(t, err)
		b.Close()
	}

	lib, c := onStub(t)
	for _, c := range []struct {
		o     Options
		words string
	}{
		{Options{DType: weights.F16}, "BF16 and F32"},
		{Options{Variants: map[string]string{variantDecode: "naive"}}, `decode has no variant "naive"; it has auto, steps`},
		{Options{Device: 3}, "GPU 3"},
		{Options{Device: -1}, "GPU -1"},
		{Options{Variants: map[string]string{"attn.sdpa": "fast"}}, `no variant "fast"; it has auto, naive, split, flash`},
		{Options{Variants: map[string]string{"attn": "naive"}}, `no stage "attn"; stages are wte+wpe, ln_1`},
		{Options{Variants: map[string]string{"residual_2": "naive"}}, "auto, gemm, norm"},
		{Options{DType: weights.F32, Q8: true}, "8-bit weights"},
	} {
		_, err := NewOn(lib, c.o)
		if err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%+v: %v; want %q", c.o, err, c.words)
			continue
		}
		oneSentence(t, err)
	}
	if n := c.Live(); n != 0 {
		t.Errorf("%d allocations are left", n)
	}
}

// everything is a run through all that a session does: uploading, prefills that sample and not, growing, decoding in
// pieces and beyond the context, reading, measuring. It returns the first error.
func everything(lib *cuda.Library, m *gpt2.Model, mode Mode) (err error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 5*time.Minute, errors.New("it hangs"))
	defer cancel()
	b, err := NewOn(lib, Options{Mode: mode})
	if err != nil {
		return err
	}
	closing := func(f func() error) {
		if e := f(); err == nil {
			err = e
		}
	}
	defer closing(b.Close)
	s, err := gpt2.NewSession(ctx, m, b, gpt2.Options{Context: 32})
	if err != nil {
		return err
	}
	defer closing(s.Close)
	for _, prompt := range []int{3, 20} {
		if err := s.Reset(); err != nil {
			return err
		}
		for _, err := range s.Generate(ctx, make([]int32, prompt), gpt2.Generation{Tokens: 16, IgnoreEOS: true}) {
			if err != nil {
				return err
			}
		}
	}
	if err := s.Reset(); err != nil {
		return err
	}
	if _, err := s.Logits(ctx, make([]int32, 12), gpt2.LogitsAll); err != nil {
		return err
	}
	return nil
}

// TestEachCallFails lets the n-th call of every kind fail, for every n: there is one sentence, nothing is left, and
// nothing hangs.
func TestEachCallFails(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, "random:L=1,C=32,NH=2,V=67,T=32")
	for _, mode := range modes {
		for _, what := range []string{"alloc", "launch", "gs_copy", "gs_set", "gs_stream_synchronize", "gs_event_record", "gs_event_synchronize",
			"gs_stream_wait", "gs_stream_overlap", "gs_capture_begin", "gs_copy_now", "gs_linear_tune", "gs_blas_open"} {
			n := 1
			for ; ; n++ {
				c.Reset()
				c.Fail(what, n)
				err := everything(lib, m, mode)
				if live := c.Live(); live != 0 {
					t.Fatalf("%s, %s number %d fails (%v): %d allocations are left", mode, what, n, err, live)
				}
				if err == nil {
					break
				}
				oneSentence(t, err)
				var failed *cuda.Error
				if !errors.As(err, &failed) && !errors.As(err, new(*cuda.UnavailableError)) {
					t.Fatalf("%s, %s number %d fails: %v does not say what", mode, what, n, err)
				}
				if what == "alloc" && !errors.Is(err, cuda.ErrOutOfMemory) {
					t.Errorf("%s, allocation %d fails: %v", mode, n, err)
				}
				if n > 1000 {
					t.Fatalf("%s, %s: there is no end of failures: %v", mode, what, err)
				}
			}
			want := map[string]int{"alloc": 20, "launch": 30, "gs_stream_overlap": 1, "gs_capture_begin": 1, "gs_linear_tune": 3}[what]
			switch { // so that the loop cannot be empty
			case what == "gs_stream_overlap" && mode != Eager, what == "gs_capture_begin" && mode != Graph, what == "gs_blas_open":
				want = 0 // cuBLASLt stays open
			}
			if n-1 < want {
				t.Errorf("%s, %s: only %d calls could fail", mode, what, n-1)
			}
		}
	}
}

// TestLostDevice lets every call from the n-th on fail, as they do after a kernel went wrong: only the first error is
// reported.
func TestLostDevice(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, "random:L=1,C=32,NH=2,V=67,T=32")
	for _, mode := range modes {
		for n := 1; ; n++ {
			c.Reset()
			c.Fail("lost", n)
			err := everything(lib, m, mode)
			calls := len(c.Calls())
			if err == nil {
				if n < 200 {
					t.Errorf("%s: only %d calls could fail", mode, n-1)
				}
				break
			}
			oneSentence(t, err)
			var failed *cuda.Error
			if !errors.As(err, &failed) && !errors.As(err, new(*cuda.UnavailableError)) {
				t.Fatalf("%s: call %d fails: %v", mode, n, err)
			}
			if calls > n+80 {
				t.Errorf("%s: after call %d failed (%v) there were %d more", mode, n, err, calls-n)
			}
		}
	}
	c.Reset()
}

// TestFailedLaunchNamesStage: in every mode the error names the step, and the runner goes on where it was.
func TestFailedLaunchNamesStage(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	r := prepared(t, m, c, backendOn(t, lib, Options{Mode: Eager}), gpt2.Options{})
	prefill(t, r, []int32{1, 2, 3}, samplingPass(1, 3))
	plan := r.Plan(r.decodePass())
	last := int32(1)
	for n, step := range plan.Steps { // each is one launch
		at := r.Position()
		c.Reset()
		c.Fail("launch", 2*len(plan.Steps)+n+1) // of the third step, which is launched ahead
		var got []gpt2.Token
		err := r.Decode(t.Context(), 5, func(tokens []gpt2.Token) bool {
			got = append(got, tokens...)
			return true
		})
		var stage *gpt2.StageError
		if !errors.As(err, &stage) || stage.Step != step.Name() || !strings.Contains(err.Error(), fmt.Sprintf("B=1 T=1 past=%d", at)) || len(got) != 0 || r.Position() != at {
			t.Fatalf("launch %d fails: %v, after %d tokens, at %d of %d", n, err, len(got), r.Position(), at)
		}
		must(t, r.Decode(t.Context(), 2, func(tokens []gpt2.Token) bool {
			got = append(got, tokens...)
			return true
		}))
		if len(got) != 2 || got[0].Position != at+1 || got[1].Position != at+2 || got[1].ID != (got[0].ID+1)%257 || r.Position() != at+2 {
			t.Fatalf("after a failure at %d: %+v", at, got)
		}
		if got[0].ID != (last+1+ringSlots)%257 { // what was launched before the failure may still write its slots
			t.Fatalf("after a failure the ring goes on at %d, before it was at %d", got[0].ID, last)
		}
		last = got[1].ID
	}
}

// TestSampling: what SetSampling sets reaches the device before the next pass, a prefill or a decode step, and
// log-probabilities come back.
func TestSampling(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	for _, mode := range modes {
		r := prepared(t, m, c, backendOn(t, lib, Options{Mode: mode}), gpt2.Options{Batch: 2})
		check := func(want gpt2.Sampling, launches uint64, tokens []gpt2.Token) {
			t.Helper()
			raw := make([]byte, samplingBytes)
			must(t, r.state.device.Read(0, raw))
			got := *(*cuda.Sampling)(unsafe.Pointer(&raw[0]))
			if got.Temperature != want.Temperature || got.TopP != want.TopP || got.Seed != want.Seed || got.Offset != uint64(want.Offset) || got.TopK != int32(want.TopK) || got.Step != launches {
				t.Errorf("%s: the device has %+v after %d launches, want %+v", mode, got, launches, want)
			}
			for _, token := range tokens {
				if p := float64(token.LogProb); want.LogProbs && p != -float64(token.ID) || !want.LogProbs && !math.IsNaN(p) {
					t.Errorf("%s, %+v: token %+v", mode, want, token)
				}
			}
		}
		first := gpt2.Sampling{Temperature: 0.75, TopK: 40, TopP: 0.9, Seed: 7, Offset: 11, LogProbs: true}
		r.SetSampling(first)
		tokens, err := r.Prefill(t.Context(), make([]int32, 10), samplingPass(2, 5))
		must(t, err)
		check(first, 1, tokens)
		second := gpt2.Sampling{Temperature: 1.5, TopK: 3, TopP: 0.5, Seed: 8, Offset: 12}
		for n, how := range []gpt2.Sampling{second, first, {}} {
			r.SetSampling(how)
			must(t, r.Decode(t.Context(), 1, func(step []gpt2.Token) bool {
				tokens = slices.Clone(step)
				return true
			}))
			check(how, uint64(2+n), tokens)
		}
	}
}

// TestNotFinite: where logits are not finite there is no token, in whichever pass and sequence; those before it are
// right.
func TestNotFinite(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	for _, mode := range modes {
		for _, batch := range []int{1, 3} {
			check := func(pass string, err error) {
				t.Helper()
				var stage *gpt2.StageError
				if !errors.Is(err, gpt2.ErrNotFinite) || !errors.As(err, &stage) || stage.Step != "sample" {
					t.Errorf("%s, B=%d, %s: %v; want an error of stage sample that says the logits are not finite", mode, batch, pass, err)
				}
			}
			r := prepared(t, m, c, backendOn(t, lib, Options{Mode: mode}), gpt2.Options{Batch: batch})
			c.NotFinite(1)
			_, err := r.Prefill(t.Context(), make([]int32, 5*batch), samplingPass(batch, 5))
			check("prefill", err)
			for _, good := range []int{0, 1, 5, runAhead, runAhead + 3} {
				must(t, r.Rewind(0))
				prefill(t, r, make([]int32, 5*batch), samplingPass(batch, 5))
				c.NotFinite(good + 1)
				n := 0
				check(fmt.Sprintf("step %d", good), r.Decode(t.Context(), 2*runAhead, func(tokens []gpt2.Token) bool {
					for b, token := range tokens {
						if token.ID < 0 || token.Seq != b || token.Position != 6+n {
							t.Errorf("%s, step %d: %+v", mode, n, token)
						}
					}
					n++
					return true
				}))
				if n != good {
					t.Errorf("%s, B=%d: %d steps gave tokens, %d have finite logits", mode, batch, n, good)
				}
			}
		}
	}
}

// TestGoesOnAfterNoMemory: where there was no room for a long prompt, a short one still runs.
func TestGoesOnAfterNoMemory(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	for n := 1; ; n++ {
		r := prepared(t, m, c, backendOn(t, lib, Options{Mode: Graph}), gpt2.Options{})
		prefill(t, r, make([]int32, 20), samplingPass(1, 20))
		c.Fail("alloc", n)
		_, err := r.Prefill(t.Context(), make([]int32, 100), samplingPass(1, 100))
		if err == nil {
			if n < 9 { // state, its host side, and each buffer
				t.Errorf("only %d allocations could fail", n-1)
			}
			return
		}
		if !errors.Is(err, cuda.ErrOutOfMemory) || r.Position() != 20 {
			t.Fatalf("allocation %d fails: %v, position %d", n, err, r.Position())
		}
		for _, tokens := range []int{5, 100} {
			if _, err := r.Prefill(t.Context(), make([]int32, tokens), samplingPass(1, tokens)); err != nil {
				t.Fatalf("%d tokens after allocation %d failed: %v", tokens, n, err)
			}
		}
		if err := r.Decode(t.Context(), 3, func(tokens []gpt2.Token) bool { return true }); err != nil || r.Position() != 128 {
			t.Fatalf("after allocation %d failed: %v, position %d", n, err, r.Position())
		}
		if n > 100 {
			t.Fatal("there is no end of failures")
		}
	}
}

// TestDecode: tokens come in order, over the end of the ring, and no more steps are launched than requested.
func TestDecode(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	for _, mode := range modes {
		for _, batch := range []int{1, 3} {
			r := prepared(t, m, c, backendOn(t, lib, Options{Mode: mode}), gpt2.Options{Batch: batch})
			prompt := 20
			c.Reset()
			first, err := r.Prefill(t.Context(), make([]int32, batch*prompt), samplingPass(batch, prompt))
			must(t, err)
			tokens := slices.Clone(first)
			launched := func() (n int) {
				for _, name := range c.Calls() {
					if name == "gs_sample" || name == "gs_graph_launch" {
						n++
					}
				}
				if mode.captures() && n > 2 {
					n-- // recording a step is no launch
				}
				return n - 1 // the prefill's
			}
			counts := []int{1, 2, 3, runAhead, runAhead + 1, 3*ringSlots + 5}
			if mode == Persistent { // TestPersistentLaunches counts its launches
				for _, n := range counts {
					must(t, r.Decode(t.Context(), n, func(step []gpt2.Token) bool {
						tokens = append(tokens, step...)
						return true
					}))
				}
				counts = nil
			}
			for _, n := range counts {
				before, read := launched(), 0
				must(t, r.Decode(t.Context(), n, func(step []gpt2.Token) bool {
					tokens = append(tokens, step...)
					read++
					if ahead := launched() - before; ahead > n || ahead > read-1+runAhead || ahead < read {
						t.Fatalf("%s: %d of %d steps are launched when %d are read", mode, ahead, n, read)
					}
					return true
				}))
				if got := launched() - before; got != n || read != n {
					t.Errorf("%s, B=%d: %d steps launched and %d read of %d", mode, batch, got, read, n)
				}
			}
			for i, token := range tokens {
				step := i / batch
				if token.ID != int32((step+1)%257) || token.Seq != i%batch || token.Position != prompt+step {
					t.Fatalf("%s, B=%d: token %d is %+v", mode, batch, i, token)
				}
			}
			if want := prompt + len(tokens)/batch - 1; r.Position() != want {
				t.Errorf("%s: position %d, want %d", mode, r.Position(), want)
			}
		}
	}
}

// product is a matrix product that cuBLASLt does.
type product struct {
	step string // of the plan
	rows int
}

// products returns those of the compiled passes.
func products(r *Runner) (all []product) {
	for _, c := range r.compiled {
		for i, launches := range c.steps {
			for _, l := range launches {
				if l.product > 0 {
					all = append(all, product{c.plan.Steps[i].Name(), l.product})
				}
			}
		}
	}
	return all
}

// TestDecodeIsNotPadded: however many sequences there are, one token of each is a decode step, measured too.
func TestDecodeIsNotPadded(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	const batch = cuda.GEMVRows + 3
	for _, mode := range modes {
		r := prepared(t, m, c, backendOn(t, lib, Options{Mode: mode}), gpt2.Options{Batch: batch})
		if n, err := r.Launches(r.decodePass()); err != nil || n == 0 {
			t.Fatal(n, err)
		}
		all := products(r)
		for _, p := range all {
			if p.rows != batch {
				t.Errorf("%s: a decode step of %d sequences has a product of %d rows: %+v", mode, batch, p.rows, p)
			}
		}
		if len(all) == 0 || len(r.compiled) != 1 || r.compiled[r.decodePass()] == nil {
			t.Errorf("%s: products %+v of %d passes", mode, all, len(r.compiled))
		}
	}
}

// TestContextCapsRunAhead: the last step of a context is the last that is launched; then the last half is evaluated
// again.
func TestContextCapsRunAhead(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	for _, mode := range modes {
		b := backendOn(t, lib, Options{Mode: mode})
		s, err := gpt2.NewSession(t.Context(), m, b, gpt2.Options{Context: 16})
		must(t, err)
		most, n := 0, 0
		for token, err := range s.Generate(t.Context(), make([]int32, 4), gpt2.Generation{Tokens: 200, IgnoreEOS: true}) {
			must(t, err)
			n++
			most = max(most, s.Position())
			if int(token.ID) != n%257 || token.Position != 3+n { // no launch was lost or dropped
				t.Fatalf("%s: token %d is %+v", mode, n, token)
			}
		}
		if n != 200 || most != 16 || s.Stats().Shifts < 10 {
			t.Errorf("%s: %d tokens, at most %d in the cache, %+v", mode, n, most, s.Stats())
		}
		if err := errors.Join(s.Close(), b.Close()); err != nil || c.Live() != 0 {
			t.Error(err, c.Live())
		}
	}
}

// TestStopRewinds: steps that ran ahead of an early stop, or of a cancelled context, are as if they had not been.
func TestStopRewinds(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	enough := errors.New("enough")
	for _, mode := range modes {
		for _, batch := range []int{1, 3} {
			r := prepared(t, m, c, backendOn(t, lib, Options{Mode: mode}), gpt2.Options{Batch: batch})
			prefill(t, r, make([]int32, 7*batch), samplingPass(batch, 7))
			position, last := 7, int32(1)
			next := int32(2) // the token after it: launches are counted, also those dropped
			for round := range 24 {
				stop := 1 + round%5
				ctx, cancel := context.WithCancelCause(t.Context())
				n := 0
				err := r.Decode(ctx, 50, func(tokens []gpt2.Token) bool {
					n++
					position++
					for b, token := range tokens {
						if token.Position != position || token.Seq != b || token.ID != next {
							t.Fatalf("%s, round %d: token %d is %+v", mode, round, n, token)
						}
					}
					last, next = next, (next+1)%257
					if n == stop && round%2 == 1 {
						cancel(enough)
					}
					return n < stop || round%2 == 1
				})
				cancel(nil)
				dropped := runAhead - 1
				if mode == Persistent { // two launches, and the next one when so many are left
					dropped = 2*cuda.PersistentTokens - stop
					if stop > cuda.PersistentTokens-runAhead+1 {
						dropped += cuda.PersistentTokens
					}
				}
				next = (next + int32(dropped)) % 257 // so no slot of a dropped step is taken for a new one
				if want := map[int]error{0: nil, 1: enough}[round%2]; !errors.Is(err, want) || n != stop {
					t.Fatalf("%s, round %d: %v after %d tokens", mode, round, err, n)
				}
				if r.Position() != position {
					t.Fatalf("%s, round %d: position %d, want %d", mode, round, r.Position(), position)
				}
				if pos := deviceInts(t, r, posOffset, batch); !r.state.stale && pos[batch-1] != int32(position) {
					t.Fatalf("%s: the device is at %v, the host at %d", mode, pos, position)
				}
				if got := r.state.tokens; len(got) != batch || got[0].ID != last {
					t.Fatalf("%s: the next step takes %+v, not %d", mode, got, last)
				}
			}
			gone, cancel := context.WithCancelCause(t.Context())
			cancel(enough)
			if _, err := r.Prefill(gone, make([]int32, batch), samplingPass(batch, 1)); !errors.Is(err, enough) || r.Position() != position {
				t.Errorf("%s: a cancelled prefill: %v, position %d", mode, err, r.Position())
			}
			if err := r.Rewind(5); err != nil || r.Position() != 5 {
				t.Error(err)
			}
			if r.Rewind(6) == nil || r.Rewind(-1) == nil {
				t.Error("a rewind to a token that is not there")
			}
			tokens, err := r.Prefill(t.Context(), make([]int32, 2*batch), samplingPass(batch, 2))
			if err != nil || tokens[batch-1].Position != 7 {
				t.Errorf("%s: after a rewind to 5, two tokens: %+v, %v", mode, tokens, err)
			}
		}
	}
}

// TestPromptOnDevice: a padded prompt is at the end of each sequence's rows, after idle rows of token 0, whatever was
// there before.
func TestPromptOnDevice(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	const batch = 2
	for _, mode := range modes {
		r := prepared(t, m, c, backendOn(t, lib, Options{Mode: mode}), gpt2.Options{Batch: batch})
		for _, tokens := range []int{30, 20} {
			ids := make([]int32, batch*tokens)
			for i := range ids {
				ids[i] = int32(100 + i)
			}
			must(t, r.Rewind(0))
			prefill(t, r, ids, samplingPass(batch, tokens))
			padded := r.backend.executed(samplingPass(batch, tokens), 256).Tokens
			var want []int32
			for b := range batch {
				want = append(append(want, make([]int32, padded-tokens)...), ids[b*tokens:(b+1)*tokens]...)
			}
			if got := deviceInts(t, r, r.state.header(), batch*padded); !slices.Equal(got, want) {
				t.Errorf("%s: the device has ids %v, want %v", mode, got, want)
			}
			if pad := deviceInts(t, r, samplingBytes, 1)[0]; int(pad) != padded-tokens {
				t.Errorf("%s: %d idle rows, want %d", mode, pad, padded-tokens)
			}
		}
		// A pass of one token reads it where a step leaves its own, of each sequence.
		prefill(t, r, []int32{31, 32}, samplingPass(batch, 1))
		for b := range batch {
			if got := binary.LittleEndian.Uint32(r.state.host.Bytes()[posOffset+4*int64(batch+b):]); got != uint32(31+b) {
				t.Errorf("%s: sequence %d takes token %d, want %d", mode, b, got, 31+b)
			}
		}
	}
}

// TestRead: rows are those of the prompt, also where it was padded, in both types; what is not all in the buffer is an
// error.
func TestRead(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	const batch, tokens, channels = 2, 20, 64
	for _, mode := range modes {
		for _, dtype := range []weights.DType{weights.F32, weights.BF16} {
			if mode == Persistent && dtype == weights.F32 {
				continue
			}
			r := prepared(t, m, c, backendOn(t, lib, Options{Mode: mode, DType: dtype}), gpt2.Options{Batch: batch})
			if err := r.Read(gpt2.BufX, 0, make([]float32, 1)); err == nil {
				t.Error("a buffer was read before a pass")
			}
			pass := samplingPass(batch, tokens)
			prefill(t, r, make([]int32, batch*tokens), pass)
			padded := r.backend.executed(pass, 256).Tokens
			for _, buffer := range []gpt2.Buffer{gpt2.BufX, gpt2.BufAttn} { // float32, and the type of activations
				size := r.backend.typeOf(buffer, r.last.plan).Size()
				raw := make([]byte, batch*padded*channels*size)
				value := func(b, row, column int) float32 { return float32(b*128 + row) } // exact in bfloat16
				for b := range batch {
					for row := range padded {
						for column := range channels {
							bits := math.Float32bits(value(b, row-(padded-tokens), column))
							at := raw[((b*padded+row)*channels+column)*size:]
							if size == 4 {
								binary.LittleEndian.PutUint32(at, bits)
							} else {
								binary.LittleEndian.PutUint16(at, uint16(bits>>16))
							}
						}
					}
				}
				must(t, r.memory.buffers[buffer].Write(0, raw))
				for _, from := range []int{0, 1, tokens - 1, tokens, 2*tokens - 1} {
					got := make([]float32, (batch*tokens-from)*channels)
					must(t, r.Read(buffer, from, got))
					for i, v := range got {
						row := from + i/channels
						if want := value(row/tokens, row%tokens, i%channels); v != want {
							t.Fatalf("%s %s %s: element %d from row %d on is %g, want %g", mode, dtype, buffer, i, from, v, want)
						}
					}
					if err := r.Read(buffer, from, make([]float32, len(got)+1)); err == nil || !strings.Contains(err.Error(), "not all in it") {
						t.Errorf("%s: %d elements from row %d on, of %d: %v", buffer, len(got)+1, from, len(got), err)
					}
				}
				if err := r.Read(buffer, -1, make([]float32, 1)); err == nil {
					t.Error("row -1 was read")
				}
			}
		}
	}
}

// TestPositionReachesDevice: a decode step is at the host's position, whatever changed that before.
func TestPositionReachesDevice(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	for _, mode := range modes {
		r := prepared(t, m, c, backendOn(t, lib, Options{Mode: mode}), gpt2.Options{})
		step := func(after string, want int) {
			t.Helper()
			must(t, r.Decode(t.Context(), 1, func(tokens []gpt2.Token) bool {
				if tokens[0].Position != want {
					t.Errorf("%s: a step after %s gives the token at %d, want %d", mode, after, tokens[0].Position, want)
				}
				return true
			}))
		}
		prefill(t, r, make([]int32, 4), samplingPass(1, 4))
		step("a prefill", 5)
		step("a step", 6)
		must(t, r.Rewind(2))
		step("a rewind", 3)
		prefill(t, r, make([]int32, 7), gpt2.Pass{Batch: 1, Tokens: 7, Logits: gpt2.LogitsLast})
		step("a prefill that does not sample", 11)
		if _, err := r.Measure(t.Context(), []int32{1}, samplingPass(1, 1), 1); err != nil {
			t.Fatal(err)
		}
		steps := func() uint64 { // sampling launches, as the device counts them
			raw := make([]byte, samplingBytes)
			must(t, r.state.device.Read(0, raw))
			return (*cuda.Sampling)(unsafe.Pointer(&raw[0])).Step
		}
		if got := steps(); got != r.state.step || got < measureSteps {
			t.Errorf("%s: after measuring the device has counted %d sampling launches, the host %d", mode, got, r.state.step)
		}
		step("measuring", 12)
	}
}

// deviceInts reads int32s of the device's state.
func deviceInts(t *testing.T, r *Runner, off int64, n int) []int32 {
	t.Helper()
	raw := make([]byte, 4*n)
	must(t, r.state.device.Read(off, raw))
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(raw[4*i]) | int32(raw[4*i+1])<<8 | int32(raw[4*i+2])<<16 | int32(raw[4*i+3])<<24
	}
	return out
}

// TestBreakThenFail: a device that fails after the caller has left the loop is reported by the next call, not by one
// more token.
func TestBreakThenFail(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	b := backendOn(t, lib, Options{Mode: Graph})
	s, err := gpt2.NewSession(t.Context(), m, b, gpt2.Options{})
	must(t, err)
	n := 0
	for _, err := range s.Generate(t.Context(), []int32{1, 2}, gpt2.Generation{Tokens: 40, IgnoreEOS: true}) {
		must(t, err)
		if n++; n == 5 {
			c.Fail("gs_stream_synchronize", 1)
			break
		}
	}
	for _, err := range s.Generate(t.Context(), []int32{1, 2}, gpt2.Generation{Tokens: 4}) {
		var failed *cuda.Error
		if !errors.As(err, &failed) {
			t.Errorf("the failure is forgotten: %v", err)
		}
	}
	if err := errors.Join(s.Close(), b.Close()); err != nil || c.Live() != 0 {
		t.Error(err, c.Live())
	}
}

// TestSurvey: a survey foretells what the run does.
func TestSurvey(t *testing.T) {
	lib, c := onStub(t)
	for _, mode := range modes {
		for _, dtype := range []weights.DType{weights.BF16, weights.F32} {
			if mode == Persistent && dtype == weights.F32 {
				continue
			}
			m := randomModel(t, small)
			b := backendOn(t, lib, Options{Mode: mode, DType: dtype, Variants: map[string]string{"residual_1": "norm"}})
			o := gpt2.Options{Layers: []int{1, 0, 1}, Batch: 2, Context: 128}
			live := c.Live()
			survey, err := b.Survey(m, o, samplingPass(2, 40), samplingPass(2, 1))
			must(t, err)
			if c.Live() != live {
				t.Error("a survey leaves something behind")
			}
			c.Reset()
			r := prepared(t, m, c, b, o)
			prefill(t, r, make([]int32, 80), samplingPass(2, 40))
			if len(products(r)) == 0 {
				t.Error("the prefill has no products")
			}
			must(t, r.Decode(t.Context(), 2, func([]gpt2.Token) bool { return true }))
			var activations, arenas int64
			for _, buffer := range r.memory.buffers {
				if buffer != nil {
					activations += buffer.Size()
				}
			}
			for _, a := range r.weights.arenas {
				arenas += a.Size()
			}
			if survey.Weights != arenas || survey.Cache != r.memory.cache.Size() || survey.Activations != activations ||
				survey.Work != r.memory.sampleWork.Size()+r.memory.attentionWork.Size()+cuda.BLASWorkspace || survey.Passes[0] != b.executed(samplingPass(2, 40), 128) {
				t.Errorf("foretold %+v; weights %d, cache %d, activations %d", survey, arenas, r.memory.cache.Size(), activations)
			}
		}
	}
}

// launchesOf returns the calls that a plan's steps are, and the step of each.
func launchesOf(plan *gpt2.Plan) (names []string, steps []int) {
	for i, s := range plan.Steps {
		o := s.Ops[0]
		name := map[gpt2.Op]string{gpt2.OpEmbed: "gs_embed", gpt2.OpLayerNorm: "gs_layernorm", gpt2.OpLinear: "gs_linear", gpt2.OpAttention: "gs_attention",
			gpt2.OpActivation: "gs_activate", gpt2.OpAdd: "gs_add", gpt2.OpSample: "gs_sample"}[s.Op()]
		if s.Op() == gpt2.OpAdd && len(s.Ops) == 2 {
			name = "gs_layernorm"
		}
		if o.Rows > 0 || o.Op == gpt2.OpAttention {
			names, steps = append(names, name), append(steps, i)
		}
		for _, o := range s.Ops {
			if o.Stage == gpt2.StageCAttn && o.Queries > 0 && o.Queries < o.Rows { // queries, then keys and values
				names, steps = append(names, name), append(steps, i)
			}
		}
	}
	return names, steps
}

// TestVariantsByShape: a chosen kernel runs where it takes the shape; where it does not, a notice says so once.
func TestVariantsByShape(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	for _, v := range []struct {
		stage, name     string
		prefill, decode string // notices of passes of 40 rows, and of one
	}{
		{"attn.c_attn", "gemv", "attn.c_attn=gemv does not take 40 rows", ""},
		{"attn.c_attn", "blas", "", ""},
		{"attn.sdpa", "split", "attn.sdpa=split does not take 40 queries of 40 rows", ""},
		{"attn.sdpa", "flash", "", "attn.sdpa=flash does not take 1 queries of 1 rows"},
		{"attn.sdpa", "naive", "", ""},
	} {
		var notices []string
		b := backendOn(t, lib, Options{Mode: Eager, Variants: map[string]string{v.stage: v.name}, Notice: func(s string) { notices = append(notices, s) }})
		r := prepared(t, m, c, b, gpt2.Options{})
		check := func(pass, words string) {
			t.Helper()
			if words == "" && len(notices) != 0 || words != "" && (len(notices) != 1 || !strings.Contains(notices[0], words)) {
				t.Errorf("%s=%s, %s: notices %q, want %q", v.stage, v.name, pass, notices, words)
			}
			notices = nil
		}
		for _, words := range []string{v.prefill, ""} { // once
			prefill(t, r, make([]int32, 40), gpt2.Pass{Batch: 1, Tokens: 40, Logits: gpt2.LogitsAll})
			check("prefill", words)
		}
		prefill(t, r, make([]int32, 1), samplingPass(1, 1))
		check("decode step", v.decode)
		steps := map[string]bool{}
		for _, p := range products(r) {
			if p.rows == 1 {
				steps[p.step] = true
			}
		}
		if blas := v.name == "blas"; len(steps) != map[bool]int{true: 2}[blas] || blas && !steps["h.1.attn.c_attn"] { // the LayerNorm is a step of its own then
			t.Errorf("%s=%s: a decode step has cuBLASLt do %v", v.stage, v.name, steps)
		}
	}
}

// TestLongRun: 10,000 decode steps take no more memory than a hundred.
func TestLongRun(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, "random:L=1,C=32,NH=2,V=257,T=10400")
	for _, mode := range modes {
		r := prepared(t, m, c, backendOn(t, lib, Options{Mode: mode}), gpt2.Options{})
		prefill(t, r, make([]int32, 20), samplingPass(1, 20))
		steps := func(n int) {
			must(t, r.Decode(t.Context(), n, func([]gpt2.Token) bool { return true }))
		}
		steps(100)
		live := c.Live()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		steps(10000)
		runtime.ReadMemStats(&after)
		if n := c.Live(); n != live {
			t.Errorf("%s: %d allocations in the library, %d before", mode, n, live)
		}
		if n := after.Mallocs - before.Mallocs; n > 500 { // of all goroutines
			t.Errorf("%s: %d allocations in Go over 10000 steps", mode, n)
		}
	}
}

// TestSharedWeights: sessions of a model share its weights, which go with the last of them; a cancelled upload leaves
// nothing.
func TestSharedWeights(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	b := backendOn(t, lib, Options{})
	options := func(layers ...int) gpt2.Options { return gpt2.Options{Layers: layers, Batch: 1, Context: 16} }
	packs := func() (n int) {
		for _, name := range c.Calls() {
			if name == "gs_pack" {
				n++
			}
		}
		c.Reset()
		return n
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	o, enough := options(0), errors.New("enough")
	o.Progress = func(done, total int64) {
		if done > total/2 {
			cancel(enough)
		}
	}
	if _, err := b.Prepare(ctx, m, o); !errors.Is(err, enough) || c.Live() != 0 {
		t.Errorf("a cancelled upload: %v, %d allocations are left", err, c.Live())
	}
	packs()
	prepare := func(o gpt2.Options) gpt2.Runner {
		r, err := b.Prepare(t.Context(), m, o)
		must(t, err)
		return r
	}
	var done, total int64
	o = options(0)
	o.Progress = func(d, t int64) { done, total = d, t }
	first := prepare(o)
	if packs() == 0 || done != total || done == 0 {
		t.Errorf("uploaded %d of %d", done, total)
	}
	same := prepare(options(0, 0))
	if n := packs(); n != 0 {
		t.Errorf("what is there is packed again: %d", n)
	}
	held := len(first.(*Runner).params)
	other := prepare(options(0, 1))
	if n := len(first.(*Runner).params); n != held { // other goroutines may be reading it
		t.Errorf("a session's %d parameters became %d when another layer was uploaded", held, n)
	}
	if packs() == 0 {
		t.Error("another layer is not uploaded")
	}
	must(t, errors.Join(first.Close(), other.Close()))
	if _, err := same.Prefill(t.Context(), []int32{1, 2}, samplingPass(1, 2)); err != nil {
		t.Error(err)
	}
	if err := errors.Join(same.Close(), b.Close()); err != nil || c.Live() != 0 {
		t.Errorf("%v, %d allocations are left", err, c.Live())
	}
	if _, err := b.Prepare(t.Context(), m, options(0)); !errors.Is(err, gpt2.ErrClosed) {
		t.Errorf("a closed backend: %v", err)
	}
}

// TestJoin: sessions run beside one another in mode graph; one in mode persistent takes the whole GPU.
func TestJoin(t *testing.T) {
	lib, _ := onStub(t)
	m := randomModel(t, small)
	for mode, want := range map[Mode]int{Eager: 1, Graph: 8, Persistent: 1} {
		b := backendOn(t, lib, Options{Mode: mode})
		joined, n := b.Join(m)
		if n != want {
			t.Errorf("mode %s: %d sessions, want %d", mode, n, want)
		}
		var beside sync.WaitGroup
		for range n {
			beside.Go(func() {
				r, err := joined.Prepare(t.Context(), m, gpt2.Options{Layers: []int{0, 1}, Batch: 1, Context: 16})
				if err != nil {
					t.Error(err)
					return
				}
				if tokens, err := r.Prefill(t.Context(), []int32{1, 2}, samplingPass(1, 2)); err != nil || len(tokens) != 1 {
					t.Errorf("%d tokens, %v", len(tokens), err)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		beside.Wait()
		must(t, b.Close())
	}
}

// Predictions see the plans and sizes that a GPU has once it is open.
func TestUnopened(t *testing.T) {
	lib, _ := onStub(t)
	m, err := gpt2.Random("random:L=2,C=64,NH=4,V=257,T=64")
	must(t, err)
	defer m.Close()
	for _, dtype := range []weights.DType{"", weights.BF16, weights.F32} {
		b := backendOn(t, lib, Options{DType: dtype})
		sizes, fuse := Unopened(dtype)
		if sizes != b.Sizes(nil) {
			t.Errorf("%v: sizes %+v, open %+v", dtype, sizes, b.Sizes(nil))
		}
		for _, tokens := range []int{1, 7, 60} {
			p := gpt2.Forward(m.Config, []int{0, 1}, samplingPass(1, tokens))
			got, want := fuse(p), b.Fuse(p)
			if len(got.Steps) != len(want.Steps) || len(got.Steps) >= len(p.Steps) || got.Cost(3) != want.Cost(3) {
				t.Errorf("%v, %d tokens: %d steps of %d, open %d", dtype, tokens, len(got.Steps), len(p.Steps), len(want.Steps))
			}
			for i := range min(len(got.Steps), len(want.Steps)) {
				if got.Steps[i].Name() != want.Steps[i].Name() {
					t.Errorf("step %d is %s, open %s", i, got.Steps[i].Name(), want.Steps[i].Name())
				}
			}
		}
		b.Close()
	}
}
