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

// Penalize returns the logits (V) with a repetition penalty: the logit of each token of the text is divided by it if it
// is positive, and multiplied if not.
//
// Source: Keskar et al., "CTRL" (2019), equation 2 of section 4.1, with the sign as in transformers'
// RepetitionPenaltyLogitsProcessor and llama.cpp's penalties sampler.
func Penalize[F Float](logits []F, text []int32, penalty float64) []float64 {
	y := make([]float64, len(logits))
	for i, v := range logits {
		switch y[i] = float64(v); {
		case !slices.Contains(text, int32(i)):
		case v > 0:
			y[i] /= penalty
		default:
			y[i] *= penalty
		}
	}
	return y
}

// MinP returns a distribution (V) without the tokens whose probability is less than min times the largest.
//
// Source: Nguyen et al., "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs" (2024);
// transformers' MinPLogitsWarper.
func MinP(p []float64, min float64) []float64 {
	y := make([]float64, len(p))
	largest, total := slices.Max(p), 0.0
	for i, v := range p {
		if v >= min*largest {
			y[i] = v
			total += v
		}
	}
	for i := range y {
		y[i] /= total
	}
	return y
}
