package cpu

/*
#cgo CFLAGS: -O3 -std=gnu11 -Wall -Wextra
#cgo LDFLAGS: -lm -lpthread
#include "kernels.h"
*/
import "C"

import (
	"cmp"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"gpt2scope/gpt2"
)

// This file is the Go face of kernels.h: memory outside the Go heap, the thread pool, packed weights, and a program (a
// list of steps that C executes in one call). Shapes and ranges are checked here, when a step is added, so that C can
// assume valid input.

// ---- Memory ---------------------------------------------------------------------------------------------------------

// mem is a run of values in C memory, which steps may point to. The zero value is "none". Whoever allocated it frees
// it; views made by from and part are not freed.
type mem[T float32 | int32 | int64 | uint16] struct {
	p *T
	n int
}

// alloc returns n zeroed values, aligned to a page. Memory is committed as it is touched.
func alloc[T float32 | int32 | int64 | uint16](n int) (mem[T], error) {
	var t T
	if n <= 0 || n > math.MaxInt/16 {
		return mem[T]{}, fmt.Errorf("allocating %d values: the number must be positive", n)
	}
	p := C.gs_alloc(C.size_t(n) * C.size_t(unsafe.Sizeof(t)))
	if p == nil {
		return mem[T]{}, fmt.Errorf("out of memory: allocating %d bytes failed", n*int(unsafe.Sizeof(t)))
	}
	return mem[T]{(*T)(p), n}, nil
}

func (m mem[T]) free() {
	var t T
	if m.p != nil {
		C.gs_free(unsafe.Pointer(m.p), C.size_t(m.n)*C.size_t(unsafe.Sizeof(t)))
	}
}

// slice is the memory as a Go slice, valid until it is freed.
func (m mem[T]) slice() []T { return unsafe.Slice(m.p, m.n) }

// from is the memory from element i on.
func (m mem[T]) from(i int) mem[T] { return m.part(i, m.n-i) }

// part is elements i to i+n-1. Like a slice expression it panics when they do not exist.
func (m mem[T]) part(i, n int) mem[T] {
	s := m.slice()[i : i+n]
	return mem[T]{unsafe.SliceData(s), len(s)}
}

func (m mem[T]) void() unsafe.Pointer { return unsafe.Pointer(m.p) }

func cfloats(m mem[float32]) *C.float { return (*C.float)(m.void()) }
func cints(m mem[int32]) *C.int32_t   { return (*C.int32_t)(m.void()) }

// ---- Instruction sets -----------------------------------------------------------------------------------------------

// isa is a version of the kernels.
type isa int

const (
	portable isa = C.GS_PORTABLE
	neon     isa = C.GS_NEON
	avx2     isa = C.GS_AVX2
	avx512   isa = C.GS_AVX512

	// The same with instructions for dot products of bytes, which 8-bit weights are multiplied with.
	neonDot    isa = C.GS_NEON_DOT
	avx2VNNI   isa = C.GS_AVX2_VNNI
	avx512VNNI isa = C.GS_AVX512_VNNI

	// Those of AVX-512 with products of bfloat16 as well, by dot products or by tiles.
	avx512BF16 isa = C.GS_AVX512_BF16
	amx        isa = C.GS_AMX

	isas isa = C.GS_ISAS // how many there are
)

func (i isa) String() string { return C.GoString(C.gs_isa_name(C.int(i))) }

// supportedISAs lists the versions that this program contains and this processor can run, slowest first.
func supportedISAs() []isa {
	var all []isa
	for i := portable; i < isas; i++ {
		if isaRuns(i) {
			all = append(all, i)
		}
	}
	return all
}

// ISAs names the versions of the kernels that run here, the slowest first.
func ISAs() []string {
	var names []string
	for _, i := range supportedISAs() {
		names = append(names, i.String())
	}
	return names
}

// isaRuns tells whether this program contains a version and this processor can run it.
func isaRuns(i isa) bool { return C.gs_isa_supported(C.int(i)) != 0 }

