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
