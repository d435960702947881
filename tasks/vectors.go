package tasks

import "fmt"

// This file has what the tasks over one-dimensional arrays share.

// lengths returns the shapes n = least, 2 least, ... up to most.
func lengths(least, most int) []Shape {
	var out []Shape
	for n := least; n <= most; n *= 2 {
		out = append(out, Shape{{"n", n}})
	}
	return out
}

// upTo is of ways that are too slow for more than n values.
func upTo(n int) func(Shape) bool { return func(s Shape) bool { return s.Get("n") <= n } }

// length returns n of a shape that has nothing else.
func length(s Shape) (float64, error) {
	if n := s.Get("n"); len(s) == 1 && n >= 1 && n < 1<<31 {
		return float64(n), nil
	}
	return 0, fmt.Errorf("shape %s: expected n=N, from 1 to 2^31 - 1", s)
}

// vectors is the layout of tasks of so many inputs of n values, and a result of n.
func vectors(inputs int) func(Shape, string) ([]Array, Array) {
	return func(s Shape, _ string) (in []Array, out Array) {
		out = Array{s.Get("n"), Float32}
		for range inputs {
			in = append(in, out)
		}
		return in, out
	}
}

// The blocks of the tuned kernels in kernels.cu.
const (
	blockThreads = 256
	blockValues  = 4096
)

// The most values that one thread of a GPU, and one block, get: some 50 ns a value.
const (
	mostOfThread = 1 << 17
	mostOfBlock  = 1 << 22
)

func abs(x float64) float64 { return max(x, -x) }
