package tasks

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Bench measures the cases of a suite on a machine.
type Bench struct {
	Machine *Machine
	Suite   Suite
}

// warmUps is how often a case runs before its repeats.
const warmUps = 2

// Turn measures the cases of a turn, one repeat of each after another in random order. The
// results of all runs, also of those for warm-up, are checked.
func (b *Bench) Turn(ctx context.Context, t Turn) (samples []Sample, err error) {
	inputs, err := t.Task.Open(ctx, b.Machine, t.Shape, t.DType)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Key(), err)
	}
	defer inputs.Close()
	cost, err := t.Task.Cost(t.Shape, t.DType)
	if err != nil {
		return nil, err
	}
	cases := b.Suite.Cases(t)
	ready := make([]Ready, len(cases))
	for i, c := range cases {
		r, err := inputs.Prepare(ctx, c.Way, c.Device, c.Memory)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c, err)
		}
		defer r.Close()
		ready[i] = r
	}
	random := rand.New(rand.NewPCG(b.Suite.Seed, uint64(t.From)))
	for n := t.From - warmUps; n <= t.To; n++ {
		for _, i := range random.Perm(len(cases)) {
			times, err := ready[i].Run(ctx)
			if err == nil {
				err = ready[i].Check(ctx)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", cases[i], err)
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if n >= t.From {
				samples = append(samples, b.sample(cases[i], cost, n, times))
			}
		}
	}
	return samples, nil
}

// sample makes the row of a repeat.
func (b *Bench) sample(c Case, cost Cost, repeat int, t Times) Sample {
	d := b.Machine.device(c.Device)
	s := Sample{
		Machine: b.Machine.Name, Task: c.Task.Name, Shape: c.Shape.String(), DType: c.DType, Device: c.Device, Variant: c.Way.Variant, Memory: c.Memory, Start: c.Start, Repeat: repeat,
		SubmitUs: t.Submit, H2DUs: t.H2D, KernelUs: t.Kernel, D2HUs: t.D2H, WallUs: t.Wall,
		FLOPs: cost.FLOPs, Bytes: cost.Bytes, Steps: cost.Steps, Rows: cost.Rows, FloorUs: cost.FloorUs(d.Ceilings),
		SMClockMHz: math.NaN(), Load: math.NaN(), MachineKey: d.Key, Time: time.Now().UTC(),
	}
	if c.Memory == MemoryPageable || c.Memory == MemoryPinned {
		s.BytesIn, s.BytesOut = cost.In, cost.Out
	}
	return s
}
