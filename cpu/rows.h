// Weights stored by rows (layout in kernels.h): transposing them to panels, and products of few rows of x as dot
// products.
#ifndef GS_ROWS_H
#define GS_ROWS_H

#include "pool.h"
#include "simd.h"

// row_length returns the values of a row, row_words its 32-bit words: each is a float32 or two bfloat16.
INLINE int64_t row_length(const gs_weight *w) { return padded(w->K); }
INLINE int64_t row_words(const gs_weight *w) { return w->dtype == GS_BF16 ? row_length(w) / 2 : row_length(w); }

// rows_of returns the 32 rows of W that are the columns of a panel.
INLINE const float *rows_of(const gs_weight *w, int64_t panel) {
	return (const float *)w->data + panel * GS_NR * row_words(w);
}

// transpose writes words [0, n) of 32 rows, which are `ld` words apart, as the rows of a panel. n is rounded up to
// whole vectors.
INLINE void transpose(float *dst, const float *rows, int64_t ld, int64_t n) {
#if GS_VB == 64
	// 16 x 16 words at a time: loads move quarters of vectors, two shuffles move the words within quarters.
	for (int64_t k = 0; k < n; k += 16)
		for (int64_t r = 0; r < GS_NR; r += 16)
#pragma GCC unroll 4
			for (int q = 0; q < 16; q += 4) {
				__m512 t[4];
#pragma GCC unroll 4
				for (int i = 0; i < 4; i++) {
					const float *p = rows + (r + i) * ld + k + q;
					t[i] = _mm512_castps128_ps512(_mm_loadu_ps(p));
					t[i] = _mm512_mask_broadcast_f32x4(t[i], 0x00f0, _mm_loadu_ps(p + 4 * ld));
					t[i] = _mm512_mask_broadcast_f32x4(t[i], 0x0f00, _mm_loadu_ps(p + 8 * ld));
					t[i] = _mm512_mask_broadcast_f32x4(t[i], 0xf000, _mm_loadu_ps(p + 12 * ld));
				}
				__m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(t[0], t[1])), low23 =
					_mm512_castps_pd(_mm512_unpacklo_ps(t[2], t[3]));
				__m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(t[0], t[1])), high23 =
					_mm512_castps_pd(_mm512_unpackhi_ps(t[2], t[3]));
				float *to = dst + (k + q) * GS_NR + r;
				store(to, (vf)_mm512_unpacklo_pd(low01, low23));
				store(to + GS_NR, (vf)_mm512_unpackhi_pd(low01, low23));
				store(to + 2 * GS_NR, (vf)_mm512_unpacklo_pd(high01, high23));
				store(to + 3 * GS_NR, (vf)_mm512_unpackhi_pd(high01, high23));
			}
#else
	for (int64_t k = 0; k < n; k += 4)
		for (int64_t r = 0; r < GS_NR; r += 4) transpose4(dst + k * GS_NR + r, GS_NR, rows + r * ld + k, ld);
#endif
}

// The sums of up to DOT_COLS columns of W and DOT_ROWS rows of x stay in registers.
enum { DOT_COLS = 4, DOT_ROWS = GS_VB == 64 ? 4 : 2, DOT_AHEAD = 2048 }; // words that it prefetches ahead

// dots_body writes y[i][j] = the dot product of row i of x and row j of w, for m <= DOT_ROWS rows of x and `cols` rows of
// w, each `words` words. x is float32, rows `ldx` apart; for bfloat16 w, the even ones of each 2 VL values of x come
// first, then the odd ones. Each lane has its own sum, in the order of k; lanes are added at the end. So a result does
// not depend on m or cols. Of several rows of w at once it prefetches, in the order of memory, in which processors read
// ahead.
INLINE void dots_body(const int m, const int bf16, const int cols, int64_t words, const float *x, int64_t ldx,
		const float *w, int64_t ld, float *y) {
	vf acc[DOT_ROWS][DOT_COLS];
#pragma GCC unroll 8
	for (int i = 0; i < m; i++)
#pragma GCC unroll 8
		for (int j = 0; j < cols; j++) acc[i][j] = (vf){0};
#pragma GCC unroll 1
	for (int64_t k = 0; k < words; k += VL) {
#pragma GCC unroll 8
		for (int j = 0; j < cols; j++) {
			if (cols > 1 && k * 4 % GS_LINE == 0) __builtin_prefetch(w + DOT_COLS * k + j * (GS_LINE / 4) + DOT_AHEAD, 0, 3);
			if (cols == 1 && !bf16) prefetch_l2(w + k + 256);
			vu word = load_u(w + j * ld + k);
#pragma GCC unroll 8
			for (int i = 0; i < m; i++) {
				if (bf16) {
					acc[i][j] += even_half(word) * load(x + i * ldx + 2 * k);
					acc[i][j] += odd_half(word) * load(x + i * ldx + 2 * k + VL);
				} else {
					acc[i][j] += (vf)word * load(x + i * ldx + k);
				}
			}
		}
	}
#pragma GCC unroll 8
	for (int i = 0; i < m; i++)
#pragma GCC unroll 8
		for (int j = 0; j < cols; j++) y[i * GS_NR + j] = sum_lanes(acc[i][j]);
}

typedef void dots_fn(int64_t words, const float *x, int64_t ldx, const float *w, int64_t ld, float *y);

#define DOTS(type, m, bf16) \
	static __attribute__((noinline)) void dots_##type##_##m(int64_t words, const float *x, int64_t ldx, const float *w, \
			int64_t ld, float *y) { \
		enum { COLS = GS_READS_AHEAD && !(bf16 && m > 1) ? 1 : DOT_COLS }; /* several if it computes longer than it reads */ \
		for (int j = 0; j < GS_NR; j += COLS) dots_body(m, bf16, COLS, words, x, ldx, w + j * ld, ld, y + j); \
	}
DOTS(f32, 1, 0) DOTS(bf16, 1, 1)
DOTS(f32, 2, 0) DOTS(bf16, 2, 1)
#if GS_VB == 64
DOTS(f32, 3, 0) DOTS(bf16, 3, 1)
DOTS(f32, 4, 0) DOTS(bf16, 4, 1)
#define DOTS_OF(type) {NULL, dots_##type##_1, dots_##type##_2, dots_##type##_3, dots_##type##_4}
#else
#define DOTS_OF(type) {NULL, dots_##type##_1, dots_##type##_2}
#endif

// dots_of[bf16][m] writes y (m, 32): the dot products of m rows of x with 32 rows of w.
static dots_fn *const dots_of[2][DOT_ROWS + 1] = {DOTS_OF(f32), DOTS_OF(bf16)};

#endif
