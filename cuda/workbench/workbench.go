// Package workbench checks and times the kernels of one stage of the model on a GPU, by themselves: it runs every
// kernel that the CUDA library has for the stage's operation on random numbers, compares the output with package
// reference, and times one launch among many in a graph.
//
// Launches take turns over as many copies of their data as it takes to find none of it in the L2 cache, so that times
// are those of data in memory.
package workbench

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"gpt2scope/ceilings"
	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/internal/stats"
)

// Options say which stage runs, and on what.
type Options struct {
	Config   gpt2.Config
	Stage    gpt2.Stage
	B, T     int          // sequences, and new tokens of each
	Past     int          // tokens in the KV cache before
	Sizes    gpt2.Sizes   // of a backend: weights, KV cache and activations of 4 bytes are float32, of 2 bfloat16
	Repeat   int          // replays of each graph; 0 is 20
	Ceilings ceilings.Set // what floors are made of; without it they are 0
}

func (o Options) check() error {
	switch err := o.Config.Check(); {
	case err != nil:
		return err
	case o.Stage >= gpt2.NumStages:
		return fmt.Errorf("there is no stage %d; there are %d", o.Stage, gpt2.NumStages)
	case o.B < 1 || o.T < 1 || o.Past < 0 || o.Repeat < 0:
		return fmt.Errorf("%d sequences of %d new tokens after %d, %d replays: "+
			"sequences and tokens must be positive, the others not negative", o.B, o.T, o.Past, o.Repeat)
	case o.Past+o.T > o.Config.Positions:
		return fmt.Errorf("%d tokens after %d are more than the context of %d holds", o.T, o.Past, o.Config.Positions)
	case o.Sizes.Weight != 4 && o.Sizes.Weight != 2:
		return fmt.Errorf("weights take %g bytes each; there are kernels for 4 (float32) and 2 (bfloat16)", o.Sizes.Weight)
	}
	return nil
}

// Report is what was found of a stage.
type Report struct {
	Copies    int     // of the data, which launches use in turn
	Tolerance float64 // the largest error of a right result, as a share of the largest value
	Kernels   []Result
}

// Result is what was found of a kernel with one choice of its parameters.
type Result struct {
	Variant    string
	Parameters string  // "" where it has none
	Note       string  // why it did not run; then nothing below is set
	Error      float64 // max |difference| / max |value|; infinite where an element is not a number
	Right      bool    // the error is within the tolerance

	Floor            time.Duration // the least time for the stage's bytes and FLOPs; 0 if unknown
	Median, P10, P90 time.Duration // of one launch
	GBS, TFLOPS      float64       // of the stage's least bytes and FLOPs, in the median
}

// Name names the kernel, with its parameters: "auto (heuristic)".
func (r Result) Name() string {
	if r.Parameters == "" {
		return r.Variant
	}
	return fmt.Sprintf("%s (%s)", r.Variant, r.Parameters)
}

// Share returns the floor as a share of the median.
func (r Result) Share() float64 { return float64(r.Floor) / float64(max(r.Median, 1)) }

// trial is one way to run a kernel.
type trial struct {
	parameters string
	before     func() error            // once, before the first launch
	launch     func(set int) error     // on one copy of the data
	check      func() (float64, error) // the error of copy 0, launched once
}

// trials are the ways to run a variant of an operation.
type trials func(variant int32, name string) []trial

// operations are what the stages compute. Each has a function, which makes its data and its check.
var operations = map[gpt2.Op]struct {
	op      cuda.Op
	prepare func(*bench) trials
}{
	gpt2.OpEmbed:      {cuda.OpEmbed, (*bench).embed},
	gpt2.OpLayerNorm:  {cuda.OpLayerNorm, (*bench).layerNorm},
	gpt2.OpLinear:     {cuda.OpLinear, (*bench).linear},
	gpt2.OpAttention:  {cuda.OpAttention, (*bench).attention},
	gpt2.OpActivation: {cuda.OpActivation, (*bench).activation},
	gpt2.OpAdd:        {cuda.OpAdd, (*bench).add},
	gpt2.OpSample:     {cuda.OpSample, (*bench).sample},
}

