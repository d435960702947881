package exec

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/nvtx/annotate"
)

// compiled is a plan as launches.
type compiled struct {
	plan        *gpt2.Plan
	steps       [][]launch // of each step of the plan
	ranges      *annotate.Pass
	samples     bool
	singleSteps bool      // of the persistent kernel
	single      *compiled // the same pass by such steps; nil until they are made
	runs        int       // eager ones
	plain       variant   // the variant that does not stamp
}

// launch is one call into the library.
type launch struct {
	run     func() error
	product int // rows of the product if it is cuBLASLt's, whose kernels do not stamp; else 0
}

// loads is what the first launch may load.
func (l launch) loads() int {
	if l.product > 0 {
		return loadBLAS
	}
	return loadKernels
}

// writer turns the steps of a plan into launches.
type writer struct {
	backend *Backend
	config  gpt2.Config
	options gpt2.Options
	params  map[string]param
	stream  *cuda.Stream
	loading *loading
	at      addresses

	plan  *gpt2.Plan
	steps [][]launch
}

// addresses say where launches read and write.
type addresses struct {
	buffers [gpt2.NumBuffers]cuda.Ptr // activations
	cache   cuda.Ptr                  // (slots of the run order, 2, B, NH, P, HS)

	sampling cuda.Ptr // gs_sampling
	pad      cuda.Ptr // (1) int32
	pos      cuda.Ptr // (B) int32
	tokens   cuda.Ptr // (B) int32
	ids      cuda.Ptr // (B, T) int32

	ring          cuda.Ptr // (ringSlots, B) gs_slot
	sampleWork    cuda.Ptr
	attentionWork cuda.Ptr
	widened       cuda.Ptr
}

func (w *writer) add(f func() error) { w.addLaunch(launch{run: f}) }

func (w *writer) addLaunch(l launch) { w.steps[len(w.steps)-1] = append(w.steps[len(w.steps)-1], l) }

// typeOf returns the type in which a buffer is held in a pass of the plan: the residual stream is float32, and so are
// logits that are sampled from.
func (b *Backend) typeOf(buffer gpt2.Buffer, plan *gpt2.Plan) cuda.DType {
	switch {
	case buffer == gpt2.BufX:
		return cuda.F32
	case buffer == gpt2.BufLogits && (plan.Pass.Sample || plan.Buffers[buffer].Rows == 1):
		return cuda.F32
	}
	return b.dtype
}

// pitch returns the distance between rows of a buffer, in elements.
func pitch(buffer gpt2.Buffer, plan *gpt2.Plan) int {
	if buffer == gpt2.BufLogits {
		return padVocab(plan.Buffers[buffer].Width)
	}
	return plan.Buffers[buffer].Width
}

// view addresses the last rows of each sequence of a buffer: all of them, or one.
type view struct {
	ptr cuda.Ptr
	ld  int // elements between rows
}

func (w *writer) view(b gpt2.Buffer, rows int) view {
	have, width := w.plan.Buffers[b].Rows, pitch(b, w.plan)
	if rows == have {
		return view{w.at.buffers[b], width}
	}
	skip := (have - rows) * width * w.backend.typeOf(b, w.plan).Size() // rows is 1: a row per sequence, have rows apart
	return view{w.at.buffers[b] + cuda.Ptr(skip), have * width}
}

// write compiles all steps. A step without rows has no launches. past is how many tokens the cache holds, for errors.
func (w *writer) write(past int) error {
	for _, s := range w.plan.Steps {
		w.steps = append(w.steps, nil)
		if err := w.one(s); err != nil {
			return gpt2.NewStageError(w.plan, s, past, err)
		}
	}
	return nil
}

