package stages

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

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

	// Confidence is the share of what says something about the width (shapes of operators, or the
	// grids of kinds of kernels) that agrees with it; 0 if nothing does.
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
	ops   map[uint64]*traces.Event // operators with the shapes of their inputs, and ranges around work

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
	g := &sizer{finder: f, trace: t, ops: map[uint64]*traces.Event{}, passes: make([]size, len(f.passes))}
	for i := range t.Events {
		if e := &t.Events[i]; e.Kind.IsRange() && e.ID != 0 && e.Lane.Kind == traces.LaneThread {
			g.ops[e.ID] = e
		}
	}
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
	r := Geometry{Width: known(g.width), Heads: known(g.heads), Inner: known(g.inner), Vocab: known(g.vocab), Confidence: round(g.confidence), From: slices.Concat([]string{}, g.from)}
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

// findType returns the type of the products within layers, by the names of most of the kernels:
// first of the products, then of all.
func (g *sizer) findType() string {
	for _, products := range []bool{true, false} {
		votes := map[string]int{}
		for i, e := range g.events {
			if g.layer[i] < 0 || products && g.names[i].class != product {
				continue
			}
			if name := typeOf(e.Name); name != "" {
				votes[name]++
			}
		}
		best := ""
		for _, name := range []string{"f32", "bf16", "f16"} {
			if votes[name] > votes[best] {
				best = name
			}
		}
		if best != "" {
			return best
		}
	}
	return ""
}

// elementSize is the size of an element in bytes, 0 if the type is not known.
func elementSize(dtype string) int { return map[string]int{"f32": 4, "bf16": 2, "f16": 2}[dtype] }

// shapesOf parses the shapes of an operator's inputs: "[[1,128,768],[]]". An input that is a
// list of tensors has no shape here.
func shapesOf(inputs string) [][]int {
	var raw []json.RawMessage
	if json.Unmarshal([]byte(inputs), &raw) != nil {
		return nil
	}
	shapes := make([][]int, len(raw))
	for i, r := range raw {
		var s []int
		if json.Unmarshal(r, &s) == nil {
			shapes[i] = s
		}
	}
	return shapes
}

// modelShapes are the sizes of a model by the shapes of operators; 0 is not known.
type modelShapes struct{ width, heads, inner, vocab int }

// readShapes reads the shapes of the operators that launched the kernels, if the recording has
// any: sizes of the model by the most votes, and those of the passes.
func (g *sizer) readShapes() (m modelShapes) {
	width, heads, inner, vocab := map[int]int{}, map[int]int{}, map[int]int{}, map[int]int{}
	seen := map[uint64]bool{}
	for i, e := range g.events {
		if g.pass[i] < 0 {
			continue
		}
		p, s := &g.passes[g.pass[i]], stageOf[g.states[i]]
		for id, depth := e.Parent, 0; depth < 8; depth++ {
			op := g.ops[id]
			if op == nil {
				break
			}
			id = op.Parent
			if op.Kind != traces.KindOp || op.Inputs == "" || seen[op.ID] {
				continue
			}
			in := shapesOf(op.Inputs)
			dim := func(n, of int) int { // from the end if negative
				if n >= len(in) {
					return 0
				}
				if of < 0 {
					of += len(in[n])
				}
				if of < 0 || of >= len(in[n]) || in[n][of] < 0 || in[n][of] > 1<<24 {
					return 0
				}
				return in[n][of]
			}
			product := func(rows, k, n int) {
				switch {
				case rows <= 0 || k <= 0 || n <= 0:
				case s == attn && n == 3*k:
					width[k]++
				case s == proj && n == k:
					width[k]++
				case s == fc:
					width[k]++
					inner[n]++
				case s == head:
					width[k]++
					vocab[n]++
					p.headRows = rows
				}
			}
			seen[op.ID] = true
			switch op.Name {
			case "aten::addmm":
				product(dim(1, 0), dim(1, 1), dim(2, 1))
			case "aten::mm":
				product(dim(0, 0), dim(0, 1), dim(1, 1))
			case "aten::linear":
				if k := dim(0, -1); k > 0 && len(in[0]) > 1 {
					rows := 1
					for _, n := range in[0][:len(in[0])-1] {
						rows = min(rows*max(1, n), 1<<30)
					}
					product(rows, k, dim(1, 0))
				}
			case "aten::layer_norm", "aten::native_layer_norm":
				if len(in) > 0 && len(in[0]) == 3 && (s == ln1 || s == ln2) && dim(0, 0) > 0 && dim(0, 1) > 0 {
					width[dim(0, 2)]++
					p.batch, p.tokens, p.rows = dim(0, 0), dim(0, 1), min(dim(0, 0)*dim(0, 1), 1<<30)
				}
			case "aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_efficient_attention", "aten::_scaled_dot_product_cudnn_attention":
				if len(in) > 1 && len(in[0]) == 4 && len(in[1]) == 4 && s == sdpa {
					heads[dim(0, 1)]++
					if past := dim(1, 2) - dim(0, 2); past >= 0 && dim(1, 2) > 0 {
						p.past = past
					}
				}
			}
		}
	}
	return modelShapes{mostVotes(width), mostVotes(heads), mostVotes(inner), mostVotes(vocab)}
}

