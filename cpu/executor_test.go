package cpu

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/reference/executor"
	"gpt2scope/weights"
)

// randomModel draws a small geometry with odd sizes, every activation and both attention scales, and a run order that
// may drop and repeat layers.
func randomModel(t *testing.T, r *rand.Rand) (*gpt2.Model, []int) {
	t.Helper()
	heads := 1 + r.IntN(4)
	head := []int{1, 3, 8, 16, 33, 64}[r.IntN(6)]
	for heads*head < 8 { // normalising a few nearly equal values is ill-conditioned
		heads *= 2
	}
	vocab := []int{2, 31, 97, 257, 300}[r.IntN(5)]
	m := newModel(t, fmt.Sprintf("random:L=%d,C=%d,NH=%d,V=%d,T=%d,F=%d,seed=%d", 1+r.IntN(3), heads*head, heads,
		vocab, 20+r.IntN(60), 1+r.IntN(200), r.IntN(1000)))
	m.Config.Activation = gpt2.Activation(r.IntN(3))
	m.Config.ScaleWeights, m.Config.ScaleByInverseLayer = r.IntN(3) > 0, r.IntN(3) == 0
	layers := make([]int, 1+r.IntN(3))
	for i := range layers {
		layers[i] = r.IntN(m.Config.Layers)
	}
	return m, layers
}

func randomIDs(r *rand.Rand, n, vocab int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(r.IntN(vocab))
	}
	return ids
}

// normals draws activations of ordinary size.
func normals(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	return x
}

// TestStepsAgreeWithReference runs random plans step by step. Each fused step gets the same random inputs on both
// executors, and its output must equal that of the unfused operations on the reference. All other buffers are NaN.
func TestStepsAgreeWithReference(t *testing.T) {
	for _, isa := range supportedISAs() {
		for _, o := range []Options{{DType: weights.F32}, {DType: weights.BF16}, {Q8: true}} {
			o.ISA = isa.String()
			name := o.DType.String()
			if o.Q8 {
				name = "Q8"
			}
			t.Run(o.ISA+"/"+name, func(t *testing.T) {
				r := rand.New(rand.NewPCG(5, uint64(o.DType.Bits())))
				for range 8 {
					compareSteps(t, r, o)
				}
			})
		}
	}
}