func (w *writer) one(s gpt2.Step) error {
	B := int32(w.plan.Pass.Batch)
	switch o := s.Ops[0]; {
	case o.Op == gpt2.OpAttention:
		return w.attention(o)
	case o.Rows == 0:
		return nil
	case s.Op() == gpt2.OpLinear:
		return w.linear(s)
	case o.Op == gpt2.OpEmbed:
		x := w.view(o.Out, o.Rows)
		a := cuda.EmbedArgs{
			DType: w.backend.held, IDs: w.at.ids, Pos: w.at.pos, Pad: w.at.pad,
			WTE: w.params[o.Weight].ptr, WPE: w.params[o.Bias].ptr, X: x.ptr,
			B: B, T: int32(o.Rows), C: int32(o.N), P: int32(w.config.Positions),
		}
		if o.Rows == 1 { // where the step before put them
			a.IDs = w.at.tokens
		}
		w.add(func() error { return w.stream.Embed(a) })
	case o.Op == gpt2.OpLayerNorm:
		w.norm(s, nil)
	case o.Op == gpt2.OpAdd && len(s.Ops) == 2:
		w.norm(s, &o)
	case o.Op == gpt2.OpActivation:
		x := w.view(o.In, o.Rows)
		a := cuda.ActivationArgs{Variant: w.backend.variants[o.Stage], X: x.ptr, Y: x.ptr, M: B * int32(o.Rows),
			N:   int32(o.N),
			LDX: int32(x.ld), LDY: int32(x.ld), DType: w.backend.typeOf(o.In, w.plan), Act: activations[o.Activation]}
		w.add(func() error { return w.stream.Activate(a) })
	case o.Op == gpt2.OpAdd:
		x, z := w.view(o.In, o.Rows), w.view(o.Aux, o.Rows)
		a := cuda.AddArgs{Variant: w.backend.variants[o.Stage], X: x.ptr, Z: z.ptr, M: B * int32(o.Rows), N: int32(o.N),
			LDX: int32(x.ld), LDZ: int32(z.ld), DType: w.backend.typeOf(o.Aux, w.plan)}
		w.add(func() error { return w.stream.Add(a) })
	case o.Op == gpt2.OpSample:
		a := w.sample(o)
		w.add(func() error { return w.stream.Sample(a) })
	default:
		return fmt.Errorf("operation %s is not implemented", o.Op)
	}
	return nil
}

func (w *writer) sample(o gpt2.Operation) cuda.SampleArgs {
	logits := w.view(o.In, 1)
	return cuda.SampleArgs{
		Variant: w.backend.variants[o.Stage], Logits: logits.ptr, Sampling: w.at.sampling, Pos: w.at.pos, Pad: w.at.pad,
		Tokens: w.at.tokens, Slots: w.at.ring, Work: w.at.sampleWork,
		B: int32(w.plan.Pass.Batch), V: int32(w.config.Vocab), LD: int32(logits.ld), T: int32(w.plan.Pass.Tokens),
		Count: ringSlots,
	}
}

var activations = map[gpt2.Activation]cuda.Activation{gpt2.GELUNew: cuda.GELUTanh, gpt2.GELUErf: cuda.GELUErf,
	gpt2.ReLU: cuda.ReLU}

// norm: x += proj where add is given; norm = LayerNorm(x).
func (w *writer) norm(s gpt2.Step, add *gpt2.Operation) {
	o := s.Last()
	x, y := w.view(o.In, o.Rows), w.view(o.Out, o.Rows)
	a := cuda.LayerNormArgs{
		Variant: w.backend.variants[o.Stage], X: x.ptr, LDX: int32(x.ld), Y: y.ptr, LDY: int32(y.ld),
		YType: w.backend.typeOf(o.Out, w.plan),
		Gain:  w.params[o.Weight].ptr, Bias: w.params[o.Bias].ptr,
		M: int32(w.plan.Pass.Batch * o.Rows), C: int32(o.K), Eps: float32(w.config.Epsilon),
	}
	if add != nil {
		z := w.view(add.Aux, add.Rows)
		a.Add, a.LDAdd, a.AddType = z.ptr, int32(z.ld), w.backend.typeOf(add.Aux, w.plan)
	}
	w.add(func() error { return w.stream.LayerNorm(a) })
}

