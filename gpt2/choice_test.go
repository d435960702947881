package gpt2

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"gpt2scope/internal/require"
)

// TestChoice: with times that vary by a tenth, by more for a while, more when other programs have the core, and grow
// with the text, the choice takes nearly as long as the best way, whichever that is, and never more than 1.02 of no
// drafts; it follows a text that changes.
func TestChoice(t *testing.T) {
	kinds := []struct {
		name   string
		accept map[Drafter]float64 // probability that a draft is right
		tokens int
		most   float64 // of the time without drafts
	}{
		{"nothing agrees", nil, 250, 1.02},
		{"nothing agrees, long", nil, 4000, 1.02},
		{"layers do not draft", map[Drafter]float64{DraftExits: -1}, 4000, 1.007},
		{"exits agree", map[Drafter]float64{DraftExits: 0.78}, 400, 0.70},
		{"the text repeats", map[Drafter]float64{DraftLookup: 0.9}, 400, 0.55},
		{"exits agree enough", map[Drafter]float64{DraftExits: 0.48}, 500, 0.95},
		{"exits agree little", map[Drafter]float64{DraftExits: 0.3}, 1000, 1.02},
	}
	for _, k := range kinds {
		const texts = 50
		sum, made := 0.0, 0.0
		for text := range uint64(texts) {
			took, n := simulate(rand.New(rand.NewPCG(1, text)), k.accept, k.tokens)
			sum, made = sum+took, made+float64(n)
		}
		if took := sum / made; took > k.most {
			t.Errorf("%s: %.3f of the time without drafts, want at most %.2f", k.name, took, k.most)
		} else {
			t.Logf("%s: %.3f", k.name, took)
		}
	}
}

// simulate returns how many decode steps' time the tokens of a text take, and how many they are.
func simulate(r *rand.Rand, accept map[Drafter]float64, tokens int) (took float64, made int) {
	const step = 500_000 // ns of a decode step
	c := choice{ways: []way{{}, {Speculation: Speculation{DraftExits, 1, 4}}, {Speculation: Speculation{DraftLookup, 0, 3}}},
		until: firstTrial, pause: firstPause}
	slow := r.NormFloat64()
	for made < tokens {
		by := c.ways[c.now()].Speculation
		cost, n := 1.0, 1
		if accept[by.By] < 0 {
			cost, by.Drafts = 1.04, 0
		} else if by.Drafts > 0 {
			cost = float64(by.Drafts+1)*float64(by.Layers)/6 + float64(6-by.Layers)/6*1.05
			for n <= by.Drafts && r.Float64() < accept[by.By] {
				n++
			}
		}
		slow = 0.97*slow + 0.24*r.NormFloat64()
		cost *= 0.95 + 0.1*r.Float64()
		with := cost * step * (1 + 0.06*slow) * (1 + float64(made)/800)
		took, made = took+cost, made+n
		if r.IntN(20) == 0 { // another program has the core
			with += 8 * step
		}
		c.took(n, by.Drafts, time.Duration(with))
	}
	return took, made
}

// TestLookUpOfTexts: of texts that repeat themselves, read token by token, this many tokens are made by how many passes
// over how many drafts, where a token is a byte.
func TestLookUpOfTexts(t *testing.T) {
	for name, want := range map[string][3]int{"code": {186, 279, 194}, "list": {223, 333, 172}, "table": {241, 393, 158}} {
		text := require.Value(os.ReadFile("testdata/repetitive/" + name + ".txt"))(t)
		ids := make([]int32, len(text))
		for i, b := range text {
			ids[i] = int32(b)
		}
		var got [3]int // passes, drafts, of them right
		for at := 1; at < len(ids); at++ {
			drafts := lookUp(ids[:at], 3)
			got[0], got[1] = got[0]+1, got[1]+len(drafts)
			for ; len(drafts) > 0 && at+1 < len(ids) && drafts[0] == ids[at]; at, drafts = at+1, drafts[1:] {
				got[2]++
			}
		}
		if t.Logf("%s: %d tokens, %d passes, %d drafts, %d right", name, len(ids)-1, got[0], got[1], got[2]); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	if got, want := lookUp([]int32{1, 2, 3, 2, 3}, 5), []int32{2, 3, 2, 3, 2}; !slices.Equal(got, want) {
		t.Errorf("a text that repeats two tokens: %d, want %d", got, want)
	}
}
