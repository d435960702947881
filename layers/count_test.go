package layers

import (
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
)

// sized is a backend of which only the sizes of elements are known.
type sized struct {
	gpt2.Backend
	sizes gpt2.Sizes
}

func (b sized) Sizes(*gpt2.Model) gpt2.Sizes { return b.sizes }
func (b sized) Fuse(p *gpt2.Plan) *gpt2.Plan { return p }

// Weights of a fraction of a byte more than one, as 8-bit integers with their scales are, count in full; the KV cache
// is 2 L C positions elements.
func TestPredictMemory(t *testing.T) {
	m := require.Value(gpt2.Random("random:L=3,C=64,NH=2,V=512,T=32"))(t)
	predict := func(s gpt2.Sizes, order ...int) int64 {
		e := Experiment{Model: m, Backend: sized{sizes: s}, PromptLen: 8, Past: 4}
		return e.PredictMemory(order)
	}
	parameters := int64(m.Config.Parameters())
	for _, c := range []struct {
		what string
		got  int64
		want int64
	}{
		{"float32 weights", predict(gpt2.Sizes{Weight: 4}, 0, 1, 2), 4 * parameters},
		{"8-bit weights", predict(gpt2.Sizes{Weight: 1.0625}, 0, 1, 2), parameters + parameters/16},
		{"weights of a layer that runs twice", predict(gpt2.Sizes{Weight: 1.0625}, 0, 1, 2, 2), parameters + parameters/16},
		{"the KV cache", predict(gpt2.Sizes{KV: 2}, 0, 1, 2, 2), 2 * 2 * 4 * 64 * 32},
		{"the KV cache and activations of two sequences", func() int64 {
			e := Experiment{Model: m, Backend: sized{sizes: gpt2.Sizes{KV: 2, Activation: 4}}, PromptLen: 8, Past: 4, Options: gpt2.Options{Batch: 2}}
			return e.PredictMemory([]int{0})
		}(), 2 * (2*2*64*32 + 4*(8*(64+64+3*64+64+64+4*64)+512))},
		{"logits and activations", predict(gpt2.Sizes{Activation: 4}, 0), 4 * (8*(64+64+3*64+64+64+4*64) + 512)},
	} {
		if c.got != c.want {
			t.Errorf("%s take %d bytes, want %d", c.what, c.got, c.want)
		}
	}
}
