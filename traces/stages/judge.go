package stages

import (
	"slices"

	"gpt2scope/internal/humanize"
)

// Any sequence of products can be read as layers, also that of a convolutional network. What was found is a pass of a
// decoder if its layers have what those of a decoder have.
const (
	leastAnchors = 0.7 // of layers with a kernel named attention or softmax or, if more have one, LayerNorm
	leastCovered = 0.6 // of all attentions, those in layers
	leastTwins   = 0.9 // of layers, where names say neither attention nor LayerNorm
)

// judge drops what is no pass of a decoder: its kernels are of no stage.
func (f *finder) judge() {
	like := make([]float64, len(f.passes)) // anchors
	keep := make([]bool, len(f.passes))
	for n := range f.passes {
		anchors, twins := f.liken(&f.passes[n])
		like[n], keep[n] = anchors, anchors >= leastAnchors || f.passes[n].count > 1 && twins >= leastTwins
	}
	f.repeat(keep)
	if in, all := f.attentions(keep); in < leastCovered*all {
		clear(keep)
		f.say("only %.0f of %.0f attentions are in what looked like layers", in, all)
	}
	number := make([]int, len(f.passes))
	var kept []found
	dropped := 0
	for n, p := range f.passes {
		if keep[n] {
			number[n] = len(kept)
			kept = append(kept, p)
			continue
		}
		number[n] = -1
		dropped++
		for i := p.from; i < p.to; i++ {
			if f.pass[i] == n {
				f.states[i], f.layer[i] = outside, -1
				f.sure[i] = 1 - like[n]
			}
		}
	}
	for i, n := range f.pass {
		if n >= 0 {
			f.pass[i] = number[n]
		}
		// Whether LayerNorm begins a layer or ends the one before, as in BERT, its order does not say.
		if s := stageOf[f.states[i]]; f.design == separate && !f.rms && (s == ln1 || s == lnf) {
			f.sure[i] = min(f.sure[i], 0.8)
		}
	}
	if f.passes = kept; dropped > 0 {
		f.say("%s not: what repeats are not such layers, or names say nothing of attention or normalisation",
			humanize.Count(dropped, "sequence looked like a pass and was", "sequences looked like passes and were"))
	}
}

// repeat drops passes whose layers are not what repeats in them. A few layers count as those of all passes. A pass of one
// layer, in which nothing repeats, needs kernels whose names say that they look up embeddings and that they are an
// attention, or it is cut off and others are whole.
func (f *finder) repeat(keep []bool) {
	const few = 4
	all, again := map[int]int{}, map[int]int{}
	for n := range f.passes {
		layers, periods := f.lengths(&f.passes[n])
		keep[n] = keep[n] && f.mayEmbed(&f.passes[n])
		if p := &f.passes[n]; keep[n] && p.count > 1 {
			sum(all, layers)
			sum(again, periods)
			keep[n] = p.count <= few || f.isOne(layers, periods)
		}
	}
	together, others := f.isOne(all, again), false
	for n := range f.passes {
		if c := f.passes[n].count; c > 1 {
			keep[n] = keep[n] && (c > few || together)
			others = others || keep[n]
		}
	}
	for n := range f.passes {
		if p := &f.passes[n]; keep[n] && p.count < 2 {
			keep[n] = f.isNamed(p) || others && !(p.begun && p.end)
		}
	}
}

// attentions counts the attentions, and those of them in the layers of passes that are kept.
func (f *finder) attentions(keep []bool) (in, all float64) {
	for i, n := range f.names {
		if n.class != attention && n.class != softmax || i > 0 && f.names[i-1].class == n.class {
			continue
		}
		all++
		if f.pass[i] >= 0 && keep[f.pass[i]] && f.layer[i] >= 0 {
			in++
		}
	}
	return in, all
}

