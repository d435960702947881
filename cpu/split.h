// GS_LINEAR in float32 on AMX tiles, which multiply bfloat16: each number is split into a sum of three bfloat16
// numbers, its parts, and the six largest of the nine products of parts are added (G. Henry, P. T. P. Tang, A.
// Heinecke, Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations, ARITH 2019;
// oneMKL calls this mode float_to_bf16x3).
//
//   x = x1 + x2 + x3,  w = w1 + w2 + w3,  x w = x1 w3 + x1 w2 + x2 w2 + x2 w1 + x3 w1 + x1 w1 + e,  |e| < 2^-22 |x w|
//
// A product of parts is exact in float32, and TDPBF16PS sums 16 pairs before it adds them to the total, so the error is
// that of float32 sums, and mostly less (TestLinearExact). TDPBF16PS treats parts, products and sums below 2^-126 as 0,
// so products below 2^-102 lose their last bits. If x or w is not finite, or the sum overflows, the result is NaN.
//
// For float32 weights, for bfloat16 ones whose products are exact (gs_weight), and for others with too large a K for
// bf16.h and tile_int8.h. From GS_SPLIT_ROWS rows on: splitting a panel takes as long as multiplying some tens of rows
// with it. Rows of x are split once, for all workers, a block of a panel by each task. K is divided into the same blocks
// as in linear_many. A bfloat16 weight is its first part, and lies in memory as the tiles take it: three products are
// left, whose sum is the same.
#ifndef GS_SPLIT_H
#define GS_SPLIT_H

#include "bf16.h"

// split_row writes the parts of 32 values, `plane` values apart.
INLINE void split_row(uint16_t *a, int64_t plane, const float *x) {
	vf low = load(x), high = load(x + VL);
#pragma GCC unroll 3
	for (int p = 0; p < PARTS; p++) { // rounds to nearest, so the rest has either sign
		vu pair = (vu)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
		store_u(a + p * plane, pair);
		low -= (vf)((vu)_mm512_cvtepu16_epi32(_mm512_castsi512_si256((__m512i)pair)) << 16);
		high -= (vf)((vu)_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64((__m512i)pair, 1)) << 16);
	}
}

// pack_split packs the parts of a row of x, normalised if the step has a norm, followed by zeros up to a multiple of 32.
static void pack_split(const gs_linear *o, void *a, int64_t r, const float *x) {
	const int64_t K = o->w.K, plane = padded(o->M) * padded(K);
	float mean = 0, rstd = 0, t[32] = {0};
	if (o->norm.gain) row_stats(x, K, o->norm.eps, &mean, &rstd);
	for (int64_t k = 0; k < K; k += 32) {
		if (K - k < 32) memset(t, 0, sizeof t);
		copy_row(o, t, x, k, K - k < 32 ? K - k : 32, mean, rstd);
		split_row(bf16_at(a, K, r, k), plane, t);
	}
}

// split_panel writes the parts of n rows of a panel, rows 2i and 2i+1 interleaved, parts `plane` words apart, followed
// by zeros up to a multiple of 32 rows. The parts are the first 8 bits of a significand, the next 8 and the last 8,
// which takes fewer instructions than rounding.
static void split_panel(float *parts, int64_t plane, const float *b, int64_t n) {
	const vu upper = (vu){0} + 0xffff0000u;
	for (int64_t k = 0; k < n; k += 2, parts += GS_NR)
		for (int j = 0; j < NVP; j++) {
			vf even = load(b + k * GS_NR + j * VL), odd = k + 1 < n ? load(b + (k + 1) * GS_NR + j * VL) : (vf){0};
#pragma GCC unroll 3
			for (int p = 0; p < PARTS; p++) {
				vu e = (vu)even & upper, d = (vu)odd & upper;
				store_u(parts + p * plane + j * VL, e >> 16 | d);
				even -= (vf)e;
				odd -= (vf)d;
			}
		}
	for (int64_t i = (n + 1) / 2; i % 16 != 0; i++, parts += GS_NR)
		for (int p = 0; p < PARTS; p++) memset(parts + p * plane, 0, GS_NR * sizeof *parts);
}

