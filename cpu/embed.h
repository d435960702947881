// GS_EMBED and maxima.
#ifndef GS_EMBED_H
#define GS_EMBED_H

#include "q8.h"
#include "rows.h"

enum { SPAN = 128 }; // columns of a task

// lookup writes columns [c, c+n) of row `id` of a table to y[0:n].
INLINE void lookup(float *y, const gs_weight *w, int64_t id, int64_t c, int64_t n) {
	if (w->dtype == GS_F32) {
		copy_values(y, (const float *)w->data + id * row_length(w) + c, n);
	} else if (w->dtype == GS_BF16) {
		const uint16_t *p = (const uint16_t *)w->data + id * row_length(w) + c;
		for (int64_t i = 0; i < n; i++) y[i] = widen_bf16(p[i]);
	} else {
		for (int64_t i = 0; i < n; i += GS_QB) {
			const char *block = q8_block_of(w, id / GS_NR, (c + i) / GS_QB);
			const uint8_t *q = (const uint8_t *)block + 2 * GS_NR + id % GS_NR * 4;
			const float d = widen_bf16(((const uint16_t *)block)[id % 16 * 2 + id % GS_NR / 16]);
			for (int64_t k = 0; k < GS_QB && i + k < n; k++) y[i + k] = d * (float)(q[k / 4 * 4 * GS_NR + k % 4] - 128);
		}
	}
}

static void op_embed(gs_worker *w, const gs_step *s) {
	const gs_embed *o = &s->embed;
	int64_t C = o->C, spans = (C + SPAN - 1) / SPAN;
	for (int64_t t = gs_first(w, (int64_t)o->B * o->T * spans); t >= 0; t = gs_next(w)) {
		int64_t r = t / spans, c = t % spans * SPAN, n = C - c < SPAN ? C - c : SPAN;
		float *y = row_of(&o->y, r) + c, p[SPAN];
		lookup(y, &o->wte, o->ids[r], c, n);
		lookup(p, &o->wpe, o->pos[r / o->T] + r % o->T, c, n);
		for (int64_t i = 0; i < n; i++) y[i] += p[i];
	}
}

// block_maxima writes the largest value of each block of x, NaN if the block has a NaN.
static void block_maxima(float *maxima, const float *x, int64_t n, int64_t block) {
	for (int64_t from = 0; from < n; from += block) {
		int64_t end = n - from < block ? n : from + block, i = from;
		vf top = splat(-INFINITY);
		vi nan = {0};
		for (; i + VL <= end; i += VL) {
			vf v = load(x + i);
			top = vmax(top, v);
			nan |= v != v;
		}
		float largest = max_lanes(top);
		if (max_lanes((vf)(nan & 0x3f800000)) > 0) largest = NAN;
		for (; i < end; i++)
			if (x[i] > largest || x[i] != x[i]) largest = x[i];
		*maxima++ = largest;
	}
}

#endif
