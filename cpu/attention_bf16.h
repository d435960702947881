// GS_ATTENTION of many queries over a bfloat16 cache, by instructions that multiply bfloat16 (bf16.h). Queries and
// exponentials are rounded to bfloat16; sums, maxima and outputs are float32. The panels of the cache have the layout
// that these instructions take.
//
// A task has up to AQ queries of one head and goes over the keys in blocks of AB, otherwise as attention_many does. The
// result of a row does not depend on the other rows of its tile: a masked key adds exactly 0 to its sums.
#ifndef GS_ATTENTION_BF16_H
#define GS_ATTENTION_BF16_H

#include "attention.h"
#include "bf16.h"

enum {
	AQ = 256, // queries of a task: a multiple of 32
	AB = 256, // keys of a block: a multiple of 32
};

// exp2_short returns 2^x for x <= 0 with a relative error of at most 2^-13, a thirtieth of that of rounding to
// bfloat16. x < -126 gives 0, NaN gives NaN. The polynomial interpolates 2^r at the four Chebyshev points of |r| <=
// 1/2.
INLINE vf exp2_short(vf x) {
	__m512 v = (__m512)x, n = _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
	vf r = x - (vf)n;
	vf p = splat(5.5838283e-2f);
	p = p * r + 2.4263948e-1f;
	p = p * r + 6.9313673e-1f;
	p = p * r + 9.9992456e-1f;
	return (vf)_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(v, _mm512_set1_ps(-126.0f), _CMP_NLE_UQ), (__m512)p, n);
}

// softmax_block_bf16 writes the exponentials of the scores of rows [0, rows) of a tile to p, and updates the running
// maximum m, sum l and output of each row. Scores are in panels of 32 keys, `distance` floats apart; panels of the
// output have AQ rows. Row r attends to the first seen + r keys of the block, at most n; scores from there to `width`
// are masked.
INLINE void softmax_block_bf16(float *s, int64_t distance, uint16_t *p, int64_t rows, int64_t seen, int64_t n,
		int64_t width, float *m, float *l, float *out, int64_t HSp) {
	for (int64_t r = 0; r < rows; r++) {
		float *row = s + r * GS_NR;
		int64_t sees = seen + r < 0 ? 0 : seen + r < n ? seen + r : n;
		for (int64_t j = sees; j < width; j++) row[j / GS_NR * distance + j % GS_NR] = -INFINITY;
		vf top[NVP];
		for (int j = 0; j < NVP; j++) top[j] = load(row + j * VL);
		for (int64_t k = 1; k < width / GS_NR; k++)
			for (int j = 0; j < NVP; j++) top[j] = vmax(top[j], load(row + k * distance + j * VL));
		for (int j = 1; j < NVP; j++) top[0] = vmax(top[0], top[j]);
		const float most = max_lanes(top[0]), now = most > m[r] ? most : m[r];
		vf sum[NVP] = {{0}};
		for (int64_t k = 0; k < width / GS_NR; k++) {
			vf e[NVP];
			for (int j = 0; j < NVP; j++) {
				e[j] = exp2_short(load(row + k * distance + j * VL) - now);
				sum[j] += e[j];
			}
			store_u(bf16_at(p, AB, r, k * GS_NR), (vu)_mm512_cvtne2ps_pbh((__m512)e[1], (__m512)e[0]));
		}
		for (int j = 1; j < NVP; j++) sum[0] += sum[j];
		if (now != m[r]) {
			float shrink[VL];
			store(shrink, exp2_short(splat(m[r] - now))); // 0 at the first block, since m is -inf there
			l[r] *= shrink[0];
			for (int64_t d = 0; d < HSp; d += VL) {
				float *o = out + d / GS_NR * AQ * GS_NR + r * GS_NR + d % GS_NR;
				store(o, load(o) * shrink[0]);
			}
			m[r] = now;
		}
		l[r] += sum_lanes(sum[0]);
	}
}

_Static_assert(NVP == 2, "a row of a panel is two vectors");

