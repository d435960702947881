package tasks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"gpt2scope/cpu"
	"gpt2scope/gpt2"
	"gpt2scope/measure"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
	"gpt2scope/predict"
)

// This file has the tasks that run GPT-2. Their shapes end in the geometry, so that they say what a task costs without
// a model: l layers, c channels, v tokens in the vocabulary. Heads are 64 wide, and the MLP is four times as wide as
// the model, as in all of GPT-2.

// Geometry is that of the shipped model, of which the tasks that run GPT-2 have their sizes unless [ForModel] chooses
// another.
var Geometry = gpt2.Config{Layers: 6, Channels: 384, Heads: 6, Positions: 1024, Vocab: 257, Inner: 1536, Epsilon: 1e-5,
	Tied: true, ScaleWeights: true, BOS: -1, EOS: -1}

// headSize is HS of all sizes of GPT-2.
const headSize = 64

// modelWork is a pass over ids of each sequence after past tokens, and steps of one token after it.
type modelWork struct{ batch, past, ids, steps int }

func (w modelWork) context() int { return w.past + w.ids + w.steps }

func (w modelWork) pass() gpt2.Pass {
	return gpt2.Pass{Batch: w.batch, Tokens: w.ids, Logits: gpt2.LogitsLast, Sample: true}
}

// modelTask makes a task: its shapes without the geometry, for each number of layers, and the work of one. Its
// ways are the backends, with the weights on their device.
func modelTask(name string, c gpt2.Config, shapes []Shape, work func(Shape) modelWork) *Task {
	t := &Task{Name: name, DTypes: []string{Float32, BFloat16}, work: work, Ways: []Way{
		{Device: CPU, Variant: Tuned}, {Device: GPU, Variant: Tuned},
	}}
	for _, layers := range slices.Compact([]int{1, max(1, c.Layers/2), c.Layers}) {
		for _, s := range shapes {
			t.Sizes = append(t.Sizes, append(slices.Clip(s), Dim{"l", layers}, Dim{"c", c.Channels}, Dim{"v", c.Vocab}))
		}
	}
	t.Cost = func(s Shape, dtype string) (Cost, error) { return modelCost(s, work(s), dtype) }
	return t
}

// prefill evaluates a prompt of t tokens, b sequences at once, and samples a token of each.
func prefill(c gpt2.Config) *Task {
	var shapes []Shape
	for t := 2; t <= c.Positions/2; t *= 2 {
		shapes = append(shapes, Shape{{"t", t}, {"b", 1}})
	}
	for _, batch := range []int{4, 16} {
		for _, t := range []int{8, 32, 128} {
			if t <= c.Positions/2 {
				shapes = append(shapes, Shape{{"t", t}, {"b", batch}})
			}
		}
	}
	return modelTask("gpt2.prefill", c, shapes,
		func(s Shape) modelWork { return modelWork{batch: s.Get("b"), ids: s.Get("t")} })
}

// decode evaluates one token of each of b sequences after past tokens, and samples the next.
func decode(c gpt2.Config) *Task {
	var shapes []Shape
	for _, past := range []int{16, 64, 256, c.Positions - 1} {
		if past < c.Positions {
			shapes = append(shapes, Shape{{"past", past}, {"b", 1}})
		}
	}
	for _, batch := range []int{2, 4, 8, 16, 32, 64} {
		shapes = append(shapes, Shape{{"past", min(128, c.Positions/2)}, {"b", batch}})
	}
	return modelTask("gpt2.decode", c, shapes,
		func(s Shape) modelWork { return modelWork{batch: s.Get("b"), past: s.Get("past"), ids: 1} })
}

// generate evaluates a prompt of t tokens and makes n more, one after another.
func generate(c gpt2.Config) *Task {
	var shapes []Shape
	for _, tokens := range []int{8, 64, 256} {
		for _, n := range []int{4, 16, 64} {
			if tokens+n <= c.Positions {
				shapes = append(shapes, Shape{{"t", tokens}, {"n", n}})
			}
		}
	}
	return modelTask("gpt2.generate", c, shapes,
		func(s Shape) modelWork { return modelWork{batch: 1, ids: s.Get("t"), steps: s.Get("n")} })
}

// configOf returns the geometry that a shape names, with positions for a context of so many tokens.
func configOf(s Shape, context int) (gpt2.Config, error) {
	c := Geometry
	c.Layers, c.Channels, c.Vocab = s.Get("l"), s.Get("c"), s.Get("v")
	c.Heads, c.Inner, c.Positions = c.Channels/headSize, 4*c.Channels, max(context, 1)
	err := c.Check()
	if err == nil && c.Channels%headSize != 0 {
		err = fmt.Errorf("c is not a multiple of %d", headSize)
	}
	if err != nil {
		err = fmt.Errorf("shape %s: %w", s, err)
	}
	return c, err
}

// modelCost adds up passes: what the plan of each costs, fused as the CPU does it, so that the number of steps is known
// before a device is opened. Token ids come in and go out.
func modelCost(s Shape, w modelWork, dtype string) (Cost, error) {
	c, err := configOf(s, w.context())
	if err == nil {
		err = w.pass().Check(c, gpt2.FirstLayers(c.Layers), c.Positions)
	}
	if err != nil {
		return Cost{}, err
	}
	out := max(w.batch, w.steps)
	cost := Cost{Rows: w.batch * w.ids, In: int64(4 * w.batch * w.ids), Out: int64(4 * out), Multiply: multiplies(dtype)}
	cost.add(c, w.pass(), w.past, 1, dtype)
	if w.steps > 1 { // they cost what the one in the middle does, but for rounding
		cost.add(c, modelWork{batch: 1, ids: 1}.pass(), w.ids+(w.steps-2)/2, w.steps-1, dtype)
	}
	return cost, nil
}

