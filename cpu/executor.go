package cpu

import (
	"context"
	"fmt"
	"runtime"

	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/memory"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
)

// Prepare packs the weights that the layers need and allocates the KV cache.
func (b *Backend) Prepare(ctx context.Context, m *gpt2.Model, o gpt2.Options) (gpt2.Runner, error) {
	if b.pool.isClosed() {
		return nil, fmt.Errorf("the cpu backend cannot run a session: %w", gpt2.ErrClosed)
	}
	loaded := annotate.Range("pack weights", nvtx.Yellow)
	p, err := b.acquire(ctx, m, o)
	loaded()
	if err != nil {
		return nil, err
	}
	r := &runner{backend: b, model: m, options: o, packed: p, compiled: map[gpt2.Pass]*compiled{},
		plans: gpt2.NewPlanCache(b, m.Config, o.Layers), sampler: gpt2.Sampler{Maxima: b.pool.isa.maxima}}
	allocated := annotate.Range("allocate KV cache", nvtx.Cyan)
	err = r.allocate()
	allocated()
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// runner executes the plans of one session.
type runner struct {
	backend *Backend
	model   *gpt2.Model
	options gpt2.Options
	packed  *packedModel
	plans   *gpt2.PlanCache

	// What passes share, in C memory. Position and ids lie there too, so that a compiled pass never changes.
	caches   []*cache // per slot of the plan; the first one's data is that of all, and only it is filled and freed
	position mem[int32]
	ids      mem[int32]
	work     mem[float32]
	buffers  [gpt2.NumBuffers]mem[float32]

	// What a draft leaves in the residual stream for the pass that verifies it: a row for each token, at its position
	// modulo VerifyRows.
	kept []float32

	compiled map[gpt2.Pass]*compiled
	last     *compiled // of the pass that ran last, for Read
	sampling gpt2.Sampling
	sampler  gpt2.Sampler
	tokens   []gpt2.Token

	recording *recording // nil if passes are not recorded
	group     *joined    // with whose other members it decodes, nil for none
	joint     []float32  // its logits of their last step
}

// compiled is a plan as a program of kernel steps.
type compiled struct {
	plan    *gpt2.Plan
	program *program
	from    []int // step i of the plan is kernel steps from[i] to from[i+1]-1
	samples bool
	ranges  *annotate.Pass // nil with no tool attached
}

// allocate makes what does not depend on the pass.
func (r *runner) allocate() error {
	c, B := r.model.Config, r.options.Batch
	var err error
	d := r.backend.dtype.ofTables()
	if r.caches, err = newCaches(len(r.options.Layers), B, r.options.Context, c.Heads, c.HeadSize(), d); err != nil {
		return err
	}
	if r.position, err = alloc[int32](B); err != nil {
		return err
	}
	if r.work, err = alloc[float32](attentionWork(r.caches[0], max(B, r.VerifyRows()))); err != nil {
		return err
	}
	r.tokens = make([]gpt2.Token, 0, B)
	return nil
}

// Close frees everything but the weights that other sessions use.
func (r *runner) Close() error {
	if r.packed == nil {
		return nil
	}
	if err := r.StopRecording(); err != nil {
		return err
	}
	if r.group != nil {
		r.group.leave(r)
	}
	r.free()
	r.backend.release(r.model, r.packed)
	*r = runner{}
	return nil
}

// free frees programs, caches and buffers.
func (r *runner) free() {
	r.forget()
	if r.caches != nil {
		r.caches[0].data.free()
	}
	r.position.free()
	r.ids.free()
	r.work.free()
	for _, b := range r.buffers {
		b.free()
	}
}

// Plan returns the fused plan of a pass.
func (r *runner) Plan(pass gpt2.Pass) *gpt2.Plan { return r.plans.Plan(pass) }

// SetSampling says how later passes sample.
func (r *runner) SetSampling(s gpt2.Sampling) { r.sampling = s }

// Position returns how many tokens the cache holds.
func (r *runner) Position() int { return int(r.position.slice()[0]) }

// Rewind drops cached tokens; the slots are written again by later passes.
func (r *runner) Rewind(position int) error {
	if position < 0 || position > r.Position() {
		return fmt.Errorf("cannot rewind to token %d of %d", position, r.Position())
	}
	r.seek(position)
	return nil
}

func (r *runner) seek(position int) {
	for b := range r.position.slice() {
		r.position.slice()[b] = int32(position)
	}
}

// Prefill executes one pass.
func (r *runner) Prefill(ctx context.Context, ids []int32, pass gpt2.Pass) ([]gpt2.Token, error) {
	c, err := r.compile(pass)
	if err != nil {
		return nil, err
	}
	if c.ranges == nil { // else another program may run on the pool between two steps
		c.program.join()
	}
	defer r.hold(ctx, c)()
	copy(r.ids.slice(), ids)
	if err := r.pass(ctx, c); err != nil {
		return nil, err
	}
	return r.tokens, nil
}

// Decode runs n passes of one token.
func (r *runner) Decode(ctx context.Context, n int, emit func([]gpt2.Token) bool) error {
	c, err := r.compile(gpt2.Pass{Batch: r.options.Batch, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true})
	if err != nil {
		return err
	}
	defer r.hold(ctx, c)()
	for range n {
		for _, t := range r.tokens {
			r.ids.slice()[t.Seq] = t.ID
		}
		if err := r.decode(ctx, c); err != nil {
			return err
		}
		if !emit(r.tokens) {
			break
		}
	}
	return nil
}

// decode takes a decode step, by itself or with its group.
func (r *runner) decode(ctx context.Context, c *compiled) error {
	if r.group == nil {
		return r.pass(ctx, c)
	}
	r.caches[0].fill(r.Position() + 1)
	logits, err := r.group.step(ctx, r)
	if err != nil {
		return err
	}
	t, err := r.sampler.Sample(r.sampling, logits, 0, r.Position())
	if err != nil {
		return gpt2.NewStageError(c.plan, c.plan.Steps[len(c.plan.Steps)-1], r.Position()-1, err)
	}
	r.tokens = append(r.tokens[:0], t)
	return nil
}

// hold lets a cancelled context stop a program soon, until release is called; a decode step, or a pass that verifies
// drafts, ends soon by itself. With a tool attached it keeps the goroutine on its OS thread, to which ranges belong.
func (r *runner) hold(ctx context.Context, c *compiled) (release func()) {
	c.program.resume()
	unlock := func() {}
	if nvtx.Active() {
		runtime.LockOSThread()
		unlock = runtime.UnlockOSThread
	}
	if ctx.Done() == nil || c.plan.Pass.Tokens == 1 || c.plan.Pass.Verify {
		return unlock
	}
	interrupted := make(chan struct{})
	unregister := context.AfterFunc(ctx, func() {
		c.program.interrupt()
		close(interrupted)
	})
	return func() {
		if !unregister() { // it runs: wait, so that it touches no later pass and no freed program
			<-interrupted
		}
		unlock()
	}
}

// execute runs the kernels of a pass: in one call into C, or step by step if each has a range.
func (c *compiled) execute(rec *recording) (whole bool, err error) {
	stamps, err := rec.stampsOf(c.program)
	if err != nil {
		return false, err
	}
	if c.ranges == nil {
		return c.program.run(0, c.program.n, stamps)
	}
	for i, step := range c.plan.Steps {
		if step.Last().Op == gpt2.OpSample { // done in Go, by pass
			continue
		}
		c.ranges.Step(i)
		of := stamps
		if of.n > 0 && c.from[i] < c.program.n {
			of = stamps.from(c.from[i] * c.program.pool.threads * 2)
		}
		whole, err := c.program.run(c.from[i], c.from[i+1], of)
		c.ranges.EndStep(i)
		if err != nil || !whole {
			return whole, err
		}
	}
	return true, nil
}

// pass runs a program over r.ids, advances the position, and samples.
func (r *runner) pass(ctx context.Context, c *compiled) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.last = c
	c.ranges.Begin(r.Position())
	defer c.ranges.End()
	pass, past := c.plan.Pass, r.Position()
	if pass.From > 0 {
		r.eachKept(past, pass.Tokens, func(kept, x []float32) { copy(x, kept) })
	}
	r.caches[0].fill(past + pass.Tokens)
	note := r.recording.begin(r, c)
	whole, err := c.execute(r.recording)
	if err != nil {
		return err
	}
	if !whole {
		return context.Cause(ctx)
	}
	note.ran(r.recording)
	defer note.done(r.recording)
	if pass.Exit > 0 {
		r.eachKept(past, pass.Tokens, func(kept, x []float32) { copy(kept, x) })
	}
	r.seek(past + pass.Tokens)
	if r.tokens = r.tokens[:0]; !c.samples {
		return nil
	}
	step := c.plan.Steps[len(c.plan.Steps)-1]
	c.ranges.Step(step.Tag)
	shape := c.plan.Buffers[step.Last().In]
	logits := r.buffers[step.Last().In].slice()
	sample := func(seq, row, position int) error {
		t, err := r.sampler.Sample(r.sampling, logits[row*shape.Width:(row+1)*shape.Width], seq, position)
		if err != nil {
			return gpt2.NewStageError(c.plan, step, past, err)
		}
		r.tokens = append(r.tokens, t)
		return nil
	}
	if pass.Verify {
		ids := r.ids.slice()
		for row := range pass.Tokens {
			if err := sample(0, row, past+row+1); err != nil {
				return err
			}
			if row+1 < pass.Tokens && ids[row+1] != r.tokens[row].ID {
				break
			}
		}
		return nil
	}
	for b := range pass.Batch {
		if err := sample(b, (b+1)*shape.Rows-1, r.Position()); err != nil {
			return err
		}
	}
	return nil
}

