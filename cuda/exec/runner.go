package exec

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
	"gpt2scope/weights"
)

// Runner executes the passes of one session, on a stream of its own.
type Runner struct {
	backend *Backend
	model   *gpt2.Model
	options gpt2.Options
	weights *uploaded
	stream  *cuda.Stream

	cache   *cuda.Buffer // (slots of the run order, 2, B, NH, P, HS)
	buffers [gpt2.NumBuffers]*cuda.Buffer

	// state is what passes read: see layout. host is what is copied there.
	state         *cuda.Buffer
	host          *cuda.HostBuffer
	idsRoom       int // ids that fit in both
	slots         *cuda.HostBuffer
	attentionWork *cuda.Buffer
	sampleWork    *cuda.Buffer

	plans    *gpt2.PlanCache
	compiled map[gpt2.Phase]*compiled
	last     *compiled // of the pass that ran last, for Read
	rows     int       // rows per sequence that the caller gave to that pass
	products []gpt2.Product

	position int    // tokens in the cache
	step     uint64 // sampling launches so far: gpt2's side of gs_sampling.step
	stale    bool   // the device's header is not the host's
	sampling gpt2.Sampling
	tokens   []gpt2.Token // sampled last
	failed   error        // a CUDA error sticks

	recorder recorder
	loading  loading
}

// The state's layout, in bytes: a header, then ids.
//
//	0                 gs_sampling
//	samplingBytes     pad (1) int32, and room
//	posOffset         pos (B) int32
//	posOffset + 4 B   tokens (B) int32
//	header            ids (B, T) int32
const (
	samplingBytes = int64(unsafe.Sizeof(cuda.Sampling{}))
	posOffset     = samplingBytes + 8
)

// ringSlots is how many steps the ring of sampled tokens holds.
const ringSlots = 64

// runAhead is how many decode steps may be launched before their tokens are read.
const runAhead = 8

// maxCompiled bounds how many phases a session keeps launches and graphs of.
const maxCompiled = 32

func (r *Runner) header() int64 { return align(posOffset + 8*int64(r.options.Batch)) }

// addresses say where launches find what the session holds.
func (r *Runner) addresses() addresses {
	state := r.state.Ptr()
	pos := state + cuda.Ptr(posOffset)
	a := addresses{
		cache: r.cache.Ptr(), sampling: state, pad: state + cuda.Ptr(samplingBytes), pos: pos, tokens: pos + cuda.Ptr(4*r.options.Batch),
		ids: state + cuda.Ptr(r.header()), ring: r.slots.Ptr(), sampleWork: r.sampleWork.Ptr(), attentionWork: r.attentionWork.Ptr(),
	}
	for i, b := range r.buffers {
		if b != nil {
			a.buffers[i] = b.Ptr()
		}
	}
	return a
}

// allocate makes what does not depend on the phase.
func (r *Runner) allocate() error {
	defer annotate.Range("allocate", nvtx.Cyan)()
	o, dev := r.options, r.backend.dev
	var err error
	if r.stream, err = dev.NewStream(); err != nil {
		return err
	}
	if r.backend.mode == Eager { // a kernel's time is then its own, from its start to its end
		if err := r.stream.Overlap(false); err != nil {
			return err
		}
	}
	size := r.backend.cacheBytes(r.model.Config, o)
	if r.cache, err = dev.Alloc(size); err != nil {
		return fmt.Errorf("the KV cache of %d x %d tokens takes %d MiB of GPU memory: %w", o.Batch, o.Context, size>>20, err)
	}
	if r.slots, err = dev.AllocHost(ringSlots * int64(o.Batch) * int64(unsafe.Sizeof(cuda.Slot{}))); err != nil {
		return err
	}
	clear(r.slots.Bytes())
	sampleWork, attentionWork, err := r.backend.workBytes(r.stream, r.model.Config, o)
	if err != nil {
		return err
	}
	if r.sampleWork, err = zeroed(r.stream, sampleWork); err != nil {
		return err
	}
	if r.attentionWork, err = zeroed(r.stream, attentionWork); err != nil {
		return err
	}
	r.tokens = make([]gpt2.Token, 0, o.Batch)
	r.stale = true
	return r.makeState(o.Batch)
}