func compareSteps(t *testing.T, r *rand.Rand, options Options) {
	t.Helper()
	m, layers := randomModel(t, r)
	options.Threads = 1 + r.IntN(3)
	b := newBackend(t, options)
	o := gpt2.Options{Layers: layers, Batch: 1 + r.IntN(3), Context: m.Config.Positions}
	fastRunner, err := b.Prepare(t.Context(), m, o)
	must(t, err)
	defer fastRunner.Close()
	slowRunner, err := executor.New().Prepare(t.Context(), m, o)
	must(t, err)
	fast, slow := fastRunner.(*runner), slowRunner.(*executor.Runner)
	for name, w := range fast.packed.weights { // the reference takes the same rounded weights
		data := slow.Weight(name)
		for i, v := range data {
			switch w.dtype {
			case bfloat16Type:
				data[i] = float64(weights.BFloat16ToFloat32(weights.Float32ToBFloat16(float32(v))))
			case q8Type:
				if isTransposed(gpt2.Param{Name: name}) {
					data[i] = float64(w.at(i%w.K, i/w.K))
				} else {
					data[i] = float64(w.at(i/w.N, i%w.N))
				}
			}
		}
	}
	past := r.IntN(m.Config.Positions - 1)
	passes := []gpt2.Pass{{Batch: o.Batch, Tokens: past}, {Batch: o.Batch, Tokens: 1 + r.IntN(m.Config.Positions-past),
		Logits: gpt2.Logits(r.IntN(3))}}
	if past == 0 {
		passes = passes[1:]
	}
	for _, pass := range passes {
		ids := randomIDs(r, pass.Batch*pass.Tokens, m.Config.Vocab)
		c, err := fast.compile(pass)
		must(t, err)
		copy(fast.ids.slice(), ids)
		slow.Begin(ids, pass)
		for i, step := range c.plan.Steps {
			out := step.Last()
			inputs := map[gpt2.Buffer]bool{step.Ops[0].In: true}
			for _, op := range step.Ops {
				if op.Op == gpt2.OpAdd {
					inputs[op.In] = true
					inputs[op.Aux] = true
				}
			}
			for buffer, shape := range c.plan.Buffers {
				n := pass.Batch * shape.Rows * shape.Width
				if n == 0 || gpt2.Buffer(buffer) == gpt2.BufTokens {
					continue
				}
				values := normals(r, n)
				for j := range values {
					v := float32(values[j])
					if !inputs[gpt2.Buffer(buffer)] {
						v = float32(math.NaN())
					}
					fast.buffers[buffer].slice()[j], slow.Buffer(gpt2.Buffer(buffer))[j] = v, float64(v)
				}
			}
			for _, op := range step.Ops {
				must(t, slow.Step(gpt2.Step{Ops: []gpt2.Operation{op}}))
			}
			if _, err := c.program.run(c.from[i], c.from[i+1], mem[int64]{}); err != nil {
				t.Fatal(err)
			}
			if out.Op == gpt2.OpSample {
				continue
			}
			where := fmt.Sprintf("%+v, layers %v, %+v, past %d: %s", m.Config, layers, pass, slow.Position(), step.Name())
			bound := 300 * 0x1p-24
			if rows := pass.Batch * min(out.Rows, max(1, out.Queries)); step.Op() == gpt2.OpLinear {
				switch {
				case options.Q8 && roundsRows(b.pool, rows):
					bound = 0.1 // activations are rounded to 1/127 of the largest; TestLinear has a closer bound
				case multipliesBF16(b.pool, b.dtype, pass.Batch*out.Rows):
					bound = 2 * 0x1p-8
				}
			}
			if step.Op() == gpt2.OpAttention && b.dtype != float32Type {
				// Keys and values are rounded, and mostly queries and exponentials; TestAttention has a closer bound.
				bound = 3 * 0x1p-8
				if !m.Config.ScaleWeights {
					// Scores are so much larger, and their rounding errors are in proportion.
					bound *= math.Sqrt(float64(m.Config.HeadSize()))
				}
			}
			compareRows(t, where, out, c.plan, fast.buffers[out.Out].slice(), slow.Buffer(out.Out), bound)
		}
		slow.End()
		fast.seek(slow.Position())
	}
}

// compareRows compares the rows that an operation writes. bound is a share of the largest value. A float32 sum of K
// products of random signs is off by about sqrt(K) 2^-24; 300 * 2^-24 leaves room for K = 500 and the functions, and is
// far below the effect of a wrong weight, row or mask. Rounding inputs to bfloat16 changes each term by at most 2^-8,
// at random, and an ordinary output by about 2^-9.5; the bound is 2 * 2^-8. TestLinear compares such products with
// inputs rounded alike, to float32's own errors.
func compareRows(t *testing.T, where string, o gpt2.Operation, p *gpt2.Plan, got []float32, want []float64,
	bound float64) {
	t.Helper()
	shape := p.Buffers[o.Out]
	rows := o.Rows
	if o.Op == gpt2.OpAttention {
		rows = o.Queries
	}
	each := func(compare func(b, row, col, i int)) {
		for b := range p.Pass.Batch {
			for row := shape.Rows - rows; row < shape.Rows; row++ {
				first := 0
				if o.Stage == gpt2.StageCAttn && row < shape.Rows-o.Queries {
					first = o.K // this row needs no query
				}
				for col := first; col < shape.Width; col++ {
					compare(b, row, col, (b*shape.Rows+row)*shape.Width+col)
				}
			}
		}
	}
	largest := 0.0
	each(func(_, _, _, i int) { largest = math.Max(largest, math.Abs(want[i])) })
	if math.IsNaN(largest) {
		t.Fatalf("%s: the reference is NaN", where)
	}
	each(func(b, row, col, i int) {
		if d := math.Abs(float64(got[i]) - want[i]); !(d <= bound*largest) {
			t.Fatalf("%s: sequence %d row %d column %d is %g, want %g (largest %g)", where, b, row, col, got[i], want[i],
				largest)
		}
	})
}

// session makes a session on the fast executor.
func session(t testing.TB, m *gpt2.Model, o Options, so gpt2.Options) *gpt2.Session {
	t.Helper()
	return newSession(t, m, newBackend(t, o), so)
}

