package tasks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"gpt2scope/ceilings"
	"gpt2scope/cpu"
	"gpt2scope/gpt2"
	"gpt2scope/measure"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
	"gpt2scope/predict"
)

// This file has what the tasks that run GPT-2 share. Their shapes end in the geometry, so that
// they say what a task costs without a model: l layers, c channels, v tokens in the vocabulary.
// Heads are 64 wide, and the MLP is four times as wide as the model, as in all of GPT-2.

// Geometry is that of the shipped model, of which the tasks that run GPT-2 have their sizes
// unless [ForModel] chooses another.
var Geometry = gpt2.Config{Layers: 6, Channels: 384, Heads: 6, Positions: 1024, Vocab: 257, Inner: 1536, Epsilon: 1e-5, Tied: true, ScaleWeights: true, BOS: -1, EOS: -1}

// headSize is HS of all sizes of GPT-2.
const headSize = 64

// modelDims is the end of a shape.
func modelDims(layers int, c gpt2.Config) Shape {
	return Shape{{"l", layers}, {"c", c.Channels}, {"v", c.Vocab}}
}

// configOf returns the geometry that a shape names, with positions for a context of so many
// tokens.
func configOf(s Shape, context int) (gpt2.Config, error) {
	c := Geometry
	c.Layers, c.Channels, c.Vocab = s.Get("l"), s.Get("c"), s.Get("v")
	c.Heads, c.Inner, c.Positions = c.Channels/headSize, 4*c.Channels, max(context, 1)
	if c.Channels%headSize != 0 {
		return c, fmt.Errorf("shape %s: c is not a multiple of %d", s, headSize)
	}
	if err := c.Check(); err != nil {
		return c, fmt.Errorf("shape %s: %w", s, err)
	}
	return c, nil
}

// sizesOf are the bytes of weights, activations and keys and values in a type.
func sizesOf(dtype string) gpt2.Sizes {
	n := elementBytes(dtype)
	return gpt2.Sizes{Weight: float64(n), Activation: n, KV: n, Multiply: multiplies(dtype)}
}

// modelCost adds up passes: what the plan of each costs, fused as the CPU does it, so that the
// number of steps is known before a device is opened.
type modelCost struct {
	Cost
	sizes gpt2.Sizes
	works []passWork
}

// passWork is a pass that is done so many times.
type passWork struct {
	work  []ceilings.Work
	times int
}

func (m *modelCost) add(c gpt2.Config, pass gpt2.Pass, past, times int) {
	plan := cpu.Fuse(gpt2.Forward(c, gpt2.FirstLayers(c.Layers), pass))
	cost := plan.Cost(past)
	m.FLOPs += float64(times) * float64(cost.FLOPs)
	m.Bytes += float64(times) * float64(cost.Bytes(m.sizes))
	m.Steps += times * len(plan.Steps)
	for _, step := range plan.Steps {
		for _, o := range step.Ops {
			if o.Op == gpt2.OpLinear {
				m.Products = append(m.Products, Product{pass.Batch * o.Rows, o.N, o.K, times})
			}
		}
	}
	m.works = append(m.works, passWork{plan.Work(past, m.sizes), times})
}

// done is the sum, with token ids in and out.
func (m *modelCost) done(rows, in, out int) Cost {
	c, works := m.Cost, m.works
	c.Rows, c.In, c.Out, c.Multiply = rows, int64(4*in), int64(4*out), m.sizes.Multiply
	c.Floor = func(set ceilings.Set) (sum time.Duration) {
		for _, w := range works {
			d := set.PassFloor(w.work)
			if d == 0 {
				return 0
			}
			sum += time.Duration(w.times) * d
		}
		return sum
	}
	return c
}

// modelWays are the ways of all tasks that run GPT-2.
func modelWays() []Way {
	return []Way{
		{Device: CPU, Variant: Tuned, About: "the CPU backend: all threads, SIMD or matrix tiles", Memories: []predict.Memory{MemoryHost}},
		{Device: GPU, Variant: Tuned, About: "the CUDA backend, mode graph, with weights on the GPU", Memories: []predict.Memory{MemoryResident}},
		{Device: GPU, Variant: "eager", About: "the CUDA backend, mode eager: launch after launch", Memories: []predict.Memory{MemoryResident}, Plain: true},
	}
}

// modelTask is work that a session does.
type modelTask struct {
	context int // tokens of a sequence that the session must hold
	batch   int
	past    int // tokens in the cache before
	ids     int // of each sequence, that a run takes

	// run does the task once; the cache holds past tokens before.
	run func(ctx context.Context, s *gpt2.Session, ids []int32) error
}

// openModel is a task that runs GPT-2, with its inputs and what comes out of the CPU.
type openModel struct {
	m     *Machine
	task  *Task
	shape Shape
	dtype string
	work  modelTask
	ids   []int32
	want  []float32 // the last row of logits of each sequence, by the reference
	most  float64   // that logits may be off
}