// isOne reports whether most layers have as many products and attentions as there are in most of what repeats.
func (f *finder) isOne(layers, periods map[int]int) bool {
	const most = 0.6
	share := func(votes map[int]int) (best int, part float64) {
		all := 0
		for _, n := range votes {
			all += n
		}
		best = mostVotes(votes)
		return best, float64(votes[best]) / float64(max(1, all))
	}
	unnamed := 0 // products of an attention that no name tells
	if f.design == fused && !slices.ContainsFunc(f.names, func(n kernelName) bool { return n.class == attention || n.class == softmax }) {
		unnamed = 2
	}
	period, ofPeriods := share(periods)
	length, ofLayers := share(layers)
	switch {
	case period == 0:
		return f.isGPT2()
	case period < f.products || period > f.products+1+unnamed: // with an attention that is named
		return false
	}
	return period == length && ofPeriods >= most && ofLayers >= most
}

// mayEmbed reports whether a pass begins with a kernel that may look up embeddings, or with none: a product or a
// normalisation does not.
func (f *finder) mayEmbed(p *found) bool {
	some := false
	for i := p.from; i < p.to; i++ {
		if n := f.names[i]; f.states[i] == embed {
			if some = true; n.embed || n.class != product && n.class != layerNorm {
				return true
			}
		}
	}
	return !some
}

// isNamed reports whether the names of kernels say that a pass of one layer is that of a GPT-2: it looks up embeddings,
// has an attention or normalises, and has no more products than a layer and a head. A library may divide one of them.
func (f *finder) isNamed(p *found) bool {
	embeds, named, fused, products := false, false, false, 0
	for i := p.from; i < p.to; i++ {
		n := f.names[i]
		embeds = embeds || n.embed || f.states[i] == embed && (n.class == embedding || n.class == unknown || n.norm)
		named = named || n.norm || n.class == attention || n.class == softmax
		fused = fused || n.class == attention
		if n.class == product && !f.inner[i] {
			products++
		}
	}
	most := f.products + 1
	if fused {
		most++
	}
	return embeds && named && f.isGPT2() && products <= most
}

func sum(to, from map[int]int) {
	for k, n := range from {
		to[k] += n
	}
}

// products are the states of the products of a layer.
var products = [...]state{attn, proj, fc, down}

// liken compares a pass with one of a decoder, by shares of its layers: those that have an anchor, and those in which one
// kernel is at the place of both LayerNorms and the four products have names of products.
func (f *finder) liken(p *found) (anchored, twin float64) {
	type layer struct {
		named         map[state]bool // products whose kernels have names of products
		norms, attend bool
		twins         [2]int // the kernel at the place of each LayerNorm, numbered from 1
	}
	layers := make([]layer, p.count)
	for i := p.from; i < p.to; i++ {
		if f.layer[i] < 0 {
			continue
		}
		l, name, s := &layers[f.layer[i]], f.names[i], f.states[i]
		l.norms = l.norms || name.norm
		l.attend = l.attend || name.class == attention || name.class == softmax
		switch {
		case s == ln1:
			l.twins[0] = f.keys[i] + 1
		case s == ln2:
			l.twins[1] = f.keys[i] + 1
		case name.class == product && slices.Contains(products[:], s):
			if l.named == nil {
				l.named = map[state]bool{}
			}
			l.named[s] = true
		}
	}
	var norms, attends, twins int
	for _, l := range layers {
		if l.norms {
			norms++
		}
		if l.attend {
			attends++
		}
		if l.twins[0] > 0 && l.twins[0] == l.twins[1] && len(l.named) == len(products) {
			twins++
		}
	}
	n := float64(max(1, len(layers)))
	return float64(max(norms, attends)) / n, float64(twins) / n
}

// settle says of passes that they begin or end if they look up embeddings or have a head, provided that most passes do:
// where a kernel was lost, a walk may break a pass in two.
func (f *finder) settle() {
	for _, side := range []struct {
		is  func(*found) *bool
		has func(int) bool
	}{
		{func(p *found) *bool { return &p.begun }, func(i int) bool {
			return f.states[i] <= between && (f.names[i].embed || f.names[i].class == embedding)
		}},
		{func(p *found) *bool { return &p.end }, func(i int) bool { return f.states[i] == head }},
	} {
		has, n := make([]bool, len(f.passes)), 0
		for at, p := range f.passes {
			for i := p.from; i < p.to && !has[at]; i++ {
				has[at] = side.has(i)
			}
			if has[at] {
				n++
			}
		}
		for at := range f.passes {
			if is := side.is(&f.passes[at]); 2*n > len(has) {
				*is = *is && has[at]
			}
		}
	}
}