// bench holds the data of a stage. The first error of making it sticks in err.
type bench struct {
	*cuda.Bench
	Options
	lib       *cuda.Library
	dtype     cuda.DType // of Sizes
	sets      int        // copies of the data
	tolerance float64
	random    *rand.Rand
	err       error
}

// rows returns how many rows the stage's activations have.
func (b *bench) rows() int { return b.B * b.T }

// Run checks and times every variant of the stage's operation. An error is one of the options or of the device, or that
// no kernel runs at the shape; a wrong result is in the report.
func Run(ctx context.Context, lib *cuda.Library, dev *cuda.Device, o Options) (Report, error) {
	if err := o.check(); err != nil {
		return Report{}, err
	}
	stream, err := cuda.NewBench(dev)
	if err != nil {
		return Report{}, err
	}
	b := &bench{Bench: stream, Options: o, lib: lib, dtype: cuda.BF16, tolerance: 1e-2,
		random: rand.New(rand.NewPCG(5, 6))}
	r, err := b.run(ctx)
	return r, cmp.Or(err, b.Close())
}

func (b *bench) run(ctx context.Context) (Report, error) {
	if b.Sizes.Weight == 4 {
		b.dtype, b.tolerance = cuda.F32, 3e-5
	}
	if b.Stage == gpt2.StageSample {
		b.T = 1 // one row of a sequence
	}
	if b.Repeat == 0 {
		b.Repeat = 20
	}
	info := b.Stage.Info()
	cost := b.Stage.Cost(b.Config, b.B, b.T, b.Past)
	bytes := max(1, cost.Bytes(b.Sizes))
	free, _, err := b.Device.Memory()
	if err != nil {
		return Report{}, err
	}
	// Twice the cache, but at most 64 copies and a quarter of the free memory.
	b.sets = int(min(64, 1+2*int64(b.Device.Info().L2Bytes)/bytes, max(1, int64(free/4)/bytes)))
	operation := operations[info.Op]
	trials := operation.prepare(b)
	if b.err != nil {
		return Report{}, b.err
	}
	// No copy of the data is in a cache, as where a pass moves any number of bytes.
	work := ceilings.Work{FLOPs: cost.FLOPs, Type: b.Sizes.Type(info.Op), Bytes: cost.Bytes(b.Sizes)}
	floor, _ := b.Ceilings.Floor(work, math.MaxInt64)
	report := Report{Copies: b.sets, Tolerance: b.tolerance}
	ran := false
	for variant, name := range b.lib.Variants(operation.op) {
		for _, t := range trials(int32(variant), name) {
			if ctx.Err() != nil {
				return report, context.Cause(ctx)
			}
			r, times, err := b.try(t)
			r.Variant, r.Parameters = name, t.parameters
			if err != nil {
				return report, fmt.Errorf("variant %s: %w", r.Name(), err)
			}
			if times != nil {
				ran = true
				r.Floor = time.Duration(floor.Time)
				r.Median, r.P10, r.P90 = stats.Quantile(times, 0.5), stats.Quantile(times, 0.1), stats.Quantile(times, 0.9)
				seconds := max(r.Median, 1).Seconds()
				r.GBS, r.TFLOPS = float64(bytes)/seconds/1e9, float64(cost.FLOPs)/seconds/1e12
			}
			report.Kernels = append(report.Kernels, r)
		}
	}
	if !ran {
		return report, fmt.Errorf("no kernel of %s runs at this shape: %s", info.Name, report.Kernels[0].Note)
	}
	return report, nil
}

// try runs a trial: the result of its check, and sorted times of a launch. A launch that is refused gives a note and no
// times.
func (b *bench) try(t trial) (r Result, times []time.Duration, err error) {
	if err := t.before(); err != nil {
		return Result{Note: err.Error()}, nil, nil
	}
	if err := t.launch(0); err != nil {
		return Result{Note: err.Error()}, nil, nil
	}
	if err := b.Stream.Synchronize(); err != nil {
		return r, nil, err
	}
	if r.Error, err = t.check(); err != nil {
		return r, nil, err
	}
	r.Right = r.Error <= b.tolerance
	times, err = b.TimeGraph(b.Repeat, max(b.sets, 16), func(i int) error { return t.launch(i % b.sets) })
	return r, times, err
}