// linear: y = act(norm(x) W + b), or x += norm(x) W + b, with what was fused.
func (w *writer) linear(s gpt2.Step) error {
	var a cuda.LinearArgs
	var o gpt2.Operation // the Linear
	for _, op := range s.Ops {
		switch op.Op {
		case gpt2.OpLayerNorm:
			a.Gain, a.Shift, a.Eps = w.params[op.Weight].ptr, w.params[op.Bias].ptr, float32(w.config.Epsilon)
		case gpt2.OpLinear:
			o = op
		case gpt2.OpActivation:
			a.Act = activations[op.Activation]
		case gpt2.OpAdd:
			a.Accumulate = 1
		}
	}
	in, out := s.Ops[0].In, s.Last().Out
	matrix, bias := w.params[o.Weight], w.params[o.Bias]
	a.DType, a.YType, a.K = w.backend.held, w.backend.typeOf(out, w.plan), int32(o.K)
	N := o.N
	if out == gpt2.BufLogits {
		N = padVocab(N)
	}
	part := func(rows, from, to int) error { // columns of the output
		a := a
		x, y := w.view(in, rows), w.view(out, rows)
		a.X, a.LDX, a.LDY, a.M, a.N = x.ptr, int32(x.ld), int32(y.ld), int32(w.plan.Pass.Batch*rows), int32(to-from)
		a.Variant = w.variant(o, fmt.Sprintf("%d rows", a.M), func(name string) bool {
			return a.M <= cuda.GEMVRows || !strings.HasPrefix(name, "gemv") && (a.M <= cuda.FewRows || name != "rows")
		})
		a.W = matrix.ptr + cuda.Ptr(from*a.DType.RowBytes(o.K))
		a.Y = y.ptr + cuda.Ptr(from*a.YType.Size())
		if bias.ptr != 0 {
			a.Bias = bias.ptr + cuda.Ptr(4*from)
		}
		if bias.half != 0 {
			a.BiasBF16 = bias.half + cuda.Ptr(2*from)
		}
		if a.DType != cuda.Q8 {
			return w.product(a)
		}
		taken, err := w.stream.LinearVariant(a)
		if err != nil {
			return err
		}
		if name := w.backend.lib.Variants(cuda.OpLinear)[taken]; name == "gemv" || name == "rows" {
			return w.product(a)
		}
		return w.widened(a)
	}
	if o.Stage != gpt2.StageCAttn || o.Queries == o.Rows {
		return part(o.Rows, 0, N)
	}
	C := o.K // keys and values of all rows, queries of the last ones
	if o.Queries > 0 {
		if err := part(o.Queries, 0, C); err != nil {
			return err
		}
	}
	return part(o.Rows, C, 3*C)
}

func (w *writer) product(a cuda.LinearArgs) error {
	l := launch{run: func() error { return w.stream.Linear(a) }}
	blas, err := w.stream.NeedsBLAS(a)
	if err == nil && blas {
		l.product = int(a.M)
		err = w.choose(a)
	}
	if err != nil {
		return err
	}
	w.addLaunch(l)
	return nil
}

// widened: a product of 8-bit weights as products in bfloat16, of as many rows of W as there is room for.
func (w *writer) widened(a cuda.LinearArgs) error {
	rows, per := a.N, int32(w.backend.widenedBytes(w.config)/int64(2*a.K))
	pack := cuda.PackArgs{Src: a.W, Dst: w.at.widened, Cols: a.K, LDDst: a.K, SrcType: a.DType, DstType: cuda.BF16}
	a.W, a.DType = pack.Dst, pack.DstType
	for ; rows > 0; rows -= per {
		a.N = min(per, rows)
		pack.Rows = a.N
		part := pack
		w.add(func() error { return w.stream.Pack(part) })
		if err := w.product(a); err != nil {
			return err
		}
		pack.Src += cuda.Ptr(int(a.N) * cuda.Q8.RowBytes(int(a.K)))
		a.Y += cuda.Ptr(int(a.N) * a.YType.Size())
		if a.Bias != 0 {
			a.Bias, a.BiasBF16 = a.Bias+cuda.Ptr(4*a.N), a.BiasBF16+cuda.Ptr(2*a.N)
		}
	}
	return nil
}

