// GS_ATTENTION of many queries over a bfloat16 cache, by instructions that multiply bfloat16 (bf16.h). Queries and
// exponentials are rounded to bfloat16; sums, maxima and outputs are float32. The panels of the cache have the layout
// that these instructions take.
//
// A task has up to AQ queries of one head and goes over the keys in blocks of AB, otherwise as attention_many does.
// While the scores of a tile are multiplied, those of the tile before become exponentials (struct softmax). The result
// of a row does not depend on the other rows of its tile: a masked key adds exactly 0 to its sums.
#ifndef GS_ATTENTION_BF16_H
#define GS_ATTENTION_BF16_H

#include "attention.h"
#include "bf16.h"

enum {
	AQ = 256, // queries of a task: a multiple of 32
	AB = 256, // keys of a block: a multiple of 32
};

// exp2_short returns 2^x for x <= 0 with a relative error of at most 2^-13, a thirtieth of that of rounding to
// bfloat16. NaN gives NaN. The polynomial interpolates 2^r at the four Chebyshev points of 0 <= r < 1.
INLINE vf exp2_short(vf x) {
	vf r = (vf)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
	vf p = splat(7.89672571e-02f);
	p = p * r + 2.24693158e-01f;
	p = p * r + 6.96324764e-01f;
	p = p * r + 9.99900296e-01f;
	return (vf)_mm512_scalef_ps((__m512)p, (__m512)x);
}

// Rows of a tile and a block of keys on their way: their scores become exponentials while the scores of the next are
// multiplied, and exponentials of those before with values.
typedef struct softmax {
	unfinished f;
	int64_t done;           // rows whose exponentials are written
	float *s;               // (AB / 32, BR, 32) scores: panels of 32 keys
	uint16_t *p;            // (BR, AB) packed exponentials
	int64_t ra, rn;         // rows of the task
	int64_t k, n, width;    // the block's first key; how many the last row attends to; these in whole panels
	int64_t seen;           // keys of the block to which the first row attends
	float *m, *l;           // running maximum and sum of each row
	float shrink[BR];       // by which each row of the output so far is multiplied
} softmax;

// softmax_rows replaces scores of the next rows by exponentials and updates maxima and sums. Row r attends to the first
// seen + r keys of the block, at most n; scores from there to `width` are masked.
static void softmax_rows(unfinished *f, int rows) {
	enum { PANEL = BR * GS_NR };
	softmax *t = (softmax *)f;
	for (int64_t r = t->done; r < t->done + rows; r++) {
		float *row = t->s + r * GS_NR;
		int64_t sees = t->seen + r < 0 ? 0 : t->seen + r < t->n ? t->seen + r : t->n;
		for (int64_t j = sees; j < t->width; j++) row[j / GS_NR * PANEL + j % GS_NR] = -INFINITY;
		vf top[NVP];
		for (int j = 0; j < NVP; j++) top[j] = load(row + j * VL);
		for (int64_t k = 1; k < t->width / GS_NR; k++)
			for (int j = 0; j < NVP; j++) top[j] = vmax(top[j], load(row + k * PANEL + j * VL));
		for (int j = 1; j < NVP; j++) top[0] = vmax(top[0], top[j]);
		const float most = max_lanes(top[0]), now = most > t->m[r] ? most : t->m[r];
		vf sum[NVP] = {{0}};
		for (int64_t k = 0; k < t->width / GS_NR; k++) {
			vf e[NVP];
			for (int j = 0; j < NVP; j++) {
				e[j] = exp2_short(load(row + k * PANEL + j * VL) - now);
				sum[j] += e[j];
			}
			store_u(bf16_at(t->p, AB, r, k * GS_NR), (vu)_mm512_cvtne2ps_pbh((__m512)e[1], (__m512)e[0]));
		}
		for (int j = 1; j < NVP; j++) sum[0] += sum[j];
		t->shrink[r] = 1;
		if (now != t->m[r]) {
			float shrink[VL];
			store(shrink, exp2_short(splat(t->m[r] - now))); // 0 at the first block, since m is -inf there
			t->shrink[r] = shrink[0];
			t->m[r] = now;
		}
		t->l[r] = t->l[r] * t->shrink[r] + sum_lanes(sum[0]);
	}
	t->done += rows;
}