// mostVotes returns the number with the most votes, 0 if there is none; of equal ones, the
// lowest.
func mostVotes(votes map[int]int) int {
	best := 0
	for n, v := range votes {
		if n > 0 && (best == 0 || v > votes[best] || v == votes[best] && n < best) {
			best = n
		}
	}
	return best
}

var (
	rowPerBlock = regexp.MustCompile(`vectorized_layer_norm_kernel|RowwiseMomentsCUDAKernel|cuApplyLayerNorm|vectorized_gather_kernel|\bnorm_f32`)
	rowPerWarp  = regexp.MustCompile(`layernorm_forward_kernel[3-9]|fused_residual_forward_kernel[3-9]`)
)

// blocks is the number of blocks of a kernel.
func blocks(e *traces.Event) int {
	n := int64(1)
	for _, g := range e.Grid {
		n = min(n*int64(max(1, g)), 1<<30)
	}
	return int(n)
}

// countRows finds the rows of the passes by kernels that have a block, or a warp, for each.
func (g *sizer) countRows() {
	for n := range g.passes {
		p := &g.passes[n]
		if p.rows > 0 {
			continue
		}
		norms, gathers, warps := map[int]int{}, map[int]int{}, map[int]int{}
		triton := 0
		for i := g.finder.passes[n].from; i < g.finder.passes[n].to; i++ {
			e, s := g.events[i], stageOf[g.states[i]]
			isNorm := s == ln1 || s == ln2
			switch {
			case e.Grid[0] <= 0:
			case rowPerBlock.MatchString(e.Name) && isNorm:
				norms[blocks(e)]++
			case rowPerBlock.MatchString(e.Name) && s == embed:
				gathers[int(e.Grid[0])]++
			case rowPerWarp.MatchString(e.Name):
				perBlock := int(e.Block[0] / 32)
				if e.Block[1] > 1 {
					perBlock = int(e.Block[1])
				}
				warps[blocks(e)*max(1, perBlock)]++
			case strings.HasPrefix(e.Name, "triton_") && g.names[i].norm && isNorm:
				triton = max(triton, blocks(e)) // a block has a row or more
			}
		}
		p.rows = cmp.Or(mostVotes(norms), mostVotes(warps))
		most, least := 0, 0
		for rows := range gathers {
			most = max(most, rows)
			if least == 0 || rows < least {
				least = rows
			}
		}
		// Positions are looked up for one sequence, tokens for all.
		if p.rows == 0 {
			p.rows = most
		}
		if p.rows == most && least > 0 && least < most && most%least == 0 {
			p.tokens, p.batch = least, most/least
		}
		if p.rows == 0 {
			p.rows = triton
		}
	}
}

