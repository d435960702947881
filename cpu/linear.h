// GS_LINEAR: y = act(norm(x) W + bias) + residual.
//
// Few rows (M <= MR, as in a decode step): time goes into reading W. Each worker prepares all rows of x for itself, as
// a LayerNorm of a few rows costs less than sharing its result. It reads its panels of W from memory once.
//
// Many rows: the product is divided into tasks of up to MC rows by some panels. A task goes over K in blocks of at most
// KC rows of W. For each block it packs its rows of x, normalised, into the L2 cache and multiplies them with one panel
// after another. The sums of several blocks are kept in the worker's scratch, so that y is written once. Panels of
// bfloat16 or 8-bit weights are widened to float32, and rows of W are transposed to panels, once for each block and
// task. Versions with dot products of bytes round x for 8-bit weights, as in a decode step (linear_many_q8); those that
// can multiply bfloat16 use bf16.h for bfloat16 weights, and with AMX split.h for float32 and tile_int8.h for 8 bits.
#ifndef GS_LINEAR_H
#define GS_LINEAR_H

#include "norm.h"
#include "q8.h"
#include "rows.h"
#include "tile.h"

enum { SUMS = NC * MC * GS_NR };

_Static_assert(MC_ROWS * (NC / 2) <= MC * NC, "scratch too small for the sums of a task");

// finish_act writes y = act(c + bias) + residual for rows [r, r+m) and the panel whose first column is n. c is (m, 32).
// Columns outside [n0, n1) are not written.
INLINE void finish_act(const gs_linear *o, const int act, int64_t r, int m, int64_t n, const float *c) {
	int64_t lo = o->n0 > n ? o->n0 - n : 0, hi = o->n1 - n < GS_NR ? o->n1 - n : GS_NR;
	if (lo == 0 && hi == GS_NR) {
		vf bias[NVP];
		for (int j = 0; j < NVP; j++) bias[j] = o->bias ? load(o->bias + n + j * VL) : (vf){0};
		for (int i = 0; i < m; i++) {
			float *y = row_of(&o->y, r + i) + n;
			const float *res = o->residual.p ? row_of(&o->residual, r + i) + n : NULL;
			for (int j = 0; j < NVP; j++) {
				vf v = activate(act, load(c + i * GS_NR + j * VL) + bias[j]);
				if (res) v += load(res + j * VL);
				store(y + j * VL, v);
			}
		}
		return;
	}
	float bias[GS_NR] = {0}, t[GS_NR]; // n0 or n1 is within the panel
	if (o->bias) memcpy(bias + lo, o->bias + n + lo, (size_t)(hi - lo) * sizeof(float));
	for (int i = 0; i < m; i++) {
		for (int j = 0; j < NVP; j++) store(t + j * VL, activate(act, load(c + i * GS_NR + j * VL) + load(bias + j * VL)));
		float *y = row_of(&o->y, r + i) + n;
		const float *res = o->residual.p ? row_of(&o->residual, r + i) + n : NULL;
		for (int64_t j = lo; j < hi; j++) y[j] = res ? t[j] + res[j] : t[j];
	}
}

static void finish(const gs_linear *o, int64_t r, int m, int64_t n, const float *c) {
	switch (o->act) {
	case GS_GELU_TANH: finish_act(o, GS_GELU_TANH, r, m, n, c); break;
	case GS_GELU_ERF: finish_act(o, GS_GELU_ERF, r, m, n, c); break;
	case GS_RELU: finish_act(o, GS_RELU, r, m, n, c); break;
	case GS_SILU: finish_act(o, GS_SILU, r, m, n, c); break;
	case GS_QUICK_GELU: finish_act(o, GS_QUICK_GELU, r, m, n, c); break;
	default: finish_act(o, GS_NONE, r, m, n, c);
	}
}

// Rows of a register tile whose sums have not been used yet. AMX tiles multiply while the rest of the core has little
// to do, so the rows of one register tile are finished while the next is multiplied. All of them are finished before
// the next sums are written, so that both may have the same place c.
typedef struct unfinished {
	void (*finish)(struct unfinished *, int rows); // finishes the next rows
	int rows, per;                                 // how many there are, and are finished with each block; 0: shared out
	const gs_linear *o;
	int64_t r, n; // row and column of y
	float *c; // (rows, 32)
} unfinished;