// zeroed allocates device memory of zeros.
func zeroed(s *cuda.Stream, bytes int64) (*cuda.Buffer, error) {
	b, err := s.Device().Alloc(bytes)
	if err != nil {
		return nil, err
	}
	return b, s.Set(b, 0, 0, b.Size())
}

// makeState allocates the state with room for ids.
func (r *Runner) makeState(ids int) error {
	r.idsRoom = 0 // until both are there
	if err := cmp.Or(free(r.state), free(r.host)); err != nil {
		return err
	}
	var err error
	if r.state, err = r.backend.dev.Alloc(r.header() + 4*int64(ids)); err != nil {
		return err
	}
	if r.host, err = r.backend.dev.AllocHost(r.header() + 4*int64(ids)); err != nil {
		return err
	}
	clear(r.host.Bytes())
	r.idsRoom, r.stale = ids, true
	return nil
}

// Close frees everything but the weights that other sessions use.
func (r *Runner) Close() error {
	if r.weights == nil {
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var errs []error
	if r.stream != nil && r.failed == nil {
		errs = append(errs, r.stream.Synchronize(), r.StopRecording())
	}
	errs = append(errs, r.forget())
	for _, b := range append([]*cuda.Buffer{r.cache, r.state, r.attentionWork, r.sampleWork}, r.buffers[:]...) {
		errs = append(errs, free(b))
	}
	errs = append(errs, free(r.host), free(r.slots))
	if r.stream != nil {
		errs = append(errs, r.stream.Close())
	}
	errs = append(errs, r.backend.release(r.model, r.weights))
	failed := r.failed
	*r = Runner{recorder: off{}}
	if failed != nil { // said already, and what follows from it
		return nil
	}
	return cmp.Or(errs...)
}

// free frees what was allocated, if it was.
func free[T any, P interface {
	*T
	Free() error
}](p P) error {
	if p == nil {
		return nil
	}
	return p.Free()
}

// Plan returns the fused plan of a phase.
func (r *Runner) Plan(phase gpt2.Phase) *gpt2.Plan { return r.plans.Plan(phase) }

// SetSampling says how later passes sample.
func (r *Runner) SetSampling(s gpt2.Sampling) { r.sampling, r.stale = s, true }

// Products returns the products by cuBLASLt of the passes compiled so far.
func (r *Runner) Products() []gpt2.Product { return r.products }

// Position returns how many tokens the cache holds.
func (r *Runner) Position() int { return r.position }

// Synchronize waits until the device has done all that was launched: what comes
// after, such as a profiler's start, divides passes cleanly.
func (r *Runner) Synchronize() error {
	if r.failed != nil {
		return r.failed
	}
	return r.stream.Synchronize()
}

// Rewind drops cached tokens; their places are written again by later passes.
func (r *Runner) Rewind(position int) error {
	if position < 0 || position > r.position {
		return fmt.Errorf("cannot rewind to token %d of %d", position, r.position)
	}
	r.position, r.stale = position, true
	return nil
}

// compile returns the launches of a phase, made once.
func (r *Runner) compile(phase gpt2.Phase) (*compiled, error) {
	if c, ok := r.compiled[phase]; ok {
		return c, nil
	}
	plan := r.Plan(phase)
	if err := r.grow(plan); err != nil {
		return nil, err
	}
	if len(r.compiled) == maxCompiled {
		if err := r.forget(); err != nil {
			return nil, err
		}
	}
	w := writer{backend: r.backend, config: r.model.Config, options: r.options, params: r.weights.params, stream: r.stream, loading: &r.loading, at: r.addresses(),
		tune: r.backend.options.Tune, plan: plan}
	err := w.write(r.position)
	r.products = append(r.products, w.products...)
	if err != nil {
		return nil, err
	}
	c := &compiled{plan: plan, steps: w.steps, ranges: annotate.New(plan, annotate.GPU), samples: plan.Steps[len(plan.Steps)-1].Last().Op == gpt2.OpSample}
	r.compiled[phase] = c
	return c, nil
}

// forget frees all graphs, and drops launches.
func (r *Runner) forget() error {
	var errs []error
	for phase, c := range r.compiled {
		errs = append(errs, r.recorder.forget(c), free(c.plain.graph))
		delete(r.compiled, phase)
	}
	r.last = nil
	return cmp.Or(errs...)
}

// grow makes the buffers large enough for a plan. Launches point into them, so
// when one moves all are made anew.
func (r *Runner) grow(plan *gpt2.Plan) error {
	B := plan.Phase.Batch
	if n := B * plan.Phase.Tokens; n > r.idsRoom {
		if err := r.forget(); err != nil {
			return err
		}
		if err := r.makeState(n); err != nil {
			return err
		}
	}
	for b := range gpt2.NumBuffers {
		n := r.backend.bufferBytes(b, plan)
		if n == 0 || r.buffers[b] != nil && n <= r.buffers[b].Size() {
			continue
		}
		if err := r.forget(); err != nil {
			return err
		}
		if err := r.reallocate(b, n); err != nil {
			return fmt.Errorf("activations (%s) take %d MiB of GPU memory: %w", b, n>>20, err)
		}
	}
	return nil
}

// reallocate makes a buffer anew, of n bytes.
func (r *Runner) reallocate(b gpt2.Buffer, n int64) error {
	defer annotate.Range("allocate "+b.String(), nvtx.Cyan)()
	if err := free(r.buffers[b]); err != nil {
		return err
	}
	var err error
	r.buffers[b], err = r.backend.dev.Alloc(n)
	return err
}

// Prefill executes one pass.
func (r *Runner) Prefill(ctx context.Context, ids []int32, phase gpt2.Phase) ([]gpt2.Token, error) {
	if r.failed != nil {
		return nil, r.failed
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := r.compile(r.backend.executed(phase, r.options.Context))
	if err != nil {
		return nil, err
	}
	if err := r.enter(c, ids, phase); err != nil {
		return nil, r.fail(c, err)
	}
	if err := r.pass(passAt{c, r.position, phase.Tokens}); err != nil {
		return nil, r.fail(c, err)
	}
	r.last, r.rows = c, phase.Tokens
	r.tokens = r.tokens[:0]
	if !c.samples {
		if err := r.stream.Synchronize(); err != nil {
			return nil, r.fail(c, err)
		}
		r.position += phase.Tokens
		r.stale = true // the device's position is still that before the pass
		return nil, nil
	}
	if err := r.await(ctx, r.step); err != nil {
		if ctx.Err() != nil {
			return nil, r.settle(c, 1, err)
		}
		return nil, r.fail(c, err)
	}
	past := r.position
	r.position += phase.Tokens
	r.step++
	if err := r.readTokens(r.step - 1); err != nil {
		return nil, gpt2.NewStageError(c.plan, c.plan.Steps[len(c.plan.Steps)-1], past, err)
	}
	return r.tokens, nil
}

// enter copies ids, positions and sampling parameters to the device.
func (r *Runner) enter(c *compiled, ids []int32, phase gpt2.Phase) error {
	T, most := phase.Tokens, c.plan.Phase.Tokens
	h := r.host.Bytes()
	to := h[r.header():]
	for b := range phase.Batch {
		for t := range most - T { // idle rows
			binary.LittleEndian.PutUint32(to[4*(b*most+t):], 0)
		}
		for t := range T {
			binary.LittleEndian.PutUint32(to[4*(b*most+most-T+t):], uint32(ids[b*T+t]))
		}
	}
	if most == 1 { // a step takes its token from where the one before put it
		r.tokens = r.tokens[:0]
		for b, id := range ids {
			r.tokens = append(r.tokens, gpt2.Token{ID: id, Seq: b})
		}
	}
	r.fillHeader(most - T)
	return r.stream.CopyToDevice(r.state, 0, r.host, 0, r.header()+4*int64(phase.Batch*most))
}

// fillHeader writes what the device's header should be.
func (r *Runner) fillHeader(pad int) {
	h := r.host.Bytes()
	s := (*cuda.Sampling)(unsafe.Pointer(&h[0]))
	*s = cuda.Sampling{
		Temperature: r.sampling.Temperature, TopP: r.sampling.TopP, Seed: r.sampling.Seed, Offset: uint64(r.sampling.Offset),
		Step: r.step, TopK: int32(min(r.sampling.TopK, math.MaxInt32)),
	}
	if r.sampling.LogProbs {
		s.LogProbs = 1
	}
	binary.LittleEndian.PutUint32(h[samplingBytes:], uint32(pad))
	B := r.options.Batch
	for b := range B {
		binary.LittleEndian.PutUint32(h[posOffset+4*int64(b):], uint32(r.position))
	}
	for _, t := range r.tokens {
		binary.LittleEndian.PutUint32(h[posOffset+4*int64(B+t.Seq):], uint32(t.ID))
	}
	r.stale = pad != 0 // a decode step has no idle rows
}

// pass launches a pass: eagerly, or as a graph from its second run on.
func (r *Runner) pass(at passAt) error {
	c := at.c
	v, other := r.recorder.variants(c)
	if r.backend.mode == Graph && c.plan.Phase.Until == "" && v.graph == nil && c.runs > 0 {
		if err := r.capture(at, v); err != nil {
			return err
		}
		if other != nil && other.graph == nil { // so that no later pass waits for it
			if err := r.capture(at, other); err != nil {
				return err
			}
		}
	}
	c.ranges.Begin(at.position)
	defer c.ranges.End()
	p := r.recorder.pass(at, v)
	defer p.close()
	if v.graph != nil {
		return p.replay(v.graph, r.stream)
	}
	first := c.runs == 0
	c.runs++
	return r.launch(c, p, first)
}

// capture makes the graph of a pass. The ranges of its steps are those by which a
// profiler attributes the graph's nodes.
func (r *Runner) capture(at passAt, v *variant) (err error) {
	at.c.ranges.Begin(r.position)
	defer at.c.ranges.End()
	p := r.recorder.capture(at, v)
	defer p.close()
	v.graph, err = r.stream.Capture(func() error { return r.launch(at.c, p, false) })
	return err
}

// launch launches every step. The first launches of a plan may load kernels.
func (r *Runner) launch(c *compiled, p passRecorder, first bool) error {
	if err := p.begin(); err != nil {
		return err
	}
	for i, launches := range c.steps {
		if len(launches) == 0 {
			continue
		}
		c.ranges.Step(i)
		p.step(i)
		for _, l := range launches {
			var err error
			if first {
				err = r.loading.first(l.loads(), func() error { return p.launch(i, l) })
			} else {
				err = p.launch(i, l)
			}
			if err != nil {
				p.endStep()
				return gpt2.NewStageError(c.plan, c.plan.Steps[i], r.position, err)
			}
		}
		p.endStep()
		c.ranges.EndStep(i)
	}
	return p.end()
}

// Decode runs n steps, launching ahead of the tokens that are read.
func (r *Runner) Decode(ctx context.Context, n int, emit func([]gpt2.Token) bool) error {
	if r.failed != nil {
		return r.failed
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := r.compile(r.decodePhase())
	if err != nil {
		return err
	}
	if r.stale {
		r.fillHeader(0)
		if err := r.stream.CopyToDevice(r.state, 0, r.host, 0, r.header()); err != nil {
			return r.fail(c, err)
		}
	}
	r.last, r.rows = c, 1
	start, launched := r.step, 0 // of the steps of this call
	for read := 0; read < n; read++ {
		if ctx.Err() != nil {
			return r.settle(c, launched-read, context.Cause(ctx))
		}
		for launched < n && launched-read < runAhead {
			if err := r.pass(passAt{c, r.position + launched - read, 1}); err != nil {
				return r.fail(c, err)
			}
			launched++
		}
		if err := r.await(ctx, start+uint64(read)); err != nil {
			if ctx.Err() != nil {
				return r.settle(c, launched-read, err)
			}
			return r.fail(c, err)
		}
		r.step++
		r.position++
		if err := r.readTokens(start + uint64(read)); err != nil {
			return r.settle(c, launched-read-1, gpt2.NewStageError(c.plan, c.plan.Steps[len(c.plan.Steps)-1], r.position-1, err))
		}
		if !emit(r.tokens) {
			return r.settle(c, launched-read-1, nil)
		}
	}
	return nil
}

func (r *Runner) decodePhase() gpt2.Phase {
	return gpt2.Phase{Batch: r.options.Batch, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}
}

// settle waits for sampling launches whose tokens were not read, and drops them:
// position and tokens stay those of the last one read. The count of launches goes
// on, so that what they left in the ring is not taken for new.
func (r *Runner) settle(c *compiled, ahead int, cause error) error {
	if ahead > 0 {
		if err := r.stream.Synchronize(); err != nil {
			return r.fail(c, err)
		}
		r.step += uint64(ahead)
		r.stale = true
	}
	return cause
}

// slot returns what step wrote of a sequence.
func (r *Runner) slot(step uint64, b int) *cuda.Slot {
	i := int64(step%ringSlots)*int64(r.options.Batch) + int64(b)
	return (*cuda.Slot)(unsafe.Pointer(&r.slots.Bytes()[i*int64(unsafe.Sizeof(cuda.Slot{}))]))
}

// await waits until every sequence's slot of a step is written.
func (r *Runner) await(ctx context.Context, step uint64) error {
	defer r.recorder.wait()()
	var began time.Time
	for b := range r.options.Batch {
		s := r.slot(step, b)
		for spins := 1; atomic.LoadUint64(&s.Sequence) != step+1; spins++ {
			if spins%1024 != 0 {
				continue
			}
			runtime.Gosched()
			if began.IsZero() {
				began = time.Now()
				defer annotate.Range("wait for token", nvtx.Yellow)()
				continue
			}
			if time.Since(began) < time.Millisecond {
				continue
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			done, err := r.stream.Query() // a kernel that failed writes no slot
			if err != nil {
				return err
			}
			if done && atomic.LoadUint64(&s.Sequence) != step+1 {
				return fmt.Errorf("step %d ended without a token", step)
			}
			time.Sleep(20 * time.Microsecond)
		}
	}
	return nil
}

// readTokens takes the tokens of a step from the ring.
func (r *Runner) readTokens(step uint64) error {
	r.tokens = r.tokens[:0]
	for b := range r.options.Batch {
		s := r.slot(step, b)
		if s.Token < 0 {
			return gpt2.ErrNotFinite
		}
		r.tokens = append(r.tokens, gpt2.Token{ID: s.Token, Seq: b, Position: int(s.Position), LogProb: s.LogProb})
	}
	return nil
}

// fail makes an error say where the pass stood, and keeps it: after a failure on
// the device nothing can be known of what it holds.
func (r *Runner) fail(c *compiled, err error) error {
	if err == nil {
		return nil
	}
	var stage *gpt2.StageError
	if !errors.As(err, &stage) && !errors.Is(err, context.Canceled) {
		err = fmt.Errorf("a pass of B=%d T=%d after %d tokens: %w", c.plan.Phase.Batch, c.plan.Phase.Tokens, r.position, err)
	}
	if r.stream.Synchronize() != nil { // the device is lost to this process
		r.failed = err
	}
	r.stale = true
	r.step += ringSlots // past whatever was launched
	return err
}

// Read copies rows of a buffer of the last pass.
func (r *Runner) Read(b gpt2.Buffer, row int, dst []float32) error {
	if r.failed != nil {
		return r.failed
	}
	if r.last == nil {
		return fmt.Errorf("buffer %s cannot be read before a pass", b)
	}
	plan := r.last.plan
	shape, dtype, ld := plan.Buffers[b], r.backend.typeOf(b, plan), pitch(b, plan)
	if shape.Rows == 0 || b == gpt2.BufTokens {
		return fmt.Errorf("the last pass has no buffer %s", b)
	}
	rows := shape.Rows // those that the caller knows of
	if shape.Rows == plan.Phase.Tokens {
		rows = r.rows
	}
	if size := plan.Phase.Batch * rows * shape.Width; row < 0 || row*shape.Width+len(dst) > size {
		return fmt.Errorf("buffer %s has %d elements; %d from row %d on are not all in it", b, size, len(dst), row)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer annotate.Range("read "+b.String(), nvtx.Yellow)()
	if err := r.stream.Synchronize(); err != nil {
		return err
	}
	raw := make([]byte, ld*dtype.Size()*min(readRows, (len(dst)+shape.Width-1)/shape.Width))
	for len(dst) > 0 {
		// Rows of one sequence lie side by side.
		seq, at := row/rows, row%rows
		n := min(rows-at, readRows, (len(dst)+shape.Width-1)/shape.Width)
		from := int64(seq*shape.Rows+shape.Rows-rows+at) * int64(ld) * int64(dtype.Size())
		part := raw[:n*ld*dtype.Size()]
		if err := r.buffers[b].Read(from, part); err != nil {
			return err
		}
		for i := range n {
			m := min(shape.Width, len(dst))
			widen(dst[:m], part[i*ld*dtype.Size():], dtype)
			dst = dst[m:]
		}
		row += n
	}
	return nil
}

// readRows is how many rows are copied to the host at a time.
const readRows = 64

// widen converts elements to float32.
func widen(dst []float32, src []byte, t cuda.DType) {
	if t == cuda.F32 {
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
		return
	}
	for i := range dst {
		dst[i] = weights.BFloat16ToFloat32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// measureSteps is how many passes are launched back to back for one duration.
const measureSteps = 16

// Measure times steady passes: [gpt2.Measurer]. They are launched back to back, so that
// the time is the device's or the host's, whichever is longer, as when text is generated;
// each duration is the mean of measureSteps passes (of one, where a prefill samples).
// Decode steps stand around the present position.
func (r *Runner) Measure(ctx context.Context, ids []int32, phase gpt2.Phase, repeat int) ([]time.Duration, error) {
	past := r.position
	steps, start := measureSteps, past
	switch {
	case phase.Tokens == 1 && phase.Sample:
		steps = min(steps, r.options.Context)
		start = max(0, min(past-steps/2, r.options.Context-steps))
	case phase.Sample:
		steps = 1
	}
	if r.failed != nil {
		return nil, r.failed
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c, err := r.compile(r.backend.executed(phase, r.options.Context))
	if err != nil {
		return nil, err
	}
	r.last, r.rows, r.position = c, phase.Tokens, start
	defer func() { r.position, r.stale, r.tokens = past, true, r.tokens[:0] }()
	burst := func(name string) (time.Duration, error) {
		if err := r.enter(c, ids, phase); err != nil {
			return 0, err
		}
		if err := r.stream.Synchronize(); err != nil {
			return 0, err
		}
		defer annotate.Range(name, nvtx.Red)()
		began := time.Now()
		for range steps {
			if err := r.pass(passAt{c, r.position, phase.Tokens}); err != nil {
				return 0, err
			}
		}
		if err := r.stream.Synchronize(); err != nil {
			return 0, err
		}
		elapsed := time.Since(began) / time.Duration(steps)
		if c.samples {
			r.step += uint64(steps)
		}
		return elapsed, nil
	}
	var times []time.Duration
	for began := time.Now(); len(times) < repeat; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		warm, name := time.Since(began) > 100*time.Millisecond, "warm up"
		if warm {
			name = "measure"
		}
		d, err := burst(name)
		if err != nil {
			return nil, r.fail(c, err)
		}
		if warm {
			times = append(times, d)
		}
	}
	return times, nil
}