// eachKept calls f with where the residual stream of each of n tokens from a position on is kept, and where it is now.
func (r *runner) eachKept(position, n int, f func(kept, x []float32)) {
	C, rows := r.model.Config.Channels, r.VerifyRows()
	if r.kept == nil {
		r.kept = make([]float32, rows*C)
	}
	x := r.buffers[gpt2.BufX].slice()
	for i := range n {
		at := (position + i) % rows * C
		f(r.kept[at:at+C], x[i*C:(i+1)*C])
	}
}

// VerifyRows is how many rows the kernels compute as a decode step does: [gpt2.Verifier].
func (r *runner) VerifyRows() int {
	c := r.model.Config
	return r.backend.pool.isa.equalRows(max(c.Channels, c.Inner))
}

// Read copies rows of a buffer of the last pass.
func (r *runner) Read(b gpt2.Buffer, row int, dst []float32) error {
	if r.last == nil {
		return fmt.Errorf("buffer %s cannot be read before a pass", b)
	}
	shape := r.last.plan.Buffers[b]
	from, size := row*shape.Width, r.last.plan.Pass.Batch*shape.Rows*shape.Width
	if row < 0 || from+len(dst) > size {
		return fmt.Errorf("buffer %s has %d elements; %d from row %d on are not all in it", b, size, len(dst), row)
	}
	copy(dst, r.buffers[b].slice()[from:])
	return nil
}

