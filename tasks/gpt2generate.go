package tasks

import (
	"context"

	"gpt2scope/gpt2"
)

// generate evaluates a prompt of t tokens and makes n more, one after another.
func generate(c gpt2.Config) *Task {
	shape := func(tokens, n, layers int) Shape {
		return append(Shape{{"t", tokens}, {"n", n}}, modelDims(layers, c)...)
	}
	first := func(s Shape) gpt2.Pass {
		return gpt2.Pass{Batch: 1, Tokens: s.Get("t"), Logits: gpt2.LogitsLast, Sample: true}
	}
	step := gpt2.Pass{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}
	var sizes []Shape
	for _, layers := range depths(c) {
		for _, tokens := range []int{8, 64, 256} {
			for _, n := range []int{4, 16, 64} {
				if tokens+n <= c.Positions {
					sizes = append(sizes, shape(tokens, n, layers))
				}
			}
		}
	}
	return &Task{
		Name: "gpt2.generate", Formula: "n tokens after a prompt of t, one after another, l layers", DTypes: []string{Float32, BFloat16}, Sizes: sizes, Ways: modelWays(),
		Between: func(s Shape) []Shape {
			if s.Get("n") < 64 {
				return []Shape{shape(s.Get("t"), 2*s.Get("n"), s.Get("l"))}
			}
			return nil
		},
		Cost: func(s Shape, dtype string) (Cost, error) {
			t, n := s.Get("t"), s.Get("n")
			c, err := configOf(s, t+n)
			if err == nil {
				err = first(s).Check(c, gpt2.FirstLayers(c.Layers), c.Positions)
			}
			if err != nil {
				return Cost{}, err
			}
			m := modelCost{sizes: sizesOf(dtype)}
			m.add(c, first(s), 0, 1)
			if n > 1 { // the steps cost what the one in the middle does, but for rounding
				m.add(c, step, t+(n-2)/2, n-1)
			}
			return m.done(t, t, n), nil
		},
		open: func(ctx context.Context, m *Machine, t *Task, s Shape, dtype string) (Opened, error) {
			return openModelTask(ctx, m, t, s, dtype, modelTask{context: s.Get("t") + s.Get("n"), batch: 1, ids: s.Get("t"),
				run: func(ctx context.Context, session *gpt2.Session, ids []int32) error {
					for _, err := range session.Generate(ctx, ids, gpt2.Generation{Tokens: s.Get("n"), IgnoreEOS: true}) {
						if err != nil {
							return err
						}
					}
					return nil
				}})
		},
	}
}
