package reference

import "math"

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
