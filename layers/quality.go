package layers

import (
	"context"
	"math"

	"gpt2scope/gpt2"
	"gpt2scope/internal/stats"
)

// quality measures how good a variant's predictions are: how well it predicts the text that was given or, without one,
// how close it is to the whole model on a text that the whole model writes.
func (e *Experiment) quality(ctx context.Context, s *gpt2.Session) ([]Value, error) {
	if e.Text == nil {
		return e.closeness(ctx, s)
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

// ownText is a text that the whole model wrote, with its distribution of the next token at each position.
type ownText struct {
	ids  []int32
	logs []float32 // (Window, V) log probabilities
	best []int32   // (Window) most probable tokens
}

// write samples Window tokens from the whole model at temperature 1.
func (e *Experiment) write(ctx context.Context) (*ownText, error) {
	s, err := e.session(ctx, gpt2.FirstLayers(e.Model.Config.Layers), 1)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	first := int32(0)
	if eos := e.Model.Config.EOS; eos >= 0 && eos < e.Model.Config.Vocab {
		first = int32(eos)
	}
	t := &ownText{ids: []int32{first}}
	if e.Window > 1 {
		g := gpt2.Generation{Tokens: e.Window - 1, IgnoreEOS: true, Sampling: gpt2.Sampling{Temperature: 1, Seed: e.Seed}}
		for token, err := range s.Generate(ctx, t.ids, g) {
			if err != nil {
				return nil, err
			}
			t.ids = append(t.ids, token.ID)
		}
	}
	if err := s.Reset(); err != nil {
		return nil, err
	}
	if t.logs, t.best, err = e.distributions(ctx, s, t.ids); err != nil {
		return nil, err
	}
	return t, nil
}

// distributions returns the log probabilities of the next token after each of the ids, and the most probable one.
func (e *Experiment) distributions(ctx context.Context, s *gpt2.Session, ids []int32) (logs []float32, best []int32,
	err error) {
	V := e.Model.Config.Vocab
	if logs, err = s.Logits(ctx, ids, gpt2.LogitsAll); err != nil {
		return nil, nil, err
	}
	for from := 0; from < len(logs); from += V {
		row := logs[from : from+V]
		at := 0
		for i, v := range row {
			if v > row[at] {
				at = i
			}
			if v != v {
				return nil, nil, gpt2.ErrNotFinite
			}
		}
		sum := 0.0
		for _, v := range row {
			sum += math.Exp(float64(v) - float64(row[at]))
		}
		total := float64(row[at]) + math.Log(sum)
		for i, v := range row {
			row[i] = float32(float64(v) - total)
		}
		best = append(best, int32(at))
	}
	return logs, best, nil
}

// closeness compares the variant's distribution of the next token with the whole model's, after each token of the text:
// the share of equal top tokens, and the mean of
//
//	KL(whole || variant) = sum over tokens of p_whole (log p_whole - log p_variant)
func (e *Experiment) closeness(ctx context.Context, s *gpt2.Session) ([]Value, error) {
	if e.own == nil {
		var err error
		if e.own, err = e.write(ctx); err != nil {
			return nil, err
		}
	}
	logs, best, err := e.distributions(ctx, s, e.own.ids)
	if err != nil {
		return nil, err
	}
	V := e.Model.Config.Vocab
	agree, divergence := make([]float64, len(best)), make([]float64, len(best))
	for r := range best {
		if best[r] == e.own.best[r] {
			agree[r] = 1
		}
		for i := r * V; i < (r+1)*V; i++ {
			p := float64(e.own.logs[i])
			divergence[r] += math.Exp(p) * (p - float64(logs[i]))
		}
	}
	a := meanOf(agree)
	a.Metric, a.Unit = "agreement", "1"
	a.Low, a.High = wilson(a.Value, len(agree))
	k := meanOf(divergence)
	k.Metric, k.Unit = "KL divergence", "nats"
	k.Value, k.Low = max(0, k.Value), max(0, k.Low) // rounding may make it negative
	return []Value{a, k}, nil
}

// z95 is the number of standard deviations to each side of the mean that contain 95 % of a normal distribution.
const z95 = 1.959963984540054

// meanOf returns the mean with its 95 % interval: 1.96 standard errors to each side. It treats the positions of one
// text as independent, which they are not.
func meanOf(x []float64) Value {
	mean, deviation := stats.MeanStdDev(x)
	d := z95 * deviation / math.Sqrt(float64(len(x)))
	return Value{Value: mean, Low: mean - d, High: mean + d, N: len(x)}
}

// wilson is the 95 % interval of a share of n (Wilson, "Probable Inference, the Law of Succession, and Statistical
// Inference", 1927): unlike the normal one it stays between 0 and 1, and has a width even if the share is 0 or 1.
func wilson(share float64, n int) (low, high float64) {
	m, z := float64(n), z95
	centre := (share + z*z/(2*m)) / (1 + z*z/m)
	d := z / (1 + z*z/m) * math.Sqrt(share*(1-share)/m+z*z/(4*m*m))
	return max(0, centre-d), min(1, centre+d)
}