static void attention_bf16(gs_worker *w, const gs_attention *o) {
	const gs_cache *c = &o->cache;
	const int64_t HS = c->HS, HSp = padded(HS), NH = c->NH, nq = o->nq;
	const float scale = o->scale * LOG2_E;
	int64_t tasks = (nq + AQ - 1) / AQ;
	while (o->B * NH * tasks < 4 * w->n && nq / tasks > BR) tasks++;

	float *s = w->scratch;                     // (AB / 32, BR, 32) scores
	float *out = s + AB * BR;                  // (HSp / 32, AQ, 32)
	float *m = out + AQ * MAX_HS, *l = m + AQ; // (AQ)
	uint16_t *q = (uint16_t *)(l + AQ);        // (AQ, HSp) packed queries, scaled
	uint16_t *p = q + AQ * (MAX_HS + 32);      // (BR, AB) packed exponentials

	unfinished none = {0};
	bf16_begin();
	for (int64_t t = gs_first(w, o->B * NH * tasks); t >= 0; t = gs_next(w)) {
		// The last queries attend to the most keys: the longest tasks come first.
		int64_t h = t % NH, b = t / NH % o->B, part = tasks - 1 - t / NH / o->B;
		int64_t i0 = nq * part / tasks, rows = nq * (part + 1) / tasks - i0, tiles = (rows + BR - 1) / BR;
		int64_t seen = o->pos[b] + o->T - nq + i0 + 1; // keys to which the first query of this task attends
		for (int64_t r = 0; r < rows; r++) {
			const float *x = row_of(&o->qkv, b * o->T + o->T - nq + i0 + r) + h * HS;
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
		memset(out, 0, (size_t)(HSp * AQ) * sizeof *out);
		for (int64_t k = 0; k < seen + rows - 1; k += AB) {
			for (int64_t i = 0; i < tiles; i++) {
				int64_t ra = bf16_split(rows, tiles, i), rn = bf16_split(rows, tiles, i + 1) - ra;
				int64_t n = seen + ra + rn - 1 - k; // keys of this block to which the tile's last query attends
				if (n <= 0) continue;
				if (n > AB) n = AB;
				int64_t width = padded(n);
				for (int64_t j = 0; j < width; j += GS_NR) {
					const float *panel = keys_of(c, b, h, k + j);
					bf16_tile((int)rn, HSp, q, ra, 0, HSp, panel, NULL, (const char *)panel, s + j * BR, GS_NR, 0, &none);
				}
				softmax_block_bf16(s, BR * GS_NR, p, rn, seen + ra - k, n, width, m + ra, l + ra, out + ra * GS_NR, HSp);
				for (int64_t d = 0; d < HSp; d += GS_NR) {
					const float *panel = values_of(c, b, h, k) + d / GS_NR * value_panel(c);
					bf16_tile((int)rn, AB, p, 0, 0, width, panel, NULL, (const char *)panel, out + d * AQ + ra * GS_NR, GS_NR, 1,
						&none);
				}
			}
			if (gs_cancelled(w->pool)) break;
		}
		for (int64_t r = 0; r < rows; r++) {
			float *y = row_of(&o->y, b * nq + i0 + r) + h * HS, share = 1.0f / l[r];
			for (int64_t d = 0; d < HS; d += GS_NR) {
				float part[GS_NR];
				for (int j = 0; j < NVP; j++) store(part + j * VL, load(out + d * AQ + r * GS_NR + j * VL) * share);
				copy_values(y + d, part, HS - d < GS_NR ? HS - d : GS_NR);
			}
		}
	}
	bf16_end();
}

_Static_assert(AB * BR + AQ * MAX_HS + 2 * AQ + AQ * (MAX_HS + 32) / 2 + BR * (AB + 32) / 2 <= GS_SCRATCH,
               "scratch too small for attention");
_Static_assert(AQ % 32 == 0 && AB % 32 == 0, "tasks and blocks are whole tiles");

#endif