// finish_per returns how many rows to finish with each of `blocks` blocks.
INLINE int finish_per(const unfinished *f, int64_t blocks) {
	return f->per ? f->per : (int)((f->rows + blocks - 1) / blocks);
}

// finish_next finishes the next `rows` rows, or what is left.
INLINE void finish_next(unfinished *f, int rows) {
	if (rows > f->rows) rows = f->rows;
	if (rows == 0) return;
	f->finish(f, rows);
	f->rows -= rows;
}

// finish_sums finishes rows of y.
static __attribute__((unused)) void finish_sums(unfinished *f, int rows) {
	finish(f->o, f->r, rows, f->n, f->c);
	f->r += rows;
	f->c += rows * GS_NR;
}

// prefetch_y prefetches for writing the lines of y that a register tile will write. This saves up to a tenth of a
// product's time if y is larger than an L2 cache (2 MiB). It does nothing for a smaller y: with AMX tiles, whose sums
// are finished later, it cost as much there.
INLINE void prefetch_y(const gs_linear *o, int64_t r, int64_t m, int64_t n) {
	if (o->M * (o->n1 - o->n0) <= 512 << 10) return;
	for (int64_t i = r; i < r + m; i++) {
		const float *y = row_of(&o->y, i) + n;
		__builtin_prefetch(y, 1, 3);
		__builtin_prefetch(y + 16, 1, 3);
		if ((uintptr_t)y % GS_LINE != 0) __builtin_prefetch(y + GS_NR - 1, 1, 3);
	}
}

INLINE const float *panel_of(const gs_weight *w, int64_t p) {
	if (w->dtype == GS_Q8) return (const float *)q8_block_of(w, p, 0);
	int64_t rows = w->dtype == GS_BF16 ? (w->K + 1) / 2 : w->K;
	return (const float *)w->data + p * rows * GS_NR;
}

// copy_row packs columns [k0, k0+n) of a row of x, normalised if the step has a norm.
INLINE void copy_row(const gs_linear *o, float *dst, const float *x, int64_t k0, int64_t n, float mean, float rstd) {
	if (o->norm.gain)
		apply_norm(dst, x, k0, n, &o->norm, mean, rstd);
	else
		copy_values(dst, x + k0, n);
}

// linear_few gives each of a few rows the same result as if it were the only one, as in a decode step: a pass that
// verifies drafts of tokens relies on it, and so on linear_few_rows and linear_few_q8.
static void linear_few(gs_worker *w, const gs_linear *o) {
	const int64_t K = o->w.K, M = o->M;
	const int64_t stride = panel_of(&o->w, 1) - panel_of(&o->w, 0);
	const int64_t p0 = o->n0 / GS_NR, p1 = (o->n1 + GS_NR - 1) / GS_NR;
	const int bf16 = o->w.dtype == GS_BF16;
	const int64_t ldx = row_distance(K);
	float *a = w->scratch; // (M, ldx)

	const float *x = row_of(&o->x, 0);
	if (M > 1 || o->norm.gain) {
		for (int64_t r = 0; r < M; r++) {
			float mean = 0, rstd = 0;
			if (o->norm.gain) row_stats(row_of(&o->x, r), K, o->norm.eps, &mean, &rstd);
			copy_row(o, a + r * ldx, row_of(&o->x, r), 0, K, mean, rstd);
		}
		x = a;
	}
	float c[(MR > GS_GP ? MR : GS_GP) * GS_NR];
	const int64_t unit = M > 1 ? 1 : gs_panels_at_once(p1 - p0, w->n, GS_GP), groups = (M + GS_GR - 1) / GS_GR;
	for (int64_t i = gs_first(w, (p1 - p0 + unit - 1) / unit); i >= 0; i = gs_next(w)) {
		int64_t p = p0 + i * unit, n = p1 - p < unit ? p1 - p : unit;
		if (M == 1) {
			(bf16 ? gemv_bf16 : gemv_f32)((int)n, K, x, panel_of(&o->w, p), stride, c);
			for (int64_t j = 0; j < n; j++) finish(o, 0, 1, (p + j) * GS_NR, c + j * GS_NR);
			continue;
		}
		for (int64_t g = 0; g < groups; g++) {
			const int64_t r = M * g / groups, m = M * (g + 1) / groups - r;
			rows_of_panel[bf16][m](K, x + r * ldx, ldx, panel_of(&o->w, p), c + r * GS_NR);
		}
		finish(o, 0, (int)M, p * GS_NR, c);
	}
}

