// All ops for one instruction set. The including file sets the target and
//
//   GS_TABLE     name of the table to define
//   GS_NAME      its name in words
//   GS_VB        bytes of a vector
//   GS_MR, GS_NV rows and vectors of the register tile (tile.h)
//   GS_GP, GS_GU panels and sums per column that a gemv keeps in flight
//   GS_PREFETCH  how many floats ahead a gemv prefetches
//   GS_DOT_VNNI  (or GS_DOT_SDOT) where it multiplies bytes so (q8_gemv.h)
//   GS_BF16_TILE GS_BY_DOT or GS_BY_AMX where it multiplies bfloat16 (bf16.h); else weights held so are widened

#include "pool.h"

#include "simd.h"

// vary fills operands to measure ceilings with: numbers of either sign between 1 and 2, be they taken as float32 or as pairs of bfloat16.
// With zeros, which take less power, the tiles of AMX ran a fifth faster than with weights.
INLINE void vary(float *p, int64_t n) {
	uint32_t x = 1;
	for (int64_t i = 0; i < n; i++) {
		x = x * 1664525 + 1013904223; // Numerical Recipes' quick generator
		const uint32_t word = (x & 0x807f807f) | 0x3f803f80;
		memcpy(p + i, &word, sizeof word);
	}
}

#include "tile.h"

#include "q8.h"

#include "norm.h"

#include "rows.h"

#include "linear.h"

#include "attention.h"

#define GS_BY_DOT 1
#define GS_BY_AMX 2
#ifdef GS_BF16_TILE
#include "bf16.h"

#include "attention_bf16.h"
#if GS_BF16_TILE == GS_BY_AMX
#include "split.h"
#endif
#endif

static void op_linear(gs_worker *w, const gs_step *s) {
	const gs_linear *o = &s->linear;
	int64_t blocks = (o->w.K + KC - 1) / KC;
	if (o->w.rows && o->M <= MR && (o->M + 1) * row_length(&o->w) <= GS_SCRATCH)
		linear_few_rows(w, o);
	else if (o->w.dtype == GS_Q8 && o->M <= MR && (o->M + 1) * q8_blocks(o->w.K) * Q8_BLOCK_FLOATS <= GS_SCRATCH)
		linear_few_q8(w, o);
	else if (o->w.dtype != GS_Q8 && !o->w.rows && o->M <= MR && blocks * o->M * LDA <= GS_SCRATCH)
		linear_few(w, o);
#ifdef GS_BF16_TILE
	else if (o->w.dtype == GS_BF16 && o->w.K <= BK_MAX)
		linear_bf16(w, o);
#if GS_BF16_TILE == GS_BY_AMX
	else if (o->M >= GS_SPLIT_ROWS)
		linear_split(w, o);
#endif
#endif
	else
		linear_many(w, o);
}

static void op_attention(gs_worker *w, const gs_step *s) {
	const gs_attention *o = &s->attention;
	if (o->append && o->T > 1) {
		op_append(w, s);
		gs_barrier(w);
	}
	if (o->nq == 1)
		attention_one(w, o);
#ifdef GS_BF16_TILE
	else if (o->bf16 && o->cache.dtype == GS_BF16 && o->nq > MR)
		attention_bf16(w, o);
#endif
	else
		attention_many(w, o);
}

#include "elementwise.h"

#include "pack.h"

static void op_nop(gs_worker *w, const gs_step *s) {
	(void)w;
	(void)s;
}

#ifndef GS_FLOPS
#define GS_FLOPS flops
static float flops(gs_worker *w, int64_t count, int64_t *ops) {
	enum { N = 256 }; // rows of a panel that stay in L1
	float *a = w->scratch, *b = a + MR * LDA, *c = b + N * GS_NR;
	vary(a, MR * LDA + N * GS_NR);
	for (int64_t i = 0; i < count; i++) tile_of[BLOCK][MR](N, a, 0, b, b, c, GS_NR, 0);
	*ops = count * 2 * MR * N * GS_NR;
	return c[0];
}
#endif

