package stages

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/gpt2"
	"gpt2scope/traces"
)

var rowPerBlock = regexp.MustCompile(`vectorized_layer_norm_kernel|RowwiseMomentsCUDAKernel|cuApplyLayerNorm|vectorized_gather_kernel|\bnorm_f32`)

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

// countRows finds the rows of the passes by kernels that have a block for each.
func (g *sizer) countRows() {
	for n := range g.passes {
		p := &g.passes[n]
		if p.rows > 0 {
			continue
		}
		norms, gathers := map[int]int{}, map[int]int{}
		triton := 0
		for i := g.finder.passes[n].from; i < g.finder.passes[n].to; i++ {
			e, s := g.events[i], stageOf[g.states[i]]
			isNorm := s == ln1 || s == ln2
			switch {
			case e.Grid[0] <= 0:
			case isNorm && rowPerBlock.MatchString(e.Name):
				norms[blocks(e)]++
			case s == embed && rowPerBlock.MatchString(e.Name):
				gathers[int(e.Grid[0])]++
			case strings.HasPrefix(e.Name, "triton_") && g.names[i].norm && isNorm:
				triton = max(triton, blocks(e)) // a block has a row or more
			}
		}
		looked := append(slices.Sorted(maps.Keys(gathers)), 0)
		least, most := looked[0], looked[max(0, len(looked)-2)]
		p.rows = cmp.Or(mostVotes(norms), most, triton)
		// Positions are looked up for one sequence, tokens for all.
		if p.rows == most && least > 0 && least < most && most%least == 0 {
			p.tokens, p.batch = least, most/least
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

// fitsProduct says how well the blocks of a product agree with its outputs: 1 if they are its tiles, less if they are a
// multiple, as where the inputs are split, 0 if they are neither.
func (g *sizer) fitsProduct(e *traces.Event, rows, columns int) (fit float64, says bool) {
	a, b, ok := tileOf(e.Name)
	if !ok || e.Grid[0] <= 0 || rows <= 0 || columns <= 0 {
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

// fitsElements says whether the blocks of a kernel agree with a number of elements of which each thread does a power of
// two.
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

// fits says how well a kernel agrees with a width.
func (g *sizer) fits(kernel, width int) (fit float64, says bool) {
	e, class, rows := g.events[kernel], g.names[kernel].class, g.passes[g.pass[kernel]].rows
	is := func(fits bool) (float64, bool) {
		if fits {
			return 1, true
		}
		return 0, true
	}
	switch s := stageOf[g.states[kernel]]; {
	case s == embed:
		size := elementSize(g.dtype)
		// A block copies a row, 16 bytes a thread.
		if strings.Contains(e.Name, "vectorized_gather_kernel<16") && e.Grid[1] <= 1 && size > 0 && e.Block[0] < 256 {
			return is(32*divideUp(divideUp(width*size, 16), 32) == int(e.Block[0]))
		}
	case s == attn && class == product:
		return g.fitsProduct(e, rows, 3*width)
	case (s == proj || s == down) && class == product:
		return g.fitsProduct(e, rows, width)
	case s == fc && class == product:
		return g.fitsProduct(e, rows, 4*width)
	case (s == res1 || s == res2) && class == add:
		return is(fitsElements(e, rows*width))
	}
	return 0, false
}

// agreement is how well the grids of kernels agree with a width, in the mean over the kinds of kernels that say
// something.
func (g *sizer) agreement(width int) (share float64, kinds int) {
	seen := map[[3]int]bool{}
	for i := range g.events {
		if g.pass[i] < 0 || g.sure[i] < Threshold {
			continue
		}
		kind := [3]int{int(stageOf[g.states[i]]), g.keys[i], g.passes[g.pass[i]].rows}
		if kind[2] == 0 || seen[kind] {
			continue
		}
		seen[kind] = true
		if fit, says := g.fits(i, width); says {
			share, kinds = share+fit, kinds+1
		}
	}
	return round(share / float64(max(1, kinds))), kinds
}

// fitWidth finds the width with which most kinds of kernels agree. If several do equally, it is that of the published
// model with as many layers.
func (g *sizer) fitWidth() {
	const most = 8192
	share, of, best := leastAgreement, 0, []int(nil)
	for width := 64; width <= most; width += 64 {
		switch s, kinds := g.agreement(width); {
		case kinds < 2 || s < share:
		case s > share || best == nil:
			share, of, best = s, kinds, []int{width}
		default:
			best = append(best, width)
		}
	}
	g.confidence = share / float64(max(1, len(best)))
	for _, m := range gpt2.Published() {
		if len(best) > 1 && m.Config.Layers == g.layers && slices.Contains(best, m.Config.Channels) {
			best = []int{m.Config.Channels}
		}
	}
	if len(best) != 1 {
		g.confidence = 0
		g.say("the width is not known: no grids of kernels say it; --model gives it")
		return
	}
	g.width = best[0]
	g.say("width %d, from the grids of %d kinds of kernels", g.width, of)
	g.publish()
}

// rowsOfHead returns of how many rows a kernel computes logits, 0 if its grid does not say.
func (g *sizer) rowsOfHead(e *traces.Event, p *size, vocab int) int {
	if p.rows == 0 {
		return 0
	}
	batch := cmp.Or(p.batch, 1)
	for _, rows := range []int{p.rows, batch} {
		for _, v := range []int{vocab, 128 * divideUp(vocab, 128)} {
			if fit, says := g.fitsProduct(e, rows, v); says && fit >= 0.4 {
				return rows
			}
		}
	}
	return 0
}

// attentionBatch returns the sequences that a kernel of attention works on, of so many rows in all, by its grid; 0 if
// that is not known.
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
	case strings.Contains(n, "fmha_cutlassf"):
		return int(e.Grid[2])
	case g.heads > 0 && readName(e.Name).class == product && e.Grid[2] > 1 && int(e.Grid[2])%g.heads == 0:
		return int(e.Grid[2]) / g.heads // a product for each head
	}
	return 0
}