// maxCompiled bounds how many programs a session keeps.
const maxCompiled = 32

// compile returns the program of a pass, made once.
func (r *runner) compile(pass gpt2.Pass) (*compiled, error) {
	if c, ok := r.compiled[pass]; ok {
		return c, nil
	}
	plan := r.Plan(pass)
	if err := r.grow(plan); err != nil {
		return nil, err
	}
	if len(r.compiled) == maxCompiled {
		r.forget()
	}
	most := 2 // kernel steps of a step
	if r.group != nil {
		most = max(most, plan.Pass.Batch)
	}
	program, err := newProgram(r.backend.pool, most*len(plan.Steps))
	if err != nil {
		return nil, err
	}
	c := &compiled{plan: plan, program: program, ranges: annotate.New(plan, nvtx.Blue),
		samples: plan.Steps[len(plan.Steps)-1].Last().Op == gpt2.OpSample}
	w := writer{runner: r, plan: plan, program: program}
	for _, step := range plan.Steps {
		c.from = append(c.from, program.n)
		if err := w.step(step); err != nil {
			program.free()
			return nil, gpt2.NewStageError(plan, step, r.Position(), err)
		}
	}
	c.from = append(c.from, program.n)
	r.compiled[pass] = c
	return c, nil
}

// forget frees all programs.
func (r *runner) forget() {
	for pass, c := range r.compiled {
		c.program.free()
		delete(r.compiled, pass)
	}
	r.last = nil
}

