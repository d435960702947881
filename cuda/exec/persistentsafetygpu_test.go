package exec

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/weights"
)

// rewriteWTE changes the embeddings of a model on the device, before its first decode step: change is called with each
// row.
func rewriteWTE(t *testing.T, r *Runner, change func(i int, row []float32)) {
	t.Helper()
	at := r.params["wte.weight"].ptr
	V, C := r.model.Config.Vocab, r.model.Config.Channels
	rows := make([]float32, V*C)
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&rows[0])), 4*len(rows))
	half := make([]uint16, V*C) // the rows in bfloat16
	if r.backend.dtype == cuda.BF16 {
		bytes = unsafe.Slice((*byte)(unsafe.Pointer(&half[0])), 2*len(half))
	}
	for _, arena := range r.weights.arenas {
		if at < arena.Ptr() || at >= arena.Ptr()+cuda.Ptr(arena.Size()) {
			continue
		}
		off := int64(at - arena.Ptr())
		must(t, arena.Read(off, bytes))
		first := slices.Clone(bytes)
		if r.backend.dtype == cuda.BF16 {
			for i, v := range half {
				rows[i] = math.Float32frombits(uint32(v) << 16)
			}
		}
		for i := range V {
			change(i, rows[i*C:(i+1)*C])
		}
		for i, v := range rows {
			half[i] = uint16(math.Float32bits(v) >> 16)
		}
		if slices.Equal(first, bytes) {
			t.Fatal("nothing was changed")
		}
		must(t, arena.Write(off, bytes))
		return
	}
	t.Fatal("no memory has the embeddings")
}

