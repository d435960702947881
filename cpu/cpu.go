// Package cpu executes plans on the host: kernels in C, called through cgo, for AVX-512, AVX2, NEON and plain C, chosen
// at run time; weights packed once into panels, as float32, bfloat16 or 8-bit integers with a scale per 32;
// neighbouring steps fused; one call into C per pass. It is tested against the executor of package reference/executor.
package cpu

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"

	"gpt2scope/ceilings"
	"gpt2scope/gpt2"
	"gpt2scope/traces"
	"gpt2scope/weights"
)

// Options say how the fast executor runs. The zero value is the default.
type Options struct {
	Threads int           // 0 is one for each physical core that the process may use
	DType   weights.DType // how weights, and keys and values, are held: weights.F32 (also 0) or weights.BF16
	ISA     string        // kernels to use, such as "avx2": see [Features]; "" takes GPT2SCOPE_CPU, else the fastest

	// Q8 holds the matrices of products, and wte if lm_head is tied to it, as 8-bit integers with a scale per 32 of them
	// (1.0625 bytes a weight), and keys and values as bfloat16, whatever DType is. Products round activations to 8 bits
	// too, and sum in float32; without instructions for dot products of bytes, those of many rows widen weights to
	// float32.
	Q8 bool

	// Share, if not nil, is a backend whose threads this one uses too. It must be closed after this one; Threads and ISA
	// are then not used.
	Share *Backend
}

// Backend is the fast executor. Its sessions share its threads, and the packed weights of a model. It may be used from
// several goroutines; passes take turns.
type Backend struct {
	pool  *pool
	lent  bool // the pool is another backend's
	dtype dtype

	mu     sync.Mutex
	models map[*gpt2.Model]*packedModel
}

// New makes a fast executor and starts its threads.
func New(o Options) (*Backend, error) {
	if o.ISA == "" {
		o.ISA = os.Getenv("GPT2SCOPE_CPU")
	}
	isa, err := chooseISA(o.ISA)
	if err != nil {
		return nil, err
	}
	b := &Backend{dtype: float32Type, models: map[*gpt2.Model]*packedModel{}}
	switch o.DType {
	case "", weights.F32:
	case weights.BF16:
		b.dtype = bfloat16Type
	default:
		return nil, fmt.Errorf("weights cannot be held as %s; F32 and BF16 are supported", o.DType)
	}
	if o.Q8 {
		b.dtype = q8Type
	}
	if o.Share != nil {
		b.pool, b.lent = o.Share.pool, true
		return b, nil
	}
	if b.pool, err = newPool(Threads(o.Threads), isa); err != nil {
		return nil, err
	}
	return b, nil
}

// Threads returns how many threads an Options.Threads stands for.
func Threads(n int) int {
	if n > 0 {
		return n
	}
	return min(physicalCores(), runtime.GOMAXPROCS(0), MaxThreads)
}

var _ gpt2.Recordable = (*runner)(nil)

// held is the type in which the matrices of a model are held. Float32 numbers that a checkpoint has as bfloat16 stay
// so: half the memory for the same products.
func (b *Backend) held(m *gpt2.Model) dtype {
	if b.dtype == float32Type && m.Matrices() == weights.BF16 {
		return exactType
	}
	return b.dtype
}

// weightTypes names the types in which weights are held.
var weightTypes = map[dtype]string{float32Type: "f32", bfloat16Type: "bf16", q8Type: "q8"}

// Describe says which processor this is, and how passes run on it.
func (b *Backend) Describe() gpt2.Description {
	name, _, _ := processor()
	return gpt2.Description{Name: b.Name(), Processor: name, WeightType: weightTypes[b.dtype], Threads: b.Threads(),
		Kernels: b.ISA(), Recorder: traces.RecorderHost}
}

// Name returns "cpu".
func (b *Backend) Name() string { return "cpu" }

// ISA returns the version of the kernels that runs, one of [Features].Versions.
func (b *Backend) ISA() string { return b.pool.isa.String() }

// attendsBF16 tells whether attention of more than a few queries multiplies bfloat16 numbers: if the cache holds them,
// and the kernels have instructions for it. So do products of as many rows with bfloat16 weights.
func (b *Backend) attendsBF16() bool {
	return b.dtype.ofTables() == bfloat16Type && b.pool.isa.multipliesBF16()
}

