package cpu

import (
	"context"
	"fmt"
	"math"

	"gorgonia.org/tensor"

	"gpt2scope/gpt2"
)

// reference is the backend of [NewReference].
type reference struct{}

// NewReference makes the reference backend.
func NewReference() gpt2.Backend { return reference{} }

// Name returns "reference".
func (reference) Name() string { return "reference" }

// Fuse leaves the plan as it is: one step per stage.
func (reference) Fuse(p *gpt2.Plan) *gpt2.Plan { return p }

// Sizes are those of float64.
func (reference) Sizes() gpt2.Sizes { return gpt2.Sizes{Weight: 8, Activation: 8, KV: 8} }

// Close does nothing.
func (reference) Close() error { return nil }

// Prepare reads the weights of the layers as float64.
func (reference) Prepare(ctx context.Context, m *gpt2.Model, o gpt2.Options) (gpt2.Runner, error) {
	r := &referenceRunner{model: m, options: o, weights: map[string]*tensor.Dense{}, plans: gpt2.NewPlanCache(reference{}, m.Config, o.Layers)}
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
	probe, err := alloc[float32](2*int(total/4) + largest)
	if err != nil {
		return nil, fmt.Errorf("the weights of model %s in float64: %w", m.Name, err)
	}
	probe.free()
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

// referenceRunner executes a plan literally. Buffers hold B*Rows rows.
type referenceRunner struct {
	model    *gpt2.Model
	options  gpt2.Options
	weights  map[string]*tensor.Dense // matrices (K, N), vectors (1, N)
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

// read keeps a parameter as a matrix (K, N) with the inputs first, or (1, N).
func (r *referenceRunner) read(p gpt2.Param) error {
	data := make([]float32, p.Elements())
	if err := r.model.Read(p.Name, data, 0); err != nil {
		return err
	}
	rows, cols := 1, p.Shape[0]
	if len(p.Shape) == 2 {
		rows, cols = p.Shape[0], p.Shape[1]
	}
	r.weights[p.Name] = dense(rows, cols, toFloat64(data))
	return nil
}

func toFloat64(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// dense makes a (rows, cols) tensor over data.
func dense(rows, cols int, data []float64) *tensor.Dense {
	return tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(data))
}

// ones makes a (rows, cols) tensor of ones: gorgonia has no broadcast, and a
// product with ones is one.
func ones(rows, cols int) *tensor.Dense {
	data := make([]float64, rows*cols)
	for i := range data {
		data[i] = 1
	}
	return dense(rows, cols, data)
}

func (r *referenceRunner) Plan(phase gpt2.Phase) *gpt2.Plan { return r.plans.Plan(phase) }
func (r *referenceRunner) SetSampling(s gpt2.Sampling)      { r.sampling = s }
func (r *referenceRunner) Position() int                    { return r.position }

func (r *referenceRunner) Close() error {
	*r = referenceRunner{}
	return nil
}

// Rewind drops keys and values from a position on.
func (r *referenceRunner) Rewind(position int) error {
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
func (r *referenceRunner) Prefill(ctx context.Context, ids []int32, phase gpt2.Phase) ([]gpt2.Token, error) {
	r.begin(ids, phase)
	for _, step := range r.plan.Steps {
		if err := context.Cause(ctx); err != nil {
			r.Rewind(r.position) // drop the keys and values of the part that ran
			return nil, err
		}
		if err := r.step(step); err != nil {
			return nil, err
		}
	}
	r.position += phase.Tokens
	return r.tokens, nil
}

// begin makes ready for a pass.
func (r *referenceRunner) begin(ids []int32, phase gpt2.Phase) {
	r.plan, r.ids, r.tokens = r.Plan(phase), ids, r.tokens[:0]
	for b, shape := range r.plan.Buffers {
		r.buffers[b] = make([]float64, phase.Batch*shape.Rows*shape.Width)
	}
}

// Decode runs n passes of one token.
func (r *referenceRunner) Decode(ctx context.Context, n int, emit func([]gpt2.Token) bool) error {
	ids := make([]int32, r.options.Batch)
	phase := gpt2.Phase{Batch: r.options.Batch, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}
	for range n {
		for _, t := range r.tokens {
			ids[t.Seq] = t.ID
		}
		tokens, err := r.Prefill(ctx, ids, phase)
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
func (r *referenceRunner) Read(b gpt2.Buffer, row int, dst []float32) error {
	if r.plan == nil {
		return fmt.Errorf("buffer %s cannot be read before a pass", b)
	}
	from := row * r.plan.Buffers[b].Width
	if row < 0 || from+len(dst) > len(r.buffers[b]) {
		return fmt.Errorf("buffer %s has %d elements; %d from row %d on are not all in it", b, len(r.buffers[b]), len(dst), row)
	}
	for i := range dst {
		dst[i] = float32(r.buffers[b][from+i])
	}
	return nil
}

// step executes the operations of a step.
func (r *referenceRunner) step(step gpt2.Step) error {
	for _, o := range step.Ops {
		var err error
		switch o.Op {
		case gpt2.OpEmbed:
			err = r.embed(o)
		case gpt2.OpLayerNorm:
			err = r.layerNorm(o)
		case gpt2.OpLinear:
			err = r.linear(o)
		case gpt2.OpAttention:
			err = r.attention(o)
		case gpt2.OpActivation:
			err = r.activation(o)
		case gpt2.OpAdd:
			err = r.add(o)
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

// gather copies the last rows of each sequence of a buffer into a matrix (B*rows, width).
func (r *referenceRunner) gather(b gpt2.Buffer, rows int) *tensor.Dense {
	shape, B := r.plan.Buffers[b], r.plan.Phase.Batch
	data := make([]float64, 0, B*rows*shape.Width)
	for s := range B {
		data = append(data, r.buffers[b][((s+1)*shape.Rows-rows)*shape.Width:(s+1)*shape.Rows*shape.Width]...)
	}
	return dense(B*rows, shape.Width, data)
}

// scatter copies a matrix (B*rows, width) over the last rows of each sequence of a buffer.
func (r *referenceRunner) scatter(b gpt2.Buffer, rows int, t tensor.Tensor) {
	shape, data := r.plan.Buffers[b], t.Data().([]float64)
	for s := range r.plan.Phase.Batch {
		copy(r.buffers[b][((s+1)*shape.Rows-rows)*shape.Width:], data[s*rows*shape.Width:(s+1)*rows*shape.Width])
	}
}

// arithmetic calls gorgonia; its first error sticks.
type arithmetic struct{ err error }

func (a *arithmetic) apply(f func(x, y tensor.Tensor) (tensor.Tensor, error), x, y tensor.Tensor) tensor.Tensor {
	if a.err != nil {
		return nil
	}
	var z tensor.Tensor
	z, a.err = f(x, y)
	return z
}

func (a *arithmetic) matMul(x, y tensor.Tensor) tensor.Tensor {
	return a.apply(func(x, y tensor.Tensor) (tensor.Tensor, error) { return tensor.MatMul(x, y) }, x, y)
}

func (a *arithmetic) add(x, y tensor.Tensor) tensor.Tensor {
	return a.apply(func(x, y tensor.Tensor) (tensor.Tensor, error) { return tensor.Add(x, y) }, x, y)
}

func (a *arithmetic) sub(x, y tensor.Tensor) tensor.Tensor {
	return a.apply(func(x, y tensor.Tensor) (tensor.Tensor, error) { return tensor.Sub(x, y) }, x, y)
}

func (a *arithmetic) mul(x, y tensor.Tensor) tensor.Tensor {
	return a.apply(func(x, y tensor.Tensor) (tensor.Tensor, error) { return tensor.Mul(x, y) }, x, y)
}

func (a *arithmetic) div(x, y tensor.Tensor) tensor.Tensor {
	return a.apply(func(x, y tensor.Tensor) (tensor.Tensor, error) { return tensor.Div(x, y) }, x, y)
}

// each computes f of every element.
func (a *arithmetic) each(f func(float64) float64, x tensor.Tensor) tensor.Tensor {
	return a.apply(func(x, _ tensor.Tensor) (tensor.Tensor, error) { return x.Apply(f) }, x, nil)
}

// embed: x = wte[id] + wpe[position], (B*T, C).
func (r *referenceRunner) embed(o gpt2.Operation) error {
	wte, wpe := r.weights[o.Weight].Data().([]float64), r.weights[o.Bias].Data().([]float64)
	C, T := o.N, o.Rows
	for i, id := range r.ids {
		position := r.position + i%T
		for c := range C {
			r.buffers[o.Out][i*C+c] = wte[int(id)*C+c] + wpe[position*C+c]
		}
	}
	return nil
}

// layerNorm: y = (x - mean) / sqrt(var + eps) * gain + bias over each row of C.
func (r *referenceRunner) layerNorm(o gpt2.Operation) error {
	R, C := r.plan.Phase.Batch*o.Rows, o.K
	if R == 0 {
		return nil
	}
	var a arithmetic
	column, row := ones(C, 1), ones(1, C)
	share := func(x float64) float64 { return x / float64(C) }
	x := r.gather(o.In, o.Rows)
	mean := a.each(share, a.matMul(x, column))               // (R, 1)
	d := a.sub(x, a.matMul(mean, row))                       // (R, C)
	variance := a.each(share, a.matMul(a.mul(d, d), column)) // (R, 1)
	deviation := a.each(func(v float64) float64 { return math.Sqrt(v + r.model.Config.Epsilon) }, variance)
	y := a.div(d, a.matMul(deviation, row))
	y = a.mul(y, a.matMul(ones(R, 1), r.weights[o.Weight]))
	y = a.add(y, a.matMul(ones(R, 1), r.weights[o.Bias]))
	if a.err == nil {
		r.scatter(o.Out, o.Rows, y)
	}
	return a.err
}

// linear: y = x W + b. W is (K, N); lm_head's is (N, K), transposed.
func (r *referenceRunner) linear(o gpt2.Operation) error {
	R := r.plan.Phase.Batch * o.Rows
	if R == 0 {
		return nil
	}
	w := r.weights[o.Weight]
	if o.Stage == gpt2.StageLMHead {
		w = w.ShallowClone()
		if err := w.T(); err != nil {
			return err
		}
	}
	var a arithmetic
	y := a.matMul(r.gather(o.In, o.Rows), w)
	if o.Bias != "" {
		y = a.add(y, a.matMul(ones(R, 1), r.weights[o.Bias]))
	}
	if a.err == nil {
		r.scatter(o.Out, o.Rows, y)
	}
	return a.err
}

// attention stores K and V of the new rows, then for each head computes
// softmax(scale q k^T) v, where query i sees the keys up to its own position.
func (r *referenceRunner) attention(o gpt2.Operation) error {
	c, B, T := r.model.Config, r.plan.Phase.Batch, o.Rows
	C, HS, S := c.Channels, c.HeadSize(), r.position+T
	y := make([]float64, B*o.Queries*C)
	for b := range B {
		cache := o.Slot*B + b
		for t := range T {
			row := r.buffers[o.In][(b*T+t)*3*C:]
			r.keys[cache] = append(r.keys[cache], row[C:2*C]...)
			r.values[cache] = append(r.values[cache], row[2*C:3*C]...)
		}
		if o.Queries == 0 {
			continue
		}
		for h := range c.Heads {
			q := headOf(r.buffers[o.In][(b*T+T-o.Queries)*3*C:], o.Queries, 3*C, h, HS)
			k := headOf(r.keys[cache], S, C, h, HS)
			v := headOf(r.values[cache], S, C, h, HS)
			if err := k.T(); err != nil {
				return err
			}
			var a arithmetic
			p := a.each(func(x float64) float64 { return x * o.Scale }, a.matMul(q, k)) // (Queries, S)
			if a.err != nil {
				return a.err
			}
			causalSoftmax(p.Data().([]float64), o.Queries, S)
			out := a.matMul(p, v) // (Queries, HS)
			if a.err != nil {
				return a.err
			}
			for i := range o.Queries {
				copy(y[(b*o.Queries+i)*C+h*HS:], out.Data().([]float64)[i*HS:(i+1)*HS])
			}
		}
	}
	if o.Queries > 0 {
		r.scatter(o.Out, o.Queries, dense(B*o.Queries, C, y))
	}
	return nil
}

// headOf copies the columns of one head of rows with a stride into (rows, HS).
func headOf(x []float64, rows, stride, head, size int) *tensor.Dense {
	data := make([]float64, 0, rows*size)
	for i := range rows {
		data = append(data, x[i*stride+head*size:i*stride+(head+1)*size]...)
	}
	return dense(rows, size, data)
}

// causalSoftmax turns rows of scores (Q, S) into probabilities, where the i-th of
// the last Q positions sees the keys up to itself.
func causalSoftmax(p []float64, Q, S int) {
	for i := range Q {
		row, keys := p[i*S:(i+1)*S], S-Q+i+1
		largest, sum := math.Inf(-1), 0.0
		for _, v := range row[:keys] {
			largest = math.Max(largest, v) // NaN stays NaN
		}
		for j, v := range row[:keys] {
			row[j] = math.Exp(v - largest)
			sum += row[j]
		}
		for j := range row {
			if j < keys {
				row[j] /= sum
			} else {
				row[j] = 0
			}
		}
	}
}

// activationFuncs are the activations in float64.
var activationFuncs = map[gpt2.Activation]func(float64) float64{
	gpt2.GELUNew: func(x float64) float64 { return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) },
	gpt2.GELUErf: func(x float64) float64 { return 0.5 * x * (1 + math.Erf(x/math.Sqrt2)) },
	gpt2.ReLU:    func(x float64) float64 { return math.Max(x, 0) },
}

// activation: y = act(x).
func (r *referenceRunner) activation(o gpt2.Operation) error {
	if o.Rows == 0 {
		return nil
	}
	var a arithmetic
	y := a.each(activationFuncs[o.Activation], r.gather(o.In, o.Rows))
	if a.err == nil {
		r.scatter(o.Out, o.Rows, y)
	}
	return a.err
}

// add: x = x + z.
func (r *referenceRunner) add(o gpt2.Operation) error {
	if o.Rows == 0 {
		return nil
	}
	var a arithmetic
	y := a.add(r.gather(o.In, o.Rows), r.gather(o.Aux, o.Rows))
	if a.err == nil {
		r.scatter(o.Out, o.Rows, y)
	}
	return a.err
}

// sample draws a token per sequence from its last row of logits.
func (r *referenceRunner) sample(o gpt2.Operation) error {
	shape, B := r.plan.Buffers[o.In], r.plan.Phase.Batch
	row := make([]float32, shape.Width)
	for b := range B {
		if err := r.Read(o.In, (b+1)*shape.Rows-1, row); err != nil {
			return err
		}
		t, err := r.sampler.Sample(r.sampling, row, b, r.position+r.plan.Phase.Tokens)
		if err != nil {
			return err
		}
		r.tokens = append(r.tokens, t)
	}
	return nil
}