// TestPersistentSamples: a token that is drawn in the decode kernel, or after it where that draws from too many
// candidates, is that which [gpt2.Sampler] draws from the step's logits, with its log-probability; also if the greatest
// logits are in few blocks or equal.
func TestPersistentSamples(t *testing.T) {
	b := persistentGPU(t, false)
	larger := func(n int) func(int, []float32) { // the first n rows are eight times as large
		return func(i int, row []float32) {
			for k := range row {
				if i < n {
					row[k] *= 8
				}
			}
		}
	}
	equal := func(n int) func(int, []float32) { // rows repeat after n
		var first [][]float32
		return func(i int, row []float32) {
			if i < n {
				first = append(first, slices.Clone(row))
			} else {
				copy(row, first[i%n])
			}
		}
	}
	for _, f := range []struct {
		spec    string
		change  func(int, []float32)
		of      string
		apart   bool // from all is drawn after the kernel
		batches []int
	}{
		{spec: "random:L=2,C=384,NH=6,V=257,T=256", batches: []int{1, 2, 5, 8}},
		{spec: "random:L=1,C=384,NH=6,V=257,T=256,seed=2", change: equal(3), of: "3 different rows", batches: []int{1, 3}},
		{spec: "random:L=2,C=768,NH=12,V=50257,T=256", apart: true, batches: []int{1, 2, 8}},
		{spec: "random:L=2,C=768,NH=12,V=50257,T=256,seed=3", change: larger(60), of: "60 large rows", apart: true, batches: []int{1, 4}},
		{spec: "random:L=1,C=768,NH=12,V=50257,T=256,seed=4", change: larger(2000), of: "2000 large rows", apart: true, batches: []int{1, 3}},
		{spec: "random:L=1,C=384,NH=6,V=50257,T=256,seed=5", change: equal(1), of: "equal rows", apart: true, batches: []int{1, 2}},
		{spec: "random:L=1,C=384,NH=6,V=50257,T=256,seed=6", change: equal(700), of: "700 different rows", apart: true, batches: []int{1, 8}},
		{spec: "random:L=1,C=1024,NH=16,V=5000,T=256", apart: true, batches: []int{1, 2, 8}},
		{spec: "random:L=1,C=1280,NH=20,V=50257,T=256", apart: true, batches: []int{1, 4}},
		{spec: "random:L=1,C=1600,NH=25,V=1000,T=256", apart: true, batches: []int{1}},
	} {
		m := randomModel(t, f.spec)
		for i, batch := range f.batches {
			s := session(t, m, b, gpt2.Options{Batch: batch})
			r := s.Runner().(*Runner)
			if f.change != nil && i == 0 { // sessions share weights
				rewriteWTE(t, r, f.change)
			}
			V := m.Config.Vocab
			prompt := randomIDs(rand.New(rand.NewPCG(3, uint64(batch))), 3*batch, V)
			for n, how := range []gpt2.Sampling{{Temperature: 0.8, Seed: 3}, {Temperature: 1, TopK: 40, Seed: 4}, {Temperature: 1.2, TopP: 0.9, Seed: 5, LogProbs: true}, {LogProbs: true},
				{Temperature: 0.8, TopK: 40, TopP: 0.5, Seed: 6, LogProbs: true}, {Temperature: 1.5, TopK: 128, Seed: 7}, {Temperature: 3, TopK: 100, TopP: 0.95, Seed: 8, LogProbs: true},
				{Temperature: 0.1, TopK: 5, Seed: 9}, {Temperature: 1, TopK: 1, Seed: 10, LogProbs: true}, {Temperature: 100, TopK: 64, Seed: 11}, {Temperature: 1e-3, TopK: 33, Seed: 12}, {Temperature: 1, TopK: 2, Seed: 13}} {
				what := fmt.Sprintf("%s %s, %d sequences, %+v", f.spec, f.of, batch, how)
				must(t, s.Reset())
				r.SetSampling(how)
				decoded(t, r, prompt, 0)
				// The logits of the last step of a launch can be read, which is one of 1 to all that one may have.
				var sampler gpt2.Sampler
				for steps := range cuda.PersistentTokens / min(batch, 2) {
					tokens := decoded(t, r, nil, 1+steps)
					if apart := f.apart && how.TopK == 0 && how.Temperature > 0; r.persistent.kernel.SamplesApart(how) != apart {
						t.Fatalf("%s: drawn after the kernel: %v", what, !apart)
					}
					logits := logitsOf(t, r)
					for j, got := range tokens[len(tokens)-batch:] {
						want, err := sampler.Sample(how, logits[j*V:(j+1)*V], j, r.Position())
						must(t, err)
						if got.ID != want.ID || got.Seq != j || got.Position != want.Position || how.LogProbs && !(max(got.LogProb-want.LogProb, want.LogProb-got.LogProb) < 1e-4) {
							t.Fatalf("%s, the last of %d steps, sequence %d: token %+v, want %+v", what, len(tokens)/batch, j, got, want)
						}
					}
				}
				inOneKernel(t, s)
				var first []gpt2.Token
				for range 1 + 2*(n%2) {
					must(t, s.Reset())
					again := decoded(t, r, prompt, 40)
					for i := range first {
						if again[i].ID != first[i].ID || how.LogProbs && again[i].LogProb != first[i].LogProb {
							t.Fatalf("%s: token %d is %+v, and was %+v before", what, i, again[i], first[i])
						}
					}
					first = again
				}
			}
		}
	}
}

// TestPersistentNotFinite: where a logit is no number, a call ends with the error of other modes, and the session goes
// on.
func TestPersistentNotFinite(t *testing.T) {
	b := persistentGPU(t, false)
	for n, how := range []gpt2.Sampling{{}, {Temperature: 1, TopK: 40, Seed: 1}, {LogProbs: true}, {}, {Temperature: 1, TopK: 40, Seed: 1}, {LogProbs: true}} {
		batch := 1 + n/3*3
		s := session(t, randomModel(t, "random:L=1,C=384,NH=6,V=1000,T=64"), b, gpt2.Options{Batch: batch})
		r := s.Runner().(*Runner)
		decoded(t, r, make([]int32, 3*batch), 0)
		rewriteWTE(t, r, func(i int, row []float32) {
			if i == 777 {
				row[0] = float32(math.NaN())
			}
		})
		r.SetSampling(how)
		for range 2 {
			if err := r.Decode(t.Context(), 20, func([]gpt2.Token) bool { return true }); !errors.Is(err, gpt2.ErrNotFinite) {
				t.Errorf("%d sequences, %+v: %v", batch, how, err)
			}
		}
		inOneKernel(t, s)
	}
}

