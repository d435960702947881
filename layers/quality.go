package layers

import (
	"context"
	"math"
	"slices"

	"gpt2scope/gpt2"
)

// quality measures how well a variant predicts the text that was given or, without one, a text that the whole model
// writes: no model predicts that better than the whole one does.
func (e *Experiment) quality(ctx context.Context, s *gpt2.Session) ([]Value, error) {
	if e.Text == nil {
		own, err := e.ownText(ctx)
		if err != nil {
			return nil, err
		}
		nats, best, err := e.read(ctx, s, own)
		same := 0.0
		for i := range best {
			if best[i] == e.ownBest[i] {
				same++
			}
		}
		return []Value{
			{Metric: "bits per token", Unit: "bits", Value: nats / math.Ln2},
			{Metric: "agreement", Unit: "1", Value: same / float64(len(own)-1)},
		}, err
	}
	r, err := s.Evaluate(ctx, e.Text, e.Window, max(1, e.Window/2), nil)
	if err != nil {
		return nil, err
	}
	return []Value{
		{Metric: "bits per byte", Unit: "bits", Value: r.BitsPerByte(e.Bytes)},
		{Metric: "perplexity", Unit: "1", Value: r.Perplexity()},
	}, nil
}

// ownText samples Window tokens from the whole model at temperature 1, after its end-of-text token if it has one.
func (e *Experiment) ownText(ctx context.Context) ([]int32, error) {
	if e.own != nil {
		return e.own, nil
	}
	s, err := e.session(ctx, gpt2.FirstLayers(e.Model.Config.Layers), 1)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	ids := []int32{0}
	if eos := e.Model.Config.EOS; eos >= 0 && eos < e.Model.Config.Vocab {
		ids[0] = int32(eos)
	}
	g := gpt2.Generation{Tokens: e.Window, IgnoreEOS: true, Sampling: gpt2.Sampling{Temperature: 1, Seed: e.Seed}}
	for token, err := range s.Generate(ctx, ids[:1], g) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, token.ID)
	}
	if _, e.ownBest, err = e.read(ctx, s, ids); err != nil {
		return nil, err
	}
	e.own = ids
	return ids, nil
}

// read returns the mean nats of a text's tokens after the first, and the token that is most likely at each of their
// places.
func (e *Experiment) read(ctx context.Context, s *gpt2.Session, text []int32) (nats float64, best []int32, err error) {
	if err := s.Reset(); err != nil {
		return 0, nil, err
	}
	logits, err := s.Logits(ctx, text[:len(text)-1], gpt2.LogitsAll)
	if err != nil {
		return 0, nil, err
	}
	for _, n := range gpt2.Surprisals(logits, text[1:]) {
		if math.IsNaN(n) {
			return 0, nil, gpt2.ErrNotFinite
		}
		nats += n / float64(len(text)-1)
	}
	for row := range slices.Chunk(logits, e.Model.Config.Vocab) {
		best = append(best, int32(slices.Index(row, slices.Max(row))))
	}
	return nats, best, nil
}
