// The C side of package cpu: kernels, thread pool and the interpreter that runs a list of steps.
//
// The parts:
//
//   gs_pool     a team of threads (the calling thread is worker 0). A pool runs one job at a time; several may exist.
//   gs_weight   a matrix W (K, N) packed into panels of 32 columns, or stored by rows (layouts below).
//   gs_step     one op with its pointers and sizes, filled once by Go when it prepares a plan.
//   gs_run      executes steps[from:to] in order. All workers execute the same list and meet at a barrier after each.
//
// Steps never change. What changes from pass to pass (token ids, positions, activations) is in memory that the steps
// point to, so a decode step is one call of gs_run.
//
// Rules:
//   - Go checks shapes and ranges before it fills a step. C assumes valid input.
//   - All pointers in a step point to C memory (gs_alloc), never to the Go heap.
//   - Activations are float32, row-major, (rows, columns) with a leading dimension. Arithmetic is float32.
//   - Results are bit-identical for any number of threads: shapes alone fix the order of every sum. The number of
//     threads decides who computes an output, never how.
//   - NaN and infinity propagate: -ffast-math is not used.
//
// Shape letters: B batch, T tokens, C channels, NH heads, HS head size, S slots of a KV cache, V vocabulary; M, N, K
// for a matrix product (M, K) x (K, N).
#ifndef GS_KERNELS_H
#define GS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

// ---- memory ---------------------------------------------------------------------------------------------------------

// gs_alloc returns `bytes` zeroed bytes or NULL. Memory is aligned to 64 bytes; from 4 MiB on to 2 MiB, with a hint to
// use huge pages. The system commits a page when it is first written. gs_free takes the same size.
void *gs_alloc(size_t bytes);
void gs_free(void *p, size_t bytes);

// gs_huge_pages turns huge pages off for memory of which only a small part will be written; or on for the memory's first
// bytes, which it moves there if they lie on small ones.
void gs_huge_pages(void *p, size_t bytes, int on);

// ---- instruction sets -----------------------------------------------------------------------------------------------

// The versions of the kernels, slowest first.
enum gs_isa {
	GS_PORTABLE,
	GS_NEON,
	GS_NEON_DOT, // NEON, and SDOT of Armv8.2 (dot products of bytes) for 8-bit weights
	GS_AVX2,
	GS_AVX2_VNNI, // AVX2, and VPDPBUSD of AVX-VNNI (dot products of bytes) for 8-bit weights
	GS_AVX512,
	GS_AVX512_VNNI, // AVX-512, and VPDPBUSD of AVX512_VNNI for 8-bit weights
	GS_AVX512_BF16, // AVX512_VNNI, and dot products of bfloat16 for products of many rows with bfloat16 weights
	GS_AMX,         // AVX512_VNNI, and AMX tiles of bfloat16 for products of many rows
	GS_ISAS
};

// gs_isa_supported returns 1 if this program contains the version and this processor can run it. For GS_AMX it requests
// tile registers from the system, once per process; gs_amx_refused returns the errno of a refused request, else 0.
int gs_isa_supported(int isa);
int gs_amx_refused(void);
const char *gs_isa_name(int isa);

// gs_kernels_of returns the functions of a version, or NULL if this program does not contain it.
typedef struct gs_kernels gs_kernels;
const gs_kernels *gs_kernels_of(int isa);

// ---- packed weights -------------------------------------------------------------------------------------------------
//
// Columns are grouped in panels of GS_NR = 32, padded with zeros. A panel stores its rows k = 0..K-1 one after another,
// so a product reads each panel once, in address order. The layout is the same for all instruction sets.
//
//   GS_F32   [ceil(N/32)][K][32] float32
//   GS_BF16  [ceil(N/32)][ceil(K/2)][32][2] bfloat16: rows k and k+1 are interleaved, so that a 32-bit lane holds
//            (W[k][n], W[k+1][n]). A shift widens the first to float32, a mask the second. Dot-product instructions of
//            bfloat16 take this layout (x86 VDPBF16PS and TDPBF16PS, Arm BFDOT).
//   GS_Q8    [ceil(N/32)][ceil(K/32)] blocks of 32 rows, each
//              [16][2] bfloat16      the scale d of each column; that of column n is scales[n % 16][n / 16]
//              [8][32][4] uint8      q + 128; a 32-bit lane holds rows 4i..4i+3 of a column, as instructions for dot
//                                    products of bytes take them (x86 VPDPBUSD, Arm SDOT)
//            W[k][n] = d q, with d = max |W| / 127 over the 32 rows, rounded to bfloat16, and q = round(W / d). This is
//            the scheme of Q8_0 of llama.cpp (ggml-org/llama.cpp, ggml/src/ggml-quants.c, quantize_row_q8_0_ref), which
//            stores d as float16. A bfloat16 has the range of float32, and a shift widens it on any processor. q is
//            computed with the rounded d, so the rounding of d adds no error.
//
// The token embedding, to which lm_head is tied, is also looked up column by column. Such a matrix is stored by rows
// (`rows` is set):
//
//   GS_F32, GS_BF16   [N rounded up to 32][K rounded up to 32], column n of W in row n, padded with zeros
//
// A product of few rows with it computes dot products. A product of many rows transposes it to panels, block by block.