// prefetch_part prefetches one or two AMX tiles of a part of A.
INLINE void prefetch_part(const int halves, const uint16_t *a0, const uint16_t *a1) {
	prefetch_l1(a0, 16);
	if (halves == 2) prefetch_l1(a1, 16);
}

// split_body is amx_body for parts, which are pa values apart in A and pb words in B; pb is 0 if B has one part. The
// order of the products is such that each shares an operand with the one before it.
INLINE void split_body(const int halves, int64_t blocks, const uint16_t *a0, const uint16_t *a1, int64_t pa,
		const float *b, int64_t pb, const char *ahead, float *c, int64_t ldc, int accumulate, unfinished *f) {
	enum { ROW = GS_NR * 4 };
	const int per = finish_per(f, blocks);
	sums_begin(halves, c, ldc, accumulate);
	// The parts are in L2: while a block of 32 columns is multiplied, the next is prefetched into L1.
#define LOAD_A(p)                                              \
	TILE_LOAD(4, a0 + (p) * pa + i * 512, 64);                 \
	if (halves == 2) TILE_LOAD(5, a1 + (p) * pa + i * 512, 64)
#define LOAD_B(p)                                              \
	TILE_LOAD(6, b + (p) * pb + i * 16 * GS_NR, ROW);          \
	TILE_LOAD(7, b + (p) * pb + i * 16 * GS_NR + 16, ROW)
#define DOT_TILES()                                            \
	TILE_DOT(0, 4, 6);                                         \
	if (halves == 2) TILE_DOT(2, 5, 6);                        \
	TILE_DOT(1, 4, 7);                                         \
	if (halves == 2) TILE_DOT(3, 5, 7)
#pragma GCC unroll 1
	for (int64_t i = 0; i < blocks; i++) {
		if (pb) {
			LOAD_A(0);
			LOAD_B(2);
			DOT_TILES();
		}
		prefetch_part(halves, a0 + (i + 1) * 512, a1 + (i + 1) * 512);
		if (pb) {
			LOAD_B(1);
			DOT_TILES();
		}
		prefetch_l1(b + (i + 1) * 16 * GS_NR, 32);
		LOAD_A(1);
		if (pb) { DOT_TILES(); }
		prefetch_part(halves, a0 + pa + (i + 1) * 512, a1 + pa + (i + 1) * 512);
		LOAD_B(0);
		DOT_TILES();
		if (pb) prefetch_l1(b + pb + (i + 1) * 16 * GS_NR, 32);
		LOAD_A(2);
		DOT_TILES();
		prefetch_part(halves, a0 + 2 * pa + (i + 1) * 512, a1 + 2 * pa + (i + 1) * 512);
		LOAD_A(0);
		DOT_TILES();
		if (pb) prefetch_l1(b + 2 * pb + (i + 1) * 16 * GS_NR, 32);
		prefetch_next(ahead, i);
		finish_next(f, per);
	}
#undef LOAD_A
#undef LOAD_B
#undef DOT_TILES
	sums_end(halves, c, ldc);
}

static __attribute__((noinline)) void split_32(int64_t blocks, const uint16_t *a0, const uint16_t *a1, int64_t pa,
		const float *b, int64_t pb, const char *ahead, float *c, int64_t ldc, int accumulate, unfinished *f) {
	split_body(2, blocks, a0, a1, pa, b, pb, ahead, c, ldc, accumulate, f);
}

static __attribute__((noinline)) void split_16(int64_t blocks, const uint16_t *a0, int64_t pa, const float *b,
		int64_t pb, const char *ahead, float *c, int64_t ldc, int accumulate, unfinished *f) {
	split_body(1, blocks, a0, a0, pa, b, pb, ahead, c, ldc, accumulate, f);
}

// finish_split is finish_packed for parts.
static void finish_split(unfinished *f, int rows) {
	finish_here(f, rows);
	for (int i = 0; i < rows; i++, f->r++, f->c += GS_NR)
		split_row(bf16_at(f->o->packs, f->o->n1, f->r, f->n), padded(f->o->M) * f->o->n1, f->c);
}

