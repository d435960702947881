// Package executor is the reference backend: it executes plans by the functions of package reference, in float64, one
// step after another, nothing fused, over weights that gorgonia.org/tensor holds and multiplies. It is slow, and easy
// to check by reading; everything faster is tested against it, step by step.
package executor

import (
	"context"
	"fmt"
	"slices"

	"gorgonia.org/tensor"

	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/memory"
	"gpt2scope/reference"
)

type backend struct{}

// New makes the reference backend.
func New() gpt2.Backend { return backend{} }

// Name returns "reference".
func (backend) Name() string { return "reference" }

// Fuse leaves the plan as it is: one step per stage.
func (backend) Fuse(p *gpt2.Plan) *gpt2.Plan { return p }

func (b backend) Describe() gpt2.Description {
	return gpt2.Description{Name: b.Name(), WeightType: "f64"}
}
func (backend) Sizes(*gpt2.Model) gpt2.Sizes {
	return gpt2.Sizes{Weight: 8, Activation: 8, KV: 8, Multiply: "f64"}
}
func (backend) Close() error { return nil }

// Prepare reads the weights of the layers as float64.
func (backend) Prepare(ctx context.Context, m *gpt2.Model, o gpt2.Options) (gpt2.Runner, error) {
	r := &Runner{model: m, options: o, weights: map[string]*tensor.Dense{},
		plans: gpt2.NewPlanCache(backend{}, m.Config, o.Layers)}
	r.keys = make([][]float64, len(o.Layers)*o.Batch)
	r.values = make([][]float64, len(o.Layers)*o.Batch)
	params := m.Config.ParamsOf(o.Layers)
	var done, total int64
	largest := 0
	for _, p := range params {
		total += int64(p.Elements()) * 4
		largest = max(largest, p.Elements())
	}
	// Go cannot report that its heap has no room, so ask the system first.
	bytes := 2*total + 4*int64(largest)
	if left, by := memory.Left(); left >= 0 && bytes > left {
		return nil, fmt.Errorf("out of memory: model %s needs %s in float64, and %s are left%s: --device cpu needs half of that at "+
			"most", m.Name, humanize.Size(bytes), humanize.Size(left), by)
	}
	for _, p := range params {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if err := r.read(p); err != nil {
			return nil, err
		}
		if done += int64(p.Elements()) * 4; o.Progress != nil {
			o.Progress(done, total)
		}
	}
	return r, nil
}

// Runner executes a plan literally, as one pass by Prefill or step by step by Begin, Step and End. Buffers hold B*Rows
// rows.
type Runner struct {
	model    *gpt2.Model
	options  gpt2.Options
	weights  map[string]*tensor.Dense // matrices as in the checkpoint, vectors (1, N)
	plans    *gpt2.PlanCache
	sampling gpt2.Sampling
	sampler  gpt2.Sampler

	plan     *gpt2.Plan // of the pass
	ids      []int32    // (B, T)
	buffers  [gpt2.NumBuffers][]float64
	tokens   []gpt2.Token
	position int

	// keys and values hold, for slot s and sequence b at s*B + b, (tokens, C).
	keys, values [][]float64
}

// read widens a parameter to float64: a matrix in the shape of the checkpoint, a vector as (1, N).
func (r *Runner) read(p gpt2.Param) error {
	data := make([]float32, p.Elements())
	if err := r.model.Read(p.Name, data, 0); err != nil {
		return err
	}
	wide := make([]float64, len(data))
	for i, v := range data {
		wide[i] = float64(v)
	}
	cols := p.Shape[len(p.Shape)-1]
	r.weights[p.Name] = tensor.New(tensor.WithShape(len(wide)/cols, cols), tensor.WithBacking(wide))
	return nil
}

func (r *Runner) Plan(pass gpt2.Pass) *gpt2.Plan { return r.plans.Plan(pass) }
func (r *Runner) SetSampling(s gpt2.Sampling)    { r.sampling = s }
func (r *Runner) Position() int                  { return r.position }

func (r *Runner) Close() error {
	*r = Runner{}
	return nil
}

