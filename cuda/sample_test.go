package cuda_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
)

// sampling is a set of buffers for drawing from B rows of V logits.
type sampling struct {
	t      *testing.T
	g      *gpu
	args   cuda.SampleArgs
	logits *guarded
	how    *guarded // cuda.Sampling
	pos    *guarded
	pad    *guarded
	tokens *guarded
	slots  *cuda.HostBuffer
	work   *guarded
	rows   [][]float32
	step   uint64
	at     []int32 // what pos must hold
}

func encode(v any) []byte {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func decode[T any](data []byte, out T) T {
	if err := binary.Read(bytes.NewReader(data), binary.LittleEndian, out); err != nil {
		panic(err)
	}
	return out
}

const slotCount = 4

func newSampling(t *testing.T, g *gpu, B, V, ld, T, pad int) *sampling {
	t.Helper()
	s := &sampling{t: t, g: g, at: make([]int32, B)}
	s.logits = g.unset(4 * B * ld)
	s.how = g.unset(binary.Size(cuda.Sampling{}))
	s.pos = g.unset(4 * B)
	s.tokens = g.unset(4 * B)
	slots := require.Value(g.dev.AllocHost(int64(slotCount * B * binary.Size(cuda.Slot{}))))(t)
	t.Cleanup(func() { slots.Free() })
	s.slots = slots
	s.args = cuda.SampleArgs{Logits: s.logits.ptr(), Sampling: s.how.ptr(), Pos: s.pos.ptr(), Tokens: s.tokens.ptr(), Slots: slots.Ptr(),
		B: int32(B), V: int32(V), LD: int32(ld), T: int32(T), Count: slotCount}
	if pad >= 0 {
		s.pad = g.unset(4)
		s.pad.write(encode(int32(pad)))
		s.args.Pad = s.pad.ptr()
	}
	n := require.Value(g.stream.SampleWork(s.args))(t)
	s.work = g.unset(int(n))
	s.work.write(make([]byte, n))
	s.args.Work = s.work.ptr()
	return s
}

// fill puts logits into the rows and `padding` into the columns past V.
func (s *sampling) fill(at func(b, i int) float32, padding float32) {
	B, V, ld := int(s.args.B), int(s.args.V), int(s.args.LD)
	all := make([]float32, B*ld)
	s.rows = s.rows[:0]
	for b := range B {
		for i := range ld {
			if i < V {
				all[b*ld+i] = at(b, i)
			} else {
				all[b*ld+i] = padding
			}
		}
		s.rows = append(s.rows, all[b*ld:b*ld+V])
	}
	s.logits.write(encode(all))
}

// start sets how to draw, the positions before the pass, and the step.
func (s *sampling) start(o gpt2.Sampling, pos []int32, step uint64) {
	how := cuda.Sampling{Temperature: o.Temperature, TopP: o.TopP, Seed: o.Seed, Offset: uint64(o.Offset), Step: step, TopK: int32(o.TopK)}
	if o.LogProbs {
		how.LogProbs = 1
	}
	s.how.write(encode(how))
	s.pos.write(encode(pos))
	s.tokens.write(bytes.Repeat([]byte{0xff}, 4*len(pos)))
	for i := range s.slots.Bytes() {
		s.slots.Bytes()[i] = 0xff
	}
	s.step = step
	copy(s.at, pos)
}

// check compares what one launch, already made, left with gpt2.Sampler.
func (s *sampling) check(name string, o gpt2.Sampling) {
	s.t.Helper()
	got := decode(s.how.bytes(), &cuda.Sampling{}) // waits for the launch
	if s.step++; got.Step != s.step {
		s.t.Fatalf("%s: step is %d, not %d", name, got.Step, s.step)
	}
	B := int(s.args.B)
	pos, tokens := make([]int32, B), make([]int32, B)
	decode(s.pos.bytes(), pos)
	decode(s.tokens.bytes(), tokens)
	slots := make([]cuda.Slot, slotCount*B)
	decode(s.slots.Bytes(), slots)
	row := int((s.step - 1) % slotCount)
	var sampler gpt2.Sampler
	for b := range B {
		s.at[b] += s.args.T
		if s.pad != nil {
			s.at[b] -= decode(s.pad.bytes(), &[1]int32{})[0]
		}
		if pos[b] != s.at[b] {
			s.t.Errorf("%s: sequence %d: pos is %d, not %d", name, b, pos[b], s.at[b])
		}
		slot := slots[row*B+b]
		want, err := sampler.Sample(o, s.rows[b], b, int(s.at[b]))
		id := want.ID
		if err != nil {
			want.ID, id, want.LogProb = -1, 0, float32(math.NaN())
			want.Position = o.Offset + int(s.at[b])
		}
		if slot.Token != want.ID || tokens[b] != id {
			s.t.Errorf("%s: sequence %d: token %d in its slot, %d in tokens, not %d, of %+v at %d", name, b, slot.Token, tokens[b], want.ID, o, s.at[b])
		}
		if slot.Sequence != s.step || slot.Position != int64(want.Position) {
			s.t.Errorf("%s: sequence %d: the slot says step %d, position %d, not %d, %d", name, b, slot.Sequence, slot.Position, s.step, want.Position)
		}
		if slot.Time == 0 || slot.Time == math.MaxUint64 {
			s.t.Errorf("%s: sequence %d: the slot has no time", name, b)
		}
		diff := math.Abs(float64(slot.LogProb) - float64(want.LogProb))
		if want.LogProb != want.LogProb {
			if slot.LogProb == slot.LogProb {
				s.t.Errorf("%s: sequence %d: log-probability %g, not NaN", name, b, slot.LogProb)
			}
		} else if !(diff <= 1e-5*max(1, math.Abs(float64(want.LogProb)))) {
			s.t.Errorf("%s: sequence %d: log-probability %g, not %g", name, b, slot.LogProb, want.LogProb)
		}
	}
	if s.t.Failed() {
		s.t.FailNow()
	}
}

func (s *sampling) launch() {
	s.t.Helper()
	if err := s.g.stream.Sample(s.args); err != nil {
		s.t.Fatal(err)
	}
}

// sampleShapes are V and ld. Logits of 50257 are padded as lm_head's are.
var sampleShapes = []struct{ V, ld int }{{257, 257}, {257, 320}, {50257, 50304}, {50257, 50257}, {1, 1}, {2, 64}, {5000, 5004}, {4097, 4097}}

func TestSampleGreedy(t *testing.T) {
	g := open(t)
	r := rand.New(rand.NewPCG(21, 22))
	inf := float32(math.Inf(1))
	for _, shape := range sampleShapes {
		for _, B := range []int{1, 3} {
			s := newSampling(t, g, B, shape.V, shape.ld, 5, 2)
			for i, padding := range []float32{0, inf, float32(math.NaN())} {
				// All negative: a padded column that took part would win.
				name := fmt.Sprintf("%+v/B=%d/padding=%g", shape, B, padding)
				s.fill(func(b, i int) float32 { return -3 - 10*r.Float32() }, padding)
				o := gpt2.Sampling{LogProbs: i != 0, Offset: 1000 * i}
				if i == 2 {
					o.Temperature, o.TopK = 1.5, 1 // greedy too
				}
				s.start(o, []int32{7, 0, 900}[:B], uint64(i))
				for range 2 {
					s.launch()
					s.check(name, o)
				}
			}
			// Equals: the lowest id wins, 0 and -0 are equals.
			first := r.IntN(shape.V)
			s.fill(func(b, i int) float32 {
				switch {
				case i == first:
					return float32(math.Copysign(0, -1))
				case i > first && i%3 == 0:
					return 0
				}
				return -1
			}, inf)
			o := gpt2.Sampling{LogProbs: true}
			s.start(o, make([]int32, B), 9)
			s.launch()
			s.check("equals", o)
		}
	}
}

// TestSampleDraw draws as gpt2.Sampler does, for all kinds of logits: spread as a model's are, with a few that stand
// out, in few levels (ties), all equal.
func TestSampleDraw(t *testing.T) {
	g := open(t)
	r := rand.New(rand.NewPCG(31, 32))
	kinds := []struct {
		name string
		at   func() float32
	}{
		{"normal", func() float32 { return float32(-40 + 3*r.NormFloat64()) }},
		{"peaked", func() float32 { return float32(-60 + 2*r.NormFloat64() + 3*r.ExpFloat64()) }},
		{"levels", func() float32 { return -float32(r.IntN(9)) }},
		{"equal", func() float32 { return 0.25 }},
		{"masked", func() float32 { // -Inf where a token is forbidden
			if r.IntN(2) == 0 {
				return float32(math.Inf(-1))
			}
			return float32(r.NormFloat64())
		}},
	}
	for _, shape := range sampleShapes {
		for _, kind := range kinds {
			B := 1 + 2*r.IntN(2)
			s := newSampling(t, g, B, shape.V, shape.ld, 1, -1)
			s.fill(func(b, i int) float32 {
				if i == 0 && kind.name == "masked" {
					return 1 // one at least is finite
				}
				return kind.at()
			}, float32(math.Inf(1)))
			for _, temperature := range []float64{0, 0.8, 1.5} {
				for _, k := range []int{0, 1, 2, 40, 1000, 5000, shape.V} {
					for _, p := range []float64{0, 0.1, 0.9, 1} {
						if shape.V > 5000 && (k == 0 || k >= 5000) && kind.name != "normal" && (p == 1 || p == 0.1) {
							continue // the CPU sorts them all, slowly
						}
						o := gpt2.Sampling{Temperature: temperature, TopK: k, TopP: p, LogProbs: r.IntN(2) == 0, Seed: r.Uint64(), Offset: r.IntN(2) * r.IntN(1<<40)}
						if kind.name == "levels" || kind.name == "equal" || kind.name == "masked" && shape.V <= 2 {
							// Sums of equal terms may meet top_p * total to the last bit, where rounding decides: keep away from there.
							if p == 0.1 || p == 0.9 {
								o.TopP = p + 0.000123
							}
						}
						s.start(o, []int32{int32(r.IntN(1024)), int32(r.IntN(1024)), 0}[:B], uint64(r.IntN(1000)))
						launches := 6 // the ring of slots wraps
						if shape.V > 5000 {
							launches = 1
						}
						for range launches {
							s.launch()
							s.check(fmt.Sprintf("%s/%+v/B=%d", kind.name, shape, B), o)
						}
					}
				}
			}
		}
	}
}

// TestSamplePicked draws from short lists, which several blocks fill with what they pick from 4096 logits each: with
// the candidates spread out, all in one block's part, all in a few threads' parts, and with equal logits in every part,
// of which the lowest ids are candidates. Rows end at a part's end, shortly before and after it; the longest have more
// candidates, or more logits, than the blocks pick from. Lists end at 1024.
func TestSamplePicked(t *testing.T) {
	g := open(t)
	r := rand.New(rand.NewPCG(81, 82))
	const part = 4096
	shapes := []struct{ V, ld int }{{511, 512}, {part - 1, part}, {part, part}, {part + 1, part + 1}, {2*part - 1, 2 * part},
		{2 * part, 2 * part}, {2*part + 3, 2*part + 64}, {50257, 50304}, {16 * part, 16 * part}, {16*part + 1, 17 * part}, {32*part + 1, 33 * part}}
	for _, shape := range shapes {
		V := shape.V
		where := r.IntN((V+part-1)/part) * part // of a part
		near := r.IntN(V)
		kinds := []struct {
			name string
			at   func(i int) float32
		}{
			{"spread", func(int) float32 { return float32(-40 + 3*r.NormFloat64()) }},
			{"in one part", func(i int) float32 {
				if i >= where && i < where+part/2 {
					return float32(5 + 0.1*r.NormFloat64())
				}
				return float32(-5 + r.NormFloat64())
			}},
			{"side by side", func(i int) float32 {
				if i >= near && i < near+1500 {
					return float32(5 + 0.01*r.NormFloat64())
				}
				return float32(r.NormFloat64())
			}},
			{"rising", func(i int) float32 { return float32(i) / 1024 }},
			{"equal", func(int) float32 { return -1 }},
			{"a third equal", func(int) float32 {
				if r.IntN(3) == 0 {
					return float32(math.Copysign(0, float64(r.IntN(2))-0.5))
				}
				return -float32(r.ExpFloat64()) / 4
			}},
			{"few above equals", func(int) float32 {
				if r.IntN(V) < 20 {
					return float32(1 + r.Float64())
				}
				return 0.5
			}},
			{"few allowed", func(i int) float32 {
				if i == near || r.IntN(V) < 100 {
					return float32(r.NormFloat64())
				}
				return float32(math.Inf(-1))
			}},
		}
		for _, kind := range kinds {
			B := 1
			if V <= 2*part {
				B += 2 * r.IntN(2)
			}
			s := newSampling(t, g, B, V, shape.ld, 1, -1)
			s.fill(func(b, i int) float32 { return kind.at(i) }, float32(math.Inf(1)))
			for _, k := range []int{1, 2, 40, 100, 300, 400, 512, 513, 1000, 1024, 1025} {
				for _, p := range []float64{0, 0.900123} {
					o := gpt2.Sampling{Temperature: 0.8, TopK: k, TopP: p, LogProbs: r.IntN(2) == 0, Seed: r.Uint64()}
					s.start(o, []int32{int32(r.IntN(1024)), 0, 5}[:B], 0)
					for range 2 { // the second finds what the first left in the work area
						s.launch()
						s.check(fmt.Sprintf("%s/%+v/B=%d", kind.name, shape, B), o)
					}
				}
			}
		}
	}
}

// TestSampleExtremes has temperatures and logits at the ends of what numbers hold.
func TestSampleExtremes(t *testing.T) {
	g := open(t)
	r := rand.New(rand.NewPCG(51, 52))
	for _, V := range []int{257, 4097} {
		s := newSampling(t, g, 1, V, V, 1, -1)
		for _, scale := range []float32{1e-30, 1, 3e38} {
			s.fill(func(b, i int) float32 { return (2*r.Float32() - 1) * scale }, 0)
			for _, temperature := range []float64{1e-300, 1e-40, 1e-3, 1e3, 1e40, 1e300} {
				for _, k := range []int{0, 3} {
					o := gpt2.Sampling{Temperature: temperature, TopK: k, TopP: 0.77, Seed: r.Uint64(), LogProbs: scale == 1}
					s.start(o, []int32{5}, 0)
					s.launch()
					s.check(fmt.Sprintf("V=%d/scale=%g", V, scale), o)
				}
			}
		}
	}
}

// TestSampleNotFinite spoils one sequence of three.
func TestSampleNotFinite(t *testing.T) {
	g := open(t)
	r := rand.New(rand.NewPCG(61, 62))
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, shape := range sampleShapes {
		s := newSampling(t, g, 3, shape.V, shape.ld, 1, -1)
		where := r.IntN(shape.V)
		one := func(bad float32) func(i int) float32 {
			return func(i int) float32 {
				if i == where {
					return bad
				}
				return -1
			}
		}
		for _, c := range []struct {
			name string
			bad  func(i int) float32
		}{
			{"nan", one(nan)},
			{"negative nan", one(math.Float32frombits(0xffc00000))},
			{"inf", one(inf)},
			{"all -inf", func(i int) float32 { return -inf }},
			{"all nan", func(i int) float32 { return nan }},
		} {
			s.fill(func(b, i int) float32 {
				if b == 1 {
					return c.bad(i)
				}
				return float32(r.NormFloat64())
			}, 0)
			for _, o := range []gpt2.Sampling{{}, {Temperature: 1, LogProbs: true}, {Temperature: 1, TopK: 40, TopP: 0.9}} {
				s.start(o, []int32{1, 2, 3}, 3)
				s.launch()
				s.check(fmt.Sprintf("%s/%+v", c.name, shape), o)
			}
		}
	}
}