// muchMemory is the size from which on it is checked that memory is left: asking takes the system a third of a ms.
const muchMemory = 64 << 20

// grow makes the buffers large enough for a plan, those of a pass that verifies for all such passes. Programs point into
// them, so when one moves all are made anew.
func (r *runner) grow(plan *gpt2.Plan) error {
	B, held, tokens := plan.Pass.Batch, 0, plan.Pass.Tokens
	if plan.Pass.Verify {
		tokens = max(tokens, r.VerifyRows())
	}
	for _, b := range r.buffers {
		held += 4 * b.n
	}
	if more := activationBytes(plan) - int64(held); more > muchMemory {
		if left, by := memory.Left(); left >= 0 && more > left {
			return fmt.Errorf("a pass over %d tokens needs %s of memory for activations and logits, and %s are left%s: give fewer "+
				"at a time (--chunk N; of eval, --window N)", B*plan.Pass.Tokens, humanize.Size(more), humanize.Size(left), by)
		}
	}
	if err := regrow(r, &r.ids, B*tokens); err != nil {
		return err
	}
	for b, shape := range plan.Buffers {
		if gpt2.Buffer(b) == gpt2.BufTokens {
			continue
		}
		if plan.Pass.Verify {
			shape.Rows = tokens
		}
		if err := regrow(r, &r.buffers[b], B*shape.Rows*shape.Width); err != nil {
			return fmt.Errorf("activations (%s): %w", gpt2.Buffer(b), err)
		}
	}
	return nil
}

func regrow[T float32 | int32](r *runner, m *mem[T], n int) (err error) {
	if n <= m.n {
		return nil
	}
	r.forget()
	m.free()
	*m, err = alloc[T](n)
	return err
}

// writer turns steps of a plan into kernel steps.
type writer struct {
	*runner
	plan    *gpt2.Plan
	program *program
}

// view addresses the last rows of each sequence of a buffer.
func (w *writer) view(b gpt2.Buffer, rows int) view {
	shape := w.plan.Buffers[b]
	if rows == shape.Rows {
		return matrix(w.buffers[b], shape.Width)
	}
	return view{data: w.buffers[b].from((shape.Rows - rows) * shape.Width), ld: shape.Width, per: rows, stride: shape.Rows}
}

// step writes one step of the plan, and nothing if it has no rows.
func (w *writer) step(s gpt2.Step) error {
	var err error
	o := s.Ops[0]
	M := w.plan.Pass.Batch * o.Rows
	switch {
	case o.Op == gpt2.OpSample: // done in Go, by pass
	case o.Op == gpt2.OpAttention:
		err = w.attention(o)
	case o.Rows == 0:
	case s.Op() == gpt2.OpLinear:
		err = w.linear(s)
	case o.Op == gpt2.OpEmbed:
		err = w.embed(o)
	case o.Op == gpt2.OpLayerNorm:
		err = w.program.layerNorm(layerNormStep{x: w.view(o.In, o.Rows), y: w.view(o.Out, o.Rows), norm: w.norm(o), M: M,
			C: o.K})
	default:
		err = fmt.Errorf("operation %s is not implemented", o.Op)
	}
	return err
}