// chooseISA returns the fastest version that runs here, or the one that `forced` (GPT2SCOPE_CPU) names. Only what is
// asked about is tried: a process that is told to use another version does not ask the system for AMX's tiles.
func chooseISA(forced string) (isa, error) {
	for i := isas - 1; i >= portable; i-- {
		if (forced == "" || i.String() == forced) && isaRuns(i) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("kernel version %q (GPT2SCOPE_CPU) does not run on this processor; it runs %v", forced,
		supportedISAs())
}

// multipliesBF16 tells whether this version has instructions that multiply bfloat16 numbers. If not, bfloat16 weights
// are widened to float32.
func (i isa) multipliesBF16() bool { return i == avx512BF16 || i == amx }

// multipliesBytes tells whether this version has instructions for dot products of bytes, which products of many rows
// with 8-bit weights then use too. If not, those weights are widened to float32.
func (i isa) multipliesBytes() bool {
	return i == neonDot || i == avx2VNNI || i >= avx512VNNI
}

// refusedAMX is why the system does not let this processor's AMX be used. It is nil if the system does, or if there is
// no AMX.
func refusedAMX() error {
	if e := C.gs_amx_refused(); e != 0 {
		return syscall.Errno(e)
	}
	return nil
}

// ---- Pool -----------------------------------------------------------------------------------------------------------

// MaxThreads is the most threads that an executor runs on.
const MaxThreads = C.GS_MAX_THREADS

// splitRows is the number of rows from which on the version amx multiplies float32 numbers as sums of bfloat16 ones.
const splitRows = C.GS_SPLIT_ROWS

// pool is a team of threads that runs programs, one at a time. The goroutine that runs a program lends its thread as
// one of them.
type pool struct {
	mu      sync.Mutex
	c       *C.gs_pool
	threads int
	isa     isa
}

// newPool starts a team of the given number of threads.
func newPool(threads int, isa isa) (*pool, error) {
	if threads < 1 || threads > MaxThreads {
		return nil, fmt.Errorf("%d threads: want 1 to %d", threads, MaxThreads)
	}
	if !isaRuns(isa) {
		return nil, fmt.Errorf("kernel version %q does not run on this processor; it runs %v", isa, supportedISAs())
	}
	c := C.gs_pool_create(C.int(threads), C.gs_kernels_of(C.int(isa)))
	if c == nil {
		return nil, fmt.Errorf("starting %d threads failed: the system gave neither threads nor memory enough", threads)
	}
	return &pool{c: c, threads: threads, isa: isa}, nil
}

// close ends the threads. No program may run on the pool then or later.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.c != nil {
		C.gs_pool_destroy(p.c)
		p.c = nil
	}
}

// isClosed tells whether the threads have ended.
func (p *pool) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.c == nil
}

// ---- Packed weights -------------------------------------------------------------------------------------------------

// dtype is how values are stored: weights in memory as float32, bfloat16 or, packed, in blocks of 8-bit integers;
// sources of packing as float32, bfloat16 or float16.
type dtype int32

const (
	float32Type  dtype = C.GS_F32
	bfloat16Type dtype = C.GS_BF16
	float16Type  dtype = C.GS_F16
	q8Type       dtype = C.GS_Q8

	// exactType is float32 weights held as bfloat16, since a checkpoint has them so. All else stays float32.
	exactType dtype = -1
)

// stored is the type by which the kernels name values in memory.
func (d dtype) stored() dtype {
	if d == exactType {
		return bfloat16Type
	}
	return d
}

// size is the bytes of a value. Those of q8Type come only in blocks: see bytesPerWeight.
func (d dtype) size() int {
	if d == float32Type {
		return 4
	}
	return 2
}

// bytesPerWeight is the bytes of a packed weight: with q8Type 1.0625, a byte and a 32nd of its block's bfloat16 scale.
func (d dtype) bytesPerWeight() float64 {
	if d == q8Type {
		return float64(C.GS_Q8_BLOCK) / (C.GS_QB * C.GS_NR)
	}
	return float64(d.size())
}

