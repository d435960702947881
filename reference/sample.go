package reference

import (
	"cmp"
	"slices"
)

// Greedy returns the index of the largest logit, the lowest among equals. Logits are finite or -Inf.
func Greedy[F Float](logits []F) int {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return best
}

// Distribution returns the probability with which each token of the vocabulary (V) is drawn; 0 for one that top-k or
// top-p cuts off. Logits are divided by the temperature; then the topK largest are kept (0 keeps all), the lower ids
// among equals; of these, the fewest whose probabilities sum to at least topP (0 and 1 keep all). A temperature of 0 is
// greedy.
//
// Source: Fan et al., "Hierarchical Neural Story Generation" (2018) for top-k, Holtzman et al., "The Curious Case of
// Neural Text Degeneration" (2019) for top-p; transformers' generation/logits_process.py for the order. Its
// TopKLogitsWarper keeps every token that equals the k-th.
func Distribution[F Float](logits []F, temperature float64, topK int, topP float64) []float64 {
	p := make([]float64, len(logits))
	if temperature == 0 {
		p[Greedy(logits)] = 1
		return p
	}
	order := make([]int, len(logits)) // by falling logit, then by rising id
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
	if topK > 0 {
		order = order[:min(topK, len(order))]
	}
	scaled := make([]float64, len(order))
	for i, id := range order {
		scaled[i] = float64(logits[id]) / temperature
	}
	kept, total := Softmax(scaled), 1.0
	if topP > 0 && topP < 1 {
		sum := 0.0
		for i, x := range kept {
			if sum += x; sum >= topP {
				kept, total = kept[:i+1], sum
				break
			}
		}
	}
	for i, x := range kept {
		p[order[i]] = x / total
	}
	return p
}
