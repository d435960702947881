package stages

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/gpt2"
	"gpt2scope/traces"
)

var (
	rowPerBlock = regexp.MustCompile(`vectorized_layer_norm_kernel|RowwiseMomentsCUDAKernel|cuApplyLayerNorm|vectorized_gather_kernel|\bnorm_f32`)
	rowPerWarp  = regexp.MustCompile(`layernorm_forward_kernel[3-9]|fused_residual_forward_kernel[3-9]`)
)

// tile is the part of a product's output that a block computes, in the name of its kernel.
var tile = regexp.MustCompile(`(?:_|tilesize|<)(\d{1,3})x(\d{1,3})(?:x\d+)?(?:_|\b)`)

// The least share of the evidence that must agree with a width.
const leastAgreement = 0.5

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