// The register tile without its loads: as many sums as it keeps, each waiting only for itself.
static float fma_registers(gs_worker *w, int64_t count, int64_t *ops) {
	vf acc[MR][GS_NV], a = splat(1.0f - 0x1p-20f), b = splat(0x1p-10f);
#pragma GCC unroll 16
	for (int i = 0; i < MR; i++)
#pragma GCC unroll 8
		for (int j = 0; j < GS_NV; j++) acc[i][j] = splat(w->scratch[i * GS_NV + j]);
#pragma GCC unroll 1
	for (int64_t k = 0; k < count; k++)
#pragma GCC unroll 16
		for (int i = 0; i < MR; i++)
#pragma GCC unroll 8
			for (int j = 0; j < GS_NV; j++) acc[i][j] = acc[i][j] * a + b;
	vf sum = {0};
#pragma GCC unroll 16
	for (int i = 0; i < MR; i++)
#pragma GCC unroll 8
		for (int j = 0; j < GS_NV; j++) sum += acc[i][j];
	*ops = count * 2 * MR * GS_NV * VL;
	return sum_lanes(sum);
}

static float read_all(const float *p, int64_t n) {
	vu s[8] = {{0}};
	for (int64_t i = 0; i + 8 * VL <= n; i += 8 * VL)
#pragma GCC unroll 8
		for (int u = 0; u < 8; u++) s[u] ^= load_u(p + i + u * VL);
	vu t = (s[0] ^ s[1] ^ s[2] ^ s[3]) ^ (s[4] ^ s[5] ^ s[6] ^ s[7]);
	return sum_lanes((vf)(t & 0x3fffffff));
}

// block_maxima writes the largest value of each block of x; NaN where one of them is.
static void block_maxima(float *maxima, const float *x, int64_t n, int64_t block) {
	for (int64_t from = 0; from < n; from += block) {
		int64_t end = n - from < block ? n : from + block, i = from;
		vf top = splat(-INFINITY);
		vi nan = {0};
		for (; i + VL <= end; i += VL) {
			vf v = load(x + i);
			top = greater(top, v);
			nan |= v != v;
		}
		float largest = max_lanes(top);
		if (max_lanes((vf)(nan & 0x3f800000)) > 0) largest = NAN;
		for (; i < end; i++)
			if (x[i] > largest || x[i] != x[i]) largest = x[i];
		*maxima++ = largest;
	}
}

#ifdef GS_BF16_TILE
#define GS_FLOPS_BF16 flops_bf16
#else
#define GS_FLOPS_BF16 NULL
#endif

// The table of a version: all of the above, and one of the products of 8-bit weights.
#define GS_KERNELS(title, quantise_x, gemv)                                                                                           \
	{                                                                                                                                 \
		.name = title,                                                                                                                \
		.op =                                                                                                                         \
			{                                                                                                                         \
				[GS_NOP] = op_nop,                                                                                                    \
				[GS_EMBED] = op_embed,                                                                                                \
				[GS_LAYERNORM] = op_layernorm,                                                                                        \
				[GS_LINEAR] = op_linear,                                                                                              \
				[GS_APPEND] = op_append,                                                                                              \
				[GS_ATTENTION] = op_attention,                                                                                        \
				[GS_ADD] = op_add,                                                                                                    \
				[GS_ACTIVATION] = op_activation,                                                                                      \
				[GS_COPY] = op_copy,                                                                                                  \
			},                                                                                                                        \
		.arithmetic = {[GS_TILE] = GS_FLOPS, [GS_TILE_BF16] = GS_FLOPS_BF16, [GS_FMA] = fma_registers}, .pack = pack,                    \
		.quantise = quantise_x, .gemv_q8 = gemv, .read = read_all, .maxima = block_maxima,                        \
	}

#define GS_GEMV gemv_q8
#include "q8_gemv.h"

#if defined(__x86_64__) && !defined(GS_DOT_VNNI)
const gs_kernels GS_TABLE = GS_KERNELS(GS_NAME, quantise_pairs, gemv_q8);
#else
const gs_kernels GS_TABLE = GS_KERNELS(GS_NAME, quantise_bytes, gemv_q8);
#endif
