package gpt2

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Token is one sampled token.
type Token struct {
	ID       int32
	Seq      int          // sequence of the batch, 0 to B-1
	Position int          // its index in the sequence's text, over everything evaluated
	LogProb  float32      // natural log of the model's probability of it, NaN unless Sampling.LogProbs
	Top      []Likelihood // the likeliest tokens, by falling probability: Sampling.TopLogProbs of them

	share float64 // its probability among those it was drawn from, at most 1 % too large; 0 if it was not drawn on the host
}

// Likelihood is what the model gives a token. Penalties, temperature and cuts (top-k, top-p, min-p) have no part in it.
type Likelihood struct {
	ID      int32
	LogProb float32 // natural log of the probability
}

// Sampling says how the next token is drawn from a row of logits: first the repetition penalty, then the temperature,
// top-k (Fan et al. 2018), top-p (Holtzman et al. 2019) and min-p (Nguyen et al. 2024). That is the order of
// transformers (generation/utils.py); llama.cpp applies the temperature last. The zero value is greedy.
type Sampling struct {
	Temperature float64 `json:"temp"`  // divides the logits; 0 takes the largest logit, the lowest id among equals
	TopK        int     `json:"top_k"` // keep the k largest; 0 keeps all
	TopP        float64 `json:"top_p"` // keep the fewest whose probabilities sum to at least p; 0 or 1 keeps all
	MinP        float64 `json:"min_p"` // keep those at least p times as probable as the likeliest; 0 keeps all

	// RepeatPenalty makes tokens of the text so far less likely: it divides their logits if those are positive, and
	// multiplies them if not (Keskar et al. 2019, "CTRL"; transformers' RepetitionPenaltyLogitsProcessor, llama.cpp's
	// repeat-penalty). 0 or 1 is none.
	RepeatPenalty float64 `json:"repeat_penalty"`
	RepeatLast    int     `json:"repeat_last_n"` // the penalty is for the last so many tokens; 0 is for all in the context

	LogProbs    bool `json:"-"` // give Token.LogProb
	TopLogProbs int  `json:"-"` // how many tokens to give in Token.Top

	// Random numbers depend on nothing but Seed, the sequence and the position
	// of the token, so that every backend draws the same.
	Seed uint64 `json:"-"`

	// Offset is added to positions: how many tokens were dropped from the front of the context. Sessions keep it.
	Offset int `json:"-"`

	// History returns the tokens of a sequence, oldest first, for the repetition penalty: of the position that is drawn
	// and later ones, which may be drafts, none counts. Sessions set it.
	History func(seq int) []int32 `json:"-"`
}

func (s Sampling) penalizes() bool { return s.RepeatPenalty != 0 && s.RepeatPenalty != 1 }

// Basic tells whether nothing is asked for but temperature, top-k, top-p and the
// log-probability of the token: what a sampler on a device may be limited to.
func (s Sampling) Basic() bool { return !s.penalizes() && s.MinP == 0 && s.TopLogProbs == 0 }

// Check returns an error unless the values are in range.
func (s Sampling) Check() error {
	switch {
	case !(s.Temperature >= 0) || math.IsInf(s.Temperature, 1):
		return fmt.Errorf("the temperature is %g; it must be 0 (greedy) or a positive number", s.Temperature)
	case s.TopK < 0:
		return fmt.Errorf("top-k is %d; it must be 0 (all) or a positive number", s.TopK)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return fmt.Errorf("top-p is %g; it must be from 0 to 1 (0 and 1 keep all)", s.TopP)
	case !(s.MinP >= 0 && s.MinP <= 1):
		return fmt.Errorf("min-p is %g; it must be from 0 (keeps all) to 1", s.MinP)
	case !(s.RepeatPenalty >= 0) || math.IsInf(s.RepeatPenalty, 1):
		return fmt.Errorf("the repetition penalty is %g; it must be 1 (none) or another positive number", s.RepeatPenalty)
	case s.RepeatLast < 0:
		return fmt.Errorf("the repetition penalty is for the last %d tokens; it must be 0 (all) or a positive number",
			s.RepeatLast)
	case s.TopLogProbs < 0:
		return fmt.Errorf("%d log-probabilities of the likeliest tokens; it must be 0 (none) or a positive number",
			s.TopLogProbs)
	}
	return nil
}

// Sampler draws tokens from logits. It keeps its scratch memory, so that drawing allocates nothing after the first row.
type Sampler struct {
	// Maxima replaces [BlockMaxima] if a backend has a faster one; nil means [BlockMaxima].
	Maxima func(maxima, x []float32)

	candidates []candidate
	keys       []uint64  // of them and others, by logit
	maxima     []float32 // of blocks of the row under way
	penalized  []float32 // copy of the row, with the repetition penalty
}