// tile is the part of a product's output that a block computes, in the name of its kernel.
var tile = regexp.MustCompile(`(?:_|tilesize|<)(\d{1,3})x(\d{1,3})(?:x\d+)?(?:_|\b)`)

func tileOf(name string) (a, b int, ok bool) {
	m := tile.FindStringSubmatch(name)
	if m == nil {
		return 0, 0, false
	}
	a, _ = strconv.Atoi(m[1])
	b, _ = strconv.Atoi(m[2])
	return a, b, a >= 8 && b >= 8
}

func divideUp(a, b int) int { return (a + b - 1) / b }

// fitsProduct says how well the blocks of a product agree with its outputs: 1 if they are its
// tiles, less if they are a multiple, as where the inputs are split, 0 if they are neither.
func (g *sizer) fitsProduct(e *traces.Event, rows, columns int) (fit float64, says bool) {
	a, b, ok := tileOf(e.Name)
	if !ok || g.persistent(e) || e.Grid[0] <= 0 || rows <= 0 || columns <= 0 {
		return 0, false
	}
	const mostSplits = 32
	all := blocks(e)
	for _, tiles := range []int{divideUp(columns, a) * divideUp(rows, b), divideUp(columns, b) * divideUp(rows, a)} {
		switch {
		case all == tiles:
			return 1, true
		case all%tiles == 0 && all/tiles <= mostSplits:
			fit = max(fit, 0.5)
		case all > tiles && all < tiles+tiles/4+16: // cutlass rounds up, for the order of the blocks
			fit = max(fit, 0.4)
		}
	}
	return fit, true
}

// persistent reports whether a kernel has a block for each multiprocessor, whatever it computes.
func (g *sizer) persistent(e *traces.Event) bool {
	return blocks(e) == g.trace.Header.Device(e.Lane.Device).SMs
}

// fitsElements says whether the blocks of a kernel agree with a number of elements of which
// each thread does a power of two.
func fitsElements(e *traces.Event, n int) bool {
	threads := int(e.Block[0]) * int(max(1, e.Block[1]))
	if threads <= 0 || e.Grid[0] <= 0 {
		return false
	}
	for each := 1; each <= 16; each *= 2 {
		if divideUp(n, threads*each) == blocks(e) {
			return true
		}
	}
	return false
}

// evidence is a kernel of a stage, once for all kernels with its name and grid.
type evidence struct {
	event *traces.Event
	stage state
	class class
	rows  int
}

// evidences lists the kinds of kernels within the layers.
func (g *sizer) evidences() []evidence {
	type kind struct {
		stage state
		key   int
		rows  int
	}
	seen := map[kind]bool{}
	var list []evidence
	for i, e := range g.events {
		if g.pass[i] < 0 || g.sure[i] < Threshold {
			continue
		}
		k := kind{stageOf[g.states[i]], g.keys[i], g.passes[g.pass[i]].rows}
		if k.rows > 0 && !seen[k] {
			seen[k] = true
			list = append(list, evidence{e, k.stage, g.names[i].class, k.rows})
		}
	}
	return list
}

// fits says how well a kernel agrees with a width.
func (g *sizer) fits(v evidence, width int) (fit float64, says bool) {
	e := v.event
	elements := func(n int) (float64, bool) {
		if fitsElements(e, n) {
			return 1, true
		}
		return 0, true
	}
	switch v.stage {
	case embed:
		size := elementSize(g.dtype)
		// A block copies a row, 16 bytes a thread.
		if !strings.Contains(e.Name, "vectorized_gather_kernel<16") || e.Grid[1] > 1 || size == 0 || e.Block[0] >= 256 {
			return 0, false
		}
		if 32*divideUp(divideUp(width*size, 16), 32) == int(e.Block[0]) {
			return 1, true
		}
		return 0, true
	case attn:
		if v.class == product {
			return g.fitsProduct(e, v.rows, 3*width)
		}
	case proj, down:
		if v.class == product {
			return g.fitsProduct(e, v.rows, width)
		}
	case fc:
		if v.class == product {
			return g.fitsProduct(e, v.rows, 4*width)
		}
	case act:
		if v.class == gelu || v.class == power {
			return elements(v.rows * 4 * width)
		}
	case res1, res2:
		if v.class == add {
			return elements(v.rows * width)
		}
	}
	return 0, false
}

