package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/ceilings"
	"gpt2scope/cuda"
	cudaexec "gpt2scope/cuda/exec"
	"gpt2scope/gpt2"
	"gpt2scope/internal/stats"
)

// newBenchKernel makes "infer bench kernel".
func newBenchKernel(m *modelFlags) *cobra.Command {
	var b benchFlags
	c := &cobra.Command{
		Use:   "kernel STAGE",
		Short: "Check and time every kernel of a stage on a GPU",
		Long: `kernel runs one stage by itself, on random numbers, with every kernel that the CUDA
library has for it: it compares the output with float64 arithmetic of its own, sweeps
the parameters that the kernel has (splits of the keys for attention, algorithms for
products by cuBLASLt), and prints the time of one launch among many in a graph, GB/s
and TFLOP/s of the least bytes and FLOPs, and the share of the floor. Launches take
turns over as many copies of their data as it takes to find none of it in the cache.
STAGE is a name within its layer, such as attn.sdpa, attn.c_attn, mlp.gelu, ln_1 or
lm_head.`,
		Example: `  infer bench kernel attn.sdpa -m random:gpt2 --past 512
  infer bench kernel mlp.c_fc -m random:gpt2-xl --phase prefill --prompt-len 1024
  infer bench kernel sample -m random:gpt2 --dtype f32`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("name one stage, such as '%s attn.sdpa'", c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return b.runKernel(c.Context(), m, args[0], c.Flags(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	addFlags(c.Flags(), "Measurement", func(f *pflag.FlagSet) {
		b.register(f)
		f.IntVar(&b.repeat, "repeat", 20, "replay each graph `N` times")
	})
	addFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.BoolVar(&b.json, "json", false, "print one JSON object")
	})
	c.Flags().BoolP("help", "h", false, "print this help")
	return c
}

func (b *benchFlags) runKernel(ctx context.Context, m *modelFlags, name string, flags *pflag.FlagSet, stdout, stderr io.Writer) error {
	if err := b.check(flags); err != nil {
		return err
	}
	var stage gpt2.Stage
	var names []string
	for stage = 0; stage < gpt2.NumStages && stage.Info().Name != name; stage++ {
		names = append(names, stage.Info().Name)
	}
	if stage == gpt2.NumStages {
		return usagef("there is no stage %s; stages are %s", shellQuote(name), strings.Join(names, ", "))
	}
	o, err := m.open()
	if err != nil {
		return err
	}
	defer o.close()
	backend, ok := o.backend.(*cudaexec.Backend)
	if !ok {
		return errors.New("'infer bench kernel' measures a GPU's kernels, and this is the CPU; use --device cuda, which says what is missing")
	}
	phase, past, err := b.pass(flags, o.options.Context)
	if err != nil {
		return err
	}
	device, err := measureDevice(ctx, backend, 0, m, stderr)
	if err != nil {
		return err
	}
	w, err := newWorkbench(backend, o.model.Config, stage, phase, past)
	if err != nil {
		return err
	}
	w.repeat = b.repeat
	results, err := w.run(ctx, device)
	if err := cmp.Or(err, w.Close()); err != nil {
		return err
	}
	title := fmt.Sprintf("%s of %s, B=%d T=%d, %s in the cache, %s", name, o.model.Name, phase.Batch, phase.Tokens, count(past, "token"), typeName(backend))
	if b.json {
		err = writeJSON(stdout, map[string]any{"stage": name, "model": o.model.Name, "batch": phase.Batch, "tokens": phase.Tokens, "past": past,
			"dtype": typeName(backend), "device": device, "copies": w.sets, "kernels": results})
	} else {
		var out bytes.Buffer
		fmt.Fprintf(&out, "%s\n%s\n%s to take turns over\n\n", title, device, count(w.sets, "copy of the data"))
		t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "variant\tparameters\terror\tfloor us\tmedian us\tp10 - p90\tGB/s\tTFLOP/s\t% of floor\t")
		for _, r := range results {
			if r.Note != "" {
				fmt.Fprintf(t, "%s\t%s\t%s\t\t\t\t\t\t\t\n", r.Variant, r.Parameters, r.Note)
				continue
			}
			verdict := ""
			if !r.Right {
				verdict = " WRONG"
			}
			fmt.Fprintf(t, "%s\t%s\t%.1e%s\t%.2f\t%.2f\t%.2f - %.2f\t%.0f\t%.2f\t%.0f\t\n", r.Variant, r.Parameters, r.Error, verdict,
				r.Floor, r.Median, r.P10, r.P90, r.GBS, r.TFLOPS, 100*r.Share)
		}
		t.Flush()
		err = writeOutput(stdout, out.Bytes())
	}
	for _, r := range results {
		if r.Note == "" && !r.Right {
			return fmt.Errorf("%s with variant %s (%s) is off by %.1e of the largest value; %.0e is allowed", name, r.Variant, r.Parameters, r.Error, w.tolerance)
		}
	}
	return err
}

// kernelResult is what was found of a kernel with one choice of its parameters.
type kernelResult struct {
	Variant    string  `json:"variant"`
	Parameters string  `json:"parameters,omitempty"`
	Note       string  `json:"note,omitempty"` // why it was not run
	Error      number  `json:"error"`          // max |difference| / max |value|
	Right      bool    `json:"right"`
	Floor      float64 `json:"floor_us"`
	Median     float64 `json:"median_us"`
	P10        float64 `json:"p10_us"`
	P90        float64 `json:"p90_us"`
	GBS        float64 `json:"gb_per_s"`
	TFLOPS     float64 `json:"tflop_per_s"`
	Share      float64 `json:"share_of_floor"`
}

// trial is one way to run the stage.
type trial struct {
	parameters string
	before     func() error            // once, before the first launch; may be nil
	launch     func(set int) error     // on one copy of the data
	check      func() (float64, error) // compares copy 0, launched once, with the formula
}

// workbench holds the data of a stage.
type workbench struct {
	*cuda.Bench
	lib          *cuda.Library
	config       gpt2.Config
	stage        gpt2.Stage
	B, T, past   int
	dtype        cuda.DType
	sizes        gpt2.Sizes
	sets, repeat int
	tolerance    float64
	random       *rand.Rand
}

func newWorkbench(b *cudaexec.Backend, c gpt2.Config, stage gpt2.Stage, phase gpt2.Phase, past int) (*workbench, error) {
	bench, err := cuda.NewBench(b.Device())
	if err != nil {
		return nil, err
	}
	w := &workbench{Bench: bench, lib: b.Library(), config: c, stage: stage, B: phase.Batch, T: phase.Tokens, past: past, sizes: b.Sizes(),
		dtype: cuda.BF16, tolerance: 1e-2, random: rand.New(rand.NewPCG(5, 6))}
	if w.sizes.Weight == 4 {
		w.dtype, w.tolerance = cuda.F32, 3e-5
	}
	if w.rows() > 1 && stage == gpt2.StageSample {
		w.T = 1 // it takes one row of a sequence
	}
	// Copies until they are twice the cache, but not more than 64 or a quarter of the memory.
	bytes := max(1, stage.Info().Cost(c, w.B, w.T, past).Bytes(w.sizes))
	free, _, err := b.Device().Memory()
	if err != nil {
		return nil, cmp.Or(err, bench.Close())
	}
	w.sets = int(min(64, 1+2*int64(b.Device().Info().L2Bytes)/bytes, max(1, int64(free/4)/bytes)))
	return w, nil
}

func (w *workbench) rows() int { return w.B * w.T }

// run runs every variant of the stage's operation.
func (w *workbench) run(ctx context.Context, device *benchDevice) ([]kernelResult, error) {
	op := map[gpt2.Op]cuda.Op{gpt2.OpEmbed: cuda.OpEmbed, gpt2.OpLayerNorm: cuda.OpLayerNorm, gpt2.OpLinear: cuda.OpLinear, gpt2.OpAttention: cuda.OpAttention,
		gpt2.OpActivation: cuda.OpActivation, gpt2.OpAdd: cuda.OpAdd, gpt2.OpSample: cuda.OpSample}[w.stage.Info().Op]
	trials, err := map[gpt2.Op]func() (func(variant int32, name string) []trial, error){
		gpt2.OpEmbed: w.embed, gpt2.OpLayerNorm: w.norm, gpt2.OpLinear: w.linear, gpt2.OpAttention: w.attention,
		gpt2.OpActivation: w.activation, gpt2.OpAdd: w.add, gpt2.OpSample: w.sample,
	}[w.stage.Info().Op]()
	if err != nil {
		return nil, err
	}
	cost := w.stage.Info().Cost(w.config, w.B, w.T, w.past)
	work := ceilings.Work{FLOPs: cost.FLOPs, Type: w.sizes.Type(w.stage.Info().Op), Bytes: cost.Bytes(w.sizes)} // no copy of the data is in a cache
	f, _ := device.set.Floor(work, math.MaxInt64)
	floor := time.Duration(f.Time)
	var results []kernelResult
	ran := false
	for variant, name := range w.lib.Variants(op) {
		for _, t := range trials(int32(variant), name) {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			r := kernelResult{Variant: name, Parameters: t.parameters, Floor: float64(floor) / 1e3}
			if t.before != nil {
				err = t.before()
			}
			if err == nil {
				err = t.launch(0)
			}
			if err != nil { // there is no such kernel for this shape
				r.Note, err = err.Error(), nil
				results = append(results, r)
				continue
			}
			if err := w.Stream.Synchronize(); err != nil {
				return nil, fmt.Errorf("variant %s (%s): %w", name, t.parameters, err)
			}
			off, err := t.check()
			if err != nil {
				return nil, err
			}
			r.Error, r.Right = number(off), off <= w.tolerance
			n := max(w.sets, 16)
			times, err := w.TimeGraph(w.repeat, n, func(i int) error { return t.launch(i % w.sets) })
			if err != nil {
				return nil, fmt.Errorf("variant %s (%s): %w", name, t.parameters, err)
			}
			at := func(q float64) time.Duration { return stats.Quantile(times, q) }
			r.Median, r.P10, r.P90 = float64(at(0.5))/1e3, float64(at(0.1))/1e3, float64(at(0.9))/1e3
			r.GBS, r.TFLOPS = perSecond(float64(cost.Bytes(w.sizes)), at(0.5))/1e9, perSecond(float64(cost.FLOPs), at(0.5))/1e12
			r.Share = share(floor, at(0.5))
			results = append(results, r)
			ran = true
		}
	}
	if !ran {
		return nil, fmt.Errorf("no kernel of %s runs at this shape: %s", w.stage.Info().Name, results[0].Note)
	}
	return results, nil
}

// array is an array of random numbers, in several copies on the device, and as
// the device sees them on the host.
type array struct {
	host   []float32 // what copy 0 held first
	copies []*cuda.Buffer
	dtype  cuda.DType
}

// ptr returns the address of a copy; an array may have fewer than there are sets.
func (a *array) ptr(set int) cuda.Ptr { return a.copies[set%len(a.copies)].Ptr() }

// array makes one with numbers from -scale to scale.
func (w *workbench) array(n int, t cuda.DType, sets int, scale float32) (*array, error) {
	x := make([]float32, n)
	for i := range x {
		x[i] = scale * (2*w.random.Float32() - 1)
	}
	data := cuda.Encode(x, t)
	a := &array{host: cuda.Decode(data, t), dtype: t}
	for range sets {
		p, err := w.Alloc(int64(len(data)))
		if err != nil {
			return nil, err
		}
		if len(a.copies) == 0 {
			err = p.Write(0, data)
		} else {
			err = w.Stream.CopyOnDevice(p, 0, a.copies[0], 0, int64(len(data)))
		}
		if err != nil {
			return nil, err
		}
		a.copies = append(a.copies, p)
	}
	return a, w.Stream.Synchronize()
}

// output makes an array to be written, full of NaN.
func (w *workbench) output(n int, t cuda.DType) (*array, error) {
	a := &array{dtype: t}
	for range w.sets {
		p, err := w.Alloc(int64(n * t.Size()))
		if err != nil {
			return nil, err
		}
		a.copies = append(a.copies, p)
	}
	return a, w.poison(a)
}

// poison fills copy 0 with NaN.
func (w *workbench) poison(a *array) error {
	return cmp.Or(w.Stream.Set(a.copies[0], 0, 0xff, a.copies[0].Size()), w.Stream.Synchronize())
}

// restore writes into copy 0 what it held first.
func (a *array) restore() error { return a.copies[0].Write(0, cuda.Encode(a.host, a.dtype)) }

// read returns n elements of copy 0, from an element on.
func (a *array) read(from, n int) ([]float32, error) {
	data := make([]byte, n*a.dtype.Size())
	if err := a.copies[0].Read(int64(from*a.dtype.Size()), data); err != nil {
		return nil, err
	}
	return cuda.Decode(data, a.dtype), nil
}

// ints makes an array of int32.
func (w *workbench) ints(x []int32) (*cuda.Buffer, error) {
	p, err := w.Alloc(int64(4 * len(x)))
	if err != nil {
		return nil, err
	}
	data, err := binary.Append(nil, binary.LittleEndian, x)
	return p, cmp.Or(err, p.Write(0, data))
}

// some returns at most most rows of n, the first and the last among them.
func some(n, most int) []int {
	var rows []int
	for i := range min(n, most) {
		rows = append(rows, i*(n-1)/max(1, min(n, most)-1))
	}
	return rows
}

// compare checks some rows of an output (rows, width) of copy 0: want gives a
// row by the formula. It returns max |difference| / max |value|, infinite where
// something is not a number.
func (w *workbench) compare(y *array, rows, width, ld int, want func(row int) []float64) (float64, error) {
	off, peak := 0.0, 0.0
	for _, row := range some(rows, 8) {
		got, err := y.read(row*ld, width)
		if err != nil {
			return 0, err
		}
		for i, v := range want(row) {
			d := math.Abs(float64(got[i]) - v)
			if math.IsNaN(d) {
				return math.Inf(1), nil
			}
			off, peak = max(off, d), max(peak, math.Abs(v))
		}
	}
	return off / peak, nil
}

// one makes the trials of an operation without parameters.
func one(before func() error, launch func(variant int32, set int) error, check func() (float64, error)) func(int32, string) []trial {
	return func(variant int32, _ string) []trial {
		return []trial{{before: before, launch: func(set int) error { return launch(variant, set) }, check: check}}
	}
}

// gather keeps the first error of several steps that give a value.
type gather struct{ err error }

func get[T any](g *gather, f func() (T, error)) T {
	var v T
	if g.err == nil {
		v, g.err = f()
	}
	return v
}

func (w *workbench) embed() (func(int32, string) []trial, error) {
	c, g := w.config, gather{}
	wte := get(&g, func() (*array, error) { return w.array(c.Vocab*c.Channels, w.dtype, 1, 1) })
	wpe := get(&g, func() (*array, error) { return w.array(c.Positions*c.Channels, w.dtype, 1, 1) })
	x := get(&g, func() (*array, error) { return w.output(w.rows()*c.Channels, cuda.F32) })
	ids, pos := make([]int32, w.rows()), make([]int32, w.B)
	for i := range ids {
		ids[i] = int32(w.random.IntN(c.Vocab))
	}
	for i := range pos {
		pos[i] = int32(w.past)
	}
	idsAt := get(&g, func() (*cuda.Buffer, error) { return w.ints(ids) })
	posAt := get(&g, func() (*cuda.Buffer, error) { return w.ints(pos) })
	if g.err != nil {
		return nil, g.err
	}
	return one(func() error { return w.poison(x) }, func(_ int32, set int) error {
		return w.Stream.Embed(cuda.EmbedArgs{DType: w.dtype, IDs: idsAt.Ptr(), Pos: posAt.Ptr(), WTE: wte.ptr(0), WPE: wpe.ptr(0), X: x.ptr(set),
			B: int32(w.B), T: int32(w.T), C: int32(c.Channels), P: int32(c.Positions)})
	}, func() (float64, error) {
		return w.compare(x, w.rows(), c.Channels, c.Channels, func(row int) []float64 {
			y := make([]float64, c.Channels)
			for i := range y {
				y[i] = float64(wte.host[int(ids[row])*c.Channels+i]) + float64(wpe.host[(w.past+row%w.T)*c.Channels+i])
			}
			return y
		})
	}), nil
}

func (w *workbench) norm() (func(int32, string) []trial, error) {
	M, C, g := w.rows(), w.config.Channels, gather{}
	x := get(&g, func() (*array, error) { return w.array(M*C, cuda.F32, w.sets, 2) })
	gain := get(&g, func() (*array, error) { return w.array(C, cuda.F32, 1, 1) })
	bias := get(&g, func() (*array, error) { return w.array(C, cuda.F32, 1, 1) })
	y := get(&g, func() (*array, error) { return w.output(M*C, w.dtype) })
	if g.err != nil {
		return nil, g.err
	}
	d, eps := int32(C), w.config.Epsilon
	return one(func() error { return w.poison(y) }, func(variant int32, set int) error {
		return w.Stream.LayerNorm(cuda.LayerNormArgs{Variant: variant, X: x.ptr(set), Gain: gain.ptr(0), Bias: bias.ptr(0), Y: y.ptr(set),
			M: int32(M), C: d, LDX: d, LDY: d, YType: w.dtype, Eps: float32(eps)})
	}, func() (float64, error) {
		return w.compare(y, M, C, C, func(row int) []float64 {
			mean, variance, out := 0.0, 0.0, make([]float64, C)
			for i := range out {
				out[i] = float64(x.host[row*C+i])
				mean += out[i] / float64(C)
			}
			for _, v := range out {
				variance += (v - mean) * (v - mean) / float64(C)
			}
			for i, v := range out {
				out[i] = (v-mean)/math.Sqrt(variance+eps)*float64(gain.host[i]) + float64(bias.host[i])
			}
			return out
		})
	}), nil
}

// linear: alone, with its bias; cuBLASLt's with the heuristic's algorithm and with
// the fastest of many.
func (w *workbench) linear() (func(int32, string) []trial, error) {
	c, g, M := w.config, gather{}, w.rows()
	K, N := c.Channels, c.Channels
	switch w.stage {
	case gpt2.StageCAttn:
		N = 3 * K
	case gpt2.StageCFC:
		N = c.Inner
	case gpt2.StageMLPCProj:
		K = c.Inner
	case gpt2.StageLMHead:
		N = (c.Vocab + 127) / 128 * 128 // as the executor pads it
	}
	x := get(&g, func() (*array, error) { return w.array(M*K, w.dtype, w.sets, 1) })
	matrix := get(&g, func() (*array, error) { return w.array(N*K, w.dtype, w.sets, 1) })
	bias := get(&g, func() (*array, error) { return w.array(N, cuda.F32, 1, 1) })
	half := get(&g, func() (*array, error) { return w.array(N, cuda.BF16, 1, 1) })
	yType := w.dtype
	if w.stage == gpt2.StageLMHead && w.T == 1 {
		yType = cuda.F32 // a row that is sampled from
	}
	y := get(&g, func() (*array, error) { return w.output(M*N, yType) })
	if g.err != nil {
		return nil, g.err
	}
	if w.dtype == cuda.BF16 { // one bias, as both kinds of kernel see it
		bias.host = half.host
		if err := bias.restore(); err != nil {
			return nil, err
		}
	}
	args := func(variant int32, set int) cuda.LinearArgs {
		a := cuda.LinearArgs{Variant: variant, X: x.ptr(set), W: matrix.ptr(set), Y: y.ptr(set), M: int32(M), N: int32(N), K: int32(K),
			LDX: int32(K), LDY: int32(N), DType: w.dtype, YType: yType}
		if w.stage != gpt2.StageLMHead {
			a.Bias = bias.ptr(0)
			if w.dtype == cuda.BF16 {
				a.BiasBF16 = half.ptr(0)
			}
		}
		return a
	}
	check := func() (float64, error) {
		return w.compare(y, M, N, N, func(row int) []float64 {
			out := make([]float64, N)
			for n := range out {
				if w.stage != gpt2.StageLMHead {
					out[n] = float64(bias.host[n])
				}
				a, b := x.host[row*K:][:K], matrix.host[n*K:][:K]
				for k, v := range a {
					out[n] += float64(v) * float64(b[k])
				}
			}
			return out
		})
	}
	return func(variant int32, name string) []trial {
		t := trial{before: func() error { return w.poison(y) }, launch: func(set int) error { return w.Stream.Linear(args(variant, set)) }, check: check}
		if name != "blas" && (name != "auto" || M <= cuda.GEMVRows) {
			return []trial{t}
		}
		tuned := t
		t.parameters, tuned.parameters = "heuristic", "fastest of 64"
		t.before = func() error { return cmp.Or(w.lib.OpenBLAS(), w.poison(y)) }
		tuned.before = func() error {
			_, err := w.Stream.TuneLinear(args(variant, 0), 64)
			return cmp.Or(err, w.poison(y))
		}
		return []trial{t, tuned}
	}, nil
}

func (w *workbench) attention() (func(int32, string) []trial, error) {
	c, g := w.config, gather{}
	B, T, NH, HS, P, C := w.B, w.T, c.Heads, c.HeadSize(), c.Positions, c.Channels
	qkv := get(&g, func() (*array, error) { return w.array(B*T*3*C, w.dtype, w.sets, 2) })
	keys := get(&g, func() (*array, error) { return w.array(B*NH*P*HS, w.dtype, w.sets, 2) })
	values := get(&g, func() (*array, error) { return w.array(B*NH*P*HS, w.dtype, w.sets, 2) })
	y := get(&g, func() (*array, error) { return w.output(B*T*C, w.dtype) })
	pos := make([]int32, B)
	for i := range pos {
		pos[i] = int32(w.past)
	}
	posAt := get(&g, func() (*cuda.Buffer, error) { return w.ints(pos) })
	scale := c.AttentionScale(0)
	args := func(variant int32, splits, set int) cuda.AttentionArgs {
		return cuda.AttentionArgs{Variant: variant, QKV: qkv.ptr(set), KCache: keys.ptr(set), VCache: values.ptr(set), Pos: posAt.Ptr(), Y: y.ptr(set),
			B: int32(B), T: int32(T), Q: int32(T), NH: int32(NH), HS: int32(HS), P: int32(P), LDQKV: int32(3 * C), LDY: int32(C),
			DType: w.dtype, Splits: int32(splits), Scale: float32(scale)}
	}
	if g.err != nil {
		return nil, g.err
	}
	check := func() (float64, error) {
		// element d of the key or value (part 1 or 2) of token t of sequence b
		at := func(part int, cache *array, b, h, t, d int) float64 {
			if t < w.past {
				return float64(cache.host[((b*NH+h)*P+t)*HS+d])
			}
			return float64(qkv.host[(b*T+t-w.past)*3*C+part*C+h*HS+d])
		}
		return w.compare(y, B*T, C, C, func(row int) []float64 {
			out := make([]float64, C)
			b, last := row/T, w.past+row%T
			for h := range NH {
				score, most, sum := make([]float64, last+1), math.Inf(-1), 0.0
				for t := range score {
					for d := range HS {
						score[t] += scale * float64(qkv.host[row*3*C+h*HS+d]) * at(1, keys, b, h, t, d)
					}
					most = max(most, score[t])
				}
				for t := range score {
					score[t] = math.Exp(score[t] - most)
					sum += score[t]
				}
				for t, p := range score {
					for d := range HS {
						out[h*HS+d] += p / sum * at(2, values, b, h, t, d)
					}
				}
			}
			return out
		})
	}
	return func(variant int32, name string) []trial {
		splits := []int{0}
		if T == 1 && name != "naive" {
			splits = []int{0, 1, 2, 4, 8, 16, 32}
		}
		var trials []trial
		for _, n := range splits {
			var work *cuda.Buffer
			parameters := ""
			if len(splits) > 1 {
				parameters = fmt.Sprintf("splits=%d", n)
				if n == 0 {
					parameters = "splits chosen"
				}
			}
			trials = append(trials, trial{parameters: parameters, before: func() error {
				bytes, err := w.Stream.AttentionWork(args(variant, n, 0))
				if err != nil {
					return err
				}
				if work, err = w.Alloc(max(256, bytes)); err != nil {
					return err
				}
				return cmp.Or(w.Stream.Set(work, 0, 0, work.Size()), w.poison(y))
			}, launch: func(set int) error {
				a := args(variant, n, set)
				a.Work = work.Ptr()
				return w.Stream.Attention(a)
			}, check: check})
		}
		return trials
	}, nil
}

func (w *workbench) activation() (func(int32, string) []trial, error) {
	M, N, g := w.rows(), w.config.Inner, gather{}
	x := get(&g, func() (*array, error) { return w.array(M*N, w.dtype, w.sets, 4) })
	y := get(&g, func() (*array, error) { return w.output(M*N, w.dtype) })
	if g.err != nil {
		return nil, g.err
	}
	kind := w.config.Activation
	act := map[gpt2.Activation]cuda.Activation{gpt2.GELUNew: cuda.GELUTanh, gpt2.GELUErf: cuda.GELUErf, gpt2.ReLU: cuda.ReLU}[kind]
	return one(func() error { return w.poison(y) }, func(variant int32, set int) error {
		return w.Stream.Activate(cuda.ActivationArgs{Variant: variant, X: x.ptr(set), Y: y.ptr(set), M: int32(M), N: int32(N), LDX: int32(N), LDY: int32(N), DType: w.dtype, Act: act})
	}, func() (float64, error) {
		return w.compare(y, M, N, N, func(row int) []float64 {
			out := make([]float64, N)
			for i := range out {
				v := float64(x.host[row*N+i])
				switch kind {
				case gpt2.GELUNew:
					out[i] = v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
				case gpt2.GELUErf:
					out[i] = v / 2 * (1 + math.Erf(v/math.Sqrt2))
				default:
					out[i] = max(v, 0)
				}
			}
			return out
		})
	}), nil
}

func (w *workbench) add() (func(int32, string) []trial, error) {
	M, N, g := w.rows(), w.config.Channels, gather{}
	x := get(&g, func() (*array, error) { return w.array(M*N, cuda.F32, w.sets, 2) })
	z := get(&g, func() (*array, error) { return w.array(M*N, w.dtype, w.sets, 2) })
	if g.err != nil {
		return nil, g.err
	}
	return one(x.restore, func(variant int32, set int) error {
		return w.Stream.Add(cuda.AddArgs{Variant: variant, X: x.ptr(set), Z: z.ptr(set), M: int32(M), N: int32(N), LDX: int32(N), LDZ: int32(N), DType: w.dtype})
	}, func() (float64, error) {
		return w.compare(x, M, N, N, func(row int) []float64 {
			out := make([]float64, N)
			for i := range out {
				out[i] = float64(x.host[row*N+i]) + float64(z.host[row*N+i])
			}
			return out
		})
	}), nil
}

// sample: greedy, and with each restriction of the choice. Greedy must give the
// largest logit; of the others the token must be among those allowed.
func (w *workbench) sample() (func(int32, string) []trial, error) {
	const slots = 64
	B, V, g := w.B, w.config.Vocab, gather{}
	logits := get(&g, func() (*array, error) { return w.array(B*V, cuda.F32, w.sets, 8) })
	state := get(&g, func() (*cuda.Buffer, error) { return w.Alloc(256) })
	pos := get(&g, func() (*cuda.Buffer, error) { return w.ints(make([]int32, B)) })
	tokens := get(&g, func() (*cuda.Buffer, error) { return w.ints(make([]int32, B)) })
	ring := get(&g, func() (*cuda.HostBuffer, error) { return w.AllocHost(int64(slots * B * binary.Size(cuda.Slot{}))) })
	if g.err != nil {
		return nil, g.err
	}
	args := func(variant int32, set int) cuda.SampleArgs {
		return cuda.SampleArgs{Variant: variant, Logits: logits.ptr(set), Sampling: state.Ptr(), Pos: pos.Ptr(), Tokens: tokens.Ptr(), Slots: ring.Ptr(),
			B: int32(B), V: int32(V), LD: int32(V), T: 1, Count: slots}
	}
	w.tolerance = 0
	return func(variant int32, _ string) []trial {
		var trials []trial
		for _, how := range []struct {
			name    string
			allowed int // tokens by falling logit
			cuda.Sampling
		}{
			{"greedy", 1, cuda.Sampling{}},
			{"temperature 1", V, cuda.Sampling{Temperature: 1, Seed: 7}},
			{"temperature 1, top-k 40", 40, cuda.Sampling{Temperature: 1, Seed: 7, TopK: 40}},
			{"temperature 1, top-p 0.95", V, cuda.Sampling{Temperature: 1, Seed: 7, TopP: 0.95}},
		} {
			var work *cuda.Buffer
			trials = append(trials, trial{parameters: how.name, before: func() error {
				bytes, err := w.Stream.SampleWork(args(variant, 0))
				if err != nil {
					return err
				}
				if work, err = w.Alloc(max(256, bytes)); err != nil {
					return err
				}
				data, err := binary.Append(nil, binary.LittleEndian, how.Sampling)
				return cmp.Or(err, state.Write(0, data), w.Stream.Set(work, 0, 0, work.Size()),
					w.Stream.Set(tokens, 0, 0xff, tokens.Size()), w.Stream.Set(pos, 0, 0, pos.Size()), w.Stream.Synchronize())
			}, launch: func(set int) error {
				a := args(variant, set)
				a.Work = work.Ptr()
				return w.Stream.Sample(a)
			}, check: func() (float64, error) {
				data := make([]byte, 4*B)
				if err := tokens.Read(0, data); err != nil {
					return 0, err
				}
				for b := range B {
					token := int32(binary.LittleEndian.Uint32(data[4*b:]))
					if token < 0 || int(token) >= V {
						return math.Inf(1), nil
					}
					row, above := logits.host[b*V:][:V], 0
					for i, v := range row {
						if v > row[token] || v == row[token] && i < int(token) {
							above++
						}
					}
					if above >= how.allowed {
						return math.Inf(1), nil
					}
				}
				return 0, nil
			}})
		}
		return trials
	}, nil
}
