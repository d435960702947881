// Package exec executes plans on an NVIDIA GPU.
//
// A [Backend] is a GPU with the CUDA library; its sessions share the weights of a model on the device. A session owns a
// stream, a KV cache and the activations of a pass.
//
// # Steps
//
// A plan is compiled into launches with fixed arguments. Up to [cuda.GEMVRows] rows, a matrix-vector kernel also does
// the LayerNorm before its product, and the activation or residual add after it; a layer of a decode step is then five
// launches. With more rows bias, GELU and the residual add follow in the same launch as the product: a kernel of our
// own for Hopper GPUs in bfloat16, up to [cuda.WGMMARows] rows, any number where the result is bfloat16, else
// cuBLASLt, which is opened only then.
//
// # Modes
//
// Eager launches step after step, each under its own NVTX range. Graph captures a pass in a CUDA graph once and replays
// it: positions and sampling parameters are read from device memory, so that a captured pass never changes. A prompt is
// padded at its front to a length for which a graph is kept; idle rows have no effect on the others. A pass runs
// eagerly the first time, which loads its kernels, and is captured the second time.
//
// Persistent is Graph for prompts but short ones: of up to [cuda.PersistentRows] tokens of one sequence, in bfloat16,
// with the last row of logits. These, and decode steps, run inside one kernel, up to [cuda.PersistentTokens] in a
// launch, which interprets the decode plan as a program. Where tokens are drawn from more candidates than it can
// ([cuda.CanSample]), and by Auto in float32, a launch is one step, and the kernel of the other modes samples after it.
// The limits are eight sequences, and sampling on the device. Beyond them decode steps run as graphs, and a notice says
// why. With the variant decode=steps, of mode Eager, each step of the program is a launch; logits are bit by bit those
// of Persistent. Under a profiler Persistent becomes this variant.
//
// Auto, the default, is Persistent within these limits and for the widths at which it was measured to be faster, and
// Graph beyond them, without a notice. Under a profiler it is Eager.
//
// # Tokens
//
// A decode step reads its token from device memory, where the step before it wrote it. The host reads tokens from a
// ring of slots in pinned memory, several steps behind the launches. When the caller stops early, steps that ran ahead
// are dropped by rewinding the position.
package exec

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"gpt2scope/ceilings"
	"gpt2scope/cuda"
	"gpt2scope/cuda/cupti"
	"gpt2scope/cuda/persistent"
	"gpt2scope/gpt2"
	"gpt2scope/nvtx"
	"gpt2scope/weights"
)

// Options choose a GPU and how passes run on it. The zero value is the default.
type Options struct {
	Device int           // index, as CUDA counts devices
	DType  weights.DType // of weights and activations: weights.BF16 (also 0) or weights.F32
	Q8     bool          // with BF16: matrices are held in 8 bits, all but wpe
	KVQ8   bool          // with BF16: keys and values are, with a scale for each of a head; not in mode persistent
	Mode   Mode

	// Variants choose kernels: by a stage's name in its layer, such as "attn.sdpa", that of a variant, such as "naive".
	// Variants of "residual_1" and "residual_2" are "gemm", the epilogue of the product before the residual add, and
	// "norm", which fuses it with the LayerNorm after it. "decode" stands for all stages of a decode step; its variant
	// "steps" runs each step of mode persistent as a kernel of its own, in mode eager.
	Variants map[string]string

	Notice func(string) // called with one line that a user should read

	// Recorder is what [Runner.StartRecording] records with: one of the Recorder constants. CUPTI slows the process from
	// its start.
	Recorder string

	decodeBlocks int // of the kernel of mode persistent; 0: one per SM
}