// linear_few_rows multiplies with a weight stored by rows. Each worker prepares the rows of x, as dots_body takes them,
// for itself.
static void linear_few_rows(gs_worker *w, const gs_linear *o) {
	const int64_t K = o->w.K, M = o->M, length = row_length(&o->w), words = row_words(&o->w);
	const int64_t p0 = o->n0 / GS_NR, p1 = (o->n1 + GS_NR - 1) / GS_NR;
	const int bf16 = o->w.dtype == GS_BF16;
	float *a = w->scratch, *row = a + M * length; // (M, length), (length)
	for (int64_t r = 0; r < M; r++) {
		const float *x = row_of(&o->x, r);
		float mean = 0, rstd = 0, *to = bf16 ? row : a + r * length;
		if (o->norm.gain) row_stats(x, K, o->norm.eps, &mean, &rstd);
		copy_row(o, to, x, 0, K, mean, rstd);
		memset(to + K, 0, (size_t)(length - K) * sizeof *to);
		if (!bf16) continue;
		to = a + r * length;
		for (int64_t k = 0; k < length; k += 2 * VL)
			for (int j = 0; j < VL; j++) {
				to[k + j] = row[k + 2 * j];
				to[k + VL + j] = row[k + 2 * j + 1];
			}
	}
	float c[MR * GS_NR];
	for (int64_t i = gs_first(w, p1 - p0); i >= 0; i = gs_next(w)) {
		const float *rows = rows_of(&o->w, p0 + i);
		for (int64_t r = 0; r < M; r += DOT_ROWS)
			dots_of[bf16][M - r < DOT_ROWS ? M - r : DOT_ROWS](words, a + r * length, length, rows, words, c + r * GS_NR);
		finish(o, 0, (int)M, (p0 + i) * GS_NR, c);
	}
}

// quantise_rows quantises rows [r, r+n) of x, normalised, to blocks that follow one another.
static void quantise_rows(gs_worker *w, const gs_linear *o, int64_t r, int64_t n, gs_q8_block *to) {
	const int64_t K = o->w.K, blocks = q8_blocks(K);
	float *normal = (float *)(to + n * blocks); // (K)
	for (int64_t i = 0; i < n; i++) {
		const float *x = row_of(&o->x, r + i);
		if (o->norm.gain) {
			float mean, rstd;
			row_stats(x, K, o->norm.eps, &mean, &rstd);
			apply_norm(normal, x, 0, K, &o->norm, mean, rstd);
			x = normal;
		}
		w->pool->kernels->quantise(to + i * blocks, x, K);
	}
}

// panel_q8 multiplies rows [r, r+n) of x, which are quantised, with a panel, in groups that share its lines.
static void panel_q8(gs_worker *w, const gs_linear *o, int64_t r, int64_t n, const gs_q8_block *xq, int64_t panel) {
	const int64_t blocks = q8_blocks(o->w.K), groups = (n + GS_GR - 1) / GS_GR;
	float c[GS_GR * GS_NR];
	for (int64_t g = 0; g < groups; g++) {
		const int64_t i = n * g / groups, m = n * (g + 1) / groups - i;
		w->pool->kernels->rows_q8((int)m, blocks, xq + i * blocks, blocks, q8_block_of(&o->w, panel, 0), c);
		finish(o, r + i, (int)m, panel * GS_NR, c);
	}
}