enum { GS_NR = 32 };         // columns of a panel
enum { GS_SPLIT_ROWS = 96 }; // from this many rows of x on, the AMX version multiplies float32 on tiles (split.h)
enum { GS_QB = 32, GS_Q8_BLOCK = GS_NR * 2 + GS_QB * GS_NR }; // rows and bytes of a block of GS_Q8

enum gs_dtype { GS_F32, GS_BF16, GS_F16, GS_Q8 }; // GS_F16 only as a source of packing

typedef struct gs_weight {
	void *data;
	int64_t K, N;
	int32_t dtype; // GS_F32, GS_BF16 or, in panels, GS_Q8
	int32_t rows;  // stored by rows
	int32_t exact; // GS_BF16, and products do not round x to bfloat16
} gs_weight;

// ---- views ----------------------------------------------------------------------------------------------------------

// gs_view addresses rows of a float32 matrix. Row r starts at p + r*ld or, if `per` is not 0, at p + ((r / per)*stride
// + r % per)*ld: groups of `per` rows, `stride` rows apart. The last rows of B sequences of T rows are {p: base +
// (T-1)*ld, ld, per: 1, stride: T}.
typedef struct gs_view {
	float *p;
	int64_t ld; // floats
	int32_t per, stride; // rows
} gs_view;

// ---- steps ----------------------------------------------------------------------------------------------------------

enum gs_op {
	GS_EMBED,
	GS_LAYERNORM,
	GS_LINEAR,
	GS_APPEND,
	GS_ATTENTION,
	GS_OPS
};

enum gs_activation {
	GS_NONE,
	GS_GELU_TANH, // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
	GS_GELU_ERF,  // x/2 (1 + erf(x/sqrt(2)))
	GS_RELU,      // max(x, 0)
	GS_SILU,      // x / (1 + exp(-x))
	GS_QUICK_GELU // x / (1 + exp(-1.702 x))
};

// gs_norm: y = (x - mean(x)) / sqrt(var(x) + eps) * gain + bias over a row of K.
typedef struct gs_norm {
	const float *gain, *bias; // (K), of any alignment
	float eps;
} gs_norm;

// GS_EMBED: y[b*T+i] = wte[ids[b*T+i]] + wpe[pos[b]+i], rows of C.
typedef struct gs_embed {
	gs_view y;          // (B*T, C)
	const int32_t *ids; // (B*T)
	const int32_t *pos; // (B)
	gs_weight wte;      // (C, V), stored by rows or as GS_Q8
	gs_weight wpe;      // (C, positions), stored by rows
	int32_t B, T, C;
} gs_embed;

// GS_LAYERNORM: y = norm(x).
typedef struct gs_layernorm {
	gs_view x, y; // (M, C)
	gs_norm norm;
	int64_t M, C;
} gs_layernorm;

// GS_LINEAR: y[:, n] = act(norm(x) W[:, n] + bias[n]) + residual[:, n] for n in [n0, n1). There is no norm if norm.gain
// is NULL, no bias if it is NULL, no residual if residual.p is NULL. A step has an activation or a residual, not both.
// residual may be y itself (accumulate). Columns are absolute: y.p and residual.p point at column 0.
typedef struct gs_linear {
	gs_view x, y, residual; // x (M, K); y, residual (M, N)
	gs_weight w;            // (K, N)
	const float *bias;      // (N)
	gs_norm norm;           // over K
	int64_t M, n0, n1;
	int32_t act; // gs_activation
	void *packed, *packs; // where x is, and y will be, packed as the version takes it, or NULL (gs_join)
} gs_linear;

