// GS_LINEAR with weights held as bfloat16, on instructions that multiply bfloat16 and add in float32: x is rounded to bfloat16, after the
// norm, to nearest and ties to even. Everything else (norm, sums, bias, activation, residual, y) is float32.
// For more than a few rows; few rows are bound by reading the weights, and linear_few multiplies them in float32.
// Included by kernels_impl.h where GS_BF16_TILE is set.
//
// A task is some rows of x by some panels. Its rows of x are packed once, whole, into the L2 cache, and it goes through panel after panel,
// each in blocks of BKC rows that stay in L1 over all register tiles. Partial sums of one panel wait in the worker's scratch; those of a
// register tile are finished while the next is multiplied, or just before (struct waiting).
#ifndef GS_BF16_H
#define GS_BF16_H

#include "linear.h"
#include "version.h"
#if GS_BF16_TILE == GS_BY_AMX
#include "tile_amx.h"
#else
#include "tile_dot.h"
#endif

enum {
	BMC = 256,                    // rows of a task at most: a multiple of 32
	BKC = 384,                    // rows of a panel per block: 24 KiB, for the L1 cache
	BA_VALUES = 384 * 1024,       // packed x of a task: 768 KiB, for the L2 cache
	BK_MAX = BA_VALUES / 32 - 32, // K of which 32 rows fit
	BTAIL = 16 * GS_NR,           // a block of 32 rows of a panel
};