// ofTables is the type of tables and of the KV cache beside weights of type d. Neither is held in blocks of 8-bit
// integers.
func (d dtype) ofTables() dtype {
	if d == q8Type {
		return bfloat16Type
	}
	return d
}

// weight is a matrix (K, N) in panels of 32 columns, or a table by rows, in which embeddings are looked up (layouts in
// kernels.h).
type weight struct {
	K, N  int
	dtype dtype
	table bool
	data  mem[float32] // as 32-bit units: two bfloat16 each, or parts of a block
}

// weightBytes is the memory that a weight takes, in panels or as a table. It is a multiple of 64.
func weightBytes(K, N int, d dtype, table bool) int {
	return int(C.gs_weight_bytes(C.int64_t(K), C.int64_t(N), C.int(d.stored()), C.int(flag(table))))
}

func flag(set bool) C.int32_t {
	if set {
		return 1
	}
	return 0
}

// arena is one block of memory that weights are cut from. A model's weights in one block lie on huge pages, whatever
// their sizes: a decode step reads all of them, and would otherwise miss the TLB every 4 KiB.
type arena struct {
	data mem[float32]
	used int
}

// newArena reserves the given number of bytes, which is committed as it is written.
func newArena(bytes int) (*arena, error) {
	data, err := alloc[float32]((bytes + 3) / 4)
	if err != nil {
		return nil, err
	}
	return &arena{data: data}, nil
}

// free frees the arena and with it all weights cut from it.
func (a *arena) free() { a.data.free() }

// floats cuts n values, aligned to a cache line.
func (a *arena) floats(n int) (mem[float32], error) {
	size := (n + 15) / 16 * 16
	if n < 1 || size > a.data.n-a.used {
		return mem[float32]{}, fmt.Errorf("arena of %d bytes is full: %d used, %d wanted", 4*a.data.n, 4*a.used, 4*n)
	}
	m := a.data.part(a.used, n)
	a.used += size
	return m, nil
}

// newWeight cuts a matrix (K, N) of zeros from an arena, in panels or as a table by rows, N of K values. Pack its values
// next.
func newWeight(a *arena, K, N int, d dtype, table bool) (*weight, error) {
	if K < 1 || N < 1 || K > 1<<31 || N > 1<<31 || K > (1<<46)/N {
		return nil, fmt.Errorf("a weight of %d x %d is not possible", K, N)
	}
	if d == float16Type || d == q8Type && table {
		return nil, fmt.Errorf("weights are held as float32 or bfloat16, in panels as 8-bit integers too")
	}
	data, err := a.floats((weightBytes(K, N, d, table) + 3) / 4)
	if err != nil {
		return nil, fmt.Errorf("a weight of %d x %d: %w", K, N, err)
	}
	return &weight{K: K, N: N, dtype: d, table: table, data: data}, nil
}

// bytes is the memory the weight takes, which is what a pass over all of it reads.
func (w *weight) bytes() int { return weightBytes(w.K, w.N, w.dtype, w.table) }

func (w *weight) c() C.gs_weight {
	return C.gs_weight{data: w.data.void(), K: C.int64_t(w.K), N: C.int64_t(w.N), dtype: C.int32_t(w.dtype.stored()),
		rows: flag(w.table), exact: flag(w.dtype == exactType)}
}