// Rewind drops keys and values from a position on.
func (r *Runner) Rewind(position int) error {
	if position < 0 || position > r.position {
		return fmt.Errorf("cannot rewind to token %d of %d", position, r.position)
	}
	for i := range r.keys {
		r.keys[i] = r.keys[i][:min(len(r.keys[i]), position*r.model.Config.Channels)]
		r.values[i] = r.values[i][:min(len(r.values[i]), position*r.model.Config.Channels)]
	}
	r.position = position
	return nil
}

// Prefill executes one pass.
func (r *Runner) Prefill(ctx context.Context, ids []int32, pass gpt2.Pass) ([]gpt2.Token, error) {
	r.Begin(ids, pass)
	for _, step := range r.plan.Steps {
		if err := context.Cause(ctx); err != nil {
			r.Rewind(r.position) // drop the keys and values of the part that ran
			return nil, err
		}
		if err := r.Step(step); err != nil {
			return nil, err
		}
	}
	r.End()
	return r.tokens, nil
}

// Begin prepares a pass.
func (r *Runner) Begin(ids []int32, pass gpt2.Pass) {
	r.plan, r.ids, r.tokens = r.Plan(pass), ids, r.tokens[:0]
	for b, shape := range r.plan.Buffers {
		r.buffers[b] = make([]float64, pass.Batch*shape.Rows*shape.Width)
	}
}

// End goes on to the tokens after the pass.
func (r *Runner) End() { r.position += r.plan.Pass.Tokens }

// Buffer returns the values of a buffer of the pass.
func (r *Runner) Buffer(b gpt2.Buffer) []float64 { return r.buffers[b] }

// Decode runs n passes of one token.
func (r *Runner) Decode(ctx context.Context, n int, emit func([]gpt2.Token) bool) error {
	ids := make([]int32, r.options.Batch)
	pass := gpt2.Pass{Batch: r.options.Batch, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}
	for range n {
		for _, t := range r.tokens {
			ids[t.Seq] = t.ID
		}
		tokens, err := r.Prefill(ctx, ids, pass)
		if err != nil {
			return err
		}
		if !emit(tokens) {
			break
		}
	}
	return nil
}

// Read copies rows of a buffer as float32.
func (r *Runner) Read(b gpt2.Buffer, row int, dst []float32) error {
	if r.plan == nil {
		return fmt.Errorf("buffer %s cannot be read before a pass", b)
	}
	from := row * r.plan.Buffers[b].Width
	if row < 0 || from+len(dst) > len(r.buffers[b]) {
		return fmt.Errorf("buffer %s has %d elements; %d from row %d on are not all in it", b, len(r.buffers[b]), len(dst),
			row)
	}
	for i := range dst {
		dst[i] = float32(r.buffers[b][from+i])
	}
	return nil
}

// Step executes the operations of a step.
func (r *Runner) Step(step gpt2.Step) error {
	for _, o := range step.Ops {
		var err error
		switch o.Op {
		case gpt2.OpEmbed:
			out, wte, wpe := r.rows(o.Out, o.Rows), r.Weight(o.Weight), r.Weight(o.Bias)
			for i, id := range r.ids {
				copy(out[i], reference.Embed(wte, wpe, int(id), r.position+i%o.Rows, o.N))
			}
		case gpt2.OpLayerNorm:
			gain, bias := r.Weight(o.Weight), r.Weight(o.Bias)
			r.eachRow(o, func(y, x []float64) { copy(y, reference.LayerNorm(x, gain, bias, r.model.Config.Epsilon)) })
		case gpt2.OpLinear:
			err = r.linear(o)
		case gpt2.OpAttention:
			r.attention(o)
		case gpt2.OpActivation:
			act := activationFuncs[o.Activation]
			r.eachRow(o, func(y, x []float64) {
				for i, v := range x {
					y[i] = act(v)
				}
			})
		case gpt2.OpAdd:
			out, z := r.rows(o.Out, o.Rows), r.rows(o.Aux, o.Rows)
			for i, x := range r.rows(o.In, o.Rows) {
				copy(out[i], reference.Add(x, z[i]))
			}
		case gpt2.OpSample:
			err = r.sample(o)
		default:
			err = fmt.Errorf("operation %s is not implemented", o.Op)
		}
		if err != nil {
			return gpt2.NewStageError(r.plan, step, r.position, err)
		}
	}
	return nil
}

