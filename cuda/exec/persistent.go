package exec

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"
	"unsafe"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
)

// decodeTimeout is how long a block of the decode kernel waits for another one. Blocks
// wait for microseconds; milliseconds if other processes share the GPU in turns.
const decodeTimeout = 2 * time.Second

// persistent is what a session has for decode steps in one kernel.
type persistent struct {
	program *cuda.Buffer // gs_decode_step of each step, and the folded LayerNorms that they read
	work    *cuda.Buffer
	plan    *gpt2.Plan
	planned []int           // of each step of the program, that of the plan
	args    cuda.DecodeArgs // but for addresses that may change; Count is 0 until the program is made
	tokens  int             // decode steps of a launch, at most
	drawing int             // the same where it draws tokens: 0 if it cannot, -1 until that is known
	rows    int             // of a prompt, at most

	on      bool        // the call under way uses it
	single  singleSteps // where each step is a launch of its own
	refused string      // why the session can not use it
	loaded  [6]bool     // the kernel and that which stamps: of decode steps, of those that draw, and of prompts
}

func (p *persistent) free() error {
	err := cmp.Or(free(p.program), free(p.work))
	*p = persistent{refused: p.refused}
	return err
}

// measuredFaster is the largest number of sequences for which decode steps in one kernel were measured to
// take less time than graphs, with one layer and with many, by width. A width that is missing was not
// measured to be faster. docs/persistent.md has the times.
var measuredFaster = map[int]int{384: 8, 768: 8, 1024: 8, 1280: 4, 1600: 4}

// measuredPrompts is the same of the rows of a prompt of one sequence.
var measuredPrompts = map[int]int{384: 8, 768: 8, 1024: 8, 1280: 8, 1600: 4}

// choose decides whether a pass of a call, which begins at the present position, runs in the persistent kernel. Otherwise it
// returns its launches: c, or those of single steps of the program.
func (r *Runner) choose(c *compiled, prompt bool) (*compiled, error) {
	p := &r.together
	p.on, p.single.began = false, r.state.position
	if r.backend.mode != Persistent && !r.backend.singleSteps {
		return c, nil
	}
	facts := passFacts{config: r.model.Config, layers: len(r.options.Layers), pass: c.plan.Pass, prompt: prompt, sampling: r.state.sampling, refused: p.refused}
	how, err := r.backend.chooseMode(&facts)
	if err == nil && (how.mode == Persistent || how.singleSteps) && p.args.Count == 0 {
		err = r.makeProgram(r.Plan(r.decodePass()))
		if err != nil {
			if err := p.free(); err != nil {
				return c, err
			}
		}
		if errors.Is(err, cuda.ErrNoKernel) {
			r.refuse(err)
			return c, nil
		}
	}
	switch {
	case err != nil:
		return c, err
	case how.mode != Persistent && !how.singleSteps:
		if how.instead {
			r.backend.fallBack(how.why)
		}
		return c, nil
	case c.plan.Pass.Tokens > p.rows: // of a prompt
		return c, nil
	}
	if err := r.prepareDrawing(); err != nil {
		return c, err
	}
	if how.singleSteps {
		return r.singleLaunches(c), nil
	}
	p.on = true
	r.backend.found.Store(new(string))
	return c, nil
}

// candidates returns from how many tokens of a vocabulary a token is drawn, as
// [cuda.DecodeArgs].Draw has it: 0 for the argmax without its log-probability.
func candidates(s gpt2.Sampling, vocab int) int {
	switch {
	case s.Temperature == 0 && !s.LogProbs:
		return 0
	case s.Temperature == 0:
		return 1
	case s.TopK <= 0 || s.TopK > vocab:
		return vocab
	}
	return s.TopK
}

// sampledApart is whether the decode kernel leaves the logits of a step to another kernel: it draws
// tokens from so many candidates only.
func sampledApart(s gpt2.Sampling, vocab int) bool {
	n := candidates(s, vocab)
	return n > 0 && !cuda.CanDraw(n, vocab)
}

