// All ops for one instruction set: a version of the kernels.
//
// Includes go up:
//   kernels.h: what Go calls
//   pool.h simd.h alloc.c: threads; vectors; memory
//   version.h divide.h norm.h rows.h tile.h pool.c: what a version provides; tasks of products; LayerNorm; weights
//     stored by rows; the register tile
//   q8.h attention.h isa.c program.c: 8-bit weights; attention; which versions run here; the interpreter of steps
//   arrays.h arrays.c: sums and squares of arrays
//   linear.h embed.h pack.h q8_gemv.h: products; embedding and maxima; packing; the 8-bit product of one row
//   tile_dot.h tile_amx.h: register tiles of bfloat16
//   bf16.h split.h tile_int8.h: products of bfloat16; of float32 as three bfloat16 numbers; of bytes on AMX tiles
//   attention_bf16.h measure.h avx512.h: attention over a bfloat16 cache; ceilings; parameters of AVX-512
//   kernels_impl.h: all of a version
//   kernels_*.c: one or two versions each
//
// The including file sets the target and defines
//
//   GS_TABLE      name of the gs_kernels to define
//   GS_VB         bytes of a vector
//   GS_MR, GS_NV  rows of the register tile, and vectors of a row (tile.h)
//   GS_GP, GS_GU  panels that a gemv reads at once, and sums that it keeps per column
//   GS_DOT_VNNI   or GS_DOT_SDOT, if it has that instruction for dot products of bytes (q8_gemv.h)
//   GS_READS_AHEAD  1 if weights are left to the processor to read ahead (simd.h)
//   GS_BF16_TILE  GS_BY_DOT or GS_BY_AMX, if it multiplies bfloat16 (bf16.h); else bfloat16 weights are widened
#ifndef GS_KERNELS_IMPL_H
#define GS_KERNELS_IMPL_H

#include "arrays.h"
#include "attention.h"
#include "embed.h"
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
#include "tile_int8.h"
#endif
#endif

static void op_linear(gs_worker *w, const gs_step *s) {
	const gs_linear *o = &s->linear;
	// Before x is prepared. Products of more rows may have barriers inside, through which a late worker goes too.
	if (o->M <= MR && gs_late(w)) return;
	if (o->w.rows && o->M <= MR && (o->M + 1) * row_length(&o->w) <= GS_SCRATCH)
		linear_few_rows(w, o);
	else if (o->w.dtype == GS_Q8 && o->M <= MR && (o->M + 1) * q8_blocks(o->w.K) * Q8_BLOCK_FLOATS <= GS_SCRATCH)
		linear_few_q8(w, o);
#if GS_BF16_TILE == GS_BY_AMX
	else if (o->w.dtype == GS_Q8 && o->w.K <= INT8_K)
		linear_int8(w, o);
#else
	else if (o->w.dtype == GS_Q8 && w->pool->kernels->rows_q8 && (Q8_MC + 1) * q8_blocks(o->w.K) * Q8_BLOCK_FLOATS <=
			GS_SCRATCH)
		linear_many_q8(w, o);
#endif
	else if (o->w.dtype != GS_Q8 && !o->w.rows && o->M <= MR && o->M * row_distance(o->w.K) <= GS_SCRATCH)
		linear_few(w, o);
#ifdef GS_BF16_TILE
	else if (o->w.dtype == GS_BF16 && !o->w.exact && o->w.K <= BK_MAX)
		linear_bf16(w, o);
#if GS_BF16_TILE == GS_BY_AMX
	else if (o->M >= GS_SPLIT_ROWS && o->w.K <= SPLIT_K)
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
		if (!gs_barrier(w)) return;
	}
	if (o->nq == 1 || o->each)
		attention_one(w, o);
#ifdef GS_BF16_TILE
	else if (o->bf16 && o->cache.dtype == GS_BF16 && o->nq > MR)
		attention_bf16(w, o);
#endif
	else
		attention_many(w, o);
}

#ifdef GS_BF16_TILE
#define GS_FLOPS_BF16 flops_bf16
// takes_parts returns of how many bfloat16 numbers each of x is for linear_bf16 and linear_split, 0 for other products.
static int takes_parts(const gs_step *s) {
	const gs_linear *o = &s->linear;
	if (s->op != GS_LINEAR || o->M <= MR || o->w.dtype == GS_Q8) return 0;
	if (o->w.dtype == GS_BF16 && !o->w.exact && o->w.K <= BK_MAX) return 1;
#if GS_BF16_TILE == GS_BY_AMX
	if (o->M >= GS_SPLIT_ROWS && o->w.K <= SPLIT_K) return PARTS;
#endif
	return 0;
}

static void join(void *shared, gs_step *step, gs_step *next) {
	gs_linear *o = &next->linear, *from = &step->linear;
	gs_attention *a = &step->attention;
	const int parts = takes_parts(next);
	if (!parts || o->w.K % 32 != 0 || o->norm.gain || o->x.per) return;
	// One number takes less memory than x. Three take more: they lie in the pool's memory, after those of the step's own x.
	const size_t rows = padded(o->M), own = step->op == GS_LINEAR ? 2 * PARTS * rows * padded(from->w.K) : 0;
	if (parts == PARTS && own + 2 * PARTS * rows * o->w.K > GS_SHARED) return;
	void *at = parts == PARTS ? (char *)shared + own : (void *)o->x.p;
	if (takes_parts(step) == parts && from->y.p == o->x.p && from->M == o->M && from->n0 == 0 && from->n1 == o->w.K &&
			!from->residual.p)
		o->packed = from->packs = at;
	const int kept = step->op == GS_ATTENTION && a->bf16 && a->cache.dtype == GS_BF16 && a->nq > MR; // attention_bf16
	if (step->op == GS_ATTENTION && a->y.p == o->x.p && a->nq > 1 && !a->each && a->cache.HS % 32 == 0 && kept == (parts == 1))
		o->packed = a->packs = at;
}
#define GS_JOIN_STEPS join
#else
#define GS_FLOPS_BF16 NULL
#define GS_JOIN_STEPS NULL
#endif

// A version with the functions of this translation unit and one of its products of 8-bit weights.
#define GS_KERNELS(quantise_x, gemv, rows) \
	{ \
		.op = {[GS_EMBED] = op_embed, [GS_LAYERNORM] = op_layernorm, [GS_LINEAR] = op_linear, [GS_APPEND] = op_append, \
		       [GS_ATTENTION] = op_attention}, \
		.arithmetic = {[GS_TILE] = flops_f32, [GS_TILE_BF16] = GS_FLOPS_BF16, [GS_TILE_Q8] = flops_q8}, \
		.join = GS_JOIN_STEPS, .pack = pack, \
		.quantise = quantise_x, .gemv_q8 = gemv, .rows_q8 = rows, .read = read_floats, .copy = array_copy, .maxima = block_maxima, \
		.add = array_add, .square = array_square, .widen = array_widen, .sum = array_sum, \
	}

#define GS_GEMV gemv_q8
#include "q8_gemv.h"

#if defined(GS_DOT_VNNI)
const gs_kernels GS_TABLE = GS_KERNELS(quantise_bytes, gemv_q8, gemv_q8_rows);
#elif defined(__x86_64__)
const gs_kernels GS_TABLE = GS_KERNELS(quantise_pairs, gemv_q8, NULL);
#else
const gs_kernels GS_TABLE = GS_KERNELS(quantise_bytes, gemv_q8, NULL);
#endif

#endif