// The KV cache of one layer for B sequences: for each n = GS_KEYS slots, `stride` words apart, [B][NH] keys and values,
// so that a decode step reads those of a head in address order, and the first slots of all layers can lie together. S is
// a multiple of n, HSp is HS rounded up to 32. Keys and values are panels, as packed weights are, so that q K^T and p V
// are computed as a product with weights is.
//   GS_F32   keys    [n/32][HS][32]          columns are slots
//            values  [HSp/32][n][32]         columns are channels of a head
//   GS_BF16  keys    [n/32][HSp/2][32][2]    the same in bfloat16, to nearest, ties to even; pairs of channels
//            values  [HSp/32][n/2][32][2]    pairs of slots
typedef struct gs_cache {
	float *data; // words of 32 bits
	int64_t stride;
	int32_t S, NH, HS;
	int32_t dtype;
} gs_cache;

// GS_APPEND: writes the keys and values of T new tokens per sequence to slots pos[b]..pos[b]+T-1. GS_ATTENTION:
// y[b*nq+i] = softmax(scale q K^T) V for the last nq of the T new tokens, causal: over slots 0..pos[b]+T-nq+i.
//   It appends first if append is set.
typedef struct gs_attention {
	gs_view qkv; // (B*T, 3C): queries, keys, values, each (NH, HS)
	gs_view y;   // (B*nq, C)
	gs_cache cache;
	const int32_t *pos; // (B): tokens in the cache before this step
	float *work;        // gs_attention_work(...) floats, used if nq == 1 or each is set
	int32_t B, T, nq;
	float scale;
	int32_t append;
	int32_t each; // each query is computed as if it were the only one, as in a decode step
	// With a bfloat16 cache and many queries: queries and probabilities may be rounded to bfloat16 if that is faster.
	int32_t bf16;
	void *packs; // as in gs_linear
} gs_attention;

// gs_attention_work returns how many floats `work` must have for B queries, each of a sequence or all of one: partial
// results of a query for each block of GS_KEYS keys.
enum { GS_KEYS = 256 };
size_t gs_attention_work(int B, int NH, int HS, int S);

typedef struct gs_step {
	int32_t op;
	gs_embed embed;
	gs_layernorm layernorm;
	gs_linear linear;
	gs_attention attention; // GS_APPEND too
} gs_step;

// ---- pool -----------------------------------------------------------------------------------------------------------

typedef struct gs_pool gs_pool;

enum { GS_MAX_THREADS = 256 };

// gs_pool_create starts threads-1 threads; the caller of gs_run is the remaining worker. It returns NULL if kernels is
// NULL or if threads or memory cannot be had.
gs_pool *gs_pool_create(int threads, const gs_kernels *kernels);
void gs_pool_destroy(gs_pool *pool); // not while it runs

// gs_divide returns into how many tasks a version divides a product (M, K) x (K, N) with weights of float32 or bfloat16
// in panels for so many threads, and by which kernel it multiplies: it need not run here.
enum gs_kernel {
	GS_FEW_ROWS = 1, // linear_few: all sums in registers, the weights are read once
	GS_MANY_ROWS,    // linear_many: in blocks, in float32
	GS_UNITS         // linear_bf16 and linear_split: by the processor's products of bfloat16
};
int64_t gs_divide(int isa, int64_t threads, int64_t M, int64_t N, int64_t K, int bf16, int *kernel);

// gs_equal_rows returns how many rows a version multiplies with weights of up to K rows so that each result is the same,
// bit for bit, as if its row were the only one.
int64_t gs_equal_rows(int isa, int64_t K);

// gs_join lets each step leave its y packed for the next, a product that alone reads it, where the version then
// multiplies the same bits without packing them. No other program may run on the pool between the two.
void gs_join(gs_pool *pool, gs_step *steps, int n);

// gs_run executes steps[from:to]. If stamps is not NULL, worker w of n writes start and end of step i, in nanoseconds
// of CLOCK_MONOTONIC, to stamps[((i-from)*n + w)*2] and the element after it. If *cancel becomes non-zero, it stops
// soon and leaves unfinished results; cancel may be NULL. Returns 1 if it was cancelled, else 0.
int gs_run(gs_pool *pool, const gs_step *steps, int from, int to, int64_t *stamps, const int32_t *cancel);