// activationFuncs are the formulas of the activations.
var activationFuncs = map[gpt2.Activation]func(float64) float64{
	gpt2.GELUNew: reference.GELUTanh, gpt2.GELUErf: reference.GELUErf, gpt2.ReLU: reference.ReLU,
	gpt2.SiLU: reference.SiLU, gpt2.QuickGELU: reference.QuickGELU,
}

// Weight returns the elements of a parameter, nil for none.
func (r *Runner) Weight(name string) []float64 {
	if name == "" {
		return nil
	}
	return r.weights[name].Data().([]float64)
}

// rows returns the last n rows of each sequence of a buffer: B*n rows in place.
func (r *Runner) rows(b gpt2.Buffer, n int) [][]float64 {
	shape := r.plan.Buffers[b]
	var rows [][]float64
	for s := range r.plan.Pass.Batch {
		rows = append(rows, reference.Rows(r.buffers[b][((s+1)*shape.Rows-n)*shape.Width:], n, shape.Width, shape.Width)...)
	}
	return rows
}

// eachRow calls f with each output and input row of an operation.
func (r *Runner) eachRow(o gpt2.Operation, f func(y, x []float64)) {
	out := r.rows(o.Out, o.Rows)
	for i, x := range r.rows(o.In, o.Rows) {
		f(out[i], x)
	}
}

// linear is [reference.Linear] for all rows at once, multiplied by gorgonia's tensor. Its weights are (K, N), those of
// lm_head (N, K).
func (r *Runner) linear(o gpt2.Operation) error {
	in := r.rows(o.In, o.Rows)
	if len(in) == 0 {
		return nil
	}
	w := r.weights[o.Weight]
	if o.Stage == gpt2.StageLMHead {
		w = w.ShallowClone()
		if err := w.T(); err != nil {
			return err
		}
	}
	x := tensor.New(tensor.WithShape(len(in), o.K), tensor.WithBacking(slices.Concat(in...)))
	product, err := tensor.MatMul(x, w) // (B*Rows, N)
	if err != nil {
		return err
	}
	y := reference.Rows(product.Data().([]float64), len(in), o.N, o.N)
	for i, out := range r.rows(o.Out, o.Rows) {
		if o.Bias != "" {
			y[i] = reference.Add(y[i], r.Weight(o.Bias))
		}
		copy(out, y[i])
	}
	return nil
}

// attention appends K and V of the new rows to the cache, then attends with the last Queries of them.
func (r *Runner) attention(o gpt2.Operation) {
	c, B := r.model.Config, r.plan.Pass.Batch
	C, HS, S := c.Channels, c.HeadSize(), r.position+o.Rows
	qkv, out := r.rows(o.In, o.Rows), r.rows(o.Out, o.Queries)
	for b := range B {
		cache := o.Slot*B + b
		for _, row := range qkv[b*o.Rows:][:o.Rows] {
			r.keys[cache] = append(r.keys[cache], row[C:2*C]...)
			r.values[cache] = append(r.values[cache], row[2*C:3*C]...)
		}
		for h := range c.Heads {
			q := reference.Rows(r.buffers[o.In][h*HS:], B*o.Rows, 3*C, HS)[(b+1)*o.Rows-o.Queries : (b+1)*o.Rows]
			k, v := reference.Rows(r.keys[cache][h*HS:], S, C, HS), reference.Rows(r.values[cache][h*HS:], S, C, HS)
			for i, y := range reference.Attention(q, k, v, o.Scale) {
				copy(out[b*o.Queries+i][h*HS:], y)
			}
		}
	}
}

// sample draws a token per sequence from its last row of logits.
func (r *Runner) sample(o gpt2.Operation) error {
	shape, B := r.plan.Buffers[o.In], r.plan.Pass.Batch
	row := make([]float32, shape.Width)
	for b := range B {
		if err := r.Read(o.In, (b+1)*shape.Rows-1, row); err != nil {
			return err
		}
		t, err := r.sampler.Sample(r.sampling, row, b, r.position+r.plan.Pass.Tokens)
		if err != nil {
			return err
		}
		r.tokens = append(r.tokens, t)
	}
	return nil
}
