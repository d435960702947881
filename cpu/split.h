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
// bf16.h and tile_int8.h. From GS_SPLIT_ROWS rows on:
// splitting a panel takes as long as multiplying some tens of rows with it. K is divided into the same blocks as in
// linear_many. A bfloat16 weight is its first part, and lies in memory as the tiles take it: three products are left,
// whose sum is the same.
#ifndef GS_SPLIT_H
#define GS_SPLIT_H

#include "linear.h"
#include "tile_amx.h"

enum { PARTS = 3 }; // of a number

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

// split_rows writes the parts of columns [k, k+n) of rows [r0, r0+rows) of x, normalised if the step has a norm, and
// followed by zeros up to a multiple of 32.
static void split_rows(const gs_linear *o, uint16_t *a, int64_t plane, int64_t r0, int64_t rows, int64_t k, int64_t n,
		const float *mean, const float *rstd) {
	float t[KC + 32];
	for (int64_t r = 0; r < rows; r++) {
		copy_row(o, t, row_of(&o->x, r0 + r), k, n, mean[r], rstd[r]);
		memset(t + n, 0, 32 * sizeof *t);
		for (int64_t i = 0; i < n; i += 32) split_row(bf16_at(a, n, r, i), plane, t + i);
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

// prefetch_l1 prefetches n lines into the L1 cache.
INLINE void prefetch_l1(const void *p, const int n) {
#pragma GCC unroll 32
	for (int line = 0; line < n; line++) __builtin_prefetch((const char *)p + line * GS_LINE, 0, 3);
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

static void linear_split(gs_worker *w, const gs_linear *o) {
	const int64_t K = o->w.K, M = o->M, panels = panels_of(o);
	// Blocks of nearly equal length
	const int64_t blocks = (K + KC - 1) / KC, kc = (K + blocks * GS_NR - 1) / (blocks * GS_NR) * GS_NR;

	const gs_parts cuts = divide_split(M, panels, K, w->n);

	const int64_t slot = blocks == 1 ? 0 : SM * GS_NR, pb = KC / 2 * GS_NR, pa = SM * KC;
	float *c = w->scratch;                 // (BR, 32), or (panels, SM, 32)
	float *wide = c + NC * SM * GS_NR;     // (KC, 32)
	float *words = wide + KC * GS_NR;      // (KC / 2, 32)
	float *parts = words + KC / 2 * GS_NR; // (3, KC / 2, 32) pairs
	float *mean = parts + PARTS * pb, *rstd = mean + SM;
	uint16_t *a = (uint16_t *)(rstd + SM); // (3, SM, KC)

	const int split = o->w.dtype != GS_BF16 || o->w.rows || K % 32 != 0; // else panels are read in place
	bf16_begin();
	for (int64_t t = gs_first(w, cuts.rows * cuts.panels); t >= 0; t = gs_next(w)) {
		const task cut = task_of(o, cuts, t % cuts.rows, t / cuts.rows, 16);
		const int64_t r0 = cut.r0, rows = cut.rows, q0 = cut.q0, q1 = cut.q1, tiles = (rows + BR - 1) / BR;
		if (o->norm.gain)
			for (int64_t r = 0; r < rows; r++) row_stats(row_of(&o->x, r0 + r), K, o->norm.eps, &mean[r], &rstd[r]);
		unfinished f = {0};
		for (int64_t k = 0; k < K; k += kc) {
			const int64_t kn = K - k < kc ? K - k : kc;
			split_rows(o, a, pa, r0, rows, k, kn, mean, rstd);
			for (int64_t q = q0; q < q1 && !gs_cancelled(w->pool); q++) {
				const float *b = split ? parts : panel_of(&o->w, q) + k / 2 * GS_NR;
				if (split) split_panel(parts, pb, block_of(&o->w, q, k, kn, wide, words), kn);
				float *cq = c + (q - q0) * slot;
				const char *next = prefetch_at(&o->w, q + 1, k);
				int64_t fetch = q + 1 < q1 ? prefetch_lines(&o->w, kn) : 0, prefetched = 0;
				const int last = k + kn == K;
				for (int64_t i = 0; i < tiles; i++, prefetched += (kn + 31) / 32 * (32 / BF16_AHEAD)) {
					int64_t ra = bf16_split(rows, tiles, i), m = bf16_split(rows, tiles, i + 1) - ra;
					const char *ahead = prefetched < fetch ? next + prefetched * GS_LINE : (const char *)b;
					if (last) prefetch_y(o, r0 + ra, m, q * GS_NR);
					const uint16_t *a0 = bf16_at(a, kn, ra, 0);
					float *sums = cq + (slot == 0 ? 0 : ra * GS_NR);
					if (m > 16)
						split_32((kn + 31) / 32, a0, bf16_at(a, kn, ra + 16, 0), pa, b, split * pb, ahead, sums, GS_NR, k > 0,
							&f);
					else
						split_16((kn + 31) / 32, a0, pa, b, split * pb, ahead, sums, GS_NR, k > 0, &f);
					if (last) f = (unfinished){finish_sums, (int)m, 0, o, r0 + ra, q * GS_NR, sums};
				}
			}
		}
		finish_next(&f, BR);
	}
	bf16_end();
}

_Static_assert(NC * SM * GS_NR + KC * GS_NR * (3 + PARTS) / 2 + 2 * SM + PARTS * SM * KC / 2 <= GS_SCRATCH,
               "scratch too small for a task");

#endif