// sampledApart is whether another kernel draws the session's tokens.
func (r *Runner) sampledApart() bool {
	t, vocab := &r.together, r.model.Config.Vocab
	return sampledApart(r.state.sampling, vocab) || t.args.Count > 0 && t.drawing == 0 && candidates(r.state.sampling, vocab) > 0
}

// atOnce returns how many decode steps a launch has at most.
func (r *Runner) atOnce() int {
	switch t := &r.together; {
	case r.sampledApart():
		return 1
	case candidates(r.state.sampling, r.model.Config.Vocab) > 0:
		return t.drawing
	default:
		return t.tokens
	}
}

// prepareDrawing finds out how many decode steps a launch that draws tokens may have, if this call is the
// first that may need it. The kernel that draws takes more shared memory than the one that does not.
func (r *Runner) prepareDrawing() error {
	t := &r.together
	if t.drawing >= 0 || candidates(r.state.sampling, r.model.Config.Vocab) == 0 || r.sampledApart() {
		return nil
	}
	a := t.args
	a.Draw = 1
	tokens := 0
	err := r.loading.first(loadKernels, func() (err error) {
		_, tokens, err = r.stream.DecodeWork(a)
		return err
	})
	switch {
	case errors.Is(err, cuda.ErrNoKernel):
		t.drawing = 0
	case err != nil:
		return err
	default:
		t.drawing = tokens
	}
	return nil
}

// refuse makes all later decode steps of the session run as graphs, or by the kernels of mode eager. What was allocated
// stays until Close, since launches may still use it.
func (r *Runner) refuse(cause error) {
	r.together.on, r.together.refused = false, reason(cause)
	r.backend.fallBack(r.together.refused)
}

// reason is an error without the name of the call.
func reason(err error) string {
	if failed := (*cuda.Error)(nil); errors.As(err, &failed) && failed.Text != "" {
		return failed.Text
	}
	return err.Error()
}

// noProgram is why the decode kernel cannot run a plan.
type noProgram string

func (e noProgram) Error() string { return string(e) }

func (e noProgram) Is(target error) bool { return target == cuda.ErrNoKernel }

// program is a decode plan as the kernel of mode persistent reads it.
type program struct {
	steps   []cuda.DecodeStep
	planned []int           // of each step, that of the plan
	folds   []cuda.FoldArgs // to be launched once
	end     cuda.Ptr        // of the vectors that folds write
}

