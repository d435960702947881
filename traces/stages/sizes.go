package stages

import (
	"cmp"
	"fmt"

	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/lazyregexp"
)

// Model is the model that a recording is of, for the costs of inferred stages.
type Model struct {
	Name   string // as the user gave it
	Config gpt2.Config
}

// known returns a pointer to a number, nil for 0.
func known(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

// sizer finds the sizes of what a finder found.
type sizer struct {
	*finder
	model  *Model // nil if it is not known
	dtype  string
	passes []size
	from   []string
}

// size is what a pass computes; 0 is not known.
type size struct {
	rows     int // B*T
	batch    int // B
	tokens   int // T
	past     int // -1 if not known
	headRows int // rows of the lm_head, of all sequences
}

// size finds the sizes of the passes. model is nil if the user gave none.
func (f *finder) size(model *Model) *sizer {
	g := &sizer{finder: f, passes: make([]size, len(f.passes)), from: []string{}}
	if len(f.passes) == 0 {
		return g
	}
	g.dtype = g.findType()
	g.countRows()
	g.phases()
	switch {
	case !g.isGPT2():
		g.say("what steps cost is known of GPT-2 and its like only")
	case model == nil:
		g.say("what steps cost is not known: --model says of which model the recording is")
	default:
		g.model = model
		c := model.Config
		g.say("the model is %s, as given: width %d, %d heads, vocabulary %d", model.Name, c.Channels, c.Heads, c.Vocab)
		if f.layers > c.Layers {
			g.say("but the kernels are of %s, and it has %d", humanize.Count(f.layers, "layer", "layers"), c.Layers)
		}
	}
	g.sizePasses()
	return g
}

func (g *sizer) say(format string, args ...any) {
	g.from = append(g.from, fmt.Sprintf(format, args...))
}

// The types of elements by words in the names of kernels.
var (
	isBF16 = lazyregexp.New(`(?i)bf16|bfloat16|nvjet_\w*?_tst`)
	isF16  = lazyregexp.New(`(?i)\bhalf|::half|half_t|f16f16|_f16|fp16|hgemm|h884|h1688|h16816|nvjet_\w*?_hsh|nvjet_\w*?_hhh`)
	isF32  = lazyregexp.New(`(?i)sgemm|f32|float|simt|tf32|nvjet_\w*?_sss`)
)

// typeOf returns the type of elements that a kernel's name says, "" if it says none.
func typeOf(name string) string {
	switch {
	case isBF16().MatchString(name):
		return "bf16"
	case isF16().MatchString(name):
		return "f16"
	case isF32().MatchString(name):
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

// sizePasses finds batch, tokens and past of each pass.
func (g *sizer) sizePasses() {
	unknown := 0
	next := map[int]int{} // of each batch: tokens in the cache after the last pass
	for n := range g.passes {
		p, of := &g.passes[n], g.finder.passes[n]
		if of.phase == decode && p.rows > 0 {
			p.tokens, p.batch = 1, cmp.Or(p.batch, p.rows)
		}
		for i := of.from; i < of.to; i++ {
			switch e := g.events[i]; {
			case p.rows > 0 && p.batch == 0 && stageOf[g.states[i]] == sdpa:
				if b := g.attentionBatch(e, p.rows); b > 0 && p.rows%b == 0 {
					p.batch, p.tokens = b, p.rows/b
				}
			case p.headRows == 0 && g.model != nil && g.states[i] == head:
				p.headRows = rowsOfHead(e, p, g.model.Config.Vocab)
			}
		}
		if p.rows > 0 && p.batch == 0 {
			unknown++
		}
		if p.rows > 0 && (p.rows == p.batch || of.phase == decode) {
			p.headRows = p.rows
		}
		p.past = -1
		if p.batch == 0 || p.tokens == 0 {
			continue
		}
		if past, follows := next[p.batch]; of.phase == prefill {
			p.past = 0
		} else if follows {
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
