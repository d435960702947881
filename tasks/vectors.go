package tasks

import (
	"fmt"
	"math"

	"gpt2scope/cpu"
	"gpt2scope/cuda"
)

// This file has what the tasks over one-dimensional arrays share.

// lengths returns the shapes n = least, 2 least, ... up to most.
func lengths(least, most int) []Shape {
	var out []Shape
	for n := least; n <= most; n *= 2 {
		out = append(out, vector(n))
	}
	return out
}

func vector(n int) Shape { return Shape{{"n", n}} }

// length returns n of a shape that has nothing else.
func length(s Shape) (float64, error) {
	if n := s.Get("n"); len(s) == 1 && n >= 1 && n < 1<<31 {
		return float64(n), nil
	}
	return 0, fmt.Errorf("shape %s: expected n=N, from 1 to 2^31 - 1", s)
}

// scalar is a way by a loop in Go.
func scalar(loop func(in []View, out View)) Way {
	return Way{Device: CPU, Variant: "scalar", Most: func(s Shape) bool { return s.Get("n") <= 1<<24 },
		CPU: func(_ *cpu.Team, _ Shape, in []View, out View) (run, end func() error, err error) {
			return func() error {
				loop(in, out)
				return nil
			}, nil, nil
		}}
}

// The blocks of the tuned kernels in kernels.cu.
const (
	blockThreads = 256
	blockValues  = 4096
)

// tuned launches a kernel of kernels.cu over n values in blocks.
func tuned(kernel string) GPUWay { return launchOf(kernel, blockThreads, blockValues) }

// oneThread is the plain way by one thread of a GPU, which takes some 50 ns a value.
func oneThread(kernel string) Way {
	return Way{Device: GPU, Variant: "one-thread", Most: func(s Shape) bool { return s.Get("n") <= 1<<17 },
		GPU: launchOf(kernel, 1, math.MaxInt)}
}

// launchOf launches a kernel with blocks of threads for so many values each.
func launchOf(kernel string, threads, perBlock int) GPUWay {
	return func(g *GPUDevice, s Shape, in []cuda.Ptr, out cuda.Ptr, _ string) (Launch, func() error, error) {
		f, err := g.Function(kernel)
		n := s.Get("n")
		l := cuda.Launch{Grid: cuda.Dim{X: 1 + (n-1)/perBlock}, Block: cuda.Dim{X: threads}}
		with := arguments(s, in, out)
		return func(s *cuda.Stream) error { return f.Launch(s, l, with...) }, nil, err
	}
}

// arguments are those of a kernel: its result, its inputs, and their sizes.
func arguments(s Shape, in []cuda.Ptr, out cuda.Ptr) []any {
	all := []any{out}
	for _, p := range in {
		all = append(all, p)
	}
	if s.Get("m") > 0 {
		return append(all, int32(s.Get("m")), int32(s.Get("n")), int32(s.Get("k")))
	}
	return append(all, int64(s.Get("n")))
}

func abs(x float64) float64 { return max(x, -x) }
