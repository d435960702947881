package reference

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