// Close ends the threads, unless they are another backend's. Sessions must be closed before; no session can be made
// afterwards.
func (b *Backend) Close() error {
	if !b.lent {
		b.pool.close()
	}
	return nil
}

// chains are the operations that one step of the kernels does.
var chains = []gpt2.Chain{
	{gpt2.OpLayerNorm, gpt2.OpLinear, gpt2.OpActivation},
	{gpt2.OpLayerNorm, gpt2.OpLinear},
	{gpt2.OpLinear, gpt2.OpActivation},
	{gpt2.OpLinear, gpt2.OpAdd},
}

// Fuse is [Fuse].
func (b *Backend) Fuse(p *gpt2.Plan) *gpt2.Plan { return Fuse(p) }

// Fuse joins a LayerNorm and an activation with the Linear between them, and a residual add with the Linear before it.
func Fuse(p *gpt2.Plan) *gpt2.Plan { return p.Fuse(chains...) }

// Sizes are 4 bytes for activations and float32 weights, 2 for weights that are bfloat16 in the checkpoint or here,
// 1.0625 for 8-bit integers with their scales. Keys and values are bfloat16 unless products are float32.
func (b *Backend) Sizes(m *gpt2.Model) gpt2.Sizes {
	attend := ceilings.F32
	if b.attendsBF16() { // products of few rows, as in a decode step, are float32, but bound by bytes
		attend = ceilings.BF16
	}
	multiply := attend
	if b.dtype == q8Type {
		multiply = ceilings.F32
		if b.pool.isa.multipliesBytes() {
			multiply = ceilings.Int8
		}
	}
	return gpt2.Sizes{Weight: b.held(m).bytesPerWeight(), Activation: 4, KV: float64(b.dtype.ofTables().size()), Multiply: multiply,
		Attend: attend}
}

// packedModel are the parameters of a model, as the kernels take them. They are cut from one arena per acquisition.
type packedModel struct {
	users   int
	held    dtype
	arenas  []*arena
	weights map[string]*weight // a vector is a matrix of one row
}

// vector returns a vector, none for "".
func (p *packedModel) vector(name string) (v mem[float32]) {
	if w := p.weights[name]; w != nil {
		v = w.data.part(0, w.N)
	}
	return v
}

// formOf says how a parameter is held: as (K, N), in which type, and by rows or in panels. Matrices that rows are looked up
// in are held by rows, and so are those that a checkpoint stores by rows, unless they are 8-bit: their blocks exist in
// panels only. A vector is a float32 matrix of one row.
func formOf(c gpt2.Config, p gpt2.Param, held dtype) (K, N int, d dtype, table bool) {
	if len(p.Shape) == 1 {
		return 1, p.Shape[0], float32Type, false
	}
	K, N = p.Shape[0], p.Shape[1]
	lookedUp := p.Name == "wpe.weight" || p.Name == "wte.weight" && !c.Tied
	if lookedUp || isTransposed(p) {
		K, N = N, K
	}
	if lookedUp || isTransposed(p) && held != q8Type {
		return K, N, held.ofTables(), true
	}
	return K, N, held, false
}

// isTransposed tells whether a matrix is stored as (N, K), outputs first.
func isTransposed(p gpt2.Param) bool { return p.Name == "wte.weight" || p.Name == "lm_head.weight" }

// acquire packs what a run order needs and is not packed yet.
func (b *Backend) acquire(ctx context.Context, m *gpt2.Model, o gpt2.Options) (*packedModel, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.models[m]
	if p == nil {
		p = &packedModel{held: b.held(m), weights: map[string]*weight{}}
		b.models[m] = p
	}
	p.users++
	if err := b.packMissing(ctx, m, p, o); err != nil {
		b.drop(m, p)
		return nil, err
	}
	return p, nil
}

// missing lists the parameters of a run order that p has not, and their bytes if they are held as a type.
func missing(c gpt2.Config, p *packedModel, layers []int, held dtype) (todo []gpt2.Param, size int) {
	for _, param := range c.ParamsOf(layers) {
		if p != nil && p.weights[param.Name] != nil {
			continue
		}
		todo = append(todo, param)
		size += (weightBytes(formOf(c, param, held)) + 63) / 64 * 64
	}
	return todo, size
}

