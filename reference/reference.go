// Package reference holds each operation of GPT-2 in plain float64: what "right" means for every kernel. Each function
// is its formula written out, with its shapes and its source; none is fast.
//
// Inputs are float32 or float64 and are widened before any arithmetic, so that a result is exact to about 1e-15 of the
// terms that it sums. Shape letters are those of the whole project: B batch, T tokens, C channels, NH heads, HS head
// size, V vocabulary; a matrix (K, N) has K inputs and N outputs, row-major.
//
// Functions do not check shapes: a slice that is too short panics. NaN and infinity follow IEEE 754, so that a damaged
// input shows in the output.
//
// The model is that of Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), as transformers'
// models/gpt2/modeling_gpt2.py computes it.
package reference

import "math"

// Float is a type of inputs.
type Float interface{ ~float32 | ~float64 }

// Rows returns n rows of width elements that begin stride elements apart in x. They share memory with x. A head h of a
// matrix (T, C) is Rows(x[h*HS:], T, C, HS).
func Rows[F Float](x []F, n, stride, width int) [][]F {
	rows := make([][]F, n)
	for i := range rows {
		rows[i] = x[i*stride:][:width]
	}
	return rows
}

// Embed returns wte[id] + wpe[position], (C): the residual stream of a token before the first layer. wte is (V, C), wpe
// (positions, C).
//
// Source: modeling_gpt2.py, GPT2Model.forward.
func Embed[F Float](wte, wpe []F, id, position, C int) []float64 {
	return Add(wte[id*C:][:C], wpe[position*C:][:C])
}

// Add returns x + z, element by element: the residual addition.
//
// Source: modeling_gpt2.py, GPT2Block.forward.
func Add[F Float](x, z []F) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v) + float64(z[i])
	}
	return y
}

// GELUTanh is the GELU that GPT-2 was trained with,
//
//	x/2 (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3)
//
// written as x / (1 + exp(-2u)), which is the same number and does not cancel where tanh u is near -1.
//
// Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), section 2; transformers' activations.py,
// NewGELUActivation ("gelu_new").
func GELUTanh(x float64) float64 {
	return x / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}

// GELUErf is the GELU by its definition, x P(X <= x) of a standard normal X,
//
//	x/2 (1 + erf(x / sqrt 2))
//
// written with erfc, which does not cancel where erf is near -1.
//
// Source: Hendrycks and Gimpel (2016), section 2; activations.py, GELUActivation ("gelu").
func GELUErf(x float64) float64 { return x / 2 * math.Erfc(-x/math.Sqrt2) }

// ReLU is max(x, 0); NaN stays NaN.
func ReLU(x float64) float64 { return math.Max(x, 0) }

// SiLU is x / (1 + exp(-x)), also called swish.
//
// Source: Hendrycks and Gimpel (2016), section 2; torch.nn.SiLU.
func SiLU(x float64) float64 { return x / (1 + math.Exp(-x)) }

// QuickGELU is x / (1 + exp(-1.702 x)).
//
// Source: Hendrycks and Gimpel (2016), section 2; activations.py, QuickGELUActivation ("quick_gelu").
func QuickGELU(x float64) float64 { return x / (1 + math.Exp(-1.702*x)) }

// LayerNorm returns, for one row x (C),
//
//	(x - mean) / sqrt(variance + eps) * gain + bias
//
// where mean and variance are those of the row; the variance divides by C, not C-1.
//
// Source: Ba et al., "Layer Normalization" (2016), equations 3 and 4; torch.nn.LayerNorm.
func LayerNorm[F Float](x, gain, bias []F, eps float64) []float64 {
	C, mean, variance := float64(len(x)), 0.0, 0.0
	for _, v := range x {
		mean += float64(v) / C
	}
	for _, v := range x {
		variance += (float64(v) - mean) * (float64(v) - mean) / C
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = (float64(v)-mean)/math.Sqrt(variance+eps)*float64(gain[i]) + float64(bias[i])
	}
	return y
}

// Dot returns the sum of x[k] w[k].
func Dot[X, W Float](x []X, w []W) float64 {
	sum := 0.0
	for k, v := range x {
		sum += float64(v) * float64(w[k])
	}
	return sum
}

// Linear returns x W + b, (N): x is (K), w (K, N), and bias (N), or nil for none.
//
// Source: transformers' pytorch_utils.py, Conv1D, which GPT-2's layers are made of.
func Linear[F Float](x, w, bias []F) []float64 {
	y := make([]float64, len(w)/len(x))
	for n := range bias {
		y[n] = float64(bias[n])
	}
	for k, v := range x {
		for n, u := range w[k*len(y):][:len(y)] {
			y[n] += float64(v) * float64(u)
		}
	}
	return y
}

// LinearTransposed returns x W^T + b, (N), where w is (N, K): one row for each output, the layout of lm_head (the token
// embedding) and of matrices on a GPU.
//
// Source: torch.nn.Linear; modeling_gpt2.py, GPT2LMHeadModel.lm_head.
func LinearTransposed[F Float](x, w, bias []F) []float64 {
	y := make([]float64, len(w)/len(x))
	for n := range y {
		y[n] = Dot(x, w[n*len(x):][:len(x)])
		if bias != nil {
			y[n] += float64(bias[n])
		}
	}
	return y
}

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