// pack_bf16 rounds a row of x, normalised where the step has a norm, with zeros after it up to a multiple of 32.
static void pack_bf16(const gs_linear *o, uint16_t *a, int64_t r, const float *x) {
	const int64_t K = o->w.K;
	float mean = 0, rstd = 0;
	if (o->norm.gain) row_stats(x, K, o->norm.eps, &mean, &rstd);
	int64_t k = 0;
	for (; k + 32 <= K; k += 32) {
		vf low = load(x + k), high = load(x + k + 16);
		if (o->norm.gain) {
			low = (low - mean) * rstd * load(o->norm.gain + k) + load(o->norm.bias + k);
			high = (high - mean) * rstd * load(o->norm.gain + k + 16) + load(o->norm.bias + k + 16);
		}
		store_u(bf16_at(a, K, r, k), (vu)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
	}
	if (k == K) return;
	float t[32] = {0};
	copy_row(o, t, x, k, K - k, mean, rstd);
	store_u(bf16_at(a, K, r, k), (vu)_mm512_cvtne2ps_pbh((__m512)load(t + 16), (__m512)load(t)));
}

// past_caches tells whether y is nothing but sums, and larger than caches are: the logits of a long prompt.
INLINE int past_caches(const gs_linear *o) {
	return o->M * (o->n1 - o->n0) >= 16 << 20 && !o->bias && o->act == GS_NONE && !o->residual.p;
}

// The sums of such a y wait for several panels, a group: rows of two groups, of which one is multiplied while the other is written. Before
// each group is room for the sums at the end of the one before that fill no whole cache line.
enum { FAR = 2, FAR_ROW = 2 * (VL + FAR * GS_NR) }; // panels of a group; floats of a row
_Static_assert(VL * 4 == GS_LINE, "a vector is a cache line");

// far_sums returns where sums of a task's panel i begin, in the first row.
INLINE float *far_sums(float *c, int64_t i) {
	return c + i / FAR % 2 * (FAR_ROW / 2) + VL + i % FAR * GS_NR;
}

// finish_rows writes, for such a y, what finish writes, for rows [r, r + m) of the group that ends before panel i of a task, whose first
// panel is q: whole lines, past the caches, which would read every line before it is written. What is left waits for the next group,
// but at the `last` of a task.
static void finish_rows(const gs_linear *o, int64_t r, int64_t m, int64_t q, int64_t i, int last, float *c) {
	const int64_t g = (i - 1) / FAR * FAR, n = (q + g) * GS_NR; // first panel of the group; its first column
	const int64_t lo = o->n0 > n ? o->n0 - n : 0, hi = o->n1 - n < (i - g) * GS_NR ? o->n1 - n : (i - g) * GS_NR;
	float *next = far_sums(c, g + FAR);
	c = far_sums(c, g);
	for (int64_t k = 0; k < m; k++, c += FAR_ROW, next += FAR_ROW) {
		float *y = row_of(&o->y, r + k) + n;
		int64_t j = lo;
		if (g == 0)
			for (; j < hi && (uintptr_t)(y + j) % GS_LINE != 0; j++) y[j] = c[j];
		else
			j = -(int64_t)((uintptr_t)y % GS_LINE / sizeof *y);
		for (; j + VL <= hi; j += VL) _mm512_stream_ps(y + j, (__m512)load(c + j));
		if (last)
			for (; j < hi; j++) y[j] = c[j];
		else
			store(next - VL, load(c + hi - VL));
	}
}

static void linear_bf16(gs_worker *w, const gs_linear *o) {
	const int64_t K = o->w.K, M = o->M, pairs = (K + 1) / 2, panels = panels_of(o);

	// Tall tasks read panels least. A worker's tasks follow one another along the same rows of x, which it packs once; narrow tasks are
	// taken over by others where it lost its core. Small products are cut further, so that all have work.
	int64_t most = BA_VALUES / ((K + 31) / 32 * 32 + 32) / 32 * 32;
	if (most > BMC) most = BMC;
	int64_t mtasks = (M + most - 1) / most, ntasks = 1;
	const int64_t even = (mtasks + w->n - 1) / w->n * w->n; // rows of its own for each worker
	if (M / even >= BMC / 2) mtasks = even;
	while (mtasks * ntasks < 8 * w->n && panels / ntasks > 3) ntasks++;
	while (mtasks * ntasks < 2 * w->n && M / mtasks > 2 * BR) mtasks++;
	while (mtasks * ntasks < 2 * w->n && panels / ntasks > 1) ntasks++;

	const int far = past_caches(o);
	const int64_t ldc = far ? FAR_ROW : GS_NR;
	float *c = w->scratch;                                   // (rows, ldc)
	float *tail = c + BMC * FAR_ROW;                         // (16, 32) pairs
	float *panel = tail + BTAIL;                             // (BKC / 2, 32) pairs: of a weight held by rows
	uint16_t *a = (uint16_t *)(panel + BKC / 2 * GS_NR);     // packed rows of x

	int64_t packed = -1; // the first of the rows that are
	bf16_begin();
	for (int64_t t = gs_first(w, mtasks * ntasks); t >= 0; t = gs_next(w)) {
		const task cut = task_of(o, t / ntasks, mtasks, t % ntasks, ntasks, 16);
		const int64_t r0 = cut.r0, rows = cut.rows, q0 = cut.q0, q1 = cut.q1, tiles = (rows + BR - 1) / BR;
		if (r0 != packed)
			for (int64_t r = 0; r < rows; r++) pack_bf16(o, a, r, row_of(&o->x, r0 + r));
		packed = r0;
		waiting f = {0};
		for (int64_t q = q0; q < q1 && !gs_cancelled(w->pool); q++) {
			const float *b = o->w.rows ? panel : panel_of(&o->w, q), *last = NULL;
			float *cq = far ? far_sums(c, q - q0) : c;
			// Meanwhile the group before this one is written: as many of its rows as of this group's work is done.
			const int64_t group = (q - q0) / FAR * FAR, work = (q1 - q0 - group < FAR ? q1 - q0 - group : FAR) * tiles * K;
			if (!o->w.rows && pairs % 16 != 0) { // a tile reads 16 pairs, and what follows the panel is not ours
				memcpy(tail, b + pairs / 16 * BTAIL, (size_t)(pairs % 16 * GS_NR) * sizeof *tail);
				memset(tail + pairs % 16 * GS_NR, 0, (size_t)((16 - pairs % 16) * GS_NR) * sizeof *tail);
				last = tail;
			}
			for (int64_t k = 0; k < K; k += BKC) {
				int64_t kn = K - k < BKC ? K - k : BKC, lines = kn / BF16_AHEAD;
				if (o->w.rows) turn(panel, rows_of(&o->w, q) + k / 2, row_words(&o->w), padded(kn) / 2);
				// While this block is multiplied, what follows it is fetched: `lines` lines per tile, of the kn that it takes.
				const char *next = (const char *)(o->w.rows ? rows_of(&o->w, q + 1) + k / 2 * GS_NR : b + (kn + 1) / 2 * GS_NR);
				for (int64_t i = 0; i < tiles; i++) {
					int64_t ra = bf16_split(rows, tiles, i), m = bf16_split(rows, tiles, i + 1) - ra;
					const char *ahead = i * lines < kn ? next + i * lines * GS_LINE : (const char *)b;
					const int write = k + kn == K && !far;
					if (write) claim(o, r0 + ra, m, q * GS_NR);
					bf16_tile((int)m, K, a, ra, k, kn, b, k + kn == K ? last : NULL, ahead, cq + ra * ldc, ldc, k > 0, &f);
					if (write) f = (waiting){o, r0 + ra, q * GS_NR, (int)m, cq + ra * GS_NR};
					if (!far || group == 0) continue;
					int64_t done = (q - q0 - group) * tiles * K + tiles * k + i * kn, from = rows * done / work, to = rows * (done + kn) / work;
					finish_rows(o, r0 + from, to - from, q0, group, 0, c + from * FAR_ROW);
				}
				if (!o->w.rows) b += (kn + 1) / 2 * GS_NR;
			}
		}
		finish_next(&f, BR);
		if (far) finish_rows(o, r0, rows, q0, q1 - q0, 1, c);
	}
	if (far) _mm_sfence(); // what was written past the caches is visible to who comes after the barrier
	bf16_end();
}

_Static_assert(BMC * FAR_ROW + BTAIL + BKC / 2 * GS_NR + BA_VALUES / 2 <= GS_SCRATCH, "scratch too small for a task");
_Static_assert(BMC % 32 == 0 && BKC % 32 == 0, "tasks and blocks are whole tiles");

#endif
