// GS_LINEAR of many rows with bfloat16 weights, by instructions that multiply bfloat16 and add in float32. x is rounded
// to bfloat16 after the norm, to nearest, ties to even. Everything else (norm, sums, bias, activation, residual, y) is
// float32. Few rows are bound by reading the weights; linear_few multiplies them in float32.
//
// First each worker packs its share of the rows of x, to where all workers read them, unless the step before has left
// them packed (gs_join). A task is some of these rows by some panels. It multiplies the rows with one panel after
// another, in blocks of BKC rows of the panel that stay in a cache for all register tiles. The sums of a panel are kept
// in the worker's scratch; those of a register tile are finished while the next is multiplied, or just before (struct
// unfinished).
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
	BKC = GS_BF16_TILE == GS_BY_AMX ? 384 : 768, // rows of a block of a panel: 24 KiB, for the L1 cache, or 48 for L2
	BTAIL = 16 * GS_NR, // words of 32 rows of a panel
	PARTS = 3, // of a number in split.h
};

// pack_bf16 packs a row of x, normalised if the step has a norm, followed by zeros up to a multiple of 32.
static void pack_bf16(const gs_linear *o, void *a, int64_t r, const float *x) {
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

// finish_here finishes rows of y in place of their sums.
static void finish_here(const unfinished *f, int rows) {
	gs_linear part = *f->o;
	part.y = (gs_view){f->c - f->n, GS_NR, 0, 0};
	finish(&part, 0, rows, f->n, f->c);
}

// finish_packed is finish_sums for a y that is left packed.
static void finish_packed(unfinished *f, int rows) {
	finish_here(f, rows);
	for (int i = 0; i < rows; i++, f->r++, f->c += GS_NR)
		store_u(bf16_at(f->o->packs, f->o->n1, f->r, f->n),
			(vu)_mm512_cvtne2ps_pbh((__m512)load(f->c + VL), (__m512)load(f->c)));
}

// bypasses_caches returns 1 if y is a plain product and larger than the caches, as the logits of a long prompt are.
INLINE int bypasses_caches(const gs_linear *o) {
	return o->M * (o->n1 - o->n0) >= 16 << 20 && !o->packs && !o->bias && o->act == GS_NONE && !o->residual.p;
}

// Such a y is written in groups of panels, by stores that bypass the caches. There is room for the sums of two groups:
// one is multiplied while the other is written. Before each group is room for the last sums of the group before it,
// those that do not fill a cache line.
enum { GROUP = 2, GROUP_ROW = 2 * (VL + GROUP * GS_NR) }; // panels of a group; floats of a row of both
_Static_assert(VL * 4 == GS_LINE, "a vector is a cache line");

// group_sums returns the address of the first row's sums of a task's panel i.
INLINE float *group_sums(float *c, int64_t i) {
	return c + i / GROUP % 2 * (GROUP_ROW / 2) + VL + i % GROUP * GS_NR;
}

// finish_group writes rows [r, r + m) of such a y for the group that ends before panel i of a task whose first panel is
// q. It writes whole cache lines past the caches, which would read each line before it is written. What does not fill a
// line is left to the next group, except at the `last` group of a task.
static void finish_group(const gs_linear *o, int64_t r, int64_t m, int64_t q, int64_t i, int last, float *c) {
	const int64_t g = (i - 1) / GROUP * GROUP, n = (q + g) * GS_NR; // first panel of the group; its first column
	const int64_t lo = o->n0 > n ? o->n0 - n : 0, hi = o->n1 - n < (i - g) * GS_NR ? o->n1 - n : (i - g) * GS_NR;
	float *next = group_sums(c, g + GROUP);
	c = group_sums(c, g);
	for (int64_t k = 0; k < m; k++, c += GROUP_ROW, next += GROUP_ROW) {
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

// multiply_bf16 multiplies o->M rows of x, which are packed, to those of y from row `first` on.
static void multiply_bf16(gs_worker *w, const gs_linear *o, int64_t first, void *x) {
	const int64_t K = o->w.K, M = o->M, pairs = (K + 1) / 2, panels = panels_of(o);

	const gs_parts parts = divide_bf16(M, panels, K, w->n, BR);
	const int bypass = bypasses_caches(o);
	const int64_t ldc = bypass ? GROUP_ROW : GS_NR;
	float *c = w->scratch;             // (rows, ldc)
	float *tail = c + BMC * GROUP_ROW; // (16, 32) pairs
	float *panel = tail + BTAIL;       // (BKC / 2, 32) pairs: a block of a weight stored by rows

	bf16_begin();
	for (int64_t t = gs_first(w, parts.rows * parts.panels); t >= 0; t = gs_next(w)) {
		const task cut = task_of(o, parts, t / parts.panels, t % parts.panels, 16);
		const int64_t r0 = first + cut.r0, rows = cut.rows, q0 = cut.q0, q1 = cut.q1, tiles = (rows + BR - 1) / BR;
		uint16_t *a = bf16_at(x, K, cut.r0, 0);
		unfinished f = {0};
		for (int64_t q = q0; q < q1 && !gs_cancelled(w->pool); q++) {
			const float *b = o->w.rows ? panel : panel_of(&o->w, q), *last = NULL;
			float *cq = bypass ? group_sums(c, q - q0) : c;
			// While a group is multiplied, the one before it is written, row by row in proportion to the work done.
			const int64_t group = (q - q0) / GROUP * GROUP, left = q1 - q0 - group;
			const int64_t work = (left < GROUP ? left : GROUP) * tiles * K;
			if (!o->w.rows && pairs % 16 != 0) { // a tile reads 16 pairs, and the panel ends before
				memcpy(tail, b + pairs / 16 * BTAIL, (size_t)(pairs % 16 * GS_NR) * sizeof *tail);
				memset(tail + pairs % 16 * GS_NR, 0, (size_t)((16 - pairs % 16) * GS_NR) * sizeof *tail);
				last = tail;
			}
			for (int64_t k = 0; k < K; k += BKC) {
				int64_t kn = K - k < BKC ? K - k : BKC, lines = kn / BF16_AHEAD;
				if (o->w.rows) transpose(panel, rows_of(&o->w, q) + k / 2, row_words(&o->w), padded(kn) / 2);
				// While this block is multiplied, the next is prefetched: `lines` lines for each tile, of its kn lines.
				const char *next = (const char *)(o->w.rows ? rows_of(&o->w, q + 1) + k / 2 * GS_NR : b + (kn + 1) / 2 * GS_NR);
				for (int64_t i = 0; i < tiles; i++) {
					int64_t ra = bf16_split(rows, tiles, i), m = bf16_split(rows, tiles, i + 1) - ra;
					const char *ahead = i * lines < kn ? next + i * lines * GS_LINE : (const char *)b;
					const int write = k + kn == K && !bypass;
					if (write && !o->packs) prefetch_y(o, r0 + ra, m, q * GS_NR);
					bf16_tile((int)m, K, a, ra, k, kn, b, k + kn == K ? last : NULL, ahead, cq + ra * ldc, ldc, k > 0, &f);
					if (write) f = (unfinished){o->packs ? finish_packed : finish_sums, (int)m, 0, o, r0 + ra, q * GS_NR, cq + ra * GS_NR};
					if (!bypass || group == 0) continue;
					int64_t done = (q - q0 - group) * tiles * K + tiles * k + i * kn;
					int64_t from = rows * done / work, to = rows * (done + kn) / work;
					finish_group(o, r0 + from, to - from, q0, group, 0, c + from * GROUP_ROW);
				}
				if (!o->w.rows) b += (kn + 1) / 2 * GS_NR;
			}
		}
		finish_next(&f, BR);
		if (bypass) finish_group(o, r0, rows, q0, q1 - q0, 1, c);
	}
	if (bypass) _mm_sfence(); // makes these stores visible to all workers after the barrier
	bf16_end();
}

// linear_packed multiplies all rows of x by `multiply`. Unless they are packed, workers first pack them by `pack`, at
// most `most` at a time, which fit into the pool's shared memory.
static void linear_packed(gs_worker *w, const gs_linear *o, int64_t most,
		void (*pack)(const gs_linear *o, void *to, int64_t r, const float *x),
		void (*multiply)(gs_worker *w, const gs_linear *o, int64_t first, void *x)) {
	if (o->packed) {
		multiply(w, o, 0, o->packed);
		return;
	}
	gs_linear part = *o;
	for (int64_t first = 0; first < o->M; first += most) {
		part.M = o->M - first < most ? o->M - first : most;
		if (first > 0 && !gs_barrier(w)) return;
		for (int64_t r = gs_first(w, part.M); r >= 0; r = gs_next(w))
			pack(&part, w->pool->shared, r, row_of(&o->x, first + r));
		if (!gs_barrier(w)) return;
		multiply(w, &part, first, w->pool->shared);
	}
}

static void linear_bf16(gs_worker *w, const gs_linear *o) {
	linear_packed(w, o, (int64_t)GS_SHARED / (2 * (o->w.K + 64)) / BMC * BMC, pack_bf16, multiply_bf16);
}

_Static_assert(BMC * GROUP_ROW + BTAIL + BKC / 2 * GS_NR <= GS_SCRATCH, "scratch too small for a task");
_Static_assert(BMC % 32 == 0 && BKC % 32 == 0, "tasks and blocks are whole tiles");

#endif