// Backend executes plans on one GPU. It may be used from several goroutines.
type Backend struct {
	lib      *cuda.Library
	dev      *cuda.Device
	options  Options
	dtype    cuda.DType // of activations and the KV cache
	held     cuda.DType // of matrices
	tool     string     // the variable that says that a profiler is attached, "" if none is
	choice              // how passes are launched
	variants map[gpt2.Stage]int32
	inGEMM   map[gpt2.Stage]bool // residual adds done in the epilogue of the product
	cupti    *cupti.Recorder     // nil where it is not to be used, or not there

	given    sync.Map               // notices
	fallback atomic.Pointer[string] // what ran otherwise than in mode persistent, and why, the last time
	// of mode auto: why decode steps run as graphs, the last time; "" if they run in one kernel
	found  atomic.Pointer[string]
	mu     sync.Mutex
	models map[*gpt2.Model]*uploaded
	closed bool
}

// New opens the CUDA library and a device. The error says what is missing.
func New(o Options) (*Backend, error) {
	lib, err := cuda.Open()
	if err != nil {
		return nil, err
	}
	return NewOn(lib, o)
}

// NewOn is [New] with a library that is open already.
func NewOn(lib *cuda.Library, o Options) (*Backend, error) {
	b := &Backend{lib: lib, options: o, tool: nvtx.Tool(), models: map[*gpt2.Model]*uploaded{}}
	switch o.DType {
	case "", weights.BF16:
		b.dtype = cuda.BF16
	case weights.F32:
		b.dtype = cuda.F32
	default:
		return nil, fmt.Errorf("weights cannot be %s on the GPU; BF16 and F32 are supported", o.DType)
	}
	var err error
	if b.dev, err = lib.Device(o.Device); err != nil {
		return nil, err
	}
	if b.held = b.dtype; o.Q8 {
		if b.held = cuda.Q8; b.dtype != cuda.BF16 {
			return nil, fmt.Errorf("8-bit weights on the GPU are for activations in BF16, not %s", o.DType)
		}
	}
	if o.KVQ8 && b.dtype != cuda.BF16 {
		return nil, fmt.Errorf("keys and values in 8 bits (--kv q8) are for activations in BF16, not %s", o.DType)
	}
	if is := b.dev.Info(); b.dtype == cuda.BF16 && is.Major < 8 {
		return nil, fmt.Errorf("GPU %d (%s) has compute capability %d.%d, which has no bfloat16: use float32, --dtype f32",
			is.Index, is.Name, is.Major, is.Minor)
	}
	if err := b.chooseVariants(); err != nil {
		return nil, err
	}
	if b.choice, err = b.chooseMode(nil); err != nil {
		return nil, err
	}
	b.say(o.Mode, b.choice)
	if err := b.openRecorder(); err != nil {
		return nil, err
	}
	return b, nil
}

// Join is of [gpt2.Joiner]: sessions have streams of their own, so that small kernels of several run beside one another.
// A session in mode persistent takes all SMs.
func (b *Backend) Join(*gpt2.Model) (gpt2.Backend, int) {
	if b.mode == Graph {
		return b, 8
	}
	return b, 1
}

// noticeOnce gives a notice, unless it was given before.
func (b *Backend) noticeOnce(text string) {
	if _, given := b.given.LoadOrStore(text, true); !given {
		b.notice(text)
	}
}

func (b *Backend) notice(text string) {
	if b.options.Notice != nil {
		b.options.Notice(text)
	}
}

// ops maps the operations of plans to those of the library.
var ops = map[gpt2.Op]cuda.Op{
	gpt2.OpEmbed: cuda.OpEmbed, gpt2.OpLayerNorm: cuda.OpLayerNorm, gpt2.OpLinear: cuda.OpLinear,
	gpt2.OpAttention:  cuda.OpAttention,
	gpt2.OpActivation: cuda.OpActivation, gpt2.OpAdd: cuda.OpAdd, gpt2.OpSample: cuda.OpSample,
}

