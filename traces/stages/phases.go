package stages

import (
	"maps"
	"math"
	"slices"
	"strings"

	"gpt2scope/internal/lazyregexp"
)

const (
	prefill = iota
	decode
	whole // of a model that may be no decoder
)

var phaseNames = []string{"prefill", "decode step", "forward pass"}

// fewRows are the most rows of a pass that is taken to be a decode step for that alone.
const fewRows = 8

var (
	ofVector    = lazyregexp.New(`(?i)gemv|mul_mat_vec`)
	ofOneQuery  = lazyregexp.New(`(?i)masked_multihead|mmha|paged_attention|decode_attention`)
	templateArg = lazyregexp.New(`<.*|[\d_]+`)
)

// phases tells prefills from decode steps. A pass of one token for each sequence is a decode step, and so is one of few
// rows if none has half as many, or one with products by vectors. Among passes of different numbers of rows, one whose
// rows divide the most is a decode step if its attention consists of other kernels: two lengths of prompts have the
// same. Without rows, as in training in an engine whose grids are not recorded, a pass is a prefill.
func (g *sizer) phases() {
	most, least := 0, math.MaxInt/2
	for n := range g.passes {
		if g.passes[n].rows > g.passes[most].rows {
			most = n
		}
		if rows := g.passes[n].rows; rows > 0 {
			least = min(least, rows)
		}
	}
	for n := range g.passes {
		var isDecode bool
		switch tokens, rows, of := g.passes[n].tokens, g.passes[n].rows, g.passes[most].rows; {
		case tokens > 0:
			isDecode = tokens == 1
		case rows == 0 || g.byVectors(n):
			isDecode = g.byVectors(n)
		case rows <= fewRows:
			isDecode = rows < 2*least
		default:
			isDecode = 2*rows <= of && of%rows == 0 && g.kernelsOfAttention(n) != g.kernelsOfAttention(most)
		}
		if isDecode {
			g.finder.passes[n].phase = decode
		}
	}
	isDecode := func(p found) bool { return p.phase == decode }
	if list := g.finder.passes; g.design == separate && !g.rms && !slices.ContainsFunc(list, isDecode) {
		for n := range list {
			list[n].phase = whole
		}
	}
}

// kernelsOfAttention lists the kernels of the attention of a pass, without numbers and templates, since these depend on
// sizes.
func (g *sizer) kernelsOfAttention(pass int) string {
	names := map[string]bool{}
	p := &g.finder.passes[pass]
	for i := p.from; i < p.to; i++ {
		if c := g.names[i].class; g.pass[i] == pass && stageOf[g.states[i]] == sdpa &&
			(c == attention || c == softmax || c == concatenation) {
			names[templateArg().ReplaceAllString(g.names[i].key, "")] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), " ")
}

// byVectors reports whether most products of a pass' layers are by vectors, or its attention is for one query.
func (g *sizer) byVectors(pass int) bool {
	of, are := 0, 0
	p := &g.finder.passes[pass]
	for i := p.from; i < p.to; i++ {
		switch name := g.events[i].Name; {
		case g.pass[i] != pass:
		case g.states[i] == sdpa && ofOneQuery().MatchString(name):
			return true
		case slices.Contains(products[:], g.states[i]) && g.names[i].class == product:
			of++
			if ofVector().MatchString(name) {
				are++
			}
		}
	}
	return 2*are > of
}