// openModelTask makes the inputs, and evaluates them with the reference: in float64 where that, with what fills the
// cache before, takes less than a second, else with the CPU's float32.
func openModelTask(ctx context.Context, m *Machine, t *Task, s Shape, dtype string, work modelTask) (Opened, error) {
	if m.Model == nil {
		return nil, errors.New("no model is open")
	}
	c, err := configOf(s, work.context)
	if err != nil {
		return nil, err
	}
	has := m.Model.Config
	if has.Channels != c.Channels || has.Vocab != c.Vocab || has.Layers < c.Layers || has.Heads != c.Heads || has.Inner != c.Inner || has.Positions < work.context {
		return nil, fmt.Errorf("%s of %s: model %s has another geometry (l=%d,c=%d,v=%d, context %d)", t.Name, s, m.Model.Name, has.Layers, has.Channels, has.Vocab, has.Positions)
	}
	o := &openModel{m: m, task: t, shape: s, dtype: dtype, work: work, ids: measure.IDs(m.Model, work.batch*work.ids)}
	cost, err := t.Cost(s, dtype)
	if err != nil {
		return nil, err
	}
	backend := m.reference
	filled := modelCost{sizes: sizesOf(Float32)}
	if work.past > 0 {
		filled.add(c, gpt2.Pass{Batch: work.batch, Tokens: work.past}, 0, 1)
	}
	if cost.FLOPs+filled.FLOPs > mostOfReference {
		if backend, err = m.backend(ctx, backendKey{CPU, Float32, ""}); err != nil {
			return nil, err
		}
	}
	session, err := o.session(ctx, backend)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	if err := o.prepare(ctx, session); err != nil {
		return nil, err
	}
	if err := work.run(ctx, session, o.ids); err != nil {
		return nil, err
	}
	if o.want, err = o.logits(session); err != nil {
		return nil, err
	}
	allowed := 1e-3
	if dtype == BFloat16 {
		allowed = 0.05
	}
	o.most = allowed * (float64(slices.Max(o.want)) - float64(slices.Min(o.want)))
	return o, nil
}

// mostOfReference is how many FLOPs the reference backend gets: about half a second's.
const mostOfReference = 5e7

func (o *openModel) session(ctx context.Context, backend gpt2.Backend) (*gpt2.Session, error) {
	return gpt2.NewSession(ctx, o.m.Model, backend, gpt2.Options{Layers: gpt2.FirstLayers(o.shape.Get("l")), Batch: o.work.batch, Context: o.work.context})
}

// prepare empties a session and fills its cache.
func (o *openModel) prepare(ctx context.Context, s *gpt2.Session) error {
	if o.work.past == 0 {
		return s.Reset()
	}
	return measure.Fill(ctx, s, o.work.past)
}

// logits reads the last row of each sequence.
func (o *openModel) logits(s *gpt2.Session) ([]float32, error) {
	x := make([]float32, o.work.batch*o.m.Model.Config.Vocab)
	return x, s.Runner().Read(gpt2.BufLogits, 0, x)
}

func (o *openModel) Close() error { return nil }

func (o *openModel) Prepare(ctx context.Context, w Way, device string, _ predict.Memory) (Ready, error) {
	mode := ""
	if w.Device == GPU && w.Variant != Tuned {
		mode = w.Variant
	}
	backend, err := o.m.backend(ctx, backendKey{device, o.dtype, mode})
	if err != nil {
		return nil, err
	}
	s, err := o.session(ctx, backend)
	if err != nil {
		return nil, err
	}
	if err := o.prepare(ctx, s); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	color := nvtx.Blue
	if w.Device == GPU {
		color = nvtx.Green
	}
	return &modelRun{o, s, color, w.Device == CPU}, nil
}

// modelRun runs GPT-2 on a device.
type modelRun struct {
	*openModel
	session *gpt2.Session
	color   nvtx.Color
	onCPU   bool
}

// Run does the task once. The host waits for its tokens, so that no time of the device alone is
// known.
func (r *modelRun) Run(ctx context.Context) (Times, error) {
	times := unknown()
	if r.work.past == 0 {
		if err := r.session.Reset(); err != nil {
			return times, err
		}
	} else if err := r.session.Runner().Rewind(r.work.past); err != nil {
		return times, err
	}
	end := annotate.Range(r.task.Name+" "+r.shape.String(), r.color)
	start := time.Now()
	err := r.work.run(ctx, r.session, r.ids)
	times.Wall = microseconds(time.Since(start))
	end()
	if r.onCPU {
		times.Kernel = times.Wall
	}
	return times, err
}

// Check compares the last row of logits of each sequence with the reference. Sampled tokens
// depend on them; two that are nearly equal may come in another order.
func (r *modelRun) Check(context.Context) error {
	got, err := r.logits(r.session)
	if err != nil {
		return err
	}
	for i, want := range r.want {
		if d := math.Abs(float64(got[i]) - float64(want)); !(d <= r.most) {
			return fmt.Errorf("logit %d of %s of %s is %g; expected %g within %.2g", i, r.task.Name, r.shape, got[i], want, r.most)
		}
	}
	return nil
}

func (r *modelRun) Close() error { return r.session.Close() }
