package gpt2

import (
	"cmp"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/reference"
)

// Known answers of the Random123 distribution (kat_vectors, philox4x32 10).
func TestPhiloxKnownAnswers(t *testing.T) {
	for _, v := range []struct {
		counter, want [4]uint32
		key           [2]uint32
	}{
		{[4]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, [2]uint32{}},
		{[4]uint32{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}, [2]uint32{0xffffffff, 0xffffffff}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}, [2]uint32{0xa4093822, 0x299f31d0}},
	} {
		if got := philox(v.counter, v.key); got != v.want {
			t.Errorf("philox(%x, %x) = %x, want %x", v.counter, v.key, got, v.want)
		}
	}
}

func randomLogits(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(3 * r.NormFloat64())
	}
	return x
}

func TestSampleGreedyAndDeterministic(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	var s, other Sampler
	for range 100 {
		logits := randomLogits(r, 1+r.IntN(300))
		best := slices.Index(logits, slices.Max(logits))
		logits = append(logits, logits[best]) // an equal one later must not win
		for _, o := range []Sampling{{}, {Temperature: 3, TopK: 1}, {Temperature: 1e-9}, {Temperature: 1, TopP: 1e-9}} {
			o.Seed = r.Uint64()
			if token, err := s.Sample(o, logits, 0, 7); err != nil || (int(token.ID) != best && o.Temperature != 1e-9) ||
				logits[token.ID] != logits[best] {
				t.Fatalf("%+v drew %d (%v), want %d", o, token.ID, err, best)
			}
		}
		o := Sampling{Temperature: 1, Seed: r.Uint64(), LogProbs: true}
		a, _ := s.Sample(o, logits, 1, 9)
		b, _ := other.Sample(o, logits, 1, 9)
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("the same draw gave %+v and %+v", a, b)
		}
		o.TopK, o.Temperature = 5, 0.5 // the log-probability is of the whole, at temperature 1
		c, _ := s.Sample(o, logits, 1, 9)
		p := reference.Softmax(logits)
		if d := math.Abs(float64(c.LogProb) - math.Log(p[c.ID])); !(d < 1e-5) {
			t.Fatalf("log-probability %g, want %g", c.LogProb, math.Log(p[c.ID]))
		}
	}
}

// The likeliest tokens come by falling probability, and like the token's own, theirs is the model's: before the penalty,
// the temperature and the cuts.
func TestTopLogProbs(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	history := make([]int32, 300)
	for i := range history {
		history[i] = int32(i)
	}
	var s Sampler
	for range 50 {
		logits := randomLogits(r, 1+r.IntN(300))
		n := 1 + r.IntN(2*len(logits))
		o := Sampling{Temperature: 2, TopK: 3, MinP: 0.9, RepeatPenalty: 3, Seed: r.Uint64(), LogProbs: true, TopLogProbs: n,
			History: func(int) []int32 { return history[:len(logits)] }}
		token := require.Value(s.Sample(o, logits, 0, 0))(t)
		p := reference.Softmax(logits)
		if len(token.Top) != min(n, len(logits)) || int(token.Top[0].ID) != slices.Index(logits, slices.Max(logits)) {
			t.Fatalf("%d of %d tokens were asked for, and %d came, %d first", n, len(logits), len(token.Top), token.Top[0].ID)
		}
		for i, top := range token.Top {
			if d := math.Abs(float64(top.LogProb) - math.Log(p[top.ID])); !(d < 1e-5) || i > 0 &&
				p[top.ID] > p[token.Top[i-1].ID] {
				t.Fatalf("place %d has token %d, log-probability %g; want %g, and falling", i, top.ID, top.LogProb,
					math.Log(p[top.ID]))
			}
		}
		if d := math.Abs(float64(token.LogProb) - math.Log(p[token.ID])); !(d < 1e-5) {
			t.Fatalf("log-probability %g, want %g", token.LogProb, math.Log(p[token.ID]))
		}
		o.TopLogProbs = 0
		if other, err := s.Sample(o, logits, 0, 0); err != nil || other.ID != token.ID || other.Top != nil {
			t.Fatalf("without the likeliest tokens %+v is drawn (%v), with them %d", other, err, token.ID)
		}
	}
}

// A greedy token is the largest penalized logit, and no penalty makes a finite logit infinite.
func TestPenaltyGreedy(t *testing.T) {
	logits := []float32{3, 2.5, -1, float32(math.Inf(-1))}
	var s Sampler
	for _, c := range []struct {
		penalty float64
		last    int
		text    []int32
		want    int32
	}{
		{0, 0, []int32{0}, 0}, {1, 0, []int32{0}, 0}, {1.3, 0, nil, 0}, {1.3, 0, []int32{0, 3}, 1}, {1.3, 1, []int32{0, 3}, 0}, {1.3, 2, []int32{0, 3}, 1},
		{1e308, 0, []int32{0, 1, 2, 3}, 0}, {1e-308, 0, []int32{1, 3}, 1},
	} {
		o := Sampling{RepeatPenalty: c.penalty, RepeatLast: c.last, History: func(int) []int32 { return c.text }}
		if got, err := s.Sample(o, logits, 0, len(c.text)); err != nil || got.ID != c.want {
			t.Errorf("penalty %g on %v gives %d (%v), want %d", c.penalty, c.text, got.ID, err, c.want)
		}
	}
}

