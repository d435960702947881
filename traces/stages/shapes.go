package stages

import (
	"encoding/json"

	"gpt2scope/traces"
)

// shapesOf parses the shapes of an operator's inputs: "[[1,128,768],[]]". An input that is a list of tensors has no
// shape here.
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

// readShapes reads the shapes of the operators that launched the kernels, if the recording has any: sizes of the model
// by the most votes, and those of the passes.
func (g *sizer) readShapes() (m modelShapes) {
	width, heads, inner, vocab := map[int]int{}, map[int]int{}, map[int]int{}, map[int]int{}
	seen := map[uint64]bool{}
	for i, e := range g.events {
		if g.pass[i] < 0 {
			continue
		}
		p, s := &g.passes[g.pass[i]], stageOf[g.states[i]]
		for id, depth := e.Parent, 0; depth < 8; depth++ {
			op := g.index.Range(id)
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
			case "aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention",
				"aten::_scaled_dot_product_efficient_attention", "aten::_scaled_dot_product_cudnn_attention":
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
