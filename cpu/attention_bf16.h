// GS_ATTENTION of many queries over a bfloat16 cache, by instructions that multiply bfloat16 (bf16.h). Queries and
// exponentials are rounded to bfloat16; sums, maxima and outputs are float32. The panels of the cache have the layout
// that these instructions take.
//
// A task has up to AQ queries of one head and goes over the keys in blocks of AB. A softmax is the same whatever number
// is subtracted from its scores, if exponentials neither overflow nor vanish. The largest score of a row's first 32 keys
// serves: no row has to be known whole before its exponentials, and those of a panel are computed while later ones are
// multiplied (struct softmax). Rows with a score that is larger by some 90 (in powers of 2) begin again, with their
// largest one. The result of a row does not depend on the other rows of its tile: a masked key adds exactly 0 to its
// sums.
#ifndef GS_ATTENTION_BF16_H
#define GS_ATTENTION_BF16_H

#include "attention.h"
#include "bf16.h"

enum {
	AQ = 128, // queries of a task: a multiple of 32
	AB = 256, // keys of a block: a multiple of 32
	PER = 16, // rows of exponentials that are computed with each 32 columns of tiles
};

// exp2_short returns 2^x with a relative error of at most 2^-13, a thirtieth of that of rounding to bfloat16. NaN gives
// NaN. The polynomial interpolates 2^r at the four Chebyshev points of 0 <= r < 1.
INLINE vf exp2_short(vf x) {
	vf r = (vf)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
	vf p = splat(7.89672571e-02f);
	p = p * r + 2.24693158e-01f;
	p = p * r + 6.96324764e-01f;
	p = p * r + 9.99900296e-01f;
	return (vf)_mm512_scalef_ps((__m512)p, (__m512)x);
}

// Rows of a tile by a block of keys on their way: scores become exponentials while others are multiplied.
typedef struct softmax {
	unfinished f;           // rows of panels whose scores are there
	int64_t j, r;           // first key of the panel and row that are next
	const float *s;         // (AB / 32, BR, 32) scores: panels of 32 keys
	uint16_t *p;            // (BR, AB) packed exponentials
	int64_t ra, rn;         // rows of the task
	int64_t k, width;       // the block's first key; how many the last row attends to, in whole panels
	int64_t seen;           // keys of the block to which the first row attends
	float *m, *l;           // of each row: what is subtracted, -inf if not known yet; sums, a vector
} softmax;

// scores_of returns the scores of a row of a panel, -inf for keys from `sees` on.
INLINE void scores_of(vf v[NVP], const float *row, int64_t sees) {
	for (int j = 0; j < NVP; j++) v[j] = load(row + j * VL);
	if (sees >= GS_NR) return;
	const uint32_t mask = sees <= 0 ? 0 : (1u << sees) - 1;
	for (int j = 0; j < NVP; j++)
		v[j] = (vf)_mm512_mask_mov_ps(_mm512_set1_ps(-INFINITY), (__mmask16)(mask >> j * VL), (__m512)v[j]);
}

// softmax_panels computes rows [t->r, end) of the next panels: what is the same for all panels of a row is read once.
INLINE void softmax_panels(softmax *t, const int panels, int64_t end) {
	const int64_t j = t->j;
	const float *s = t->s + j * BR + t->r * GS_NR;
	float *m = t->m, *l = t->l + t->r * VL;
	int64_t sees = t->seen + t->r - j;
	for (int64_t r = t->r; r < end; r++, s += GS_NR, l += VL, sees++) {
		vf e[2][NVP], sum = load(l);
		for (int i = 0; i < panels; i++) scores_of(e[i], s + i * BR * GS_NR, sees - i * GS_NR);
		if (t->k + j == 0 && m[r] == -INFINITY) m[r] = max_lanes(vmax(e[0][0], e[0][1]));
		for (int i = 0; i < panels; i++) {
			for (int v = 0; v < NVP; v++) e[i][v] = exp2_short(e[i][v] - m[r]);
			sum += e[i][0] + e[i][1];
			store_u(bf16_at(t->p, AB, r, j + i * GS_NR), (vu)_mm512_cvtne2ps_pbh((__m512)e[i][1], (__m512)e[i][0]));
		}
		store(l, sum);
	}
}