func TestSampleRefusesDamagedLogits(t *testing.T) {
	var s Sampler
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
		if token, err := s.Sample(Sampling{Temperature: 1}, []float32{1, bad, 2}, 0, 0); err == nil {
			t.Errorf("sampled %+v from logits with %g", token, bad)
		}
	}
	if _, err := s.Sample(Sampling{}, nil, 0, 0); err == nil {
		t.Error("sampled from nothing")
	}
	low := float32(math.Inf(-1))
	if token, err := s.Sample(Sampling{Temperature: 1}, []float32{low, low, low}, 0, 0); err == nil {
		t.Errorf("sampled %+v where every logit is -Inf", token)
	}
	if token, err := s.Sample(Sampling{}, []float32{float32(math.Inf(-1)), -1e30, float32(math.Inf(-1))}, 0,
		0); err != nil || token.ID != 1 {
		t.Errorf("masked logits gave %+v, %v", token, err)
	}
}

func TestSamplingCheck(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, bad := range []Sampling{{Temperature: -1}, {Temperature: nan}, {Temperature: inf}, {TopK: -1}, {TopP: -0.1},
		{TopP: 1.1}, {TopP: nan}, {MinP: -0.1}, {MinP: 1.1}, {MinP: nan}, {RepeatPenalty: -1}, {RepeatPenalty: nan}, {RepeatPenalty: inf}, {RepeatLast: -1}, {TopLogProbs: -1}} {
		if bad.Check() == nil {
			t.Errorf("%+v passed", bad)
		}
	}
}

// The token is the one at u of all k candidates in order, though most of these are not sorted.
func TestDrawnAsIfAllWereSorted(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	var s, plain Sampler
	for range 3000 {
		logits, o := randomLogits(r, 1+r.IntN(300)), Sampling{Temperature: math.Exp(4*r.Float64() - 2), TopK: r.IntN(60), Seed: r.Uint64()}
		got := require.Value(s.Sample(o, logits, 0, 3))(t)
		k, total, want := o.TopK, 0.0, int32(-1)
		if k == 0 || k > len(logits) {
			k = len(logits)
		}
		plain.largest(logits)
		plain.keepTop(logits, k, float32(math.Inf(-1)))
		p := func(c candidate) float64 { return math.Exp(float64(c.logit) / o.Temperature) }
		for _, c := range plain.candidates {
			total += p(c)
		}
		rest := total * uniform(o.Seed, 0, 3)
		for _, c := range plain.candidates {
			if rest -= p(c); rest < 0 && want < 0 {
				want = c.id
			}
		}
		if got.ID != want && want >= 0 {
			t.Fatalf("%+v of %d logits drew %d, want %d", o, len(logits), got.ID, want)
		}
	}
}

// The candidates are the k best of all logits, ties by id, whatever blocks they stand in.
func TestKeepTop(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	var s Sampler
	for range 200 {
		logits := randomLogits(r, 1+r.IntN(1000))
		if r.IntN(2) == 0 {
			for i := range logits {
				logits[i] = float32(math.Trunc(float64(4 * logits[i]))) // many are equal, and some 0 and -0
			}
		}
		all := make([]candidate, len(logits))
		for i, v := range logits {
			all[i] = candidate{id: int32(i), logit: v}
		}
		slices.SortFunc(all, func(a, b candidate) int {
			return cmp.Or(cmp.Compare(b.logit, a.logit), cmp.Compare(a.id, b.id))
		})
		best, ok := s.largest(logits)
		if !ok || int32(best) != all[0].id {
			t.Fatalf("the largest of %d is %d, want %d", len(logits), best, all[0].id)
		}
		k := 1 + r.IntN(len(logits))
		if s.keepTop(logits, k, float32(math.Inf(-1))); !slices.Equal(s.candidates, all[:k]) {
			t.Fatalf("the %d best of %d are %v, want %v", k, len(logits), s.candidates, all[:k])
		}
		least := all[r.IntN(len(all))]
		want := all[:k]
		for len(want) > 0 && want[len(want)-1].logit < least.logit {
			want = want[:len(want)-1]
		}
		if s.keepTop(logits, k, least.logit); !slices.Equal(s.candidates, want) {
			t.Fatalf("the %d best of %d not below %g are %v, want %v", k, len(logits), least.logit, s.candidates, want)
		}
	}
}