// add adds a pass that is done so many times.
func (cost *Cost) add(c gpt2.Config, pass gpt2.Pass, past, times int, dtype string) {
	n := elementBytes(dtype)
	sizes := gpt2.Sizes{Weight: float64(n), Activation: n, KV: float64(n), Multiply: multiplies(dtype)}
	plan := cpu.Fuse(gpt2.Forward(c, gpt2.FirstLayers(c.Layers), pass))
	one := plan.Cost(past)
	cost.FLOPs += float64(times) * float64(one.FLOPs)
	cost.Bytes += float64(times) * float64(one.Bytes(sizes))
	cost.Steps += times * len(plan.Steps)
	for _, step := range plan.Steps {
		for _, o := range step.Ops {
			if o.Op == gpt2.OpLinear {
				cost.Products = append(cost.Products, Product{pass.Batch * o.Rows, o.N, o.K, times})
			}
		}
	}
	cost.passes = append(cost.passes, passes{plan.Work(past, sizes), times})
}

// model is a task that runs GPT-2, with its inputs and what comes out of the CPU.
type model struct {
	m     *Machine
	task  *Task
	shape Shape
	dtype string
	work  modelWork
	ids   []int32
	want  []float32 // the last row of logits of each sequence, by the reference
	most  float64   // that logits may be off
}

// openModel makes the inputs, and evaluates them with the CPU's float32, which is the reference.
func openModel(ctx context.Context, m *Machine, t *Task, s Shape, dtype string) (Opened, error) {
	if m.Model == nil {
		return nil, errors.New("no model is open")
	}
	w := t.work(s)
	has := m.Model.Config
	if has.Channels != s.Get("c") || has.Vocab != s.Get("v") || has.Layers < s.Get("l") || has.Positions < w.context() {
		return nil, fmt.Errorf("%s of %s: model %s has another geometry (l=%d,c=%d,v=%d, context %d)", t.Name, s,
			m.Model.Name, has.Layers, has.Channels, has.Vocab, has.Positions)
	}
	o := &model{m: m, task: t, shape: s, dtype: dtype, work: w, ids: measure.IDs(m.Model, w.batch*w.ids)}
	session, err := o.session(ctx, backendKey{CPU, Float32})
	if err != nil {
		return nil, err
	}
	defer session.Close()
	if err := o.run(ctx, session); err != nil {
		return nil, err
	}
	if o.want, err = o.logits(session); err != nil {
		return nil, err
	}
	most := 1e-3 // of the range of the logits
	if dtype == BFloat16 {
		most = 0.05
	}
	o.most = most * float64(slices.Max(o.want)-slices.Min(o.want))
	return o, nil
}

// session opens a session on a device and fills its cache.
func (o *model) session(ctx context.Context, on backendKey) (*gpt2.Session, error) {
	backend, err := o.m.backend(ctx, on)
	if err != nil {
		return nil, err
	}
	s, err := gpt2.NewSession(ctx, o.m.Model, backend,
		gpt2.Options{Layers: gpt2.FirstLayers(o.shape.Get("l")), Batch: o.work.batch, Context: o.work.context()})
	if err == nil && o.work.past > 0 {
		if err = measure.Fill(ctx, s, o.work.past); err != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return s, err
}

// run does the task once; the cache holds past tokens before.
func (o *model) run(ctx context.Context, s *gpt2.Session) error {
	if o.work.steps == 0 {
		_, err := s.Runner().Prefill(ctx, o.ids, o.work.pass())
		return err
	}
	for _, err := range s.Generate(ctx, o.ids, gpt2.Generation{Tokens: o.work.steps, IgnoreEOS: true}) {
		if err != nil {
			return err
		}
	}
	return nil
}

// logits reads the last row of each sequence.
func (o *model) logits(s *gpt2.Session) ([]float32, error) {
	x := make([]float32, o.work.batch*o.m.Model.Config.Vocab)
	return x, s.Runner().Read(gpt2.BufLogits, 0, x)
}

func (o *model) Close() error { return nil }

func (o *model) prepare(ctx context.Context, _ Way, on *slot, _ predict.Memory) (Ready, error) {
	device, color := CPU, nvtx.Blue
	if on != nil {
		device, color = on.g.name, nvtx.Green
	}
	s, err := o.session(ctx, backendKey{device, o.dtype})
	if err != nil {
		return Ready{}, err
	}
	run := func(ctx context.Context) (t Times, err error) {
		if o.work.past == 0 {
			err = s.Reset()
		} else {
			err = s.Runner().Rewind(o.work.past)
		}
		if err != nil {
			return t, err
		}
		defer annotate.Range(o.task.Name+" "+o.shape.String(), color)()
		start := time.Now()
		err = o.run(ctx, s)
		if t.Wall = microseconds(time.Since(start)); device == CPU { // of a GPU the host waits for the tokens
			t.Kernel = t.Wall
		}
		return t, err
	}
	return Ready{run, func() error { return o.check(s) }, s.Close}, nil
}

// check compares the last row of logits of each sequence with the reference. Sampled tokens depend on them; two that
// are nearly equal may come in another order.
func (o *model) check(s *gpt2.Session) error {
	got, err := o.logits(s)
	if err != nil {
		return err
	}
	for i, want := range o.want {
		if d := math.Abs(float64(got[i]) - float64(want)); !(d <= o.most) {
			return fmt.Errorf("logit %d of %s of %s is %g; expected %g within %.2g", i, o.task.Name, o.shape, got[i], want,
				o.most)
		}
	}
	return nil
}
