package layers

import (
	"context"
	"math"

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
		return []Value{{Metric: "bits per token", Unit: "bits", Value: r.Loss() / math.Ln2}}, nil
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
	e.own = ids
	return ids, nil
}
