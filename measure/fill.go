package measure

import (
	"context"
	"math/rand/v2"

	"gpt2scope/gpt2"
)

// IDs returns n token ids of a model, the same random ones each time.
func IDs(m *gpt2.Model, n int) []int32 {
	random := rand.New(rand.NewPCG(1, 2))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(random.IntN(m.Config.Vocab))
	}
	return ids
}

// fillChunk is how many tokens at a time fill the cache: they need little memory beside
// that of a pass that is measured.
const fillChunk = 32

// Fill empties a session and evaluates random ids, in chunks, until its cache holds so many tokens of each sequence.
// They are not in the session's history: what follows are passes on the runner, and a Reset.
func Fill(ctx context.Context, s *gpt2.Session, tokens int) error {
	if err := s.Reset(); err != nil {
		return err
	}
	batch := s.Options().Batch
	ids := IDs(s.Model(), batch*tokens)
	for from := 0; from < tokens; {
		n := min(fillChunk, tokens-from)
		if tokens-from-n == 1 { // a last chunk of one token would be recorded as a decode step
			n++
		}
		if _, err := s.Runner().Prefill(ctx, ids[batch*from:batch*(from+n)], gpt2.Pass{Batch: batch, Tokens: n}); err != nil {
			return err
		}
		from += n
	}
	return nil
}