// chooseVariants turns the names of Options.Variants into numbers.
func (b *Backend) chooseVariants() error {
	b.variants = map[gpt2.Stage]int32{}
	b.inGEMM = map[gpt2.Stage]bool{gpt2.StageResidual1: true, gpt2.StageResidual2: true}
	for name, want := range b.options.Variants {
		if name == variantDecode {
			if want != variantSteps && want != "auto" {
				return fmt.Errorf("%s has no variant %q; it has auto, %s", name, want, variantSteps)
			}
			continue
		}
		at := slices.Index(gpt2.StageNames(), name)
		if at < 0 {
			return fmt.Errorf("no stage %q; stages are %s, and %s stands for all of a decode step", name,
				strings.Join(gpt2.StageNames(), ", "), variantDecode)
		}
		stage := gpt2.Stage(at)
		names := b.lib.Variants(ops[stage.Info().Op])
		if stage.Info().Op == gpt2.OpAdd {
			names = []string{"auto", "gemm", "norm"}
		}
		switch n := slices.Index(names, want); {
		case n < 0:
			return fmt.Errorf("stage %s has no variant %q; it has %s", name, want, strings.Join(names, ", "))
		case stage.Info().Op == gpt2.OpAdd:
			b.inGEMM[stage] = want != "norm"
		default:
			b.variants[stage] = int32(n)
		}
	}
	return nil
}

// Name returns "cuda".
func (b *Backend) Name() string { return "cuda" }

// Device returns the GPU.
func (b *Backend) Device() *cuda.Device { return b.dev }

// Library returns the CUDA library.
func (b *Backend) Library() *cuda.Library { return b.lib }

// Variants returns Options.Variants, kernels by the stage's name, and "kv" of caches in 8 bits.
func (b *Backend) Variants() map[string]string {
	all := map[string]string{}
	if b.options.KVQ8 {
		all["kv"] = "q8"
	}
	maps.Copy(all, b.options.Variants)
	return all
}

// Sizes are those of the type that holds weights, activations and the KV cache. They leave out that the residual stream
// is float32.
func (b *Backend) Sizes(m *gpt2.Model) gpt2.Sizes {
	s := sizes(b.dtype)
	s.Weight = float64(b.held.RowBytes(256)) / 256
	if b.options.KVQ8 {
		s.KV = 1 + 4/float64(m.Config.HeadSize())
	}
	return s
}

func typeName(t cuda.DType) string { return [...]string{"f32", "bf16", "f16", "q8"}[t] }

func sizes(t cuda.DType) gpt2.Sizes {
	n := t.Size()
	return gpt2.Sizes{Weight: float64(n), Activation: n, KV: float64(n), Multiply: typeName(t)}
}

// Unopened returns what [Backend.Sizes] and [Backend.Fuse] of a GPU would be that holds weights as dtype, without
// variants, for predictions that must not open CUDA.
func Unopened(dtype weights.DType) (gpt2.Sizes, func(*gpt2.Plan) *gpt2.Plan) {
	t := cuda.BF16
	if dtype == weights.F32 {
		t = cuda.F32
	}
	return sizes(t), func(p *gpt2.Plan) *gpt2.Plan {
		every := func(gpt2.Stage) bool { return true }
		return fuse(p, func(int) int { return cuda.GEMVRows }, every, every)
	}
}

// CeilingsKey names the GPU and the versions of what runs on it.
func (b *Backend) CeilingsKey() (string, error) { return b.dev.CeilingsKey() }

// MeasureCeilings is [cuda.Device.MeasureCeilings].
func (b *Backend) MeasureCeilings(ctx context.Context) (ceilings.Set, error) {
	return b.dev.MeasureCeilings(ctx)
}

// chains are operations that one launch can do; [Backend.Fuse] decides which are fused.
var chains = []gpt2.Chain{
	{gpt2.OpLayerNorm, gpt2.OpLinear, gpt2.OpActivation},
	{gpt2.OpLayerNorm, gpt2.OpLinear},
	{gpt2.OpLinear, gpt2.OpActivation},
	{gpt2.OpLinear, gpt2.OpAdd},
	{gpt2.OpAdd, gpt2.OpLayerNorm},
}

