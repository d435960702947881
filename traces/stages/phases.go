package stages

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
)

const (
	prefill = iota
	decode
)

var phaseNames = []string{"prefill", "decode step"}

// fewRows are the most rows of a pass that is taken to be a decode step for that alone.
const fewRows = 8

var (
	ofVector    = regexp.MustCompile(`(?i)gemv|mul_mat_vec`)
	ofOneQuery  = regexp.MustCompile(`(?i)masked_multihead|mmha|paged_attention|decode_attention`)
	templateArg = regexp.MustCompile(`<.*|[\d_]+`)
)

// phases tells prefills from decode steps. A pass of one token for each sequence is a decode step, and so is one of few
// rows if none has half as many, or one with products by vectors. Among passes of different numbers of rows, one with
// fewer is a decode step if it follows one with a multiple of them, or another decode step, and its attention consists
// of other kernels: two lengths of prompts have the same. Without rows, as in training in an engine whose grids are not
// recorded, a pass is a prefill.
func (g *sizer) phases() {
	most, least := 0, math.MaxInt/2
	rows := make([]int, len(g.passes))
	attends := make([]string, len(g.passes))
	for n := range g.passes {
		rows[n], attends[n] = g.passes[n].rows, g.kernelsOfAttention(n)
		if rows[n] > rows[most] {
			most = n
		}
		if rows[n] > 0 {
			least = min(least, rows[n])
		}
	}
	isDecode := func(n int) bool {
		p := &g.passes[n]
		switch {
		case p.tokens > 0:
			return p.tokens == 1
		case g.byVectors(n):
			return true
		case rows[n] == 0:
			return false
		case rows[n] <= fewRows:
			return rows[n] < 2*least
		case n == 0 || 2*rows[n] > rows[most] || rows[most]%rows[n] != 0 || attends[n] == attends[most]:
			return false
		}
		return rows[n-1] > rows[n] || rows[n-1] == rows[n] && g.finder.passes[n-1].phase == decode
	}
	type kind struct {
		rows    int
		attends string
	}
	decodes := map[kind]bool{}
	for n := range g.passes {
		g.finder.passes[n].phase = prefill
		if isDecode(n) {
			g.finder.passes[n].phase = decode
			decodes[kind{rows[n], attends[n]}] = true
		}
	}
	// Also where the recording begins with decode steps.
	for n := range g.passes {
		if g.passes[n].tokens == 0 && rows[n] > 0 && decodes[kind{rows[n], attends[n]}] {
			g.finder.passes[n].phase = decode
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
			names[templateArg.ReplaceAllString(g.names[i].key, "")] = true
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
		case g.states[i] == sdpa && ofOneQuery.MatchString(name):
			return true
		case slices.Contains(products[:], g.states[i]) && g.names[i].class == product:
			of++
			if ofVector.MatchString(name) {
				are++
			}
		}
	}
	return 2*are > of
}
