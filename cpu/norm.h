// LayerNorm: y = (x - mean) / sqrt(var + eps) * gain + bias over a row of n values, var = mean((x - mean)^2). The mean
// and the variance take a pass each, as E[x^2] - mean^2 cancels. Sums are kept in 4 vectors, so that the rounding error
// is that of n/(4 VL) additions.
#ifndef GS_NORM_H
#define GS_NORM_H

#include "pool.h"
#include "simd.h"

// row_stats computes the mean of x[0:n] and rstd = 1 / sqrt(var + eps).
INLINE void row_stats(const float *x, int64_t n, float eps, float *mean, float *rstd) {
	vf s[4] = {{0}, {0}, {0}, {0}};
	int64_t i = 0;
	for (; i + 4 * VL <= n; i += 4 * VL)
#pragma GCC unroll 4
		for (int u = 0; u < 4; u++) s[u] += load(x + i + u * VL);
	for (; i + VL <= n; i += VL) s[0] += load(x + i);
	float sum = sum_lanes((s[0] + s[1]) + (s[2] + s[3]));
	for (; i < n; i++) sum += x[i];
	float m = sum / (float)n;

#pragma GCC unroll 4
	for (int u = 0; u < 4; u++) s[u] = (vf){0};
	for (i = 0; i + 4 * VL <= n; i += 4 * VL)
#pragma GCC unroll 4
		for (int u = 0; u < 4; u++) {
			vf d = load(x + i + u * VL) - m;
			s[u] += d * d;
		}
	for (; i + VL <= n; i += VL) {
		vf d = load(x + i) - m;
		s[0] += d * d;
	}
	sum = sum_lanes((s[0] + s[1]) + (s[2] + s[3]));
	for (; i < n; i++) sum += (x[i] - m) * (x[i] - m);
	*mean = m;
	*rstd = 1.0f / sqrtf(sum / (float)n + eps);
}

// apply_norm writes columns [k0, k0+n) of the normalised row x to y[0:n].
INLINE void apply_norm(float *y, const float *x, int64_t k0, int64_t n, const gs_norm *norm, float mean, float rstd) {
	const float *g = norm->gain + k0, *b = norm->bias + k0;
	x += k0;
	int64_t i = 0;
	for (; i + VL <= n; i += VL) store(y + i, (load(x + i) - mean) * rstd * load(g + i) + load(b + i));
	for (; i < n; i++) y[i] = (x[i] - mean) * rstd * g[i] + b[i];
}

static void op_layernorm(gs_worker *w, const gs_step *s) {
	const gs_layernorm *o = &s->layernorm;
	for (int64_t r = gs_first(w, o->M); r >= 0; r = gs_next(w)) {
		const float *x = row_of(&o->x, r);
		float mean, rstd;
		row_stats(x, o->C, o->norm.eps, &mean, &rstd);
		apply_norm(row_of(&o->y, r), x, 0, o->C, &o->norm, mean, rstd);
	}
}

#endif
