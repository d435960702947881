// The register tile of bfloat16 products by dot products of pairs (AVX512_BF16: VDPBF16PS).
//
//   C[m][32] (+)= A[m][K] B[K][32], m <= BR: bfloat16 operands, float32 sums that stay in registers
//
// A lane of VDPBF16PS adds two products to a float32 sum, one after the other. It rounds to nearest and treats
// subnormal numbers as 0 (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VDPBF16PS). Each
// output is summed in the order of k, for every m.
#ifndef GS_TILE_DOT_H
#define GS_TILE_DOT_H

#include "linear.h"

enum {
	BR = GS_MR,      // rows of a register tile
	BF16_AHEAD = 2, // columns of A for each cache line that is prefetched
};

// Packed rows of A follow one another. Their distance is an odd number of cache lines for the usual K, so that rows do
// not compete for the same cache sets.
INLINE int64_t bf16_row_length(int64_t K) { return (K + 31) / 32 * 32 + 32; }
INLINE uint16_t *bf16_at(uint16_t *a, int64_t K, int64_t r, int64_t k) { return a + r * bf16_row_length(K) + k; }

// bf16_split returns the first row of tile i of `tiles`. Tiles have nearly equal numbers of rows.
INLINE int64_t bf16_split(int64_t rows, int64_t tiles, int64_t i) { return rows * i / tiles; }

INLINE void bf16_begin(void) {}
INLINE void bf16_end(void) {}

// Of rows of A and C every third has a pointer, from which the others are addressed: so all pointers stay in registers.
#define DOT_POINTERS(p) GS_PRAGMA(GCC unroll 4) for (int g = 0; 3 * g < m; g++) __asm__("" : "+r"((p)[g]))
INLINE void dot_body(const int m, int64_t K, const uint16_t *a, int64_t lda, const float *b, const char *ahead,
		float *c, int64_t ldc, int accumulate) {
	const uint16_t *ap[BR / 3];
	float *cp[BR / 3];
#pragma GCC unroll 4
	for (int g = 0; 3 * g < m; g++) ap[g] = a + 3 * g * lda, cp[g] = c + 3 * g * ldc;
	DOT_POINTERS(cp);
	vf acc[BR][NVP];
#pragma GCC unroll 16
	for (int i = 0; i < m; i++)
#pragma GCC unroll 8
		for (int j = 0; j < NVP; j++) acc[i][j] = accumulate ? load(cp[i / 3] + i % 3 * ldc + j * VL) : (vf){0};
#pragma GCC unroll 1
	for (int64_t k = 0; k < K; k += 2, b += GS_NR) {
		__builtin_prefetch(ahead + k * (GS_LINE / 2), 0, 2);
		vu bk[NVP];
#pragma GCC unroll 8
		for (int j = 0; j < NVP; j++) bk[j] = load_u(b + j * VL);
#pragma GCC unroll 16
		for (int i = 0; i < m; i++) {
			int32_t pair;
			memcpy(&pair, ap[i / 3] + i % 3 * lda, sizeof pair);
			__m512bh s = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 8
			for (int j = 0; j < NVP; j++) acc[i][j] = (vf)_mm512_dpbf16_ps((__m512)acc[i][j], s, (__m512bh)bk[j]);
		}
#pragma GCC unroll 4
		for (int g = 0; 3 * g < m; g++) ap[g] += 2;
	}
	DOT_POINTERS(cp);
#pragma GCC unroll 16
	for (int i = 0; i < m; i++)
#pragma GCC unroll 8
		for (int j = 0; j < NVP; j++) store(cp[i / 3] + i % 3 * ldc + j * VL, acc[i][j]);
}

typedef void dot_fn(int64_t K, const uint16_t *a, int64_t lda, const float *b, const char *ahead, float *c,
		int64_t ldc, int accumulate);

#define DOT_TILE(kind, m) \
	static __attribute__((noinline)) void kind##_##m(int64_t K, const uint16_t *a, int64_t lda, const float *b, \
			const char *ahead, float *c, int64_t ldc, int accumulate) { \
		dot_body(m, K, a, lda, b, ahead, c, ldc, accumulate); \
	}
#define DOT_TILE_NAME(kind, m) kind##_##m,

TILES(DOT_TILE, dot)

static dot_fn *const dot_of[BR + 1] = {NULL, TILES(DOT_TILE_NAME, dot)};

// bf16_tile multiplies columns [k, k+n) of rows [r, r+m) of A with the rows of a panel from b on. k is even; rows of c
// are `ldc` floats apart. It prefetches a cache line from `ahead` (NULL: b) for every BF16_AHEAD columns. It first
// finishes f, as dot products keep the core busy.
INLINE void bf16_tile(int m, int64_t K, uint16_t *a, int64_t r, int64_t k, int64_t n, const float *b,
		const float *tail, const char *ahead, float *c, int64_t ldc, int accumulate, unfinished *f) {
	(void)tail;
	finish_next(f, BR);
	dot_of[m](n, bf16_at(a, K, r, k), bf16_row_length(K), b, ahead ? ahead : (const char *)b, c, ldc, accumulate);
}

#endif