// multiply_values adds the values of a block, times their exponentials, to the rows of the output, whose panels have AQ
// rows, and finishes f.
INLINE void multiply_values(const gs_cache *c, int64_t b, int64_t h, const softmax *t, float *out, unfinished *f) {
	const int64_t HSp = padded(c->HS);
	out += t->ra * GS_NR;
	for (int64_t r = 0; r < t->rn; r++)
		if (t->k > 0 && t->shrink[r] != 1)
			for (int64_t d = 0; d < HSp; d += VL) {
				float *o = out + d / GS_NR * AQ * GS_NR + r * GS_NR + d % GS_NR;
				store(o, load(o) * t->shrink[r]);
			}
	for (int64_t d = 0; d < HSp; d += GS_NR) {
		const float *panel = values_of(c, b, h, t->k) + d / GS_NR * value_panel(c);
		bf16_tile((int)t->rn, AB, t->p, 0, 0, t->width, panel, NULL, (const char *)panel, out + d * AQ, GS_NR, t->k > 0, f);
	}
}

_Static_assert(NVP == 2, "a row of a panel is two vectors");

static void attention_bf16(gs_worker *w, const gs_attention *o) {
	const gs_cache *c = &o->cache;
	const int64_t HS = c->HS, HSp = padded(HS), NH = c->NH, nq = o->nq;
	const float scale = o->scale * LOG2_E;
	int64_t tasks = (nq + AQ - 1) / AQ;
	while (o->B * NH * tasks < 4 * w->n && nq / tasks > BR) tasks++;

	float *out = w->scratch;                   // (HSp / 32, AQ, 32)
	float *m = out + AQ * MAX_HS, *l = m + AQ; // (AQ)
	uint16_t *q = (uint16_t *)(l + AQ);        // (AQ, HSp) packed queries, scaled
	softmax three[3];
	enum { P = BR * (AB + 32) / 2 };           // floats of packed exponentials
	float *s = (float *)(q + AQ * (MAX_HS + 32)); // two of scores, two of exponentials, in turns

	bf16_begin();
	for (int64_t t = gs_first(w, o->B * NH * tasks); t >= 0; t = gs_next(w)) {
		// The last queries attend to the most keys: the longest tasks come first.
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
			l[r] = 0;
		}
		softmax *before = NULL, *last = NULL; // the tiles of which scores are exponentials already, and are not yet
		unfinished none = {0};
		int64_t turn = 0;
		for (int64_t k = 0; k < seen + rows - 1; k += AB) {
			for (int64_t i = 0; i < tiles; i++) {
				int64_t ra = bf16_split(rows, tiles, i), rn = bf16_split(rows, tiles, i + 1) - ra;
				int64_t n = seen + ra + rn - 1 - k; // keys of this block to which the tile's last query attends
				if (n <= 0) continue;
				if (n > AB) n = AB;
				softmax *t = &three[turn % 3];
				*t = (softmax){.f = {softmax_rows, (int)rn, 1, NULL, 0, 0, NULL}, .s = s + turn % 2 * AB * BR,
					.p = (uint16_t *)(s + 2 * AB * BR + turn % 2 * P), .ra = ra, .rn = rn, .k = k, .n = n, .width = padded(n),
					.seen = seen + ra - k, .m = m + ra, .l = l + ra};
				turn++;
				unfinished *f = last ? &last->f : &none;
				for (int64_t j = 0; j < t->width; j += GS_NR) {
					const float *panel = keys_of(c, b, h, k + j);
					bf16_tile((int)rn, HSp, q, ra, 0, HSp, panel, NULL, (const char *)panel, t->s + j * BR, GS_NR, 0, f);
				}
				if (before) multiply_values(c, b, h, before, out, f);
				finish_next(f, BR);
				before = last;
				last = t;
			}
			if (gs_cancelled(w->pool)) break;
		}
		if (before) multiply_values(c, b, h, before, out, &last->f);
		finish_next(&last->f, BR);
		multiply_values(c, b, h, last, out, &none);
		for (int64_t r = 0; r < rows; r++) {
			float *y = row_of(&o->y, b * nq + i0 + r) + h * HS, share = 1.0f / l[r];
			prefetch_head(y + 8 * o->y.ld, HS);
			for (int64_t d = 0; d < HS; d += GS_NR) {
				float part[GS_NR];
				for (int j = 0; j < NVP; j++) store(part + j * VL, load(out + d * AQ + r * GS_NR + j * VL) * share);
				copy_values(y + d, part, HS - d < GS_NR ? HS - d : GS_NR);
			}
		}
	}
	bf16_end();
}

_Static_assert(2 * AB * BR + AQ * MAX_HS + 2 * AQ + AQ * (MAX_HS + 32) / 2 + BR * (AB + 32) <= GS_SCRATCH,
               "scratch too small for attention");
_Static_assert(AQ % 32 == 0 && AB % 32 == 0, "tasks and blocks are whole tiles");

#endif
