package learn

import (
	_ "embed"
	"math"

	"gpt2scope/cuda"
)

//go:embed spin.cu
var spinText string

// spinSource has the kernel of a length that is given.
var spinSource = Source{"spin.cu", spinText}

// spin returns a function that queues a kernel of one block that takes so many microseconds at the highest clock.
func (g *gpu) spin() func(us float64) error {
	kernel := g.kernels(spinSource, "spin")[0]
	perUs := math.Max(1, float64(g.Device.Info().ClockKHz)/1e3)
	return func(us float64) error {
		cycles := int64(us * perUs)
		return kernel.Launch(g.Stream, cuda.Launch{}, cycles, int32(min(cycles/2+1, math.MaxInt32))) // a step takes more than two cycles
	}
}
