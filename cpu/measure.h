// Loops that measure ceilings: the rates of the register tiles and of reads from memory.
#ifndef GS_MEASURE_H
#define GS_MEASURE_H

#include "tile.h"
#include "version.h"
#ifdef GS_BF16_TILE
#include "bf16.h"
#if GS_BF16_TILE == GS_BY_AMX
#include "split.h"
#include "tile_int8.h"
#endif
#endif

// fill_operands writes numbers of either sign and of absolute value between 1 and 2, both as float32 and as pairs of
// bfloat16. Zeros would give too high a ceiling: they take less power, and AMX tiles ran a fifth faster with them than
// with weights.
INLINE void fill_operands(float *p, int64_t n) {
	uint32_t x = 1;
	for (int64_t i = 0; i < n; i++) {
		x = x * 1664525 + 1013904223; // W. H. Press et al., Numerical Recipes, "an even quicker generator"
		const uint32_t word = (x & 0x807f807f) | 0x3f803f80;
		memcpy(p + i, &word, sizeof word);
	}
}

// flops_f32 runs the register tile of float32 products on operands in the L1 cache.
#if GS_BF16_TILE == GS_BY_AMX
static float flops_f32(gs_worker *w, int64_t count, int64_t *ops) {
	enum { N = 96, PB = N / 2 * GS_NR, PA = BR * N };
	float *c = w->scratch, *b = c + BR * GS_NR;
	uint16_t *a = (uint16_t *)(b + PARTS * PB);
	memset(c, 0, (size_t)(BR * GS_NR) * sizeof *c);
	fill_operands(b, PARTS * PB + PARTS * PA / 2);
	unfinished none = {0};
	bf16_begin();
	for (int64_t i = 0; i < count; i++)
		split_32(N / 32, a, bf16_at(a, N, 16, 0), PA, b, PB, (const char *)b, c, GS_NR, 1, &none);
	bf16_end();
	*ops = count * 2 * BR * N * GS_NR;
	return c[0];
}
#else
static float flops_f32(gs_worker *w, int64_t count, int64_t *ops) {
	enum { N = 256 }; // rows of a panel
	float *a = w->scratch, *b = a + MR * LDA, *c = b + N * GS_NR;
	fill_operands(a, MR * LDA + N * GS_NR);
	for (int64_t i = 0; i < count; i++) tile_of[BLOCK][MR](N, a, 0, b, b, c, GS_NR, 0);
	*ops = count * 2 * MR * N * GS_NR;
	return c[0];
}
#endif

#ifdef GS_BF16_TILE
// flops_bf16 runs the register tile of bfloat16 products on operands in the L1 cache.
static float flops_bf16(gs_worker *w, int64_t count, int64_t *ops) {
	float *c = w->scratch, *b = c + BR * GS_NR;
	uint16_t *a = (uint16_t *)(b + BKC / 2 * GS_NR);
	fill_operands(b, BKC / 2 * GS_NR + BR * (BKC + 32) / 2);
	unfinished none = {0};
	bf16_begin();
	for (int64_t i = 0; i < count; i++) bf16_tile(BR, BKC, a, 0, 0, BKC, b, NULL, (const char *)b, c, GS_NR, 0, &none);
	bf16_end();
	*ops = count * 2 * BR * BKC * GS_NR;
	return c[0];
}
#endif

// flops_q8 multiplies rows of quantised x with 8-bit weights in the L1 cache.
#if GS_BF16_TILE == GS_BY_AMX
static float flops_q8(gs_worker *w, int64_t count, int64_t *ops) {
	int8_sums *sums = (int8_sums *)w->scratch;
	int8_panel *b = (int8_panel *)(sums + 2);
	int8_rows *a = (int8_rows *)(b + 1);
	float *c = (float *)(a + 2);
	fill_operands(w->scratch, (c - w->scratch) + BR * GS_NR);
	for (int i = 0; i < 2; i++) sums[i].x[0] = a, sums[i].x[1] = a + 1, sums[i].d = b->d, sums[i].y = c, sums[i].first = 0;
	bf16_begin();
	for (int64_t i = 0; i < count; i++) int8_multiply(sums + i % 2, b, (const char *)b, sums + (i + 1) % 2);
	bf16_end();
	*ops = count * 2 * BR * INT8_GROUP * GS_NR;
	return c[0];
}
#else
static float flops_q8(gs_worker *w, int64_t count, int64_t *ops) {
	enum { BLOCKS = 12 }; // of a panel
	gs_q8_block *x = (gs_q8_block *)w->scratch;
	float *b = (float *)(x + GS_GR * BLOCKS), *c = b + BLOCKS * GS_Q8_BLOCK / sizeof *b;
	if (!w->pool->kernels->rows_q8) return 0;
	memset(x, 0, (size_t)((char *)(c + GS_GR * GS_NR) - (char *)x));
	for (int64_t i = 0; i < count; i++) w->pool->kernels->rows_q8(GS_GR, BLOCKS, x, BLOCKS, b, c);
	*ops = count * 2 * GS_GR * BLOCKS * GS_QB * GS_NR;
	return c[0];
}
#endif

// read_floats reads p[0:n], but for the last few values, and returns a number that depends on all of them.
static float read_floats(const float *p, int64_t n) {
	vu s[8] = {{0}};
	for (int64_t i = 0; i + 8 * VL <= n; i += 8 * VL)
#pragma GCC unroll 8
		for (int u = 0; u < 8; u++) s[u] ^= load_u(p + i + u * VL);
	vu t = (s[0] ^ s[1] ^ s[2] ^ s[3]) ^ (s[4] ^ s[5] ^ s[6] ^ s[7]);
	return sum_lanes((vf)(t & 0x3fffffff));
}

#endif
