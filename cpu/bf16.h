// GS_LINEAR with weights held as bfloat16, on instructions that multiply bfloat16 and add in float32: x is rounded to bfloat16, after the
// norm, to nearest and ties to even. Everything else (norm, sums, bias, activation, residual, y) is float32.
// For more than a few rows; few rows are bound by reading the weights, and linear_few multiplies them in float32.
// Included by kernels_impl.h where GS_BF16_TILE is set.
//
// A task is some rows of x by some panels. It packs its rows of x once, whole, into the L2 cache, and goes through panel after panel, each
// in blocks of BKC rows that stay in L1 over all register tiles. Partial sums of one panel wait in the worker's scratch.

#if GS_BF16_TILE == GS_BY_AMX
#include "tile_amx.h"
#else
#include "tile_dot.h"
#endif

enum {
	BMC = 256,                    // rows of a task at most: a multiple of 32
	BMC_ROWS = 512,               // of a weight held by rows, as each task turns its panels
	BKC = 384,                    // rows of a panel per block: 24 KiB, for the L1 cache
	BA_VALUES = 384 * 1024,       // packed x of a task: 768 KiB, for the L2 cache
	BK_MAX = BA_VALUES / 32 - 32, // K of which 32 rows fit
	BTAIL = 16 * GS_NR,           // a block of 32 rows of a panel
	BFAR = 8,                     // panels whose sums are written at once, where y is larger than caches are
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

static void linear_bf16(gs_worker *w, const gs_linear *o) {
	const int64_t K = o->w.K, M = o->M, pairs = (K + 1) / 2;
	const int64_t p0 = o->n0 / GS_NR, p1 = (o->n1 + GS_NR - 1) / GS_NR, panels = p1 - p0;

	// Tall tasks read panels least, wide ones pack x least; enough of them that nobody waits long at the end.
	const int64_t rows_most = o->w.rows ? BMC_ROWS : BMC;
	int64_t most = BA_VALUES / ((K + 31) / 32 * 32 + 32) / 32 * 32;
	if (most > rows_most) most = rows_most;
	int64_t mtasks = (M + most - 1) / most, ntasks = 1;
	while (mtasks * ntasks < 4 * w->n && panels / ntasks > 16) ntasks++;
	while (mtasks * ntasks < 4 * w->n && M / mtasks > 2 * BR) mtasks++;
	while (mtasks * ntasks < 4 * w->n && panels / ntasks > 2) ntasks++;
	while (mtasks * ntasks % w->n != 0 && mtasks * ntasks < 8 * w->n && M / mtasks > BR) mtasks++; // as many for each worker

	const int far = past_caches(o);
	float *c = w->scratch;                                   // (BFAR, BMC_ROWS, 32)
	float *tail = c + BFAR * BMC_ROWS * GS_NR;               // (16, 32) pairs
	float *panel = tail + BTAIL;                             // (BK_MAX / 2, 32) pairs: of a weight held by rows
	uint16_t *a = (uint16_t *)(panel + BK_MAX / 2 * GS_NR); // packed rows of x

	bf16_begin();
	for (int64_t t = gs_first(w, mtasks * ntasks); t >= 0; t = gs_next(w)) {
		// Neighbouring tasks share columns, so that panels come from memory once. Tasks are cut at multiples of 16 rows.
		int64_t mt = t % mtasks, nt = t / mtasks, units = (M + 15) / 16;
		int64_t r0 = units * mt / mtasks * 16, r1 = units * (mt + 1) / mtasks * 16, rows = (r1 < M ? r1 : M) - r0;
		int64_t q0 = p0 + panels * nt / ntasks, q1 = p0 + panels * (nt + 1) / ntasks;
		int64_t tiles = (rows + BR - 1) / BR;
		for (int64_t r = 0; r < rows; r++) pack_bf16(o, a, r, row_of(&o->x, r0 + r));
		for (int64_t q = q0; q < q1 && !gs_cancelled(w->pool); q++) {
			const float *b = o->w.rows ? panel : panel_of(&o->w, q), *last = NULL;
			const int64_t held = far ? (q - q0) % BFAR : 0; // panels before this one whose sums wait
			float *cq = c + held * BMC_ROWS * GS_NR;
			if (o->w.rows) {
				turn(panel, rows_of(&o->w, q), row_words(&o->w), row_words(&o->w));
			} else if (pairs % 16 != 0) { // a tile reads 16 pairs, and what follows the panel is not ours
				memcpy(tail, b + pairs / 16 * BTAIL, (size_t)(pairs % 16 * GS_NR) * sizeof *tail);
				memset(tail + pairs % 16 * GS_NR, 0, (size_t)((16 - pairs % 16) * GS_NR) * sizeof *tail);
				last = tail;
			}
			for (int64_t k = 0; k < K; k += BKC) {
				int64_t kn = K - k < BKC ? K - k : BKC, lines = kn / BF16_AHEAD;
				// While this block is multiplied, what follows it is fetched: `lines` lines per tile, of the kn that it takes.
				const char *next = (const char *)(o->w.rows ? rows_of(&o->w, q + 1) + k / 2 * GS_NR : b + (kn + 1) / 2 * GS_NR);
				for (int64_t i = 0; i < tiles; i++) {
					int64_t ra = bf16_split(rows, tiles, i), m = bf16_split(rows, tiles, i + 1) - ra;
					const char *ahead = i * lines < kn ? next + i * lines * GS_LINE : (const char *)b;
					const int write = k + kn == K && !far;
					if (write) claim(o, r0 + ra, m, q * GS_NR);
					bf16_tile((int)m, K, a, ra, k, kn, b, k + kn == K ? last : NULL, ahead, cq + ra * GS_NR, k > 0);
					if (write) finish(o, r0 + ra, (int)m, q * GS_NR, cq + ra * GS_NR);
				}
				b += (kn + 1) / 2 * GS_NR;
			}
			if (far && (held == BFAR - 1 || q == q1 - 1)) finish_rows(o, r0, rows, (q - held) * GS_NR, held + 1, c, BMC_ROWS * GS_NR);
		}
	}
	if (far) stream_end();
	bf16_end();
}

_Static_assert(BFAR * BMC_ROWS * GS_NR + BTAIL + BK_MAX / 2 * GS_NR + BA_VALUES / 2 <= GS_SCRATCH && (int)BFAR <= (int)FAR_MOST, "scratch too small for a task");
_Static_assert(BMC % 32 == 0 && BMC_ROWS % 32 == 0 && BKC % 32 == 0, "tasks and blocks are whole tiles");

// The register tile from the first-level cache: the ceiling of these products.
static float flops_bf16(gs_worker *w, int64_t count, int64_t *ops) {
	float *c = w->scratch, *b = c + BR * GS_NR;
	uint16_t *a = (uint16_t *)(b + BKC / 2 * GS_NR);
	memset(c, 0, (size_t)(BR * GS_NR + BKC / 2 * GS_NR) * sizeof *c + (size_t)(BR * (BKC + 32)) * sizeof *a);
	bf16_begin();
	for (int64_t i = 0; i < count; i++) bf16_tile(BR, BKC, a, 0, 0, BKC, b, NULL, (const char *)b, c, 0);
	bf16_end();
	*ops = count * 2 * BR * BKC * GS_NR;
	return c[0];
}
