// The C side of package cpu: kernels, thread pool and the interpreter that runs a list of steps.
//
// How the pieces fit together:
//
//   gs_pool     a team of threads (the calling thread is worker 0). One pool runs one job at a time; several pools may exist.
//   gs_weight   a matrix W (K, N) packed into panels of 32 columns, or by rows (layouts below).
//   gs_step     one op with its pointers and sizes, filled once by Go when a plan is prepared.
//   gs_run      executes steps[from:to] in order. All workers walk the same list, and meet at a barrier after each step.
//
// What changes between two passes over the same steps lives in memory that steps point to: token ids, positions, activations.
// A step itself never changes, so a decode step is one call of gs_run and nothing else.
//
// Rules:
//   - Go checks shapes and ranges before it fills a step. C assumes valid input.
//   - All pointers in a step refer to C memory (gs_alloc), never to the Go heap.
//   - Activations are float32, row-major, (rows, columns) with a leading dimension. Arithmetic is float32.
//   - Results do not depend on the number of threads, bit for bit: every sum has one order, fixed by shapes alone; threads only
//     decide who computes an output, never how.
//   - NaN and infinity propagate: no -ffast-math.
//
// Shape letters: B batch, T tokens, C channels, NH heads, HS head size, S slots of a KV cache, V vocabulary; M, N, K for a matrix
// product (M, K) x (K, N).
#ifndef GS_KERNELS_H
#define GS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

// ---- memory ---------------------------------------------------------------------------------------------------------------------

// gs_alloc returns `bytes` zeroed bytes, aligned to 64 (to 2 MiB, and hinted for huge pages, where the size makes it worth it), or
// NULL. Pages are not touched: untouched memory costs none. gs_free takes the same size.
void *gs_alloc(size_t bytes);
void gs_free(void *p, size_t bytes);

// gs_small_pages keeps huge pages away from memory of which little is touched.
void gs_small_pages(void *p, size_t bytes);

// gs_drop_program gives back the memory of those pages of the program's own file that are only read: code, constants, embedded weights.
// What is used again is mapped again, from the system's cache of files. It does nothing where a debugger is attached, whose breakpoints
// lie in such pages, nor on systems other than Linux, and returns whether it did.
int gs_drop_program(void);

// ---- instruction sets -----------------------------------------------------------------------------------------------------------

// Slowest first. A version shares all with the one before it that it does not name.
enum gs_isa {
	GS_PORTABLE,
	GS_NEON,
	GS_NEON_DOT, // and Armv8.2's SDOT: dot products of bytes, for 8-bit weights
	GS_AVX2,
	GS_AVX2_VNNI, // and AVX-VNNI: the same
	GS_AVX512,
	GS_AVX512_VNNI, // and AVX512_VNNI: the same
	GS_AVX512_BF16, // and AVX512_BF16: dot products of bfloat16, for many rows with weights held so
	GS_AMX,         // and AMX_BF16: tiles for those
	GS_ISAS
};

// gs_isa_supported says whether this program contains the version and this processor can run it.
// For GS_AMX it asks the system for tile registers, once per process; gs_amx_refused is the errno with which the system refused, 0
// where it did not or the processor has none.
int gs_isa_supported(int isa);
int gs_amx_refused(void);
const char *gs_isa_name(int isa);

// gs_kernels_of returns a version, NULL where this program does not contain it.
typedef struct gs_kernels gs_kernels;
const gs_kernels *gs_kernels_of(int isa);

// ---- packed weights -------------------------------------------------------------------------------------------------------------
//
// Columns are grouped in panels of GS_NR = 32, padded with zeros; a panel holds its rows k = 0..K-1 one after another, so a product
// streams through each panel once, in address order, whatever the instruction set.
//
//   GS_F32   [ceil(N/32)][K][32] float32
//   GS_BF16  [ceil(N/32)][ceil(K/2)][32][2] bfloat16: rows k and k+1 interleaved, so that a 32-bit lane holds (W[k][n], W[k+1][n]);
//            both widen to float32 with one shift or one mask, and it is the layout of the bfloat16 dot-product instructions
//            (x86 VDPBF16PS, TDPBF16PS; Arm BFDOT).
//   GS_Q8    [ceil(N/32)][ceil(K/32)] blocks of 32 rows, each
//              [16][2] bfloat16      scale d of each column: that of column n is scales[n % 16][n / 16]
//              [8][32][4] uint8      q + 128: a 32-bit lane holds rows 4i..4i+3 of a column, what an instruction for dot products of
//                                    bytes takes (x86 VPDPBUSD; Arm SDOT)
//            W[k][n] = d q, with d = max |W| / 127 over the 32 rows, rounded, and q = round(W / d): the scheme of llama.cpp's Q8_0
//            (ggml-org/llama.cpp, ggml/src/ggml-quants.c, quantize_row_q8_0_ref), which has float16 for d. A bfloat16 has float32's
//            range and widens with a shift, on any processor; as q is made with the rounded d, no error comes of its 8 bits.