func newSession(t testing.TB, m *gpt2.Model, b *Backend, o gpt2.Options) *gpt2.Session {
	t.Helper()
	s, err := gpt2.NewSession(context.Background(), m, b, o)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func newBackend(t testing.TB, o Options) *Backend {
	t.Helper()
	b, err := New(o)
	must(t, err)
	t.Cleanup(func() { b.Close() })
	return b
}

func newModel(t testing.TB, name string) *gpt2.Model {
	t.Helper()
	m, err := gpt2.Random(name)
	must(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

// TestWaysAgree evaluates the same tokens in one pass, token by token with the KV cache, in chunks, and in a batch: the
// logits are the same to 1e-4 of the largest.
func TestWaysAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	for range 10 {
		m, layers := randomModel(t, r)
		V, T, B := m.Config.Vocab, m.Config.Positions, 2+r.IntN(2)
		ids := randomIDs(r, B*T, V)
		ctx := t.Context()
		one := session(t, m, Options{Threads: 2}, gpt2.Options{Layers: layers})
		whole := make([]float32, 0, B*T*V)
		for b := range B {
			must(t, one.Reset())
			logits, err := one.Logits(ctx, ids[b*T:(b+1)*T], gpt2.LogitsAll)
			must(t, err)
			whole = append(whole, logits...)
		}
		check := func(way string, got, want []float32) {
			t.Helper()
			if d, largest := maxDifference(got, want); !(d <= 1e-4*largest) {
				t.Errorf("%s: logits differ by %g, the largest is %g", way, d, largest)
			}
		}

		batch := session(t, m, Options{Threads: 2}, gpt2.Options{Layers: layers, Batch: B})
		logits, err := batch.Logits(ctx, ids, gpt2.LogitsAll)
		must(t, err)
		check("batch", logits, whole)

		chunks := session(t, m, Options{Threads: 2}, gpt2.Options{Layers: layers, Batch: B, Chunk: 1 + r.IntN(T)})
		if logits, err = chunks.Logits(ctx, ids, gpt2.LogitsAll); err != nil {
			t.Fatal(err)
		}
		check(fmt.Sprintf("chunks of %d", chunks.Options().Chunk), logits, whole)
		must(t, chunks.Reset())
		if logits, err = chunks.Logits(ctx, ids, gpt2.LogitsLast); err != nil {
			t.Fatal(err)
		}
		var last []float32
		for b := range B {
			last = append(last, whole[((b+1)*T-1)*V:(b+1)*T*V]...)
		}
		check("last row of chunks", logits, last)

		must(t, batch.Reset())
		step := make([]int32, B)
		for i := range T {
			for b := range B {
				step[b] = ids[b*T+i]
			}
			if logits, err = batch.Logits(ctx, step, gpt2.LogitsLast); err != nil {
				t.Fatal(err)
			}
			for b := range B {
				check(fmt.Sprintf("decode step %d", i), logits[b*V:(b+1)*V], whole[(b*T+i)*V:(b*T+i+1)*V])
			}
		}
	}
}

// Decode steps that sessions take together move blocks to huge pages as others do.
func TestJointStepsFill(t *testing.T) {
	m := newModel(t, "random:L=64,C=64,NH=1,V=31,T=300,F=1")
	b, _ := newBackend(t, Options{}).Join(m)
	r, err := b.Prepare(t.Context(), m, gpt2.Options{Layers: gpt2.FirstLayers(64), Batch: 1, Context: 300})
	must(t, err)
	defer r.Close()
	_, err = r.Prefill(t.Context(), make([]int32, 255), gpt2.Pass{Batch: 1, Tokens: 255, Logits: gpt2.LogitsLast, Sample: true})
	must(t, err)
	cache := r.(*runner).caches[0]
	before := cache.moved
	must(t, r.Decode(t.Context(), 1, func([]gpt2.Token) bool { return true }))
	if before != 0 || cache.moved != 1 {
		t.Fatalf("blocks on huge pages: %d of 255 tokens, %d of 256", before, cache.moved)
	}
}

// TestActivationsAreFused: the kernels have none, and no sums, but in products.
func TestActivationsAreFused(t *testing.T) {
	c, layers := newModel(t, "random:L=3,C=64,NH=2,V=31,T=30").Config, []int{0, 1, 2}
	passes := []gpt2.Pass{{Logits: gpt2.LogitsAll}, {Logits: gpt2.LogitsLast, Sample: true}, {}, {Exit: 1},
		{From: 1, Logits: gpt2.LogitsAll, Verify: true}}
	for _, step := range gpt2.Forward(c, layers, passes[0]).Steps {
		passes = append(passes, gpt2.Pass{Until: step.Name()})
	}
	for _, pass := range passes {
		pass.Batch, pass.Tokens = 1, 4
		for _, step := range Fuse(gpt2.Forward(c, layers, pass)).Steps {
			if op := step.Ops[0].Op; op == gpt2.OpActivation || op == gpt2.OpAdd {
				t.Errorf("%+v: %s is alone", pass, step.Name())
			}
		}
	}
}

// TestJoinedSteps checks that steps that leave their results packed for the next ones change no bit of the logits.
func TestJoinedSteps(t *testing.T) {
	m := newModel(t, "random:L=2,C=128,NH=2,V=97,T=300,F=256")
	pass := gpt2.Pass{Batch: 1, Tokens: 107, Logits: gpt2.LogitsAll}
	for _, isa := range supportedISAs() {
		for _, o := range []Options{{DType: weights.F32}, {DType: weights.BF16}, {Q8: true}} {
			o.ISA, o.Threads = isa.String(), 3
			r := session(t, m, o, gpt2.Options{}).Runner().(*runner)
			c, err := r.compile(pass)
			must(t, err)
			copy(r.ids.slice(), randomIDs(rand.New(rand.NewPCG(9, 9)), pass.Tokens, m.Config.Vocab))
			must(t, r.pass(t.Context(), c))
			want := slices.Clone(r.buffers[gpt2.BufLogits].slice())
			must(t, r.Rewind(0))
			_, err = r.Prefill(t.Context(), r.ids.slice(), pass)
			must(t, err)
			if slices.Compare(r.buffers[gpt2.BufLogits].slice(), want) != 0 {
				t.Errorf("%s, %+v: logits differ", isa, o)
			}
		}
	}
}

// TestVerifyEqualsDecode checks that passes that verify, of each number of rows, give each row the logits of a decode
// step, bit for bit, for every type and version: of all layers, and of those that follow a draft's.
func TestVerifyEqualsDecode(t *testing.T) {
	m := newModel(t, "random:L=2,C=66,NH=2,V=97,T=300,F=131")
	ids := randomIDs(rand.New(rand.NewPCG(9, 9)), m.Config.Positions, m.Config.Vocab)
	for _, isa := range supportedISAs() {
		for _, o := range []Options{{DType: weights.F32}, {DType: weights.BF16}, {Q8: true}} {
			o.ISA, o.Threads = isa.String(), 2
			decode := session(t, m, o, gpt2.Options{}).Runner()
			pass := func(r gpt2.Runner, ids []int32, p gpt2.Pass) []float32 {
				t.Helper()
				p.Batch, p.Tokens = 1, len(ids)
				if _, err := r.Prefill(t.Context(), ids, p); err != nil {
					t.Fatal(err)
				}
				logits := make([]float32, r.Plan(p).Buffers[gpt2.BufLogits].Rows*m.Config.Vocab)
				if len(logits) > 0 {
					must(t, r.Read(gpt2.BufLogits, 0, logits))
				}
				return logits
			}
			var want []float32
			for i := range ids {
				want = append(want, pass(decode, ids[i:i+1], gpt2.Pass{Logits: gpt2.LogitsLast})...)
			}
			for from := range 2 {
				r := session(t, m, o, gpt2.Options{}).Runner()
				rows := r.(gpt2.Verifier).VerifyRows()
				if rows < 4 {
					t.Fatalf("%s: %d rows", isa, rows)
				}
				for at, n := 0, 1; at < len(ids); at, n = at+n, n%rows+1 {
					n = min(n, len(ids)-at)
					for i := at; i < at+n && from > 0; i++ {
						pass(r, ids[i:i+1], gpt2.Pass{Exit: from})
					}
					must(t, r.Rewind(at))
					got := pass(r, ids[at:at+n], gpt2.Pass{Logits: gpt2.LogitsAll, From: from, Verify: true})
					if d := slices.Compare(got, want[at*m.Config.Vocab:(at+n)*m.Config.Vocab]); d != 0 {
						t.Fatalf("%s, %+v: %d rows from layer %d on at position %d differ", isa, o, n, from, at)
					}
				}
			}
		}
	}
}

// maxDifference returns the largest difference, infinite if one is NaN, and the largest value.
func maxDifference(got, want []float32) (d, largest float64) {
	if len(got) != len(want) {
		return math.Inf(1), 0
	}
	for i := range got {
		diff := math.Abs(float64(got[i]) - float64(want[i]))
		if math.IsNaN(diff) {
			return math.Inf(1), largest
		}
		d, largest = math.Max(d, diff), math.Max(largest, math.Abs(float64(want[i])))
	}
	return d, largest
}

// TestThreadsAgreeBitForBit checks that the number of threads does not change a bit of the logits, in prefill and
// decode, for every type and version.
func TestThreadsAgreeBitForBit(t *testing.T) {
	m := newModel(t, "random:L=2,C=96,NH=3,V=257,T=200")
	const steps = 3
	ids := randomIDs(rand.New(rand.NewPCG(7, 7)), 200, 257)
	for _, isa := range supportedISAs() {
		for name, o := range map[string]Options{"f32": {}, "bf16": {DType: weights.BF16}, "q8": {Q8: true}} {
			var want []float32
			for threads := 1; threads <= 4; threads++ {
				o.ISA, o.Threads = isa.String(), threads
				s := session(t, m, o, gpt2.Options{})
				got, err := s.Logits(t.Context(), ids[:len(ids)-steps], gpt2.LogitsAll)
				must(t, err)
				for i := range steps {
					step, err := s.Logits(t.Context(), ids[len(ids)-steps+i:][:1], gpt2.LogitsLast)
					must(t, err)
					got = append(got, step...)
				}
				if want == nil {
					want = got
				}
				if len(got) != len(ids)*257 || !slices.Equal(got, want) {
					t.Errorf("%s, %s: %d threads differ from 1", isa, name, threads)
				}
				s.Close()
			}
		}
	}
}

// TestFloat32OfBF16 checks that float32 logits of a checkpoint in bfloat16, whose weights stay so, are those of the same
// weights in float32: bit for bit for many rows, and for as many as AMX tiles multiply. Of a few rows lm_head sums in
// another order.
func TestFloat32OfBF16(t *testing.T) {
	const dir = "../weights/shakespeare"
	models := make([]*gpt2.Model, 2)
	for i := range models {
		checkpoint, err := weights.Open(dir)
		if err == nil && i == 1 {
			checkpoint, err = checkpoint.Map(weights.Tensor.Float32)
		}
		if err == nil {
			models[i], err = gpt2.NewModel(dir, os.DirFS(dir), checkpoint)
		}
		must(t, err)
		t.Cleanup(func() { models[i].Close() })
	}
	ids := randomIDs(rand.New(rand.NewPCG(3, 3)), 144, models[0].Config.Vocab)
	for _, isa := range supportedISAs() {
		b := newBackend(t, Options{ISA: isa.String(), Threads: 2})
		if stored, wide := b.Sizes(models[0]).Weight, b.Sizes(models[1]).Weight; stored != 2 || wide != 4 {
			t.Fatalf("weights take %g and %g bytes", stored, wide)
		}
		var want [][]float32
		for i, m := range models {
			s := newSession(t, m, b, gpt2.Options{Layers: []int{0, 1}})
			for k, n := range []int{1, 4, 30, 109} {
				got, err := s.Logits(t.Context(), ids[:n], gpt2.LogitsAll)
				must(t, err)
				if i == 0 {
					want = append(want, got)
				} else if d, largest := maxDifference(got, want[k]); !(d <= 1e-6*largest) || d > 0 && n > 12 {
					t.Errorf("%s, %d rows: logits differ by %g, the largest is %g", isa, n, d, largest)
				}
			}
		}
	}
}

// TestSessionsShareWeights checks that a second session of a model packs nothing, and that the weights stay until the
// last session is closed.
func TestSessionsShareWeights(t *testing.T) {
	m := newModel(t, "random:L=1,C=64,NH=2,V=50,T=30")
	b := newBackend(t, Options{Threads: 1})
	packs := 0
	o := gpt2.Options{Progress: func(int64, int64) { packs++ }}
	first := newSession(t, m, b, o)
	once := packs
	second := newSession(t, m, b, o)
	if packs != once || once == 0 {
		t.Errorf("the first session packed %d slices, the second %d more", once, packs-once)
	}
	want, err := first.Logits(t.Context(), []int32{1, 2, 3}, gpt2.LogitsLast)
	must(t, err)
	first.Close()
	first.Close()
	got, err := second.Logits(t.Context(), []int32{1, 2, 3}, gpt2.LogitsLast)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("after the first session closed: %v", err)
	}
	second.Close()
	if len(b.models) != 0 {
		t.Error("closed sessions keep weights")
	}
	if _, err := second.Logits(t.Context(), []int32{1}, gpt2.LogitsLast); err == nil {
		t.Error("a closed session gave logits")
	}
}

// TestCancelledLoadLeavesNothingHalf cancels loads while another session holds the model's weights; the next session
// must be right.
func TestCancelledLoadLeavesNothingHalf(t *testing.T) {
	m := newModel(t, "random:L=3,C=64,NH=2,V=50,T=30")
	want, err := session(t, m, Options{Threads: 1}, gpt2.Options{}).Logits(t.Context(), []int32{1, 2, 3}, gpt2.LogitsAll)
	must(t, err)
	b := newBackend(t, Options{Threads: 1})
	newSession(t, m, b, gpt2.Options{Layers: []int{0}}) // which holds weights
	for stop := 1; stop < 30; stop += 3 {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		s, err := gpt2.NewSession(ctx, m, b, gpt2.Options{Progress: func(int64, int64) {
			if n++; n == stop {
				cancel()
			}
		}})
		cancel()
		if err == nil {
			s.Close()
		}
	}
	s := newSession(t, m, b, gpt2.Options{})
	got, err := s.Logits(t.Context(), []int32{1, 2, 3}, gpt2.LogitsAll)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("after cancelled loads logits differ (%v)", err)
	}

	stored, err := gpt2.Open("../weights/shakespeare")
	must(t, err)
	defer stored.Close()
	ctx, cancel := context.WithCancel(t.Context())
	if s, err := gpt2.NewSession(ctx, stored, b, gpt2.Options{Progress: func(int64, int64) { cancel() }}); err == nil {
		s.Close()
		t.Error("a load of stored weights was not cancelled")
	}
}

