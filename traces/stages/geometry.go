package stages

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
)

// Model is a model whose sizes are known, for the costs of inferred stages.
type Model struct {
	Name   string // as the user gave it
	Config gpt2.Config
}

// Geometry is the size of the model that a recording is of. A nil field is not known.
type Geometry struct {
	Model *string `json:"model"` // that was given, or the published GPT-2 whose sizes fit
	Width *int    `json:"width"` // C
	Heads *int    `json:"heads"` // NH
	Inner *int    `json:"inner"` // width of the MLP
	Vocab *int    `json:"vocab"` // V
	DType *string `json:"dtype"` // of the matrix products: "f32", "bf16" or "f16"

	// Confidence is the share of what says something about the width (shapes of operators, or the grids of kinds of
	// kernels) that agrees with it; 0 if nothing does.
	Confidence float64 `json:"confidence"`

	// From says in words where each of this is from, and what is not known.
	From []string `json:"from"`
}

// known returns a pointer to a number, nil for 0.
func known(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

// sizer finds the geometry of what a finder found.
type sizer struct {
	*finder
	trace *traces.Trace
	index *traces.Index

	width, heads, inner, vocab int
	dtype                      string
	model                      string
	passes                     []size
	from                       []string
	confidence                 float64
}

// size is what a pass computes; 0 is not known.
type size struct {
	rows     int // B*T
	batch    int // B
	tokens   int // T
	past     int // -1 if not known
	headRows int // rows of the lm_head, of all sequences
}

// size finds the geometry. model is nil if the user gave none.
func (f *finder) size(t *traces.Trace, model *Model) *sizer {
	g := &sizer{finder: f, trace: t, index: t.Index(), passes: make([]size, len(f.passes))}
	for i := range g.passes {
		g.passes[i].past = -1
	}
	if len(f.passes) == 0 {
		return g
	}
	g.dtype = g.findType()
	shapes := g.readShapes()
	g.countRows()
	g.phases()
	switch {
	case !g.isGPT2():
		g.say("what steps cost is known of GPT-2 and its like only")
	case model != nil:
		c := model.Config
		g.model, g.width, g.heads, g.inner, g.vocab = model.Name, c.Channels, c.Heads, c.Inner, c.Vocab
		g.say("the model is %s, as given: width %d, %d heads, vocabulary %d", model.Name, c.Channels, c.Heads, c.Vocab)
		g.checkModel(shapes)
	case shapes.width != 0:
		g.width, g.heads, g.inner, g.vocab, g.confidence = shapes.width, shapes.heads, shapes.inner, shapes.vocab, 1
		g.say("width %d, from the shapes of operators", g.width)
		g.publish()
	default:
		g.fitWidth()
	}
	g.sizePasses()
	return g
}

func (g *sizer) say(format string, args ...any) {
	g.from = append(g.from, fmt.Sprintf(format, args...))
}

// geometry is the result for people and JSON.
func (g *sizer) geometry() Geometry {
	r := Geometry{Width: known(g.width), Heads: known(g.heads), Inner: known(g.inner), Vocab: known(g.vocab),
		Confidence: round(g.confidence), From: slices.Concat([]string{}, g.from)}
	if g.model != "" {
		r.Model = &g.model
	}
	if g.dtype != "" {
		r.DType = &g.dtype
	}
	return r
}

// The types of elements by words in the names of kernels.
var (
	isBF16 = regexp.MustCompile(`(?i)bf16|bfloat16|nvjet_\w*?_tst`)
	isF16  = regexp.MustCompile(`(?i)\bhalf|::half|half_t|f16f16|_f16|fp16|hgemm|h884|h1688|h16816|nvjet_\w*?_hsh|nvjet_\w*?_hhh`)
	isF32  = regexp.MustCompile(`(?i)sgemm|f32|float|simt|tf32|nvjet_\w*?_sss`)
)

// typeOf returns the type of elements that a kernel's name says, "" if it says none.
func typeOf(name string) string {
	switch {
	case isBF16.MatchString(name):
		return "bf16"
	case isF16.MatchString(name):
		return "f16"
	case isF32.MatchString(name):
		return "f32"
	}
	return ""
}

// findType returns the type that most kernels of the layers name.
func (g *sizer) findType() string {
	names, votes, best := map[string]int{}, map[string]int{}, ""
	for i, e := range g.events {
		if g.layer[i] >= 0 {
			names[e.Name]++
		}
	}
	for name, n := range names {
		votes[typeOf(name)] += n
	}
	for _, name := range []string{"f32", "bf16", "f16"} {
		if votes[name] > 0 && (best == "" || votes[name] > votes[best]) {
			best = name
		}
	}
	return best
}

// elementSize is the size of an element in bytes, 0 if the type is not known.
func elementSize(dtype string) int { return map[string]int{"f32": 4, "bf16": 2, "f16": 2}[dtype] }

// publish fills in what is not known of a model of a published width, and says so.
func (g *sizer) publish() {
	at := slices.IndexFunc(gpt2.Published(), func(m gpt2.PublishedModel) bool { return m.Config.Channels == g.width })
	if at < 0 {
		g.heads, g.inner = cmp.Or(g.heads, g.width/64), cmp.Or(g.inner, 4*g.width)
		g.say("heads are taken to have 64 elements, and the MLP to be four times as wide, where nothing says it")
		return
	}
	m := gpt2.Published()[at]
	c := m.Config
	g.model, g.heads = m.Name, cmp.Or(g.heads, c.Heads)
	g.inner, g.vocab = cmp.Or(g.inner, c.Inner), cmp.Or(g.vocab, c.Vocab)
	g.say("heads, MLP and vocabulary are those of %s, which has this width", m.Name)
}

// checkModel says so if the recording contradicts the model that was given.
func (g *sizer) checkModel(shapes modelShapes) {
	if shapes.width != 0 {
		if g.confidence = 1; shapes.width != g.width {
			g.confidence = 0
			g.say("but the shapes of operators say that the width is %d", shapes.width)
		}
		return
	}
	share, kinds := g.agreement(g.width)
	if g.confidence = share; kinds > 0 && share < leastAgreement {
		g.say("but of %d kinds of kernels whose grids say something, few agree with that width", kinds)
	}
}

// sizePasses finds batch, tokens and past of each pass.
func (g *sizer) sizePasses() {
	unknown := 0
	next := map[int]int{} // of each batch: tokens in the cache after the last pass
	for n := range g.passes {
		p, of := &g.passes[n], g.finder.passes[n]
		if of.phase == decode && p.rows > 0 {
			p.tokens, p.batch = 1, cmp.Or(p.batch, p.rows)
		}
		for i := of.from; i < of.to && p.batch == 0 && p.rows > 0; i++ {
			if stageOf[g.states[i]] == sdpa {
				if b := g.attentionBatch(g.events[i], p.rows); b > 0 && p.rows%b == 0 {
					p.batch, p.tokens = b, p.rows/b
				}
			}
		}
		if p.rows > 0 && p.batch == 0 {
			unknown++
		}
		for i := of.from; i < of.to && p.headRows == 0 && g.vocab > 0; i++ {
			if g.states[i] == head {
				p.headRows = g.rowsOfHead(g.events[i], p, g.vocab)
			}
		}
		if p.rows > 0 && (p.rows == p.batch || of.phase == decode) {
			p.headRows = p.rows
		}
		if p.batch == 0 || p.tokens == 0 {
			continue
		}
		switch past, follows := next[p.batch]; {
		case p.past >= 0:
		case of.phase == prefill:
			p.past = 0
		case follows:
			p.past = past
		}
		if delete(next, p.batch); p.past >= 0 {
			next[p.batch] = p.past + p.tokens
		}
	}
	if unknown > 0 {
		g.say("into how many sequences the rows of %s divide is not known, and so neither what their attention costs",
			humanize.Count(unknown, "pass", "passes"))
	}
}
