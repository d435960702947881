// All ops for one instruction set.
//
// Includes go up:
//   kernels.h:                                               what Go calls
//   pool.h simd.h alloc.c:                                   threads; vectors
//   version.h norm.h rows.h tile.h pool.c:                   what a version provides; LayerNorm; weights held by rows; the register tile
//   q8.h attention.h isa.c program.c:                        8-bit weights; attention; which versions run here; steps
//   linear.h elementwise.h pack.h q8_gemv.h:                 products; embedding and sums; packing; the 8-bit product of one row
//   tile_dot.h tile_amx.h:                                   register tiles of bfloat16
//   bf16.h split.h:                                          products of bfloat16; of float32 as three bfloat16 numbers
//   attention_bf16.h measure.h avx512.h:                     attention over a cache of bfloat16; ceilings; parameters of AVX-512
//   kernels_impl.h
//   kernels_*.c:                                             a version each
//
// The including file sets the target and
//
//   GS_TABLE     name of the table to define
//   GS_NAME      its name in words
//   GS_VB        bytes of a vector
//   GS_MR, GS_NV rows and vectors of the register tile (tile.h)
//   GS_GP, GS_GU panels and sums per column that a gemv keeps in flight
//   GS_PREFETCH  how many floats ahead a gemv prefetches
//   GS_DOT_VNNI  (or GS_DOT_SDOT) where it multiplies bytes so (q8_gemv.h)
//   GS_BF16_TILE GS_BY_DOT or GS_BY_AMX where it multiplies bfloat16 (bf16.h); else weights held so are widened

#ifndef GS_KERNELS_IMPL_H
#define GS_KERNELS_IMPL_H

#include "attention.h"
#include "elementwise.h"
#include "linear.h"
#include "measure.h"
#include "norm.h"
#include "pack.h"
#include "version.h"
#ifdef GS_BF16_TILE
#include "attention_bf16.h"
#include "bf16.h"
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

static void op_nop(gs_worker *w, const gs_step *s) {
	(void)w;
	(void)s;
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
		.arithmetic = {[GS_TILE] = flops_f32, [GS_TILE_BF16] = GS_FLOPS_BF16, [GS_FMA] = fma_registers}, .pack = pack,                    \
		.quantise = quantise_x, .gemv_q8 = gemv, .read = read_all, .maxima = block_maxima,                        \
	}

#define GS_GEMV gemv_q8
#include "q8_gemv.h"

#if defined(__x86_64__) && !defined(GS_DOT_VNNI)
const gs_kernels GS_TABLE = GS_KERNELS(GS_NAME, quantise_pairs, gemv_q8);
#else
const gs_kernels GS_TABLE = GS_KERNELS(GS_NAME, quantise_bytes, gemv_q8);
#endif

#endif