static void softmax_rows(unfinished *f, int rows) {
	softmax *t = (softmax *)f;
	while (rows > 0) { // of two panels at once, or of the last one of an odd number
		const int panels = t->j + GS_NR < t->width ? 2 : 1;
		const int64_t end = t->r + rows / panels < t->rn ? t->r + rows / panels : t->rn;
		rows -= panels * (int)(end - t->r);
		panels == 2 ? softmax_panels(t, 2, end) : softmax_panels(t, 1, end);
		t->r = end < t->rn ? end : 0;
		if (t->r == 0) t->j += panels * GS_NR;
	}
}

// multiply_values adds the values of a block, times their exponentials, to the rows of the output, whose panels have AQ
// rows, and finishes f.
INLINE void multiply_values(const gs_cache *c, int64_t b, int64_t h, const softmax *t, float *out, unfinished *f) {
	for (int64_t d = 0; d < padded(c->HS); d += GS_NR) {
		const float *panel = values_of(c, b, h, t->k) + d / GS_NR * value_panel(c);
		bf16_tile((int)t->rn, AB, t->p, 0, 0, t->width, panel, NULL, NULL, out + d * AQ + t->ra * GS_NR,
			GS_NR, t->k > 0, f);
	}
}

// find_maxima sets m of the rows of a task whose sum is too large, and returns how many they are.
static int find_maxima(const gs_cache *c, int64_t b, int64_t h, uint16_t *q, int64_t rows, int64_t seen, float *s,
		float *m, const float *l) {
	const int64_t tiles = (rows + BR - 1) / BR, HSp = padded(c->HS);
	int found = 0;
	for (int64_t i = 0; i < tiles; i++) {
		const int64_t ra = bf16_split(rows, tiles, i), rn = bf16_split(rows, tiles, i + 1) - ra;
		int before = found, over[BR];
		for (int64_t r = 0; r < rn; r++) found += over[r] = !(sum_lanes(load(l + (ra + r) * VL)) < 0x1p90f);
		if (found == before) continue;
		vf top[BR], v[NVP];
		for (int64_t r = 0; r < rn; r++) top[r] = splat(-INFINITY);
		for (int64_t j = 0; j < seen + ra + rn - 1; j += GS_NR) {
			const float *panel = keys_of(c, b, h, j);
			bf16_tile((int)rn, HSp, q, ra, 0, HSp, panel, NULL, NULL, s, GS_NR, 0, &(unfinished){0});
			for (int64_t r = 0; r < rn; r++) {
				scores_of(v, s + r * GS_NR, seen + ra + r - j);
				top[r] = vmax(top[r], vmax(v[0], v[1]));
			}
		}
		for (int64_t r = 0; r < rn; r++)
			if (over[r]) m[ra + r] = max_lanes(top[r]);
	}
	return found;
}

_Static_assert(NVP == 2, "a row of a panel is two vectors");
_Static_assert(PER % 2 == 0 && BR % 2 == 0, "rows of two panels are finished together");