// gs_now reads the clock of the stamps, in nanoseconds.
int64_t gs_now(void);

// ---- packing --------------------------------------------------------------------------------------------------------

// gs_pack converts a slice of a source matrix into its place in w.
//   transposed == 0   src is rows [r0, r1) of a (K, N) matrix, as GPT-2's Conv1D stores weights
//   transposed == 1   src is rows [r0, r1) of an (N, K) matrix, as embeddings are stored; r0 is a multiple of 32
// Slices may be packed in any order. r0 and r1 of an untransposed slice are even for GS_BF16 and multiples of 32 for
// GS_Q8; r1 of a transposed slice is a multiple of 32; r1 of the last slice may be any. A weight stored by rows takes
// only transposed slices. src_dtype is GS_F32, GS_BF16 or GS_F16. Values are rounded to bfloat16 to nearest, ties to
// even. A NaN or an infinity makes its column of a GS_Q8 block NaN. Returns how many source values are NaN or infinite.
//
// gs_pack_file packs all rows of sources in an open file. It sets `bad` where something is wrong, which gs_pack can
// tell: rows that cannot be read, or of which 32 are too long for a worker's scratch, too.
typedef struct gs_source {
	gs_weight w;
	int64_t rows, at; // its first byte in the file
	int32_t dtype, transposed, bad;
} gs_source;
void gs_pack_file(gs_pool *pool, int fd, gs_source *sources, int64_t n);
int64_t gs_pack(gs_pool *pool, const gs_weight *w, const void *src, int32_t src_dtype, int32_t transposed, int64_t r0,
		int64_t r1);

// gs_weight_bytes returns the size of the packed form.
size_t gs_weight_bytes(int64_t K, int64_t N, int dtype, int rows);

// gs_maxima writes the largest value of each block of `block` values of x[0:n] to maxima: NaN if the block has a NaN.
// The last block may be shorter.
void gs_maxima(int isa, float *maxima, const float *x, int64_t n, int64_t block);

// ---- arrays ---------------------------------------------------------------------------------------------------------

enum gs_array {
	GS_ARRAY_ADD,    // z = x + y
	GS_ARRAY_SQUARE, // z = x x
	GS_ARRAY_SUMS,   // z[b] = the sum of block b of x
	GS_ARRAY_WIDEN   // z = x, which is bfloat16
};

enum { GS_ARRAY_CHUNK = 32768 }; // values that a thread takes at once of a large array
enum { GS_ARRAY_BLOCK = 4096 }; // values of a block of GS_ARRAY_SUMS; the last may have fewer

// gs_array computes arrays of n values on all threads; a short one on the caller's alone. If past is set, z is written
// past the caches.
void gs_array(gs_pool *pool, int what, float *z, const void *x, const float *y, int64_t n, int past);

// ---- measuring ------------------------------------------------------------------------------------------------------

// Each of these runs on all workers and returns seconds.
double gs_bench_barrier(gs_pool *pool, int64_t count);          // `count` barriers in one job
// gs_bench_read reads p[0:n] once, in chunks, each the next worker that is free.
double gs_bench_read(gs_pool *pool, const float *p, int64_t n);

// gs_bench_copy copies, of every two chunks of p[0:n], the first to the second, by stores past the caches, or through
// them, which read a line before it is written.
double gs_bench_copy(gs_pool *pool, int past, float *p, int64_t n);

enum gs_arithmetic {
	GS_TILE,      // the register tile of float32 products, with operands in L1
	GS_TILE_BF16, // the register tile of bfloat16 products; not every version has one
	GS_TILE_Q8,   // that of products of bytes, with operands in L1; not every version has one
	GS_ARITHMETICS
};

// gs_bench_arithmetic runs one of these `count` times. *ops becomes the FLOPs of all workers, 0 if the version has no
// such loop.
double gs_bench_arithmetic(gs_pool *pool, int which, int64_t count, int64_t *ops);

// gs_bench_fill writes small numbers to p[0:n]. Each worker writes what it reads in gs_bench_read, so that its memory
// is on its NUMA node.
void gs_bench_fill(gs_pool *pool, float *p, int64_t n);

#endif
