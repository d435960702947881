package tasks

import (
	"context"

	"gpt2scope/gpt2"
)

// prefill evaluates a prompt of t tokens, b sequences at once, and samples a token of each.
func prefill(c gpt2.Config) *Task {
	shape := func(tokens, batch, layers int) Shape {
		return append(Shape{{"t", tokens}, {"b", batch}}, modelDims(layers, c)...)
	}
	pass := func(s Shape) gpt2.Pass {
		return gpt2.Pass{Batch: s.Get("b"), Tokens: s.Get("t"), Logits: gpt2.LogitsLast, Sample: true}
	}
	var sizes []Shape
	for _, layers := range depths(c) {
		for t := 2; t <= c.Positions/2; t *= 2 {
			sizes = append(sizes, shape(t, 1, layers))
		}
		for _, batch := range []int{4, 16} {
			for _, t := range []int{8, 32, 128} {
				if t <= c.Positions/2 {
					sizes = append(sizes, shape(t, batch, layers))
				}
			}
		}
	}
	return &Task{
		Name: "gpt2.prefill", Formula: "one pass over a prompt of t tokens, b sequences, l layers", DTypes: []string{Float32, BFloat16}, Sizes: sizes, Ways: modelWays(),
		Between: func(s Shape) []Shape {
			if t := s.Get("t"); s.Get("b") == 1 && t < c.Positions/2 {
				return []Shape{shape(t*5/4, 1, s.Get("l")), shape(t*3/2, 1, s.Get("l"))}
			}
			return nil
		},
		Cost: func(s Shape, dtype string) (Cost, error) {
			c, err := configOf(s, s.Get("t"))
			if err == nil {
				err = pass(s).Check(c, gpt2.FirstLayers(c.Layers), c.Positions)
			}
			if err != nil {
				return Cost{}, err
			}
			m := modelCost{sizes: sizesOf(dtype)}
			m.add(c, pass(s), 0, 1)
			rows := s.Get("t") * s.Get("b")
			return m.done(rows, rows, s.Get("b")), nil
		},
		open: func(ctx context.Context, m *Machine, t *Task, s Shape, dtype string) (Opened, error) {
			return openModelTask(ctx, m, t, s, dtype, modelTask{context: s.Get("t"), batch: s.Get("b"), ids: s.Get("t"),
				run: func(ctx context.Context, session *gpt2.Session, ids []int32) error {
					_, err := session.Runner().Prefill(ctx, ids, pass(s))
					return err
				}})
		},
	}
}

// depths are the numbers of layers that tasks run: 1, half and all of a model's.
func depths(c gpt2.Config) []int {
	if c.Layers < 3 {
		return gpt2.FirstLayers(c.Layers + 1)[1:]
	}
	return []int{1, c.Layers / 2, c.Layers}
}
