package cpu

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/weights"
)

// bfloat16 products are compared with float64 products of the values before rounding. Rounding to 8 significant bits
// changes an operand by at most u = 2^-8 of it, and so a product of two by at most 2u + u^2 of it. The errors are
// independent: a sum of K terms is off by about u sqrt(2/3) times the root of the sum of the squared terms; the bound
// is 6 times that. Sums in float32 add K 2^-24, far less.
func TestBF16Rounding(t *testing.T) {
	const u = 0x1p-8
	eachISA(t, func(t *testing.T, pools []*pool) {
		if !pools[0].isa.multipliesBF16() {
			t.Skip("widens")
		}
		r := rand.New(rand.NewPCG(8, 1))
		// Odd K, and M, K and N beside multiples of the tiles' sizes: 12, 16 and 32 rows, 32 columns, blocks of 384.
		for _, s := range [][3]int{{13, 1, 1}, {16, 31, 33}, {17, 32, 32}, {31, 33, 95}, {33, 383, 64}, {47, 385, 31},
			{48, 769, 40}, {300, 401, 50}, {257, 1537, 33}} {
			M, K, N := s[0], s[1], s[2]
			x, y := newGuarded(t, M*K).random(r, 1), newGuarded(t, M*N)
			src := make([]float64, K*N)
			raw := newGuarded(t, K*N).random(r, 1)
			w := testWeight(t, K, N, bfloat16Type, false)
			for i, v := range raw.slice() {
				src[i] = float64(v)
			}
			if _, err := w.pack(pools[0], bytesOf(raw.slice()), float32Type, false, 0, K); err != nil {
				t.Fatal(err)
			}
			got := onAll(t, pools, y, nil, func(p *program) error {
				return p.linear(linearStep{x: matrix(x.mem, K), y: matrix(y.mem, N), w: w, M: M})
			})
			differs := false
			for m := range M {
				for n := range N {
					var sum, squares, most float64
					for k := range K {
						v := float64(x.slice()[m*K+k]) * src[k*N+n]
						sum += v
						squares += v * v
						most += math.Abs(v)
					}
					bound := min(most*(2*u+u*u), 6*u*math.Sqrt(2*squares/3)) + float64(K)*0x1p-24*most
					near(t, got[m*N+n], sum, bound, "M %d, K %d, N %d: y[%d][%d]", M, K, N, m, n)
					differs = differs || math.Abs(float64(got[m*N+n])-sum) > 0x1p-16*math.Sqrt(squares)
				}
			}
			if !differs {
				t.Errorf("M %d, K %d, N %d: the result is that of unrounded operands", M, K, N)
			}
		}
	})
}

// TestBF16Logits bounds how far --dtype bf16 moves a model's logits.
func TestBF16Logits(t *testing.T) {
	const model = "random:L=3,C=96,NH=3,V=500,T=128"
	m := newModel(t, model)
	ids := randomIDs(rand.New(rand.NewPCG(9, 1)), 64, m.Config.Vocab)
	logits := func(o Options) []float32 {
		s := session(t, m, o, gpt2.Options{})
		got, err := s.Logits(context.Background(), ids, gpt2.LogitsAll)
		must(t, err)
		return got
	}
	want := logits(Options{})
	for _, isa := range supportedISAs() {
		got := logits(Options{DType: weights.BF16, ISA: isa.String()})
		var most, largest float64
		for i := range want {
			most = max(most, math.Abs(float64(got[i]-want[i])))
			largest = max(largest, math.Abs(float64(want[i])))
		}
		// Each product is off by about 2^-9 of the standard deviation of its outputs. The errors of the layers add up at
		// random, as the residual stream does. The largest logit is several standard deviations, so 4 * 2^-8 of it leaves
		// room.
		if !(most > 0 && most <= 4*0x1p-8*largest) {
			t.Errorf("%s: logits differ by %g, the largest is %g", isa, most, largest)
		}
	}
}

// bytesOf encodes float32 values as a checkpoint holds them.
func bytesOf(x []float32) []byte {
	out := make([]byte, 0, 4*len(x))
	for _, v := range x {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}