// Fuse joins the operations that one launch does: a LayerNorm and the Linear after it, up to [cuda.GEMVRows] rows, or
// one of decode steps where more are multiplied by tensor cores; a Linear and its activation; a Linear and the residual
// add after it, or a residual add and the LayerNorm after it.
func (b *Backend) Fuse(p *gpt2.Plan) *gpt2.Plan {
	rows := func(int) int { return cuda.GEMVRows }
	if is := b.dev.Info(); p.Pass.IsDecode() && b.dtype == cuda.BF16 && is.Major == 9 && is.Minor == 0 &&
		b.options.Mode != Persistent && !b.singleSteps {
		rows = func(width int) int {
			if b.options.Mode == Auto && !b.options.KVQ8 {
				return max(1, persistent.Sequences(width, b.held == cuda.Q8))
			}
			return 1
		}
	}
	return fuse(p, rows, b.takesNorm, func(s gpt2.Stage) bool { return b.inGEMM[s] })
}

// fuse is [Backend.Fuse]: a LayerNorm is fused up to rows of its width, takesNorm tells of a Linear, inGEMM of a
// residual add.
func fuse(p *gpt2.Plan, rows func(width int) int, takesNorm, inGEMM func(gpt2.Stage) bool) *gpt2.Plan {
	return p.FuseWhere(func(ops []gpt2.Operation) bool {
		all := p.Pass.Batch * ops[0].Rows
		switch {
		case ops[0].Op == gpt2.OpLayerNorm:
			return all <= rows(ops[1].K) && takesNorm(ops[1].Stage)
		case ops[0].Op == gpt2.OpAdd:
			return true
		case ops[1].Op == gpt2.OpAdd:
			return all <= cuda.GEMVRows || inGEMM(ops[1].Stage)
		}
		return true
	}, chains...)
}

// takesNorm reports whether the kernel chosen for a Linear can normalise its input.
func (b *Backend) takesNorm(s gpt2.Stage) bool {
	names := b.lib.Variants(cuda.OpLinear)
	v := int(b.variants[s])
	return v >= len(names) || names[v] != "blas" && names[v] != "wgmma" && names[v] != "rows"
}

// Close frees the weights. Sessions must be closed before.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	var errs []error
	if b.cupti != nil {
		errs = append(errs, b.cupti.Close())
	}
	for m, u := range b.models {
		errs = append(errs, u.free())
		delete(b.models, m)
	}
	return cmp.Or(errs...)
}

// Takes returns an error if the kernels do not compute what a model asks for.
func Takes(m *gpt2.Model) error {
	if _, ok := activations[m.Config.Activation]; !ok {
		return fmt.Errorf("model %s has the activation %s, for which the GPU has no kernel; use --device cpu", m.Name,
			m.Config.Activation)
	}
	return nil
}

// Prepare uploads the weights that the layers need, and allocates the KV cache.
func (b *Backend) Prepare(ctx context.Context, m *gpt2.Model, o gpt2.Options) (gpt2.Runner, error) {
	if err := Takes(m); err != nil {
		return nil, err
	}
	if c := m.Config; b.held == cuda.Q8 && (c.Channels%32 != 0 || c.Inner%32 != 0) {
		return nil, fmt.Errorf("model %s is %d wide, %d in its MLP, and 8-bit weights on a GPU have rows of multiples "+
			"of 32; use --dtype bf16", m.Name, c.Channels, c.Inner)
	}
	if c := m.Config; b.options.KVQ8 && (c.HeadSize()%16 != 0 || c.HeadSize() > 128) {
		return nil, fmt.Errorf("model %s has heads of %d values, and keys and values in 8 bits (--kv q8) are for "+
			"multiples of 16 up to 128", m.Name, c.HeadSize())
	}
	u, params, err := b.acquire(ctx, m, o.Layers, o.Progress)
	if err != nil {
		return nil, err
	}
	r, err := newRunner(b, m, o, u, params)
	if err != nil {
		return nil, cmp.Or(err, r.Close())
	}
	return r, nil
}