// program makes the program of the decode plan. The vectors that belong to it begin at an
// address. The error is a noProgram, if the kernel has no step for one of the plan's.
func (w *writer) program(vectors cuda.Ptr) (p program, err error) {
	c := w.config
	switch {
	case w.plan.Pass.Batch > cuda.DecodeSequences:
		return p, noProgram(fmt.Sprintf("there are %d sequences, and its kernel decodes 1 to %d", w.plan.Pass.Batch, cuda.DecodeSequences))
	case c.Activation != gpt2.GELUNew:
		return p, noProgram(fmt.Sprintf("the model's activation is %s, and its kernel has gelu_new", c.Activation))
	case c.Inner != 4*c.Channels:
		return p, noProgram(fmt.Sprintf("the MLP is %d wide, and its kernel takes 4 x %d", c.Inner, c.Channels))
	}
	p.end = vectors
	take := func(n int) cuda.Ptr {
		at := p.end
		p.end += cuda.Ptr(align(4 * int64(n)))
		return at
	}
	folded := map[string]cuda.FoldArgs{} // by the weights of the product: a layer may run several times
	residual := cuda.DecodeEmbedding     // what the next LayerNorm reads
	for i, s := range w.plan.Steps {
		var step cuda.DecodeStep
		switch o := s.Last(); s.Op() {
		case gpt2.OpEmbed, gpt2.OpSample:
			continue
		case gpt2.OpAttention:
			if want := 1 / math.Sqrt(float64(c.HeadSize())); math.Abs(o.Scale-want) > 1e-6*want {
				return p, noProgram(fmt.Sprintf("%s multiplies scores by %.4g, and its kernel by 1/sqrt(%d)", s.Name(), o.Scale, c.HeadSize()))
			}
			step.Kind = cuda.DecodeAttention
			step.KCache, step.VCache = w.cacheOf(o.Slot)
		case gpt2.OpLinear:
			var linear gpt2.Operation
			var norm *gpt2.Operation
			for n, op := range s.Ops {
				switch op.Op {
				case gpt2.OpLayerNorm:
					norm = &s.Ops[n]
				case gpt2.OpLinear:
					linear = op
				case gpt2.OpActivation:
					step.Act = activations[op.Activation]
				}
			}
			in, known := decodeInputs[s.Ops[0].In]
			out, writes := decodeOutputs[o.Out]
			if !known || !writes {
				return p, noProgram(fmt.Sprintf("its kernel has no step for %s", s.Name()))
			}
			step.Kind, step.In, step.Out, step.N, step.K = cuda.DecodeLinear, in, out, int32(linear.N), int32(linear.K)
			step.W, step.Bias = w.params[linear.Weight].ptr, w.params[linear.Bias].ptr
			if norm == nil {
				break
			}
			step.In, residual = residual, cuda.DecodeResidual
			f, done := folded[linear.Weight]
			if !done {
				f = cuda.FoldArgs{N: step.N, K: step.K, W: step.W, Gain: w.params[norm.Weight].ptr, Shift: w.params[norm.Bias].ptr, Bias: step.Bias,
					Sums: take(linear.N), Folded: take(linear.N)}
				folded[linear.Weight] = f
				p.folds = append(p.folds, f)
			}
			step.Gain, step.Sums, step.Bias = f.Gain, f.Sums, f.Folded
		default:
			return p, noProgram(fmt.Sprintf("its kernel has no step for %s", s.Name()))
		}
		p.steps, p.planned = append(p.steps, step), append(p.planned, i)
	}
	return p, nil
}

// What the buffers of a plan are to the decode kernel. A LayerNorm reads the residual
// stream, and a product that is added to it is no step of its own.
var (
	decodeInputs  = map[gpt2.Buffer]cuda.DecodeData{gpt2.BufX: cuda.DecodeResidual, gpt2.BufAttn: cuda.DecodeAttended, gpt2.BufInner: cuda.DecodeHidden}
	decodeOutputs = map[gpt2.Buffer]cuda.DecodeData{gpt2.BufX: cuda.DecodeResidual, gpt2.BufQKV: cuda.DecodeQKV, gpt2.BufInner: cuda.DecodeHidden, gpt2.BufLogits: cuda.DecodeLogits}
)

// table is the bytes of a program's steps, which follow its vectors.
func (p program) table() int64 {
	return align(int64(len(p.steps)) * int64(unsafe.Sizeof(cuda.DecodeStep{})))
}

// decodeArgs are the arguments of launches of a program, but for addresses that may change.
func (w *writer) decodeArgs(p program) cuda.DecodeArgs {
	c := w.config
	logits := w.view(gpt2.BufLogits, 1)
	return cuda.DecodeArgs{
		Count: int32(len(p.steps)), Steps: p.end, WTE: w.params["wte.weight"].ptr, WPE: w.params["wpe.weight"].ptr,
		C: int32(c.Channels), NH: int32(c.Heads), P: int32(w.options.Context), V: int32(c.Vocab), B: int32(w.plan.Pass.Batch), LD: int32(logits.ld),
		SlotCount: ringSlots, Blocks: int32(w.backend.options.decodeBlocks), Timeout: int32(decodeTimeout.Milliseconds()), Eps: float32(c.Epsilon),
	}
}

// decodeNeeds is what the decode kernel needs of a session, and can do.
type decodeNeeds struct {
	program, work int64 // bytes of the program, and of its work area
	tokens        int   // decode steps of a launch, at most
	rows          int   // of a prompt, at most; 1 is a decode step
}