//
// A matrix whose columns are also looked up one by one, the token embedding that lm_head is tied to, is held by rows (`rows` is set):
//
//   GS_F32, GS_BF16   [N rounded up to 32][K rounded up to 32], column n of W in row n, padded with zeros
//
// A product of few rows with it is one of dot products; one of many turns it into panels as it goes.

enum { GS_NR = 32 };
enum { GS_SPLIT_ROWS = 96 }; // from so many rows on, kernels with AMX multiply float32 by its tiles (split.h)
enum { GS_QB = 32, GS_Q8_BLOCK = GS_NR * 2 + GS_QB * GS_NR }; // rows and bytes of a block of GS_Q8

enum gs_dtype { GS_F32, GS_BF16, GS_F16, GS_Q8 }; // GS_F16 is only a source of packing

typedef struct gs_weight {
	void *data;
	int64_t K, N;
	int32_t dtype; // GS_F32, GS_BF16 or, in panels, GS_Q8
	int32_t rows;  // held by rows
} gs_weight;

// ---- views ----------------------------------------------------------------------------------------------------------------------

// gs_view addresses rows of a float32 matrix. Row r starts at p + r*ld, or, where `per` is not 0, at
// p + ((r / per)*stride + r % per)*ld: groups of `per` rows, `stride` rows apart. The last row of each of B sequences of T rows is
// {p: base + (T-1)*ld, ld, per: 1, stride: T}.
typedef struct gs_view {
	float *p;
	int64_t ld; // floats
	int32_t per, stride; // rows
} gs_view;

// ---- steps ----------------------------------------------------------------------------------------------------------------------

enum gs_op {
	GS_NOP,
	GS_EMBED,
	GS_LAYERNORM,
	GS_LINEAR,
	GS_APPEND,
	GS_ATTENTION,
	GS_ADD,
	GS_ACTIVATION,
	GS_COPY,
	GS_OPS
};

enum gs_activation {
	GS_NONE,
	GS_GELU_TANH, // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
	GS_GELU_ERF,  // x/2 (1 + erf(x/sqrt(2)))
	GS_RELU       // max(x, 0)
};

// gs_norm: y = (x - mean(x)) / sqrt(var(x) + eps) * gain + bias over a row of K.
typedef struct gs_norm {
	const float *gain, *bias; // (K), 64-byte aligned or not
	float eps;
} gs_norm;

// GS_EMBED: y[b*T+i] = wte[ids[b*T+i]] + wpe[pos[b]+i], rows of C.
typedef struct gs_embed {
	gs_view y;          // (B*T, C)
	const int32_t *ids; // (B*T)
	const int32_t *pos; // (B)
	gs_weight wte;      // (C, V), by rows or of GS_Q8
	gs_weight wpe;      // (C, positions), by rows
	int32_t B, T, C;
} gs_embed;

// GS_LAYERNORM: y = norm(x).
typedef struct gs_layernorm {
	gs_view x, y; // (M, C)
	gs_norm norm;
	int64_t M, C;
} gs_layernorm;

// GS_LINEAR: y[:, n] = act(norm(x) W[:, n] + bias[n]) + residual[:, n] for n in [n0, n1).
// norm is left out where norm.gain is NULL, bias where NULL, residual where residual.p is NULL. An activation and a residual
// exclude each other. residual may be y itself (accumulate). Columns are absolute: y.p and residual.p point at column 0.
typedef struct gs_linear {
	gs_view x, y, residual; // x (M, K); y, residual (M, N)
	gs_weight w;            // (K, N)
	const float *bias;      // (N)
	gs_norm norm;           // over K
	int64_t M, n0, n1;
	int32_t act; // gs_activation
} gs_linear;

// The KV cache of one layer for B sequences. S is a multiple of 32, HSp is HS rounded up to 32.
//   GS_F32   k  [B][NH][S/32][HS][32]          keys as columns: q K^T streams panels exactly as a Linear streams its weights
//            v  [B][NH][HSp/32][S][32]         head channels as columns: p V does too
//   GS_BF16  k  [B][NH][S/32][HSp/2][32][2]    the same as bfloat16, rounded to nearest, ties to even: pairs of channels,
//            v  [B][NH][HSp/32][S/2][32][2]    pairs of tokens
typedef struct gs_cache {
	float *k, *v; // words of 32 bits
	int32_t S, NH, HS;
	int32_t dtype;
} gs_cache;

