package layers

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"gpt2scope/gpt2"
)

// Of a measurement of drafts: so many tokens are made each time, and so many are drafted at most.
const draftTokens, mostDrafts = 32, 5

// draft measures how fast the whole model makes a text while a depth drafts it, with the best number of drafts, and how
// many tokens then come of a pass. Of the whole model's depth it is the time without drafts.
func (e *Experiment) draft(ctx context.Context, v Variant) (values []Value, err error) {
	all := gpt2.FirstLayers(e.Model.Config.Layers)
	if v.Kind != KindDepth || v.Layers > len(all) {
		return nil, nil
	}
	s, err := e.session(ctx, all, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, s.Close()) }()
	text, err := e.ownText(ctx)
	if err != nil {
		return nil, err
	}
	perToken := func(s gpt2.Stats) float64 { return ms(s.DecodeTime) / float64(max(1, s.DecodeTokens)) }
	prompt := text[:min(len(text), max(1, s.Options().Context-draftTokens))]
	var b gpt2.Stats // with n drafts
	n := 0
	for drafts := 1; drafts <= mostDrafts; drafts++ {
		way, least := gpt2.Speculation{By: gpt2.DraftExits, Layers: v.Layers, Drafts: drafts}, gpt2.Stats{}
		if v.Layers == len(all) {
			way = gpt2.Speculation{}
		}
		if s.CanSpeculate(way) != nil {
			break
		}
		for range e.Passes {
			if err := s.Reset(); err != nil {
				return nil, err
			}
			for _, err := range s.Generate(ctx, prompt, gpt2.Generation{Tokens: draftTokens, IgnoreEOS: true, Speculate: way}) {
				if errors.Is(err, errors.ErrUnsupported) {
					return nil, nil
				}
				if err != nil {
					return nil, fmt.Errorf("with %s: %w", way, err)
				}
			}
			if now := s.Stats(); least.DecodeTokens == 0 || perToken(now) < perToken(least) {
				least = now
			}
		}
		if d := least.Speculated; n > 0 && e.Backend.Describe().GPU && d.Drafted <= n*d.Passes {
			break // the kernel makes no more
		}
		if n > 0 && perToken(least) > perToken(b) {
			break // more will not do better
		}
		if b, n = least, way.Drafts; n == 0 {
			break
		}
	}
	if b.DecodeTokens == 0 {
		return nil, nil
	}
	values = append(values, Value{Phase: TaskDecode, Metric: "draft time", Unit: "ms", Value: perToken(b)})
	if n > 0 {
		values = append(values, Value{Phase: TaskDecode, Metric: "drafts", Unit: "1", Value: float64(n)},
			Value{Phase: TaskDecode, Metric: "tokens a pass", Unit: "1",
				Value: float64(b.DecodeTokens) / float64(max(1, b.DecodeSteps))})
	}
	return values, nil
}

// BestDraft returns the depth with whose drafts the whole model is fastest, and what a token then takes beside one
// without drafts; nil if that was not measured.
func (r *Result) BestDraft() (best *Variant, share float64) {
	whole := 0.0
	for i, v := range r.Variants {
		switch m, ok := v.Metrics["draft time"]; {
		case !ok:
		case v.Metrics["drafts"].Median == 0:
			whole = m.Median
		case best == nil || m.Median < best.Metrics["draft time"].Median:
			best = &r.Variants[i]
		}
	}
	if best == nil || whole == 0 {
		return nil, 0
	}
	return best, best.Metrics["draft time"].Median / whole
}