static void pack_head(const gs_attention *o, int64_t r, int64_t h, const float *y) {
	const int64_t HS = o->cache.HS, C = o->cache.NH * HS, plane = padded((int64_t)o->B * o->nq) * C;
	for (int64_t d = 0; d < HS; d += 32) split_row(bf16_at(o->packs, C, r, h * HS + d), plane, y + d);
}

// multiply_split is multiply_bf16 for these products.
static void multiply_split(gs_worker *w, const gs_linear *o, int64_t first, void *x) {
	const int64_t K = o->w.K, M = o->M;
	// Blocks of nearly equal length
	const int64_t blocks = (K + KC - 1) / KC, kc = (K + blocks * GS_NR - 1) / (blocks * GS_NR) * GS_NR;
	const int split = o->w.dtype != GS_BF16 || o->w.rows || K % 32 != 0; // else panels are read in place
	const gs_parts parts = divide_split(M, panels_of(o), w->n, split);

	const int64_t pb = KC / 2 * GS_NR, pa = padded(M) * padded(K);
	float *c = w->scratch;                 // (SM, 32)
	float *wide = c + SM * GS_NR;          // (KC, 32)
	float *words = wide + KC * GS_NR;      // (KC / 2, 32)
	float *panel = words + KC / 2 * GS_NR; // (3, KC / 2, 32) pairs

	bf16_begin();
	for (int64_t t = gs_first(w, parts.rows * parts.panels); t >= 0; t = gs_next(w)) {
		const task cut = task_of(o, parts, t / parts.panels, t % parts.panels, 16);
		const int64_t r0 = first + cut.r0, rows = cut.rows, q1 = cut.q1, tiles = (rows + BR - 1) / BR;
		uint16_t *a = bf16_at(x, K, cut.r0, 0);
		unfinished f = {0};
		for (int64_t q = cut.q0; q < q1 && !gs_cancelled(w->pool); q++)
			for (int64_t k = 0, kn; k < K; k += kn) {
				kn = K - k < kc ? K - k : kc;
				const int last = k + kn == K;
				const float *b = split ? panel : panel_of(&o->w, q) + k / 2 * GS_NR;
				if (split) split_panel(panel, pb, block_of(&o->w, q, k, kn, wide, words), kn);
				const char *next = prefetch_at(&o->w, q + last, last ? 0 : k + kn);
				int64_t fetch = last && q + 1 == q1 ? 0 : prefetch_lines(&o->w, kn), prefetched = 0;
				for (int64_t i = 0; i < tiles; i++, prefetched += (kn + 31) / 32 * (32 / BF16_AHEAD)) {
					int64_t ra = bf16_split(rows, tiles, i), m = bf16_split(rows, tiles, i + 1) - ra;
					const char *ahead = prefetched < fetch ? next + prefetched * GS_LINE : (const char *)b;
					if (last && !o->packs) prefetch_y(o, r0 + ra, m, q * GS_NR);
					const uint16_t *a0 = bf16_at(a, K, ra, k), *a1 = bf16_at(a, K, ra + 16, k);
					float *sums = c + ra * GS_NR;
					if (m > 16)
						split_32((kn + 31) / 32, a0, a1, pa, b, split * pb, ahead, sums, GS_NR, k > 0, &f);
					else
						split_16((kn + 31) / 32, a0, pa, b, split * pb, ahead, sums, GS_NR, k > 0, &f);
					if (last) f = (unfinished){o->packs ? finish_split : finish_sums, (int)m, 0, o, r0 + ra, q * GS_NR, sums};
				}
			}
		finish_next(&f, BR);
	}
	bf16_end();
}

enum { SPLIT_K = GS_SHARED / (2 * PARTS * BR) - 32 }; // the largest K of which 32 rows fit

static void linear_split(gs_worker *w, const gs_linear *o) {
	linear_packed(w, o, (int64_t)GS_SHARED / (2 * PARTS * padded(o->w.K)) / BR * BR, pack_split, multiply_split);
}

_Static_assert(SM * GS_NR + KC * GS_NR * (3 + PARTS) / 2 <= GS_SCRATCH, "scratch too small for a task");

#endif