// pack converts rows r0 to r1-1 of a source matrix into their place. The source is (K, N), as GPT-2's Conv1D stores it,
// or (N, K) if transposed is set, as embeddings are stored. src holds just these rows, as little-endian values of the
// source's dtype. Slices may come in any order. Their bounds are even (untransposed) or multiples of 32 (transposed, or
// 8-bit), but for the last. A table's source is transposed. It returns how many of the source's values were NaN or
// infinite.
func (w *weight) pack(p *pool, src []byte, d dtype, transposed bool, r0, r1 int) (bad int, err error) {
	from := w.source(0, d, transposed)
	rows, unit := int(from.rows), 32
	if !transposed && w.dtype != q8Type {
		unit = 2
	}
	if w.table && !transposed || r0 < 0 || r1 > rows || r0 >= r1 || r0%unit != 0 || (r1%unit != 0 && r1 != rows) ||
		len(src) != (r1-r0)*(w.K*w.N/rows)*d.size() {
		return 0, fmt.Errorf("packing rows %d to %d of %d in steps of %d: source has %d bytes", r0, r1, rows, unit, len(src))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	data := unsafe.Pointer(unsafe.SliceData(src))
	return int(C.gs_pack(p.c, &from.w, data, from.dtype, from.transposed, C.int64_t(r0), C.int64_t(r1))), nil
}

// source is all rows of a matrix that begins at a byte of a file.
type source = C.gs_source

func (w *weight) source(at int64, d dtype, transposed bool) source {
	rows := w.K
	if transposed {
		rows = w.N
	}
	return source{w: w.c(), at: C.int64_t(at), dtype: C.int32_t(d), transposed: flag(transposed),
		rows: C.int64_t(rows)}
}

// packFile is pack of sources in an open file. It sets bad of those that pack has to read again: it tells what is wrong,
// or rows are too long for a worker's scratch.
func (p *pool) packFile(fd uintptr, sources []source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	C.gs_pack_file(p.c, C.int(fd), unsafe.SliceData(sources), C.int64_t(len(sources)))
}

// ---- Views ----------------------------------------------------------------------------------------------------------

// view is rows of a float32 matrix, as gs_view.
type view struct {
	data        mem[float32]
	ld          int
	per, stride int
}

// matrix views rows that lie one after another, ld values apart.
func matrix(data mem[float32], ld int) view { return view{data: data, ld: ld} }

func (v view) c() C.gs_view {
	return C.gs_view{p: cfloats(v.data), ld: C.int64_t(v.ld), per: C.int32_t(v.per), stride: C.int32_t(v.stride)}
}

// check reports an error unless the view holds M rows of C values.
func (v view) check(name string, M, C int) error {
	last := M - 1
	if v.per > 0 {
		last = last/v.per*v.stride + last%v.per
	}
	return cmp.Or(
		want(M >= 1 && C >= 1, "%s: %d rows of %d: want at least one of each", name, M, C),
		want(v.ld >= C || M == 1, "%s: rows of %d values are only %d apart", name, C, v.ld),
		want(v.per >= 0 && v.stride >= v.per, "%s: groups of %d rows are only %d apart", name, v.per, v.stride),
		want(last*v.ld+C <= v.data.n, "%s: %d rows of %d need %d values, buffer has %d", name, M, C, last*v.ld+C, v.data.n))
}

// ---- Steps ----------------------------------------------------------------------------------------------------------

// activation is a function applied element by element.
type activation int32

const (
	none      activation = C.GS_NONE
	geluTanh  activation = C.GS_GELU_TANH // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
	geluErf   activation = C.GS_GELU_ERF  // x/2 (1 + erf(x/sqrt(2)))
	relu      activation = C.GS_RELU
	silu      activation = C.GS_SILU       // x / (1 + exp(-x))
	quickGELU activation = C.GS_QUICK_GELU // x / (1 + exp(-1.702 x))
)

// norm is a LayerNorm's parameters: y = (x - mean) / sqrt(var + eps) * gain + bias. The zero value is "none".
type norm struct {
	gain, bias mem[float32] // (C)
	eps        float32
}

func (n norm) c() C.gs_norm {
	return C.gs_norm{gain: cfloats(n.gain), bias: cfloats(n.bias), eps: C.float(n.eps)}
}

func (n norm) check(C int) error {
	return want(min(n.gain.n, n.bias.n) >= C, "norm: gain and bias have %d and %d values, want %d", n.gain.n, n.bias.n, C)
}

// embedStep: y[b*T+i] = wte[ids[b*T+i]] + wpe[pos[b]+i], rows of C = wte.K.
//
// wte is lm_head too if that is tied to it. It is a table, or 8-bit panels, in which a row is scattered over cache
// lines.
type embedStep struct {
	y    view       // (B*T, C)
	ids  mem[int32] // (B*T); each below wte.N when the step runs
	pos  mem[int32] // (B); pos[b]+T at most wpe.N when the step runs
	wte  *weight    // (C, V), a table or 8-bit
	wpe  *weight    // (C, positions), a table
	B, T int
}

// layerNormStep: y = norm(x).
type layerNormStep struct {
	x, y view // (M, C)
	norm norm
	M, C int
}

// linearStep: y[:, n] = act(norm(x) W[:, n] + bias[n]) + residual[:, n] for n0 <= n < n1. Columns are absolute: y and
// residual start at column 0. residual may be y.
type linearStep struct {
	x, y, residual view // x (M, K); y, residual (M, N)
	w              *weight
	bias           mem[float32] // (N), or none
	norm           norm         // over K, or none
	M              int
	n0, n1         int // n1 == 0 means N
	act            activation
}

// cache is the KV cache of one layer for B sequences of S slots, as float32 or bfloat16 (layouts in kernels.h).
type cache struct {
	data                 mem[float32] // words of 32 bits
	stride, B, S, NH, HS int          // stride: words between blocks of GS_KEYS slots
	dtype                dtype
	moved                int // of the first layer's: how many blocks of slots, of all layers, are on huge pages
}

// words is the size of the keys and values of n slots. Keys of float32 are not padded.
func (c *cache) words(n int) int {
	if c.dtype == bfloat16Type {
		return c.B * c.NH * n * roundUp(c.HS)
	}
	return c.B * c.NH * n * (c.HS + roundUp(c.HS))
}

// newCaches allocates the caches of some layers. The first one's data is that of all.
func newCaches(layers, B, S, NH, HS int, d dtype) ([]*cache, error) {
	tooMuch := B > 1<<20 || S > 1<<28 || NH > 1<<20 || B*NH > 1<<46/max(1, S)/max(1, HS)
	if min(layers, B, S, NH, HS) < 1 || HS > maxHeadSize || tooMuch || d == q8Type {
		return nil, fmt.Errorf("a KV cache of %d sequences, %d slots, %d heads of %d is not possible: heads have at most %d",
			B, S, NH, HS, maxHeadSize)
	}
	one := cache{B: B, S: (S + C.GS_KEYS - 1) / C.GS_KEYS * C.GS_KEYS, NH: NH, HS: HS, dtype: d}
	one.stride = layers * one.words(C.GS_KEYS)
	data, err := alloc[float32](layers * one.words(one.S))
	if err != nil {
		return nil, fmt.Errorf("KV cache: %w", err)
	}
	C.gs_huge_pages(data.void(), C.size_t(4*data.n), 0)
	caches := make([]*cache, layers)
	for i := range caches {
		c := one
		c.data = data.from(i * one.words(C.GS_KEYS))
		caches[i] = &c
	}
	return caches, nil
}

// fill puts the blocks of all layers that are full with n tokens on huge pages, once: if all were there, slots that are
// never written would take memory. Smaller blocks stay in the processor's caches.
func (c *cache) fill(n int) {
	if n /= C.GS_KEYS; n > c.moved && 4*c.stride >= 8<<20 {
		c.moved = n
		C.gs_huge_pages(c.data.void(), C.size_t(4*n*c.stride), 1)
	}
}

// maxHeadSize is the largest HS that the attention kernels take.
const maxHeadSize = 512

func roundUp(n int) int { return (n + 31) / 32 * 32 }

// attentionStep: y[b*nq+i] = softmax(scale q K^T) V for the last nq of T new tokens per sequence, causal, over the
// cache's slots up to its own. With append set, the new tokens' keys and values go to the cache first, at slots pos[b]
// on.
type attentionStep struct {
	qkv      view // (B*T, 3C): queries, keys, values, each (NH, HS)
	y        view // (B*nq, C)
	cache    *cache
	pos      mem[int32]   // (B): tokens in the cache before; pos[b]+T at most S when the step runs
	work     mem[float32] // attentionWork(cache, B*nq) values; needed if nq == 1 or each is set
	B, T, nq int
	scale    float32
	append   bool
	each     bool // compute each query as if it were the only one
	bf16     bool // with a bfloat16 cache and more than 12 queries, products may round their inputs to bfloat16
}

// attentionWork returns how many values an attentionStep's work needs for so many queries.
func attentionWork(c *cache, queries int) int {
	return int(C.gs_attention_work(C.int(queries), C.int(c.NH), C.int(c.HS), C.int(c.S)))
}

// program is a list of steps that a pool executes in one call. Steps are filled once; a pass changes what they point
// to.
type program struct {
	pool   *pool
	steps  *C.gs_step
	n, cap int
	stop   mem[int32]
}

// newProgram makes an empty program of at most `capacity` steps.
func newProgram(p *pool, capacity int) (*program, error) {
	if capacity < 1 || capacity > 1<<24 {
		return nil, fmt.Errorf("a program of %d steps is not possible", capacity)
	}
	steps := (*C.gs_step)(C.gs_alloc(C.size_t(capacity) * C.sizeof_gs_step))
	if steps == nil {
		return nil, fmt.Errorf("out of memory: allocating %d steps failed", capacity)
	}
	stop, err := alloc[int32](1)
	if err != nil {
		C.gs_free(unsafe.Pointer(steps), C.size_t(capacity)*C.sizeof_gs_step)
		return nil, err
	}
	return &program{pool: p, steps: steps, cap: capacity, stop: stop}, nil
}

func (p *program) free() {
	C.gs_free(unsafe.Pointer(p.steps), C.size_t(p.cap)*C.sizeof_gs_step)
	p.stop.free()
}

// push adds a step, unless one of the errors is set.
func (p *program) push(op int32, errs ...error) (*C.gs_step, error) {
	if p.n == p.cap {
		errs = append(errs, fmt.Errorf("program is full: it was made for %d steps", p.cap))
	}
	if err := cmp.Or(errs...); err != nil {
		return nil, err
	}
	s := &unsafe.Slice(p.steps, p.cap)[p.n]
	p.n++
	s.op = C.int32_t(op)
	return s, nil
}

// join lets steps leave their results packed for the next: buffers between them then hold no float32.
func (p *program) join() { C.gs_join(p.pool.c, p.steps, C.int(p.n)) }

// want returns nil if a condition holds, else an error of so many numbers.
func want(holds bool, format string, numbers ...any) error {
	if holds {
		return nil
	}
	return fmt.Errorf(format, numbers...)
}

func (p *program) embed(o embedStep) error {
	M := o.B * o.T
	if o.wte == nil || o.wpe == nil || !o.wpe.table || !o.wte.table && o.wte.dtype != q8Type || o.wte.K != o.wpe.K {
		return fmt.Errorf("embed: wte and wpe must have as many channels, and be tables, wte or 8-bit")
	}
	s, err := p.push(C.GS_EMBED,
		o.y.check("embed: y", M, o.wte.K),
		want(o.ids.n >= M && o.pos.n >= o.B, "embed: %d ids and %d positions for %d sequences of %d tokens",
			o.ids.n, o.pos.n, o.B, o.T),
		want(o.T <= o.wpe.N, "embed: %d tokens, wpe has %d positions", o.T, o.wpe.N))
	if err != nil {
		return err
	}
	s.embed = C.gs_embed{y: o.y.c(), ids: cints(o.ids), pos: cints(o.pos), wte: o.wte.c(), wpe: o.wpe.c(),
		B: C.int32_t(o.B), T: C.int32_t(o.T), C: C.int32_t(o.wte.K)}
	return nil
}

func (p *program) layerNorm(o layerNormStep) error {
	s, err := p.push(C.GS_LAYERNORM,
		o.x.check("layernorm: x", o.M, o.C), o.y.check("layernorm: y", o.M, o.C), o.norm.check(o.C))
	if err != nil {
		return err
	}
	s.layernorm = C.gs_layernorm{x: o.x.c(), y: o.y.c(), norm: o.norm.c(), M: C.int64_t(o.M), C: C.int64_t(o.C)}
	return nil
}

// maxNormChannels bounds rows that a Linear normalises: a worker prepares one in its scratch.
const maxNormChannels = 1 << 18

func (p *program) linear(o linearStep) error {
	if o.w == nil {
		return fmt.Errorf("linear: no weight")
	}
	n1 := cmp.Or(o.n1, o.w.N)
	errs := []error{
		want(o.n0 >= 0 && o.n0 < n1 && n1 <= o.w.N, "linear: columns %d to %d of %d", o.n0, n1, o.w.N),
		o.x.check("linear: x", o.M, o.w.K),
		o.y.check("linear: y", o.M, n1),
		want(o.bias.p == nil || o.bias.n >= n1, "linear: bias has %d values, want %d", o.bias.n, n1),
	}
	if o.norm.gain.p != nil {
		errs = append(errs, o.norm.check(o.w.K),
			want(o.w.K <= maxNormChannels, "linear: a norm over %d channels; at most %d", o.w.K, maxNormChannels))
	}
	if o.residual.data.p != nil {
		errs = append(errs, o.residual.check("linear: residual", o.M, n1),
			want(o.act == none, "linear: an activation and a residual exclude each other"))
	}
	s, err := p.push(C.GS_LINEAR, errs...)
	if err != nil {
		return err
	}
	s.linear = C.gs_linear{x: o.x.c(), y: o.y.c(), residual: o.residual.c(), w: o.w.c(), bias: cfloats(o.bias),
		norm: o.norm.c(), M: C.int64_t(o.M), n0: C.int64_t(o.n0), n1: C.int64_t(n1), act: C.int32_t(o.act)}
	return nil
}

// appendKV adds the step that only writes new keys and values to the cache (y, nq, work, scale and append are not
// used).
func (p *program) appendKV(o attentionStep) error { return p.pushAttention(C.GS_APPEND, o) }

func (p *program) attention(o attentionStep) error {
	if o.cache == nil {
		return fmt.Errorf("attention: no cache")
	}
	return p.pushAttention(C.GS_ATTENTION, o,
		want(o.nq >= 1 && o.nq <= o.T, "attention: %d queries of %d tokens", o.nq, o.T),
		o.y.check("attention: y", o.B*o.nq, o.cache.NH*o.cache.HS),
		want(o.nq != 1 && !o.each || o.work.n >= attentionWork(o.cache, o.B*o.nq), "attention: work has %d values, want %d",
			o.work.n, attentionWork(o.cache, o.B*o.nq)))
}

func (p *program) pushAttention(op int32, o attentionStep, errs ...error) error {
	c := o.cache
	if c == nil {
		return fmt.Errorf("attention: no cache")
	}
	s, err := p.push(op, append(errs,
		want(o.B <= c.B && o.T <= c.S, "attention: %d sequences of %d tokens, cache holds %d of %d", o.B, o.T, c.B, c.S),
		want(o.pos.n >= o.B, "attention: %d positions for %d sequences", o.pos.n, o.B),
		o.qkv.check("attention: qkv", o.B*o.T, 3*c.NH*c.HS))...)
	if err != nil {
		return err
	}
	s.attention = C.gs_attention{qkv: o.qkv.c(), y: o.y.c(), pos: cints(o.pos), work: cfloats(o.work),
		cache: C.gs_cache{data: cfloats(c.data), stride: C.int64_t(c.stride), S: C.int32_t(c.S), NH: C.int32_t(c.NH),
			HS: C.int32_t(c.HS), dtype: C.int32_t(c.dtype)},
		B: C.int32_t(o.B), T: C.int32_t(o.T), nq: C.int32_t(o.nq), scale: C.float(o.scale), append: flag(o.append),
		each: flag(o.each), bf16: flag(o.bf16)}
	return nil
}

// run executes steps from to to-1, and reports whether they were all done: false means interrupt was called. stamps, if
// given, receives start and end of each step on each thread, [to-from][threads][2] nanoseconds of the clock that now
// reads.
func (p *program) run(from, to int, stamps mem[int64]) (done bool, err error) {
	if from < 0 || to > p.n || from > to {
		return false, fmt.Errorf("running steps %d to %d of %d", from, to, p.n)
	}
	if from == to {
		return true, nil
	}
	if stamps.p != nil && stamps.n < (to-from)*p.pool.threads*2 {
		return false, fmt.Errorf("stamps: buffer has %d values, want %d", stamps.n, (to-from)*p.pool.threads*2)
	}
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	return C.gs_run(p.pool.c, p.steps, C.int(from), C.int(to), (*C.int64_t)(stamps.void()), cints(p.stop)) == 0, nil
}

// interrupt makes a running program stop soon, and later runs at once, until resume is called. Any goroutine may call
// it.
func (p *program) interrupt() { atomic.StoreInt32(p.stop.p, 1) }

// resume ends the effect of interrupt.
func (p *program) resume() { atomic.StoreInt32(p.stop.p, 0) }

// now reads the clock of stamps: nanoseconds of CLOCK_MONOTONIC.
func now() int64 { return int64(C.gs_now()) }

// ---- Measuring ------------------------------------------------------------------------------------------------------

// measured runs f, which returns the seconds that it took, and returns an amount per second.
func (p *pool) measured(amount float64, f func() C.double) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return amount / float64(f())
}