// GS_APPEND: writes the keys and values of T new tokens per sequence to slots pos[b]..pos[b]+T-1.
// GS_ATTENTION: y[b*nq+i] = softmax(scale q K^T) V for the last nq of the T new tokens, causal, over slots 0..pos[b]+T-nq+i.
//   With append set it appends first.
typedef struct gs_attention {
	gs_view qkv; // (B*T, 3C): queries, keys, values, each (NH, HS)
	gs_view y;   // (B*nq, C)
	gs_cache cache;
	const int32_t *pos; // (B): tokens in the cache before this step
	float *work;        // gs_attention_work(...) floats; used by nq == 1 only
	int32_t B, T, nq;
	float scale;
	int32_t append;
	int32_t bf16; // with a cache of bfloat16, more than a few queries: may round to it what is multiplied, where that is faster
} gs_attention;

// gs_attention_work returns how many floats `work` must hold: for one query, partial results of each GS_KEYS keys.
enum { GS_KEYS = 256 };
size_t gs_attention_work(int B, int NH, int HS, int S);

// GS_ADD: y = a + b. GS_ACTIVATION: y = act(a + bias). GS_COPY: y = a. y may be a.
typedef struct gs_elementwise {
	gs_view a, b, y;   // (M, C)
	const float *bias; // (C) or NULL
	int64_t M, C;
	int32_t act;
} gs_elementwise;

typedef struct gs_step {
	int32_t op;
	gs_embed embed;
	gs_layernorm layernorm;
	gs_linear linear;
	gs_attention attention; // GS_APPEND too
	gs_elementwise elementwise;
} gs_step;

// ---- pool -----------------------------------------------------------------------------------------------------------------------

typedef struct gs_pool gs_pool;

enum { GS_MAX_THREADS = 256 };

// gs_pool_create starts threads-1 threads; the caller of gs_run is the remaining worker. NULL when threads, memory or kernels lack.
gs_pool *gs_pool_create(int threads, const gs_kernels *kernels);
void gs_pool_destroy(gs_pool *pool); // not while it runs

// gs_run executes steps[from:to]. Where stamps is not NULL, worker w of n writes start and end of step i, in nanoseconds of
// CLOCK_MONOTONIC, to stamps[((i-from)*n + w)*2] and the next. Where cancel is not NULL and *cancel becomes non-zero, it stops soon;
// buffers then hold unfinished results. Returns 0, or 1 when it was cancelled.
int gs_run(gs_pool *pool, const gs_step *steps, int from, int to, int64_t *stamps, const int32_t *cancel);

// gs_now reads the clock that stamps use.
int64_t gs_now(void);

// ---- packing --------------------------------------------------------------------------------------------------------------------

// gs_pack converts a slice of a source matrix into its place in w.
//   transposed == 0   src is rows [r0, r1) of a (K, N) matrix, as GPT-2's Conv1D stores weights
//   transposed == 1   src is rows [r0, r1) of an (N, K) matrix, as embeddings and lm_head are stored; r0 is a multiple of 32
// Slices may be packed in any order. For GS_BF16, r0 of an untransposed slice is even, and so is r1 unless it is K; for GS_Q8 both are
// multiples of 32; r1 of a transposed slice is a multiple of 32 unless it is N. A weight held by rows takes only transposed slices.
// src_dtype is GS_F32, GS_BF16 or GS_F16; to bfloat16 it rounds to nearest, ties to even. A column's block of GS_Q8 with a NaN or an infinity is NaN. Returns how many source values were NaN or infinite.
int64_t gs_pack(gs_pool *pool, const gs_weight *w, const void *src, int src_dtype, int transposed, int64_t r0, int64_t r1);

// gs_weight_bytes returns the size of the packed form.
size_t gs_weight_bytes(int64_t K, int64_t N, int dtype, int rows);

// gs_maxima writes to maxima the largest value of each `block` of n values, the last of which may have fewer; NaN where one of them is.
void gs_maxima(int isa, float *maxima, const float *x, int64_t n, int64_t block);

// ---- measuring ------------------------------------------------------------------------------------------------------------------

// Each runs on all workers and returns seconds. The caller turns them into a rate.
double gs_bench_barrier(gs_pool *pool, int64_t count);          // `count` barriers inside one job
double gs_bench_read(gs_pool *pool, const float *p, int64_t n); // every worker reads its share of p once

enum gs_arithmetic {
	GS_TILE,      // the register tile of products, from L1
	GS_TILE_BF16, // that of bfloat16 products, which not every version has
	GS_FMA,       // multiply-adds between registers
	GS_ARITHMETICS
};

// gs_bench_arithmetic runs one of these `count` times; *ops becomes the FLOPs of all workers, 0 where the version has none.
double gs_bench_arithmetic(gs_pool *pool, int which, int64_t count, int64_t *ops);

// gs_bench_fill writes small numbers: every worker the share that gs_bench_read has it read, so that the memory is near to it.
void gs_bench_fill(gs_pool *pool, float *p, int64_t n);

#endif