// MaximaBlock is how many values have a maximum of their own.
const MaximaBlock = 64

// BlockMaxima writes to maxima the largest value of each [MaximaBlock] of x, the last of which may have fewer. A
// block's maximum is NaN if one of its values is. With them most logits need not be read a second time.
func BlockMaxima(maxima, x []float32) {
	for i := range maxima {
		block := x[i*MaximaBlock : min((i+1)*MaximaBlock, len(x))]
		largest := block[0]
		for _, v := range block {
			if v > largest || v != v {
				largest = v // once NaN, it stays
			}
		}
		maxima[i] = largest
	}
}

type candidate struct {
	id    int32
	logit float32
	p     float64
}

// byLogit is a number that rises with falling logit, then with the id: numbers are sorted faster than candidates.
func byLogit(id int32, logit float32) uint64 {
	order := math.Float32bits(logit + 0) // -0 is 0
	if order>>31 == 0 {
		order ^= math.MaxInt32
	}
	return uint64(order)<<32 | uint64(id)
}

// ErrNotFinite is the error of sampling from logits of which one is NaN, or the largest infinite.
var ErrNotFinite = errors.New("the logits are not finite; the weights or the input are damaged")

// Sample draws the token that follows position-1 in sequence seq, from its row of logits (V).
func (s *Sampler) Sample(o Sampling, logits []float32, seq, position int) (Token, error) {
	best, ok := s.largest(logits)
	if !ok {
		return Token{}, ErrNotFinite
	}
	t := Token{Seq: seq, Position: o.Offset + position, LogProb: float32(math.NaN())}
	logSum := 0.0
	if o.LogProbs || o.TopLogProbs > 0 {
		logSum = logSumExp(logits, logits[best])
	}
	if o.TopLogProbs > 0 {
		s.keepTop(logits, min(o.TopLogProbs, len(logits)), float32(math.Inf(-1)))
		for _, c := range s.candidates {
			t.Top = append(t.Top, Likelihood{c.id, float32(float64(c.logit) - logSum)})
		}
	}
	from := logits
	if o.penalizes() && o.History != nil {
		history := o.History(seq)
		from = s.penalize(o, logits, history[:min(position, len(history))])
		best, _ = s.largest(from)
	}
	t.ID = int32(best)
	if o.Temperature > 0 && o.TopK != 1 {
		t.ID, t.share = s.draw(o, from, from[best], uniform(o.Seed, uint32(seq), uint64(t.Position)))
	}
	if o.LogProbs {
		t.LogProb = float32(float64(logits[t.ID]) - logSum)
	}
	return t, nil
}

// penalize returns the logits with the repetition penalty on each token that is among
// the last of the history, once however often it is there.
func (s *Sampler) penalize(o Sampling, logits []float32, history []int32) []float32 {
	if o.RepeatLast > 0 {
		history = history[max(0, len(history)-o.RepeatLast):]
	}
	s.penalized = append(s.penalized[:0], logits...)
	for _, id := range history {
		v := float64(logits[id])
		if math.IsInf(v, -1) {
			continue
		}
		if v > 0 {
			v /= o.RepeatPenalty
		} else {
			v *= o.RepeatPenalty
		}
		v = min(max(v, -math.MaxFloat32), math.MaxFloat32)
		s.penalized[id] = float32(v)
	}
	return s.penalized
}

// largest returns the index of the largest value, the first among equals, and keeps
// the maxima of blocks. It is not ok if a value is NaN or the largest is infinite.
func (s *Sampler) largest(x []float32) (int, bool) {
	n := (len(x) + MaximaBlock - 1) / MaximaBlock
	s.maxima = slices.Grow(s.maxima[:0], n)[:n]
	maxima := s.Maxima
	if maxima == nil {
		maxima = BlockMaxima
	}
	maxima(s.maxima, x)
	best, finite := 0, n > 0
	for i, v := range s.maxima {
		if v > s.maxima[best] {
			best = i
		}
		finite = finite && v == v
	}
	if !finite || math.IsInf(float64(s.maxima[best]), 0) {
		return 0, false
	}
	first := best * MaximaBlock
	return first + slices.Index(x[first:], s.maxima[best]), true
}

// logSumExp returns log(sum(exp(x))), given the largest value.
func logSumExp(x []float32, largest float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - float64(largest))
	}
	return float64(largest) + math.Log(sum)
}