// Top-p keeps the fewest tokens whose probabilities sum to at least p: the one that
// reaches p exactly is the last, and one that falls short of it by a billionth is not.
func TestTopPBoundary(t *testing.T) {
	logits := []float32{0, -1, 0, -0.5, 0, -3, 0} // 0, 2, 4 and 6 are equal
	order := []int32{0, 2, 4, 6, 3, 1, 5}
	for _, temperature := range []float64{1, 0.7, 2} {
		total := 0.0
		for _, v := range logits {
			total += math.Exp(float64(v) / temperature)
		}
		last := func(p float64) int32 {
			var s Sampler
			s.largest(logits)
			id, _ := s.draw(Sampling{Temperature: temperature, TopP: p}, logits, 0, math.Nextafter(1, 0))
			return id
		}
		sum := 0.0
		for n, id := range order[:len(order)-1] {
			sum += math.Exp(float64(logits[id]) / temperature)
			if got := last(sum/total - 1e-9); got != id {
				t.Errorf("temperature %g: just below the sum of %d tokens the last is %d, want %d", temperature, n+1, got, id)
			}
			if got := last(sum/total + 1e-9); got != order[n+1] {
				t.Errorf("temperature %g: just above the sum of %d tokens the last is %d, want %d", temperature, n+1, got,
					order[n+1])
			}
		}
	}
	var s Sampler
	equal := []float32{2, 2, 2, 2}
	s.largest(equal)
	if got, share := s.draw(Sampling{Temperature: 1, TopP: 0.5}, equal, 2, math.Nextafter(1, 0)); got != 1 || share != 0.5 {
		t.Errorf("of four equal tokens half the probability ends with %d, its share %g, want 1 and 0.5", got, share)
	}
}

// Min-p keeps a token that is p times as probable as the likeliest, and none that is less by a billionth.
func TestMinPBoundary(t *testing.T) {
	logits := []float32{0, -1, 1, -0.5, 1}
	order := []int32{2, 4, 0, 3, 1}
	for _, temperature := range []float64{1, 0.7, 2} {
		last := func(p float64) int32 {
			var s Sampler
			s.largest(logits)
			id, _ := s.draw(Sampling{Temperature: temperature, MinP: p}, logits, 1, math.Nextafter(1, 0))
			return id
		}
		if got := last(1); got != order[1] {
			t.Errorf("temperature %g: the last of those as probable as the likeliest is %d, want %d", temperature, got, order[1])
		}
		for n, id := range order[2:] {
			ratio := math.Exp((float64(logits[id]) - 1) / temperature)
			if got := last(ratio - 1e-9); got != id {
				t.Errorf("temperature %g: the last of those %g times as probable is %d, want %d", temperature, ratio, got, id)
			}
			if got, want := last(ratio+1e-9), order[n+1]; got != want {
				t.Errorf("temperature %g: the last of those more than %g times as probable is %d, want %d", temperature, ratio, got,
					want)
			}
		}
	}
}

// The random number is the upper 53 bits of the first two words of Philox, the second
// above the first, and depends on all bits of seed, sequence and position.
func TestUniform(t *testing.T) {
	const first, second = 0x6627e8d5, 0xe169c58d // the known answer for zeros
	if got, want := uniform(0, 0, 0), math.Ldexp(float64(uint64(second<<32|first)>>11), -53); got != want {
		t.Errorf("uniform(0, 0, 0) = %v, want %v", got, want)
	}
	seen := map[float64]string{uniform(0, 0, 0): "zeros"}
	for bit := range 64 {
		numbers := map[string]float64{"seed": uniform(1<<bit, 0, 0), "position": uniform(0, 0, 1<<bit)}
		if bit < 32 {
			numbers["sequence"] = uniform(0, 1<<bit, 0)
		}
		for name, u := range numbers {
			if other, ok := seen[u]; ok || u < 0 || u >= 1 {
				t.Errorf("bit %d of the %s gives %v, as %s do", bit, name, u, other)
			}
			seen[u] = name
		}
	}
}

// A token's random number is that of its place in the text, whether the tokens before
// it are still in the context or were dropped.
func TestSampleOffset(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	logits := randomLogits(r, 100)
	var s Sampler
	for range 50 {
		whole := Sampling{Temperature: 2, Seed: r.Uint64()}
		shifted := whole
		shifted.Offset = 11
		want := require.Value(s.Sample(whole, logits, 1, 30))(t)
		if got, err := s.Sample(shifted, logits, 1, 19); err != nil || got.ID != want.ID || got.Position != 30 {
			t.Fatalf("after 11 dropped tokens %+v (%v) is drawn, want %+v", got, err, want)
		}
	}
}