// measureBarrier returns the seconds that one barrier between steps takes.
func (p *pool) measureBarrier(count int) float64 {
	return 1 / p.measured(float64(count), func() C.double { return C.gs_bench_barrier(p.c, C.int64_t(count)) })
}

// arithmeticCeiling is something whose FLOP/s are a ceiling, of all threads together.
type arithmeticCeiling C.int

const (
	registerTile     arithmeticCeiling = C.GS_TILE      // of the products, from the first-level caches
	registerTileBF16 arithmeticCeiling = C.GS_TILE_BF16 // of bfloat16 products
	registerTileQ8   arithmeticCeiling = C.GS_TILE_Q8   // of products of bytes
)

// measure returns a function that runs it so many times and returns FLOP/s: 0 if this version of the kernels has none.
func (a arithmeticCeiling) measure(p *pool) func(count int) float64 {
	return func(count int) float64 {
		var ops C.int64_t
		rate := p.measured(1, func() C.double { return C.gs_bench_arithmetic(p.c, C.int(a), C.int64_t(count), &ops) })
		return float64(ops) * rate
	}
}

// maxima is [gpt2.BlockMaxima].
func (i isa) maxima(maxima, x []float32) {
	if len(maxima) != (len(x)+gpt2.MaximaBlock-1)/gpt2.MaximaBlock {
		panic("cpu: maxima of another number of blocks")
	}
	C.gs_maxima(C.int(i), (*C.float)(unsafe.SliceData(maxima)), (*C.float)(unsafe.SliceData(x)), C.int64_t(len(x)),
		gpt2.MaximaBlock)
}

// fill writes small numbers, each thread what it reads in measureRead.
func (p *pool) fill(m mem[float32]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	C.gs_bench_fill(p.c, cfloats(m), C.int64_t(m.n))
}

// measureCopy returns the bytes per second, read and written, at which all threads together copy one half of m to the
// other.
func (p *pool) measureCopy(past bool, m mem[float32]) float64 {
	n := m.n / (2 * C.GS_ARRAY_CHUNK) * (2 * C.GS_ARRAY_CHUNK)
	return p.measured(float64(4*n), func() C.double {
		return C.gs_bench_copy(p.c, C.int(flag(past)), cfloats(m),
			C.int64_t(n))
	})
}

// measureRead returns the bytes per second at which all threads together read m once.
func (p *pool) measureRead(m mem[float32]) float64 {
	return p.measured(float64(4*m.n), func() C.double { return C.gs_bench_read(p.c, cfloats(m), C.int64_t(m.n)) })
}
