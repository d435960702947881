package stages

import (
	"fmt"
	"strings"

	"gpt2scope/internal/humanize"
)

// readRMS gives the kernels of an RMSNorm that is written out (a square, a mean, an inverse root, two products) the
// class of a normalisation.
func (f *finder) readRMS() {
	norm := 4 * numberOf(f.keys)
	has := func(i int, words string) bool { return i < len(f.events) && strings.Contains(f.events[i].Name, words) }
	for i := range f.names {
		if f.names[i].class != power {
			continue
		}
		root := i + 1
		for root < i+5 && !has(root, "rsqrt") {
			root++
		}
		if !has(root, "rsqrt") || !has(i+1, "MeanOps") {
			continue
		}
		from, to := i, root
		if i > 0 && f.names[i-1].class == copying {
			from-- // to float32
		}
		for products, at := 0, root+1; products < 2 && at < min(root+6, len(f.names)); at++ {
			switch f.names[at].class {
			case multiply:
				products++
				to = at
			case copying, casting, elementwise:
			default:
				products = 2
			}
		}
		for at := from; at <= to; at++ {
			f.names[at].class, f.names[at].norm, f.names[at].rms, f.names[at].again = layerNorm, true, true, at > from
			f.keys[at] += norm
		}
	}
}

// readAttentions marks the products on both sides of a softmax: with it, they are an attention.
func (f *finder) readAttentions() {
	const near = 12
	f.inner = make([]bool, len(f.names))
	for i, n := range f.names {
		if n.class != softmax {
			continue
		}
		for _, step := range []int{-1, 1} {
			for at := i + step; at >= 0 && at < len(f.names) && (at-i)*step <= near; at += step {
				if f.names[at].class == product {
					f.inner[at] = true
					break
				}
			}
		}
	}
}

// fit chooses the design whose walk is the cheapest, among those with as many products as there are in what repeats.
func (f *finder) fit() {
	norms, rms, rotary, gated := 0, 0, 0, 0
	for _, n := range f.names {
		switch {
		case n.rms:
			rms++
		case n.norm:
			norms++
		}
		if n.rotary {
			rotary++
		}
		if n.gated {
			gated++
		}
	}
	f.rms = rms > norms
	for _, fact := range []struct {
		n    int
		what string
	}{{rms, "RMSNorm"}, {gated, "of a gated MLP"}, {rotary, "rotary embeddings"}} {
		if fact.n > 0 {
			f.say("%s %s, which GPT-2 does not have", humanize.Count(fact.n, "kernel is", "kernels are"), fact.what)
		}
	}
	_, periods := f.lengths(&found{to: len(f.names)})
	var best finder
	bestFits := false
	for n, d := range designs {
		if n > 0 && periods[d.products]+periods[d.products+1] == 0 { // with the attention, if it is named
			continue
		}
		f.design, f.passes = d, nil
		f.walk()
		f.divide()
		layers, again := map[int]int{}, map[int]int{}
		named := 0 // passes of one layer
		for i := range f.passes {
			in, after := f.lengths(&f.passes[i])
			sum(layers, in)
			sum(again, after)
			if f.passes[i].count == 1 && f.isNamed(&f.passes[i]) {
				named++
			}
		}
		fits := len(layers) > 0 && f.isOne(layers, again) || 2*named > len(f.passes)
		if n == 0 || fits && !bestFits || fits == bestFits && f.cost < best.cost && len(layers) > 0 {
			best, bestFits = *f, fits
		}
	}
	*f = best
	if f.design != fused {
		f.say("what repeats has %d matrix products, and layers of GPT-2 have %d", f.products, fused.products)
	}
}

// isGPT2 reports whether layers are those of GPT-2.
func (f *finder) isGPT2() bool { return f.design == fused && !f.rms }

func (f *finder) say(format string, args ...any) {
	f.against = append(f.against, fmt.Sprintf(format, args...))
}

// lengths counts how many products and attentions the layers of a pass have by the walk, where another layer follows,
// and after how many of them those of the pass come again.
func (f *finder) lengths(p *found) (layers, periods map[int]int) {
	layers, periods = map[int]int{}, map[int]int{}
	var keys []int
	first, layer, attends := -1, -1, false
	for i := p.from; i < p.to; i++ {
		c := f.names[i].class
		isAttention := c == attention || c == softmax
		if again := attends && isAttention; !isAttention && (c != product || f.inner[i]) || again {
			continue
		}
		attends = isAttention
		if len(f.layer) > 0 && stageOf[f.states[i]] == attn && f.layer[i] > layer {
			if first >= 0 && f.layer[i] == layer+1 {
				layers[len(keys)-first]++
			}
			first, layer = len(keys), f.layer[i]
		}
		keys = append(keys, f.keys[i])
	}
	next := map[[3]int]int{}
	for i := len(keys) - 3; i >= 0; i-- {
		three := [3]int(keys[i : i+3])
		if at, ok := next[three]; ok && at > i+1 {
			periods[at-i]++
		}
		next[three] = i
	}
	return layers, periods
}