// draw returns the token at u in [0, 1) of the cumulative distribution, and its share of the tokens that were sorted.
func (s *Sampler) draw(o Sampling, logits []float32, largest float32, u float64) (int32, float64) {
	k := o.TopK
	if k <= 0 || k > len(logits) {
		k = len(logits)
	}
	nucleus, least := o.TopP > 0 && o.TopP < 1, o.MinP
	switch {
	case nucleus:
		least = 0 // top-p is of the sum of all
	case o.MinP == 0:
		// Sorting takes longest. Tokens that are drawn in one of a hundred cases at most, all together, are not sorted unless
		// this is such a case: unless the token depends on what they have, from nothing to `left`.
		seldom := 0.01 / float64(k)
		total := s.weigh(o, logits, k, largest, seldom)
		left := seldom * float64(k-len(s.candidates))
		if i := at(s.candidates, u*total); i >= 0 && i == at(s.candidates, u*(total+left)) {
			return s.candidates[i].id, s.candidates[i].p / total
		}
	}
	total := s.weigh(o, logits, k, largest, least)
	kept := s.candidates
	if nucleus {
		sum := 0.0
		if i := slices.IndexFunc(kept, func(c candidate) bool { sum += c.p; return sum >= o.TopP*total }); i >= 0 {
			kept = kept[:i+1]
		}
	}
	if i := slices.IndexFunc(kept, func(c candidate) bool { return c.p < o.MinP*kept[0].p }); i >= 0 {
		kept = kept[:i]
	}
	total = 0
	for _, c := range kept {
		total += c.p
	}
	i := at(kept, u*total)
	if i < 0 {
		i = len(kept) - 1 // rounding left a remainder
	}
	return kept[i].id, kept[i].p / total
}

// weigh sorts the k best tokens, but for such as are less than `least` times as probable as the likeliest (rounding may
// keep some of these), and returns the sum of what they have: exp((logit - largest) / temperature) each.
func (s *Sampler) weigh(o Sampling, logits []float32, k int, largest float32, least float64) (total float64) {
	logit := float32(math.Inf(-1))
	if least > 0 {
		logit = float32(float64(largest)+o.Temperature*math.Log(least)) - 1e-3*(1+float32(math.Abs(float64(largest))))
	}
	s.keepTop(logits, k, logit)
	for i := range s.candidates {
		c := &s.candidates[i]
		c.p = math.Exp((float64(c.logit) - float64(largest)) / o.Temperature)
		total += c.p
	}
	return total
}

// at returns the index of the first candidate with which the sum exceeds so much, -1 if none does.
func at(all []candidate, rest float64) int {
	return slices.IndexFunc(all, func(c candidate) bool { rest -= c.p; return rest < 0 })
}

// keepTop fills s.candidates with the k best of the logits that are not less than least,
// in order. The maxima of blocks are known.
func (s *Sampler) keepTop(logits []float32, k int, least float32) {
	kept := slices.Grow(s.keys[:0], min(2*k, len(logits)))
	full := false // there are k that are not less than least
	for block, largest := range s.maxima {
		if largest < least || full && largest == least {
			continue // among equals the lower ids are kept
		}
		first := block * MaximaBlock
		for i, v := range logits[first:min(first+MaximaBlock, len(logits))] {
			if v < least || full && v == least {
				continue
			}
			if kept = append(kept, byLogit(int32(first+i), v)); len(kept) == 2*k {
				slices.Sort(kept)
				kept, least, full = kept[:k], logits[uint32(kept[k-1])], true
			}
		}
	}
	slices.Sort(kept)
	s.keys, s.candidates = kept, s.candidates[:0]
	for _, key := range kept[:min(k, len(kept))] {
		id := int32(uint32(key))
		s.candidates = append(s.candidates, candidate{id: id, logit: logits[id]})
	}
}

// uniform returns a number in [0, 1) that depends on the seed, the sequence and
// the position only: 53 bits of Philox4x32-10.
func uniform(seed uint64, seq uint32, position uint64) float64 {
	r := philox([4]uint32{uint32(position), uint32(position >> 32), seq, 0}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	return float64((uint64(r[1])<<32|uint64(r[0]))>>11) * 0x1p-53
}

// philox is Philox4x32-10 of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011): a counter and a
// key give four random words. It needs no state, so that a GPU thread can draw the number of any position.
func philox(counter [4]uint32, key [2]uint32) [4]uint32 {
	for range 10 {
		p0 := uint64(0xD2511F53) * uint64(counter[0])
		p1 := uint64(0xCD9E8D57) * uint64(counter[2])
		counter = [4]uint32{
			uint32(p1>>32) ^ counter[1] ^ key[0], uint32(p1),
			uint32(p0>>32) ^ counter[3] ^ key[1], uint32(p0),
		}
		key[0] += 0x9E3779B9
		key[1] += 0xBB67AE85
	}
	return counter
}