// TestPersistentRepeats: a text is the same each time, greedy and drawn, and its last logits bit by bit.
// GPT2SCOPE_PERSISTENT_RUNS makes more runs. A library that was built with FLAGS=-DGS_PERSISTENT_DELAYS lets blocks
// wait at random before they publish and poll.
func TestPersistentRepeats(t *testing.T) {
	runs := 20
	if n, err := strconv.Atoi(os.Getenv("GPT2SCOPE_PERSISTENT_RUNS")); err == nil {
		runs = n
	}
	b := persistentGPU(t, false)
	for _, f := range []struct {
		spec    string
		batches []int
	}{
		{"random:L=3,C=384,NH=6,V=257,T=128", []int{1, 2, 8}},
		{"random:L=2,C=768,NH=12,V=5000,T=128,seed=2", []int{1, 4, 7}},
		{"random:L=1,C=1024,NH=16,V=999,T=128,seed=3", []int{1, 3}},
		{"random:L=2,C=1600,NH=25,V=1000,T=128,seed=4", []int{1}},
	} {
		m := randomModel(t, f.spec)
		for _, batch := range f.batches {
			s := session(t, m, b, gpt2.Options{Batch: batch})
			prompt := randomIDs(rand.New(rand.NewPCG(5, 6)), 9*batch, m.Config.Vocab)
			for _, how := range []gpt2.Sampling{{}, {Temperature: 0.8, TopK: 40, Seed: 5}} {
				s.Runner().SetSampling(how)
				tokens, want := ran(t, s, prompt, 50)
				for i := range runs {
					got, row := ran(t, s, prompt, 50)
					if !slices.Equal(idsOf(got), idsOf(tokens)) || !slices.Equal(row, want) {
						t.Fatalf("%s, %d sequences, temperature %g: run %d: %v, before %v", f.spec, batch, how.Temperature, i, idsOf(got), idsOf(tokens))
					}
				}
			}
			inOneKernel(t, s)
		}
	}
}

// TestPersistentStuck: if a block gets no weights, the call ends with an error that names block and step, and the
// session goes on. It needs GPT2SCOPE_STUCK=1 and a library that was built with FLAGS=-DGS_PERSISTENT_STUCK, of which
// block 5 stops to copy before step 3 of a launch's second token.
func TestPersistentStuck(t *testing.T) {
	if os.Getenv("GPT2SCOPE_STUCK") == "" {
		t.Skip("GPT2SCOPE_STUCK is not set")
	}
	for _, f := range []struct {
		spec  string
		batch int
	}{
		{"random:L=2,C=768,NH=12,V=5000,T=128", 1},
		{"random:L=1,C=1280,NH=20,V=1000,T=128", 3},
	} {
		m := randomModel(t, f.spec)
		var notices []string
		b := gpu(t, Options{Mode: Persistent, Notice: func(text string) { notices = append(notices, text) }})
		s := session(t, m, b, gpt2.Options{Batch: f.batch})
		r := s.Runner().(*Runner)
		decoded(t, r, randomIDs(rand.New(rand.NewPCG(5, 6)), 9*f.batch, m.Config.Vocab), 0)
		start, many := time.Now(), 30*cuda.PersistentTokens
		err := r.Decode(t.Context(), many, func([]gpt2.Token) bool { return true })
		took := time.Since(start)
		var stage *gpt2.StageError
		if !errors.As(err, &stage) || stage.Step != "h.0.ln_2+h.0.mlp.c_fc+h.0.mlp.gelu" || !strings.Contains(err.Error(), "SM 5 waited longer than 1.75s for its weights") {
			t.Errorf("%s: after %v: %v", f.spec, took, err)
		}
		if took > time.Minute {
			t.Errorf("%s: the call took %v", f.spec, took)
		}
		next := make([]gpt2.Token, 0, f.batch*5)
		if err := r.Decode(t.Context(), 5, func(step []gpt2.Token) bool { next = append(next, step...); return true }); err != nil || len(next) != 5*f.batch {
			t.Errorf("%s: the session goes on with %d tokens and %v", f.spec, len(next), err)
		}
		if len(notices) != 1 || !strings.Contains(notices[0], "timed out") {
			t.Errorf("%s: notices %q; expected one of a timeout", f.spec, notices)
		}
	}
}

