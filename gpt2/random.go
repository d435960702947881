package gpt2

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/gpt2/tokenizer"
	"gpt2scope/weights"
)

// PublishedModel is one of the four sizes that were published.
type PublishedModel struct {
	Name   string // "gpt2-medium"
	Config Config
}

// Published are the four sizes from the smallest to the largest (Radford et al. 2019).
var Published = []PublishedModel{
	{"gpt2", publishedConfig(12, 768, 12)},         // 124 million parameters
	{"gpt2-medium", publishedConfig(24, 1024, 16)}, // 355 million
	{"gpt2-large", publishedConfig(36, 1280, 20)},  // 774 million
	{"gpt2-xl", publishedConfig(48, 1600, 25)},     // 1558 million
}

func publishedConfig(layers, channels, heads int) Config {
	c := defaults
	c.Layers, c.Channels, c.Heads, c.Inner = layers, channels, heads, 4*channels
	c.Vocab, c.Positions, c.BOS, c.EOS = 50257, 1024, 50256, 50256
	return c
}

// RandomPrefix starts the names of random models, as Random takes them.
const RandomPrefix = "random:"

// Random makes a model of a real geometry with seeded random weights: what is needed to measure, with nothing
// downloaded. The name is one of "random:gpt2", "random:gpt2-medium", "random:gpt2-large", "random:gpt2-xl", or a list
// such as "random:L=1,C=768,NH=12,V=50257,T=1024". F (the MLP's width) and seed may be added, and such a list may
// follow a published name. What the name does not give is that of gpt2.
//
// The initialisation is GPT-2's own: normal with standard deviation 0.02 (0.01 for the positions), the projections into
// the residual stream scaled by 1/sqrt(2 L), biases zero, gains one. Weights are computed when they are read, each
// tensor from its own name and the seed, so a model of any size costs no memory by itself, and layer n is the same
// whatever L is but for that scale.
func Random(name string) (*Model, error) {
	spec, ok := strings.CutPrefix(name, RandomPrefix)
	if !ok {
		return nil, fmt.Errorf("a random model is named %sgpt2 or %sL=1,C=768,NH=12,V=50257,T=1024, not %q", RandomPrefix,
			RandomPrefix, name)
	}
	c := Published[0].Config
	c.Inner, c.BOS, c.EOS = 0, -1, -1
	seed := 0
	fields := map[string]*int{"L": &c.Layers, "C": &c.Channels, "NH": &c.Heads, "V": &c.Vocab, "T": &c.Positions,
		"F": &c.Inner, "seed": &seed}
	for i, part := range strings.Split(spec, ",") {
		if k := slices.IndexFunc(Published, func(m PublishedModel) bool { return m.Name == part }); i == 0 && k >= 0 {
			c.Layers, c.Channels, c.Heads = Published[k].Config.Layers, Published[k].Config.Channels, Published[k].Config.Heads
			continue
		}
		key, value, _ := strings.Cut(part, "=")
		field, known := fields[key]
		n, err := strconv.Atoi(value)
		if !known || err != nil {
			return nil, fmt.Errorf("%s: %q is not understood; give gpt2, gpt2-medium, gpt2-large, gpt2-xl, or fields L, C, "+
				"NH, V, T, F, seed such as L=1,C=768", name, part)
		}
		*field = n
	}
	c.Inner = cmp.Or(c.Inner, 4*c.Channels)
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var tok *tokenizer.Tokenizer // random weights know no text: one of their size is as good as any
	switch {
	case c.Vocab >= 50257:
		tok = tokenizer.GPT2()
	case c.Vocab == 257:
		tok = tokenizer.Bytes()
	}
	m := &Model{Name: name}
	if tok == nil {
		m.NoTokenizer = errors.New("random weights have one if V is 257 or at least 50257")
	} else if id, ok := tok.EOT(); ok {
		m.Tokenizer, m.TokenizerFrom = tok, "built in, by V"
		c.BOS, c.EOS = int(id), int(id)
	}
	var generated []weights.Tensor
	for _, p := range c.Params() {
		t, err := weights.NewTensor(p.Name, p.Shape, initialiser(c, p, uint64(seed)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		generated = append(generated, t)
	}
	checkpoint, err := weights.Generated(generated...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	m.Config, m.checkpoint = c, checkpoint
	return m, nil
}

func constant(v float32) weights.ReadFunc {
	return func(dst []float32, _ int) error {
		for i := range dst {
			dst[i] = v
		}
		return nil
	}
}

func initialiser(c Config, p Param, seed uint64) weights.ReadFunc {
	switch {
	case strings.HasSuffix(p.Name, ".bias"):
		return constant(0)
	case len(p.Shape) == 1:
		return constant(1)
	case p.Name == "wpe.weight":
		return normal(p.Name, seed, 0.01)
	case strings.HasSuffix(p.Name, "c_proj.weight"):
		return normal(p.Name, seed, 0.02/math.Sqrt(2*float64(c.Layers)))
	default:
		return normal(p.Name, seed, 0.02)
	}
}

// normal returns a function that gives elements of an endless sequence of normal numbers, the same whichever part is
// asked for: every block of it has a generator of its own, keyed by name, seed and block.
func normal(name string, seed uint64, deviation float64) weights.ReadFunc {
	const block = 1 << 12
	h := fnv.New64a()
	h.Write([]byte(name))
	key := h.Sum64() ^ seed*0x9E3779B97F4A7C15
	return func(dst []float32, off int) error {
		for len(dst) > 0 {
			r := rand.New(rand.NewPCG(key, uint64(off/block)))
			for range off % block {
				r.NormFloat64()
			}
			n := min(len(dst), block-off%block)
			for i := range n {
				dst[i] = float32(deviation * r.NormFloat64())
			}
			dst, off = dst[n:], off+n
		}
		return nil
	}
}