// TestDecodeAllocatesNothing counts allocations of decode steps in steady state.
func TestDecodeAllocatesNothing(t *testing.T) {
	m := newModel(t, "random:L=2,C=64,NH=2,V=257,T=1000")
	for _, sampling := range []gpt2.Sampling{{}, {Temperature: 0.8, TopK: 40, TopP: 0.9, LogProbs: true}} {
		s := session(t, m, Options{Threads: 2}, gpt2.Options{Batch: 2})
		r := s.Runner().(*runner)
		r.SetSampling(sampling)
		if _, err := r.Prefill(t.Context(), []int32{1, 2, 3, 4}, gpt2.Pass{Batch: 2, Tokens: 2, Logits: gpt2.LogitsLast,
			Sample: true}); err != nil {
			t.Fatal(err)
		}
		steps := 0
		emit := func(tokens []gpt2.Token) bool { steps += len(tokens); return true }
		must(t, r.Decode(context.Background(), 10, emit))
		// A call of Decode may allocate a closure or two, its 100 steps nothing.
		allocs := testing.AllocsPerRun(5, func() {
			must(t, r.Decode(context.Background(), 100, emit))
		})
		if allocs > 4 || steps != 2*(10+600) {
			t.Errorf("100 decode steps allocate %g times (%d tokens)", allocs, steps)
		}
	}
}

// TestCancelStopsAPass cancels the context of a long pass, which must end early with the context's cause.
func TestCancelStopsAPass(t *testing.T) {
	m := newModel(t, "random:L=24,C=512,NH=8,V=257,T=1024")
	s := session(t, m, Options{Threads: 1}, gpt2.Options{Layers: []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}})
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := fmt.Errorf("enough")
	go cancel(cause)
	ids := randomIDs(rand.New(rand.NewPCG(8, 8)), 1024, 257)
	if _, err := s.Logits(ctx, ids, gpt2.LogitsAll); err != cause {
		t.Errorf("a cancelled pass gave %v", err)
	}
}
