package tasks

import (
	"context"

	"gpt2scope/gpt2"
)

// decode evaluates one token of each of b sequences after past tokens, and samples the next.
func decode(c gpt2.Config) *Task {
	shape := func(past, batch, layers int) Shape {
		return append(Shape{{"past", past}, {"b", batch}}, modelDims(layers, c)...)
	}
	pass := func(s Shape) gpt2.Pass {
		return gpt2.Pass{Batch: s.Get("b"), Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}
	}
	var sizes []Shape
	for _, layers := range depths(c) {
		for _, past := range []int{16, 64, 256, c.Positions - 1} {
			if past < c.Positions {
				sizes = append(sizes, shape(past, 1, layers))
			}
		}
		for _, batch := range []int{2, 4, 8, 16, 32, 64} {
			sizes = append(sizes, shape(min(128, c.Positions/2), batch, layers))
		}
	}
	return &Task{
		Name: "gpt2.decode", Formula: "one token of each of b sequences after past tokens, l layers", DTypes: []string{Float32, BFloat16}, Sizes: sizes, Ways: modelWays(),
		Between: func(s Shape) []Shape {
			if b := s.Get("b"); b >= 2 && b < 64 {
				return []Shape{shape(s.Get("past"), b*3/2, s.Get("l"))}
			}
			return nil
		},
		Cost: func(s Shape, dtype string) (Cost, error) {
			c, err := configOf(s, s.Get("past")+1)
			if err == nil {
				err = pass(s).Check(c, gpt2.FirstLayers(c.Layers), c.Positions)
			}
			if err != nil {
				return Cost{}, err
			}
			m := modelCost{sizes: sizesOf(dtype)}
			m.add(c, pass(s), s.Get("past"), 1)
			return m.done(s.Get("b"), s.Get("b"), s.Get("b")), nil
		},
		open: func(ctx context.Context, m *Machine, t *Task, s Shape, dtype string) (Opened, error) {
			return openModelTask(ctx, m, t, s, dtype, modelTask{context: s.Get("past") + 1, batch: s.Get("b"), past: s.Get("past"), ids: 1,
				run: func(ctx context.Context, session *gpt2.Session, ids []int32) error {
					_, err := session.Runner().Prefill(ctx, ids, pass(s))
					return err
				}})
		},
	}
}