func (b *Backend) packMissing(ctx context.Context, m *gpt2.Model, p *packedModel, o gpt2.Options) error {
	todo, size := missing(m.Config, p, o.Layers, p.held)
	if err := b.fits(m, o, size, p.users); err != nil {
		return err
	}
	if len(todo) == 0 {
		return nil
	}
	a, err := newArena(size)
	if err != nil {
		return fmt.Errorf("the weights of model %s: %w", m.Name, err)
	}
	p.arenas = append(p.arenas, a)
	var all []packing
	var done, total float64
	for _, param := range todo {
		K, N, d, table := formOf(m.Config, param, p.held)
		t, err := m.Tensor(param.Name)
		if err != nil {
			return err
		}
		w, err := newWeight(a, K, N, d, table)
		if err != nil {
			return fmt.Errorf("tensor %s: %w", param.Name, err)
		}
		_, begin := t.File()
		all = append(all, packing{t, w, w.source(begin, sourceTypes[t.DType], table || isTransposed(param))})
		total += float64(t.Elements()) * p.held.bytesPerWeight()
	}
	var slice []byte // of what is packed by slices: one for all
	for len(all) > 0 {
		n, err := b.pack(ctx, m, all, &slice)
		if err != nil {
			return err
		}
		for _, one := range all[:n] { // what is not whole is not found by the next session
			done += float64(one.t.Elements()) * p.held.bytesPerWeight()
			p.weights[one.t.Name] = one.w
		}
		if o.Progress != nil {
			o.Progress(int64(done), int64(total))
		}
		all = all[n:]
	}
	return nil
}

// release ends a use of a model's packed weights.
func (b *Backend) release(m *gpt2.Model, p *packedModel) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(m, p)
}

func (b *Backend) drop(m *gpt2.Model, p *packedModel) {
	if p.users--; p.users > 0 {
		return
	}
	for _, a := range p.arenas {
		a.free()
	}
	delete(b.models, m)
}

// packing is a parameter to be packed.
type packing struct {
	t    weights.Tensor
	w    *weight
	from source
}

// pack packs the first of some parameters, and returns how many: one that is computed, or several of a file.
func (b *Backend) pack(ctx context.Context, m *gpt2.Model, all []packing, slice *[]byte) (n int, err error) {
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	f, _ := all[0].t.File()
	if f == nil {
		return 1, b.packSlices(ctx, m, all[0], slice)
	}
	var sources []source
	for elements := 0; n < len(all) && elements < batchElements; n++ {
		if of, _ := all[n].t.File(); of != f {
			break
		}
		elements += all[n].t.Elements()
		sources = append(sources, all[n].from)
	}
	if err := all[0].t.Hold(func() { b.pool.packFile(f.Fd(), sources) }); err != nil {
		return 0, err
	}
	for i := range sources {
		if sources[i].bad != 0 {
			if err := b.packSlices(ctx, m, all[i], slice); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// packSlices packs a parameter that is computed, or that has something wrong to tell.
func (b *Backend) packSlices(ctx context.Context, m *gpt2.Model, one packing, slice *[]byte) error {
	rows, source := int(one.from.rows), dtype(one.from.dtype)
	cols := one.t.Elements() / rows
	row := cols * source.size()
	perSlice := max(1, sliceBytes/(32*row)) * 32
	most := min(perSlice, rows) * row
	buf := slices.Grow((*slice)[:0], most)[:most]
	*slice = buf
	for r := 0; r < rows; r += perSlice {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n := min(perSlice, rows-r)
		src := buf[:n*row]
		if err := one.t.ReadParallel(src, int64(r*row), b.pool.threads, nil); err != nil {
			return err
		}
		bad, err := one.w.pack(b.pool, src, source, one.from.transposed != 0, r, r+n)
		if err != nil {
			return err
		}
		if bad > 0 { // read them again, to say where
			if err := m.Read(one.t.Name, make([]float32, n*cols), r*cols); err != nil {
				return err
			}
		}
	}
	return nil
}

// sliceBytes is about how much of a tensor is read and packed at a time, batchElements how much of a file.
const sliceBytes, batchElements = 3 << 20, 4 << 20

// sourceTypes maps the types of a checkpoint to those of the kernels.
var sourceTypes = map[weights.DType]dtype{weights.F32: float32Type, weights.BF16: bfloat16Type,
	weights.F16: float16Type}