// choose makes the stream keep an algorithm for a product, the first of the library's heuristic.
func (w *writer) choose(a cuda.LinearArgs) error {
	if err := w.loading.first(loadBLAS, w.backend.lib.OpenBLAS); err != nil {
		return err
	}
	return w.loading.first(loadBLAS, func() error { return w.stream.TuneLinear(a, 0) })
}

// variant returns the stage's chosen kernel if that takes the shape of a launch. Else it returns auto, since a stage
// has other kernels for few rows than for many, and gives a notice once.
func (w *writer) variant(o gpt2.Operation, shape string, takes func(name string) bool) int32 {
	v := w.backend.variants[o.Stage]
	if v == 0 {
		return 0
	}
	name := w.backend.lib.Variants(ops[o.Op])[v]
	if takes(name) {
		return v
	}
	w.backend.noticeOnce(fmt.Sprintf("--variant %s=%s does not take %s; there the stage runs as by default",
		o.Stage.Info().Name, name, shape))
	return 0
}

// NeedsBLAS reports whether products of so many rows are cuBLASLt's, unless another kernel is chosen for them.
func (b *Backend) NeedsBLAS(rows int) (bool, error) {
	s, err := b.dev.NewStream()
	if err != nil {
		return false, err
	}
	const n = 64
	blas, err := s.NeedsBLAS(cuda.LinearArgs{X: standIn, W: standIn, Y: standIn, M: int32(rows), N: n, K: n, LDX: n,
		LDY: n, DType: b.dtype, YType: cuda.F32})
	return blas, cmp.Or(err, s.Close())
}

// OpenBLASAhead opens cuBLASLt in the background if products of so many rows are its: while weights are uploaded, so
// that the first pass waits less. That pass gives the error if there is one.
func (b *Backend) OpenBLASAhead(rows int) {
	if blas, err := b.NeedsBLAS(rows); blas && err == nil {
		go func() { _ = b.lib.OpenBLAS() }()
	}
}

// attention: K and V of the new rows go into the cache of the slot, then each query attends to it.
func (w *writer) attention(o gpt2.Operation) error {
	c := w.config
	qkv := w.view(o.In, o.Rows)
	variant := w.variant(o, fmt.Sprintf("%d queries of %d rows", o.Queries, o.Rows), func(name string) bool {
		switch {
		case name == "split":
			return o.Queries == 1
		case w.backend.options.KVQ8 && o.Rows == 1:
			return false
		case strings.HasPrefix(name, "flash"), name == "wgmma", name == "queue":
			return o.Queries == o.Rows && o.Rows > 1
		}
		return true
	})
	a := cuda.AttentionArgs{
		Variant: variant, QKV: qkv.ptr, LDQKV: int32(qkv.ld), Pos: w.at.pos, Pad: w.at.pad, Work: w.at.attentionWork,
		B: int32(w.plan.Pass.Batch), T: int32(o.Rows), Q: int32(o.Queries), NH: int32(c.Heads), HS: int32(c.HeadSize()),
		P:     int32(w.options.Context),
		DType: w.backend.dtype, Scale: float32(o.Scale),
	}
	if w.plan.Buffers[o.In].Rows != o.Rows {
		return errors.New("attention must take all rows of qkv")
	}
	a.KCache, a.VCache = w.cacheOf(o.Slot)
	if w.backend.options.KVQ8 {
		a.Wide, _ = w.cacheOf(len(w.options.Layers))
	}
	if o.Queries > 0 {
		y := w.view(o.Out, o.Queries)
		a.Y, a.LDY = y.ptr, int32(y.ld)
	}
	w.add(func() error { return w.stream.Attention(a) })
	return nil
}

// cacheOf returns where the keys and values of a slot of the run order are.
func (w *writer) cacheOf(slot int) (keys, values cuda.Ptr) {
	half, _ := w.backend.halfBytes(w.config, w.options)
	keys = w.at.cache + cuda.Ptr(int64(2*slot)*half)
	return keys, keys + cuda.Ptr(half)
}