// score sums how well the kinds of kernels agree with a width, and counts those that say
// something.
func (g *sizer) score(list []evidence, width int) (sum float64, of int) {
	for _, v := range list {
		if fit, says := g.fits(v, width); says {
			sum, of = sum+fit, of+1
		}
	}
	return sum, of
}

// The least share of the evidence that must agree with a width.
const leastAgreement = 0.5

// fitWidth finds the width with which most kinds of kernels agree: one of the published ones,
// or a multiple of 64. If several do equally, that of the published model with as many layers.
func (g *sizer) fitWidth() {
	list := g.evidences()
	widths := map[int]bool{}
	for _, m := range gpt2.Published() {
		widths[m.Config.Channels] = true
	}
	const most = 8192
	for w := 64; w <= most; w += 64 {
		widths[w] = true
	}
	best, share, of := []int{}, 0.0, 0
	for w := range widths {
		sum, n := g.score(list, w)
		if n == 0 {
			continue
		}
		switch s := sum / float64(n); {
		case s > share+1e-9:
			best, share, of = []int{w}, s, n
		case math.Abs(s-share) <= 1e-9:
			best = append(best, w)
		}
	}
	if share < leastAgreement || of < 2 {
		g.say("the width is not known: no grids of kernels say it; --model gives it")
		return
	}
	slices.Sort(best)
	text := fmt.Sprintf("the grids of %d kinds of kernels", of)
	if len(best) > 1 {
		at := slices.IndexFunc(gpt2.Published(), func(m gpt2.PublishedModel) bool {
			return m.Config.Layers == g.layers && slices.Contains(best, m.Config.Channels)
		})
		if at < 0 {
			g.say("the width is not known: by %s it is %s; --model gives it", text, oneOf(best))
			return
		}
		g.width = gpt2.Published()[at].Config.Channels
		g.confidence = share / float64(len(best))
		g.say("width %d, by %s one of %d, and by the number of layers", g.width, text, len(best))
	} else {
		g.width, g.confidence = best[0], share
		g.say("width %d, from %s", g.width, text)
	}
	g.publish()
}