// decodeNeeds returns what the program of the decode plan needs.
// The error matches [cuda.ErrNoKernel] if the plan has no program, or the device no kernel.
func (w *writer) decodeNeeds() (n decodeNeeds, err error) {
	p, err := w.program(standIn)
	if err != nil {
		return n, err
	}
	a := w.decodeArgs(p)
	err = w.loading.first(loadKernels, func() (err error) {
		n.work, n.tokens, err = w.stream.DecodeWork(a)
		return err
	})
	if err != nil {
		return n, err
	}
	n.program, n.rows = int64(p.end-standIn)+p.table(), 1
	for a.Rows = 2; a.Rows <= cuda.DecodeRows && a.B == 1; a.Rows++ {
		work, _, err := w.stream.DecodeWork(a)
		if errors.Is(err, cuda.ErrNoKernel) {
			break
		}
		if err != nil {
			return n, err
		}
		n.rows, n.work = int(a.Rows), max(n.work, work)
	}
	n.work = max(n.work, 16)
	return n, nil
}

// makeProgram puts the program of the decode plan on the device.
func (r *Runner) makeProgram(plan *gpt2.Plan) error {
	defer annotate.Range("make decode program", nvtx.Cyan)()
	t, w := &r.together, r.writer(plan)
	needs, err := w.decodeNeeds()
	if err != nil {
		return err
	}
	if t.program, err = r.backend.dev.Alloc(needs.program); err != nil {
		return fmt.Errorf("the decode program takes %d KiB of GPU memory: %w", needs.program>>10, err)
	}
	if t.work, err = zeroed(r.stream, needs.work); err != nil {
		return err
	}
	p, err := w.program(t.program.Ptr())
	if err != nil {
		return err
	}
	args := w.decodeArgs(p)
	args.Work = t.work.Ptr()
	if err := cuda.CheckDecode(p.steps, args); err != nil {
		return err
	}
	for _, f := range p.folds {
		if err := r.loading.first(loadKernels, func() error { return r.stream.Fold(f) }); err != nil {
			return err
		}
	}
	table := unsafe.Slice((*byte)(unsafe.Pointer(&p.steps[0])), len(p.steps)*int(unsafe.Sizeof(p.steps[0])))
	if err := t.program.Write(int64(p.end-t.program.Ptr()), table); err != nil {
		return err
	}
	t.plan, t.planned, t.args, t.tokens, t.drawing, t.rows = plan, p.planned, args, needs.tokens, -1, needs.rows
	return nil
}

// decodeNames are those of launches, by their decode steps.
var decodeNames = func() (names [cuda.DecodeTokens + 1]string) {
	for n := range names {
		names[n] = fmt.Sprintf("decode x%d", n)
	}
	return names
}()

// promptNames are those of launches of prompts, by their rows.
var promptNames = func() (names [cuda.DecodeRows + 1]string) {
	for n := range names {
		names[n] = fmt.Sprintf("prefill T=%d", n)
	}
	return names
}()

// decodeArgs returns what launches of the decode kernel take, of a decode step or of a short prompt, but
// for how many tokens it runs and how they are drawn.
func (r *Runner) decodeArgs(plan *gpt2.Plan) cuda.DecodeArgs {
	at, a := r.addresses(), r.together.args
	a.Sampling, a.Pos, a.TokensIO, a.Slots, a.Logits = at.sampling, at.pos, at.tokens, at.ring, at.buffers[gpt2.BufLogits]
	if rows := plan.Pass.Tokens; rows > 1 {
		a.Rows, a.IDs = int32(rows), at.ids
	}
	return a
}

// drawAfter returns the launch that draws tokens from the logits of the decode kernel.
func (r *Runner) drawAfter(plan *gpt2.Plan) cuda.SampleArgs {
	s := r.writer(plan).sample(plan.Steps[len(plan.Steps)-1].Last())
	s.DecodeWork = r.together.args.Work
	return s
}