// TestPersistentSmallRing: where many steps and the keys of a launch leave little room for weights, no warp waits for a
// copy that has no room before the others go on.
func TestPersistentSmallRing(t *testing.T) {
	const past, steps = 800, 2 * cuda.PersistentTokens
	small, wide := randomModel(t, "random:L=1,C=384,NH=6,V=257,T=1024,seed=8"), randomModel(t, "random:L=1,C=768,NH=12,V=50257,T=1024,seed=9")
	for _, f := range []struct {
		m             *gpt2.Model
		batch, layers int
	}{{small, 1, 48}, {small, 4, 64}, {small, 8, 64}, {small, 8, 100}, {wide, 8, 24}} {
		m := f.m
		o := gpt2.Options{Batch: f.batch, Layers: make([]int, f.layers)}
		prompt := randomIDs(rand.New(rand.NewPCG(5, 6)), past*f.batch, m.Config.Vocab)
		var ids [2][]int32
		var rows [2][]float32
		for i, b := range []*Backend{persistentGPU(t, false), gpu(t, Options{Mode: Graph})} {
			s := session(t, m, b, o)
			r := s.Runner().(*Runner)
			ids[i], rows[i] = idsOf(decoded(t, r, prompt, steps)), logitsOf(t, r)
			if i == 0 {
				inOneKernel(t, s)
				t.Logf("%d sequences, %d layers: %d tokens a launch", f.batch, f.layers, r.persistent.kernel.Tokens(gpt2.Sampling{}))
			}
		}
		if slices.Equal(ids[0][:len(ids[0])-f.batch], ids[1][:len(ids[1])-f.batch]) {
			closeTo(t, fmt.Sprintf("%d sequences, %d layers", f.batch, f.layers), rows[0], rows[1], bounds[weights.BF16])
		}
	}
}

// TestPersistentGrids: a grid among which a width does not divide is refused with the reason, and steps run as graphs.
func TestPersistentGrids(t *testing.T) {
	m, layers, prompt := shipped(t), gpt2.FirstLayers(3), []int32{20, 21, 22, 23}
	g := gpt2.Generation{Tokens: 120, IgnoreEOS: true}
	want := idsOf(generate(t, session(t, m, gpu(t, Options{Mode: Graph}), gpt2.Options{Layers: layers}), prompt, g))
	for _, blocks := range []int{7, 31} {
		var notices []string
		b := gpu(t, Options{Mode: Persistent, Notice: func(text string) { notices = append(notices, text) }, decodeBlocks: blocks})
		if b.dev.Info().Major < 9 {
			t.Skip("the GPU has no persistent kernel")
		}
		got := idsOf(generate(t, session(t, m, b, gpt2.Options{Layers: layers}), prompt, g))
		if len(notices) != 1 || !strings.Contains(notices[0], fmt.Sprintf("among %d SMs", blocks)) || !slices.Equal(got, want) {
			t.Errorf("%d blocks: notices %q", blocks, notices)
		}
	}
}
