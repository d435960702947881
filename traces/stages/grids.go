package stages

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/internal/lazyregexp"
	"gpt2scope/traces"
)

var rowPerBlock = lazyregexp.New(`vectorized_layer_norm_kernel|RowwiseMomentsCUDAKernel|cuApplyLayerNorm|vectorized_gather_kernel|\bnorm_f32`)

// tile is the part of a product's output that a block computes, in the name of its kernel.
var tile = lazyregexp.New(`(?:_|tilesize|<)(\d{1,3})x(\d{1,3})(?:x\d+)?(?:_|\b)`)

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
			case isNorm && rowPerBlock().MatchString(e.Name):
				norms[blocks(e)]++
			case s == embed && rowPerBlock().MatchString(e.Name):
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
	m := tile().FindStringSubmatch(name)
	if m == nil {
		return 0, 0, false
	}
	a, _ = strconv.Atoi(m[1])
	b, _ = strconv.Atoi(m[2])
	return a, b, a >= 8 && b >= 8
}

func divideUp(a, b int) int { return (a + b - 1) / b }

// isTiled reports whether the blocks of a product agree with its outputs: they are its tiles, or a multiple, as where
// the inputs are split.
func isTiled(e *traces.Event, rows, columns int) bool {
	a, b, ok := tileOf(e.Name)
	if !ok || e.Grid[0] <= 0 {
		return false
	}
	const mostSplits = 32
	all := blocks(e)
	fits := func(tiles int) bool { // cutlass rounds up, for the order of the blocks
		return all%tiles == 0 && all/tiles <= mostSplits || all > tiles && all < tiles+tiles/4+16
	}
	return fits(divideUp(columns, a)*divideUp(rows, b)) || fits(divideUp(columns, b)*divideUp(rows, a))
}

// rowsOfHead returns of how many rows a kernel computes logits, 0 if its grid does not say.
func rowsOfHead(e *traces.Event, p *size, vocab int) int {
	for _, rows := range []int{p.rows, cmp.Or(p.batch, 1)} {
		if rows > 0 && (isTiled(e, rows, vocab) || isTiled(e, rows, 128*divideUp(vocab, 128))) {
			return rows
		}
	}
	return 0
}

// attentionBatch returns the sequences that a kernel of attention works on, of so many rows in all, by its grid; 0 if
// that is not known.
func (g *sizer) attentionBatch(e *traces.Event, rows int) int {
	n, heads := strings.ToLower(e.Name), 0
	if g.model != nil {
		heads = g.model.Config.Heads
	}
	switch {
	case strings.Contains(n, "fmha_cutlassf"):
		return int(e.Grid[2])
	case heads == 0:
	case strings.Contains(n, "sdpa_sm90_flash_fprop") && blocks(e)%heads == 0:
		const queries = 128 // of a block
		found := 0
		for batch := 1; batch <= rows; batch++ {
			if rows%batch == 0 && batch*divideUp(rows/batch, queries) == blocks(e)/heads {
				if found > 0 {
					return 0
				}
				found = batch
			}
		}
		return found
	case readName(e.Name).class == product && e.Grid[2] > 1 && int(e.Grid[2])%heads == 0:
		return int(e.Grid[2]) / heads // a product for each head
	}
	return 0
}

// mostVotes returns the number with the most votes, 0 if there is none; of equal ones, the lowest.
func mostVotes(votes map[int]int) int {
	best := 0
	for n, v := range votes {
		if n > 0 && (best == 0 || v > votes[best] || v == votes[best] && n < best) {
			best = n
		}
	}
	return best
}