// linear_few_q8 multiplies with 8-bit weights. Each worker quantises the rows of x for itself. Without dot products of
// bytes, a panel is multiplied with one row after another; the first brings it into the cache.
static void linear_few_q8(gs_worker *w, const gs_linear *o) {
	const int64_t M = o->M, blocks = q8_blocks(o->w.K), stride = blocks * GS_Q8_BLOCK;
	const int64_t p0 = o->n0 / GS_NR, p1 = (o->n1 + GS_NR - 1) / GS_NR;
	const gs_kernels *kernels = w->pool->kernels;
	const int rows = M > 1 && kernels->rows_q8 != NULL;
	gs_q8_block *xq = (gs_q8_block *)w->scratch; // (M, blocks)
	// Many workers read at once what others wrote: each brings it from another line on.
	const int64_t K = o->w.K, turn = K / 16 * w->id / w->n * 16;
	for (int64_t r = 0; r < M && w->n > 4; r++)
		for (int64_t k = turn; k < turn + K; k += 16) __builtin_prefetch(row_of(&o->x, r) + (k < K ? k : k - K), 0, 3);
	quantise_rows(w, o, 0, M, xq);
	float c[GS_GP * GS_NR];
	const int64_t unit = rows ? 1 : gs_panels_at_once(p1 - p0, w->n, GS_GP);
	for (int64_t i = gs_first(w, (p1 - p0 + unit - 1) / unit); i >= 0; i = gs_next(w)) {
		int64_t p = p0 + i * unit, n = p1 - p < unit ? p1 - p : unit;
		if (rows) {
			panel_q8(w, o, 0, M, xq, p);
			continue;
		}
		for (int64_t r = 0; r < M; r++) {
			kernels->gemv_q8((int)n, blocks, xq + r * blocks, q8_block_of(&o->w, p, 0), stride, c);
			for (int64_t j = 0; j < n; j++) finish(o, r, 1, (p + j) * GS_NR, c + j * GS_NR);
		}
	}
}

// widen writes rows [k0, k0+n) of a panel of bfloat16 as float32.
static void widen(float *dst, const float *panel, int64_t k0, int64_t n) {
	const float *b = panel + k0 / 2 * GS_NR;
	for (int64_t k = 0; k < n; k += 2, b += GS_NR, dst += 2 * GS_NR)
		for (int j = 0; j < NVP; j++) {
			vu pair = load_u(b + j * VL);
			store(dst + j * VL, even_half(pair));
			store(dst + GS_NR + j * VL, odd_half(pair));
		}
}

// block_of returns rows [k, k+n) of a panel as float32: in place, or computed in `wide`. `words` is for intermediate
// results.
INLINE const float *block_of(const gs_weight *w, int64_t panel, int64_t k, int64_t n, float *wide, float *words) {
	const int bf16 = w->dtype == GS_BF16;
	if (w->dtype == GS_Q8) {
		widen_q8(wide, q8_block_of(w, panel, k / GS_QB), n);
	} else if (w->rows) {
		transpose(bf16 ? words : wide, rows_of(w, panel) + (bf16 ? k / 2 : k), row_words(w), bf16 ? (n + 1) / 2 : n);
		if (bf16) widen(wide, words, 0, n);
	} else if (bf16) {
		widen(wide, panel_of(w, panel), k, n);
	} else {
		return panel_of(w, panel) + k * GS_NR;
	}
	return wide;
}

// prefetch_at returns the address of row k of a panel, for prefetching, and prefetch_lines how many cache lines n rows
// take. A panel of a weight stored by rows is not contiguous: as many bytes are prefetched from its first row on.
INLINE const char *prefetch_at(const gs_weight *w, int64_t panel, int64_t k) {
	if (w->dtype == GS_Q8) return q8_block_of(w, panel, k / GS_QB);
	const int64_t words = (w->dtype == GS_BF16 ? k / 2 : k) * GS_NR;
	return (const char *)((w->rows ? rows_of(w, panel) : panel_of(w, panel)) + words);
}

INLINE int64_t prefetch_lines(const gs_weight *w, int64_t n) {
	return w->dtype == GS_Q8 ? n * GS_Q8_BLOCK / (GS_QB * GS_LINE) : w->dtype == GS_BF16 ? n : 2 * n;
}

INLINE int64_t panels_of(const gs_linear *o) { return (o->n1 + GS_NR - 1) / GS_NR - o->n0 / GS_NR; }

// A task: rows [r0, r0+rows) of y by panels [q0, q1).
typedef struct task {
	int64_t r0, rows, q0, q1;
} task;

// task_of returns the task of parts i of the rows, which are divided at multiples of `unit` rows, and j of the panels.
INLINE task task_of(const gs_linear *o, gs_parts parts, int64_t i, int64_t j, int64_t unit) {
	const int64_t units = (o->M + unit - 1) / unit, p0 = o->n0 / GS_NR, panels = panels_of(o);
	const int64_t r0 = units * i / parts.rows * unit, r1 = units * (i + 1) / parts.rows * unit;
	return (task){r0, (r1 < o->M ? r1 : o->M) - r0, p0 + panels * j / parts.panels, p0 + panels * (j + 1) / parts.panels};
}

