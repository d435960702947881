package reference

import "math"

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