// decodeTogether launches up to n decode steps at a position in one kernel, and returns
// how many. If c is a prompt, that is the one step.
func (r *Runner) decodeTogether(c *compiled, position, n int) (int, error) {
	t, rows := &r.together, c.plan.Pass.Tokens
	if n = min(n, r.atOnce(), r.options.Context-position-rows+1); n < 1 {
		return 0, fmt.Errorf("the context of %d tokens is full", r.options.Context)
	}
	a := r.decodeArgs(c.plan)
	apart, draw := r.sampledApart(), candidates(r.state.sampling, r.model.Config.Vocab)
	if rows > 1 {
		n, apart = 1, draw > 0 // its kernel does not draw
	}
	if apart || !c.samples {
		n, a.LogitsOnly = 1, 1
	} else {
		a.Draw = int32(draw)
	}
	name := decodeNames[n]
	if rows > 1 {
		name = promptNames[rows]
	}
	a.Tokens = int32(n)
	defer annotate.Range(name, nvtx.Green)()
	var rec *decodeStamps
	var note *decodeLaunch
	if a.Stamps == 0 {
		var err error
		if rec, err = r.decodeRecorder(r.atOnce()); err != nil {
			return 0, err
		}
		if rec != nil {
			n = min(n, rec.tokens)
			a.Tokens = int32(n)
			step := r.state.step + uint64(position-r.state.position)
			if note, a.Stamps, err = rec.begin(c, r.state.step, step, position, n); err != nil {
				return 0, err
			}
		}
	}
	kernel := 0
	if a.Stamps != 0 {
		kernel++
	}
	if a.Draw != 0 {
		kernel += 2
	}
	if rows > 1 {
		kernel += 4
	}
	loaded := &t.loaded[kernel]
	var err error
	if *loaded {
		err = r.stream.Decode(a)
	} else {
		err = r.loading.first(loadKernels, func() error { return r.stream.Decode(a) })
	}
	if note != nil {
		rec.end(note, err)
	}
	if err != nil {
		return 0, err
	}
	*loaded = true
	if apart && c.samples {
		s := r.drawAfter(c.plan)
		draw := func() error { return r.stream.Sample(s) }
		if note != nil {
			err = rec.draw(note, draw)
		} else {
			err = draw()
		}
		if err != nil {
			return 0, err
		}
	}
	r.last = lastPass{plan: c.plan, rows: rows, logitsOnly: true}
	return n, nil
}

// checkLate tells of a timeout after launches whose token nothing awaits, which have ended.
func (r *Runner) checkLate(c *compiled) error {
	if !r.together.on || c.samples {
		return nil
	}
	var h cuda.DecodeHeader
	if err := r.together.work.Read(0, unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h))); err != nil {
		return err
	}
	if h.Expired == 0 {
		return nil
	}
	return r.timedOut(c.plan, lateError(h.Expired&math.MaxInt32))
}

// explain makes the error of a step of a plan whose slot tells of a timeout.
func (r *Runner) explain(plan *gpt2.Plan, err error) error {
	if late, ok := err.(lateError); ok {
		return r.timedOut(plan, late)
	}
	return err
}

// timedOut ends mode persistent for the session after a launch of a plan in which a block waited too
// long. Position and tokens are those of the last step that was read.
func (r *Runner) timedOut(plan *gpt2.Plan, late lateError) error {
	t := &r.together
	r.state.stale = true
	step, block, patience, what := late.where()
	var failure error = fmt.Errorf("SM %d waited longer than %v for %s, in step %d of the kernel of mode persistent", block, patience, what, step)
	if step < len(t.planned) {
		failure = gpt2.NewStageError(plan, plan.Steps[t.planned[step]], r.state.position, failure)
	}
	r.refuse(errors.New("its kernel timed out in this session"))
	if err := r.stream.Synchronize(); err != nil { // launches that were ahead end at once
		return fmt.Errorf("%w; and after that: %w", failure, err)
	}
	if err := r.stream.Set(t.work, 0, 0, t.work.Size()); err != nil {
		return fmt.Errorf("%w; and after that: %w", failure, err)
	}
	return failure
}
