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
	text := e.Text
	if text == nil {
		own, err := e.ownText(ctx)
		if err != nil {
			return nil, err
		}
		if text = own; e.hasEOS() { // which comes before every text
			text = own[1:]
		}
	}
	r, err := s.Evaluate(ctx, text, e.Window, max(1, e.Window/2), nil)
	if err != nil {
		return nil, err
	}
	if e.Text == nil {
		best, err := e.best(ctx, s, e.own)
		if err != nil {
			return nil, err
		}
		same := 0
		for i := range best {
			if best[i] == e.ownBest[i] {
				same++
			}
		}
		return []Value{
			{Metric: "bits per token", Unit: "bits", Value: r.Loss() / math.Ln2},
			{Metric: "agreement", Unit: "1", Value: float64(same) / float64(len(best)), N: len(best)},
		}, nil
	}
	return []Value{
		{Metric: "bits per byte", Unit: "bits", Value: r.BitsPerByte(e.Bytes)},
		{Metric: "perplexity", Unit: "1", Value: r.Perplexity()},
	}, nil
}

func (e *Experiment) hasEOS() bool {
	return e.Model.Config.EOS >= 0 && e.Model.Config.EOS < e.Model.Config.Vocab
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
	if e.hasEOS() {
		ids[0] = int32(e.Model.Config.EOS)
	}
	g := gpt2.Generation{Tokens: e.Window, IgnoreEOS: true, Sampling: gpt2.Sampling{Temperature: 1, Seed: e.Seed}}
	for token, err := range s.Generate(ctx, ids[:1], g) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, token.ID)
	}
	if e.ownBest, err = e.best(ctx, s, ids); err != nil {
		return nil, err
	}
	e.own = ids
	return ids, nil
}

// best returns the most likely next token after each of a text's but the last.
func (e *Experiment) best(ctx context.Context, s *gpt2.Session, text []int32) ([]int32, error) {
	if err := s.Reset(); err != nil {
		return nil, err
	}
	logits, err := s.Logits(ctx, text[:len(text)-1], gpt2.LogitsAll)
	var best []int32
	for row := range slices.Chunk(logits, e.Model.Config.Vocab) {
		best = append(best, int32(slices.Index(row, slices.Max(row))))
	}
	return best, err
}