static void attention_bf16(gs_worker *w, const gs_attention *o) {
	const gs_cache *c = &o->cache;
	const int64_t HS = c->HS, HSp = padded(HS), NH = c->NH, nq = o->nq;
	const float scale = o->scale * LOG2_E;
	int64_t tasks = (nq + AQ - 1) / AQ;
	while (o->B * NH * tasks < 4 * w->n && nq / tasks > BR) tasks++;

	float *out = w->scratch;                   // (HSp / 32, AQ, 32)
	float *m = out + AQ * MAX_HS, *l = m + AQ; // (AQ), (AQ, VL)
	uint16_t *q = (uint16_t *)(l + AQ * VL);   // (AQ, HSp) packed queries, scaled
	enum { P = BR * (AB + 32) / 2 };           // floats of packed exponentials
	float *s = (float *)(q + AQ * (MAX_HS + 32)), *p = s + AB * BR; // scores; two of exponentials, in turns

	const unsigned mode = _mm_getcsr();
	_mm_setcsr(mode | _MM_FLUSH_ZERO_ON); // exponentials that are subnormal, which are slow, are 0 as bfloat16 anyway
	bf16_begin();
	const int64_t all = o->B * NH * tasks;
	for (int64_t i = gs_first(w, gs_ceil(all, w->n) * w->n); i >= 0; i = gs_next(w)) {
		const int64_t t = dealt(w, i, all);
		if (t >= all) continue;
		int64_t h = t % NH, b = t / NH % o->B, part = tasks - 1 - t / NH / o->B;
		int64_t i0 = nq * part / tasks, rows = nq * (part + 1) / tasks - i0, tiles = (rows + BR - 1) / BR;
		int64_t seen = o->pos[b] + o->T - nq + i0 + 1; // keys to which the first query of this task attends
		for (int64_t r = 0; r < rows; r++) {
			const float *x = row_of(&o->qkv, b * o->T + o->T - nq + i0 + r) + h * HS;
			prefetch_head(x + 8 * o->qkv.ld, HS);
			for (int64_t d = 0; d < HSp; d += 32) {
				float rest[32] = {0};
				if (d + 32 > HS) copy_values(rest, x + d, HS - d);
				const float *from = d + 32 > HS ? rest : x + d;
				store_u(bf16_at(q, HSp, r, d), (vu)_mm512_cvtne2ps_pbh((__m512)(load(from + 16) * scale),
					(__m512)(load(from) * scale)));
			}
			m[r] = -INFINITY;
		}
		for (int again = 0; again < 2; again++) {
			memset(l, 0, (size_t)rows * VL * sizeof *l);
			softmax turns[2], *before = NULL; // the block before, whose exponentials are there
			int64_t turn = 0;
			for (int64_t k = 0; k < seen + rows - 1 && (k == 0 || !gs_cancelled(w->pool)); k += AB)
				for (int64_t i = 0; i < tiles; i++) {
					int64_t ra = bf16_split(rows, tiles, i), rn = bf16_split(rows, tiles, i + 1) - ra;
					int64_t n = seen + ra + rn - 1 - k; // keys of this block to which the tile's last query attends
					if (n <= 0) continue;
					softmax *t = &turns[turn++ % 2];
					*t = (softmax){.f = {softmax_rows, 0, PER, NULL, 0, 0, NULL}, .s = s, .p = (uint16_t *)(p + turn % 2 * P),
						.ra = ra, .rn = rn, .k = k, .width = padded(n < AB ? n : AB), .seen = seen + ra - k, .m = m + ra,
						.l = l + ra * VL};
					for (int64_t j = 0; j < t->width; j += GS_NR) {
						const float *panel = keys_of(c, b, h, k + j);
						bf16_tile((int)rn, HSp, q, ra, 0, HSp, panel, NULL, NULL, s + j * BR, GS_NR, 0, &t->f);
						const int odd = j / GS_NR % 2; // two panels at once
						if (odd || j + GS_NR == t->width) t->f.rows += (int)rn * (1 + odd);
					}
					if (before) multiply_values(c, b, h, before, out, &t->f);
					finish_next(&t->f, t->f.rows);
					before = t;
				}
			multiply_values(c, b, h, before, out, &(unfinished){0});
			if (again || !find_maxima(c, b, h, q, rows, seen, s, m, l)) break;
		}
		for (int64_t r = 0; r < rows; r++) {
			const int64_t row = b * nq + i0 + r;
			float *y = row_of(&o->y, row) + h * HS, share = 1.0f / sum_lanes(load(l + r * VL));
			if (!o->packs) prefetch_head(y + 8 * o->y.ld, HS);
			for (int64_t d = 0; d < HS; d += GS_NR) {
				float part[GS_NR];
				for (int j = 0; j < NVP; j++) store(part + j * VL, load(out + d * AQ + r * GS_NR + j * VL) * share);
				if (o->packs)
					store_u(bf16_at(o->packs, NH * HS, row, h * HS + d),
						(vu)_mm512_cvtne2ps_pbh((__m512)load(part + VL), (__m512)load(part)));
				else copy_values(y + d, part, HS - d < GS_NR ? HS - d : GS_NR);
			}
		}
	}
	bf16_end();
	_mm_setcsr(mode);
}

_Static_assert(AB * BR + AQ * MAX_HS + (VL + 1) * AQ + AQ * (MAX_HS + 32) / 2 + BR * (AB + 32) <= GS_SCRATCH,
               "scratch too small for attention");
_Static_assert(AQ % 32 == 0 && AB % 32 == 0, "tasks and blocks are whole tiles");

#endif