static void linear_many(gs_worker *w, const gs_linear *o) {
	const int64_t K = o->w.K, M = o->M, panels = panels_of(o);
	// Blocks of nearly equal length
	const int64_t blocks = (K + KC - 1) / KC, kc = (K + blocks * GS_NR - 1) / (blocks * GS_NR) * GS_NR;

	const gs_parts parts = divide_many(M, panels, K, o->w.rows, w->n, MR);

	// Sums go to c: of one tile, or of all panels if there are several blocks.
	const int64_t rows_most = o->w.rows ? MC_ROWS : MC, slot = blocks == 1 ? 0 : rows_most * GS_NR;

	float *a = w->scratch;               // (rows, LDA)
	float *c = a + rows_most * LDA;      // (MR, 32), or (panels, rows, 32)
	float *wide = c + SUMS;              // (KC, 32)
	float *words = wide + KC * GS_NR;    // (KC / 2, 32)
	float *mean = words + KC / 2 * GS_NR, *rstd = mean + MC_ROWS; // (rows)

	for (int64_t t = gs_first(w, parts.rows * parts.panels); t >= 0; t = gs_next(w)) {
		// Consecutive tasks have the same panels, so that these are read from memory once.
		const task cut = task_of(o, parts, t % parts.rows, t / parts.rows, 1);
		const int64_t r0 = cut.r0, rows = cut.rows, q0 = cut.q0, q1 = cut.q1, tiles = (rows + MR - 1) / MR;
		if (o->norm.gain)
			for (int64_t r = 0; r < rows; r++) row_stats(row_of(&o->x, r0 + r), K, o->norm.eps, &mean[r], &rstd[r]);
		for (int64_t k = 0; k < K; k += kc) {
			const int64_t kn = K - k < kc ? K - k : kc;
			const int last = k + kn == K;
			for (int64_t r = 0; r < rows; r++) copy_row(o, a + r * LDA, row_of(&o->x, r0 + r), k, kn, mean[r], rstd[r]);
			for (int64_t q = q0; q < q1; q++) {
				const float *b = block_of(&o->w, q, k, kn, wide, words);
				float *cq = c + (q - q0) * slot;
				// While this block is multiplied, that of the next panel is prefetched: each tile prefetches a part, a line for
				// every AHEAD rows.
				const char *next = prefetch_at(&o->w, q + 1, k);
				const int64_t fetch = q + 1 < q1 ? prefetch_lines(&o->w, kn) : 0, lines = kn / AHEAD;
				for (int64_t i = 0; i < tiles; i++) {
					int64_t ra = rows * i / tiles, m = rows * (i + 1) / tiles - ra; // tiles have nearly equal numbers of rows
					const float *ahead = i * lines < fetch ? (const float *)(next + i * lines * GS_LINE) : b;
					float *sums = slot == 0 ? c : cq + ra * GS_NR;
					if (last) prefetch_y(o, r0 + ra, m, q * GS_NR);
					tile_of[BLOCK][m](kn, a + ra * LDA, 0, b, ahead, sums, GS_NR, k > 0);
					if (last) finish(o, r0 + ra, (int)m, q * GS_NR, sums);
				}
			}
			if (gs_cancelled(w->pool)) return;
		}
	}
}

#if GS_BF16_TILE != GS_BY_AMX
// linear_many_q8 multiplies many rows with 8-bit weights by dot products of bytes. Each task quantises its rows.
static void linear_many_q8(gs_worker *w, const gs_linear *o) {
	const gs_parts parts = divide_q8(o->M, panels_of(o), w->n, GS_GR);
	gs_q8_block *xq = (gs_q8_block *)w->scratch; // (rows, blocks)
	int64_t quantised = -1;                      // the first of these rows
	for (int64_t t = gs_first(w, parts.rows * parts.panels); t >= 0; t = gs_next(w)) {
		// Consecutive tasks of a worker have the same rows, which it quantises once.
		const task cut = task_of(o, parts, t / parts.panels, t % parts.panels, 1);
		if (quantised != cut.r0) quantise_rows(w, o, cut.r0, cut.rows, xq);
		quantised = cut.r0;
		for (int64_t q = cut.q0; q < cut.q1 && !gs_cancelled(w->pool); q++) panel_q8(w, o, cut.r0, cut.rows, xq, q);
	}
}
#endif

_Static_assert(MC_ROWS * LDA + SUMS + KC * GS_NR * 3 / 2 + 2 * MC_ROWS <= GS_SCRATCH, "scratch too small for a task");

#endif