var activations = map[gpt2.Activation]activation{gpt2.GELUNew: geluTanh, gpt2.GELUErf: geluErf, gpt2.ReLU: relu,
	gpt2.SiLU: silu, gpt2.QuickGELU: quickGELU}

func (w *writer) norm(o gpt2.Operation) norm {
	return norm{gain: w.packed.vector(o.Weight), bias: w.packed.vector(o.Bias), eps: float32(w.model.Config.Epsilon)}
}

// embed: x = wte[id] + wpe[position].
func (w *writer) embed(o gpt2.Operation) error {
	return w.program.embed(embedStep{
		y: w.view(o.Out, o.Rows), ids: w.ids, pos: w.position,
		wte: w.packed.weights[o.Weight], wpe: w.packed.weights[o.Bias],
		B: w.plan.Pass.Batch, T: o.Rows,
	})
}

// attention: K and V of the new rows go into the cache of the slot, then each query attends to it. Appending is a
// kernel step of its own if there are many rows, so that all threads share it.
func (w *writer) attention(o gpt2.Operation) error {
	step := attentionStep{
		qkv: w.view(o.In, o.Rows), pos: w.position, work: w.work,
		B: w.plan.Pass.Batch, T: o.Rows, nq: o.Queries, scale: float32(o.Scale), append: o.Rows == 1 && o.Queries == 1,
		each: w.plan.Pass.Verify, bf16: w.backend.attendsBF16(),
	}
	if w.caches == nil { // each member of the group has its own, and step.append is set
		for i, m := range w.group.members {
			step.cache, step.pos, step.B = m.caches[o.Slot], w.position.from(i), 1
			step.qkv, step.y = matrix(w.buffers[o.In].from(i*o.K), o.K), matrix(w.buffers[o.Out].from(i*o.N), o.N)
			if err := w.program.attention(step); err != nil {
				return err
			}
		}
		return nil
	}
	step.cache = w.caches[o.Slot]
	if !step.append {
		if err := w.program.appendKV(step); err != nil {
			return err
		}
	}
	if o.Queries == 0 {
		return nil
	}
	step.y = w.view(o.Out, o.Queries)
	return w.program.attention(step)
}

// linear: y = act(norm(x) W + b) + residual, with what was fused.
func (w *writer) linear(s gpt2.Step) error {
	var step linearStep
	var o gpt2.Operation // the Linear
	for _, op := range s.Ops {
		switch op.Op {
		case gpt2.OpLayerNorm:
			step.norm = w.norm(op)
		case gpt2.OpLinear:
			o = op
		case gpt2.OpActivation:
			step.act = activations[op.Activation]
		case gpt2.OpAdd:
			step.residual = w.view(op.Out, op.Rows) // x = x + z, in place
		}
	}
	step.w = w.packed.weights[o.Weight]
	if o.Bias != "" {
		step.bias = w.packed.vector(o.Bias)
	}
	in, out := s.Ops[0].In, s.Last().Out
	add := func(rows, n0, n1 int) error {
		part := step
		part.x, part.y, part.M, part.n0, part.n1 = w.view(in, rows), w.view(out, rows), w.plan.Pass.Batch*rows, n0, n1
		return w.program.linear(part)
	}
	if o.Stage != gpt2.StageCAttn || o.Queries == o.Rows {
		return add(o.Rows, 0, o.N)
	}
	C := o.K // keys and values of all rows, queries of the last ones
	if o.Queries > 0 {
		if err := add(o.Queries, 0, C); err != nil {
			return err
		}
	}
	return add(o.Rows, C, 3*C)
}