// oneOf lists numbers, of many the first ones.
func oneOf(list []int) string {
	const most = 4
	var words []string
	for _, n := range list[:min(most, len(list))] {
		words = append(words, strconv.Itoa(n))
	}
	if len(list) > most {
		return strings.Join(words, ", ") + " or another"
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// publish fills in what is not known of a model of a published width, if nothing contradicts
// that, and says so.
func (g *sizer) publish() {
	at := slices.IndexFunc(gpt2.Published(), func(m gpt2.PublishedModel) bool { return m.Config.Channels == g.width })
	if at < 0 {
		if g.inner == 0 {
			g.inner = 4 * g.width
			g.say("the MLP is taken to be four times as wide")
		}
		if g.heads == 0 && g.width%64 == 0 {
			g.heads = g.width / 64
			g.say("the heads are taken to have 64 elements")
		}
		return
	}
	m := gpt2.Published()[at]
	c := m.Config
	if g.heads != 0 && g.heads != c.Heads || g.inner != 0 && g.inner != c.Inner {
		return
	}
	g.heads, g.inner = c.Heads, c.Inner
	if g.vocab == 0 && g.fitsVocab(c.Vocab) {
		g.vocab = c.Vocab
	}
	g.model = m.Name
	text := fmt.Sprintf("heads and MLP are those of %s, which has this width", m.Name)
	if g.vocab == c.Vocab {
		text = strings.Replace(text, "heads and MLP", "heads, MLP and vocabulary", 1)
	}
	g.say("%s", text)
}

// fitsVocab reports whether no kernel of the lm_head contradicts a vocabulary, also if it is
// padded to a multiple of 128.
func (g *sizer) fitsVocab(vocab int) bool {
	for i, e := range g.events {
		if g.pass[i] < 0 || g.states[i] != head {
			continue
		}
		p := &g.passes[g.pass[i]]
		if p.headRows = cmp.Or(p.headRows, g.rowsOfHead(e, p, vocab)); p.headRows > 0 {
			return true
		}
		if fit, says := g.fitsProduct(e, max(1, p.rows), vocab); says && fit == 0 && blocks(e) < vocab/512 {
			return false
		}
	}
	return true
}

// rowsOfHead returns of how many rows a kernel computes logits, 0 if its grid does not say.
func (g *sizer) rowsOfHead(e *traces.Event, p *size, vocab int) int {
	if p.rows == 0 {
		return 0
	}
	batch := cmp.Or(p.batch, 1)
	if strings.Contains(strings.ToLower(e.Name), "gemv") {
		return batch
	}
	// A block for each multiprocessor says nothing, but tiles that are long in both directions
	// are for many rows.
	const many = 8
	if a, b, ok := tileOf(e.Name); ok && g.persistent(e) && min(a, b) >= many*batch {
		return p.rows
	}
	for _, rows := range []int{p.rows, batch} {
		for _, v := range []int{vocab, 128 * divideUp(vocab, 128)} {
			if fit, says := g.fitsProduct(e, rows, v); says && fit >= 0.4 {
				return rows
			}
		}
	}
	return 0
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
	list := g.evidences()
	sum, of := g.score(list, g.width)
	if of == 0 {
		return
	}
	if g.confidence = sum / float64(of); g.confidence < leastAgreement {
		g.say("but of %d kinds of kernels whose grids say something, few agree with that width", of)
	}
}

// attentionBatch returns the sequences that a kernel of attention works on, of so many rows in
// all, by its grid; 0 if that is not known.
func (g *sizer) attentionBatch(e *traces.Event, rows int) int {
	n := strings.ToLower(e.Name)
	switch {
	case strings.Contains(n, "sdpa_sm90_flash_fprop") && g.heads > 0 && blocks(e)%g.heads == 0:
		const queries = 128 // of a block
		found := 0
		for batch := 1; batch <= rows; batch++ {
			if rows%batch == 0 && batch*divideUp(rows/batch, queries) == blocks(e)/g.heads {
				if found > 0 {
					return 0
				}
				found = batch
			}
		}
		return found
	case strings.Contains(n, "flash_fwd_kernel"):
		return int(e.Grid[1])
	case strings.Contains(n, "fmha_cutlassf"):
		return int(e.Grid[2])
	case g.heads > 0 && readName(e.Name).class == product && e.Grid[2] > 1 && int(e.Grid[2])%g.heads == 0:
		return int(e.Grid[2]) / g.heads // a product for each head
	}
	return 0
}

// batchOfDecode gives a prefill the sequences of the decode step that follows it.
func (g *sizer) batchOfDecode() {
	for n := 1; n < len(g.passes); n++ {
		p, next := &g.passes[n-1], g.passes[n].rows
		if g.finder.passes[n-1].phase == prefill && g.finder.passes[n].phase == decode && p.batch == 0 && next > 0 && p.rows > next && p.rows%next == 0 {
			p.batch, p.tokens = next, p.rows/next
		}
	}
}

// sizePasses finds batch, tokens and past of each pass.
func (g *sizer) sizePasses() {
	g.batchOfDecode()
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
		g.say("into how many sequences the rows of %s divide is not known, and so neither what their attention costs", humanize.Count(unknown, "pass", "passes"))
	}
}
