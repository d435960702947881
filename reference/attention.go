package reference

import "math"

// Softmax returns exp(x) / sum(exp(x)). The largest value is subtracted first, so that no exponential overflows; the
// result is the same.
func Softmax[F Float](x []F) []float64 {
	largest, sum := math.Inf(-1), 0.0
	for _, v := range x {
		largest = math.Max(largest, float64(v)) // NaN stays NaN
	}
	p := make([]float64, len(x))
	for i, v := range x {
		p[i] = math.Exp(float64(v) - largest)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// Attention returns, for one head of one sequence,
//
//	softmax(mask(scale q k^T)) v, (Q, HS)
//
// q (Q, HS) are the queries of the last Q of S positions; k and v (S, HS) are the keys and values of all S, those of
// earlier passes first. The mask is causal: the query at position i sees the keys at 0 to i and no others.
//
// Source: Vaswani et al., "Attention Is All You Need" (2017), equation 1 and section 3.2.3; modeling_gpt2.py,
// eager_attention_forward.
func Attention[F Float](q, k, v [][]F, scale float64) [][]float64 {
	y := make([][]float64, len(q))
	for i := range q {
		scores := make([]float64, len(k)-len(q)+i+1)
		for j := range scores {
			scores[j] = scale * Dot(q[i], k[j])
		}
		y[i] = make([]float64, len(q[i]))
		for j, p := range Softmax(scores) {
			for d, x := range v[j] {
				y[i][d] += p * float64(x)
			}
		}
	}
	return y
}
