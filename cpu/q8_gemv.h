// The product of a row of quantised activations with panels of 8-bit weights: y[32] of each panel (q8.h).
//
// A template without an include guard: a file includes it once for each function, for which it defines
//
//   GS_GEMV      the function's name
//   GS_DOT_VNNI  or GS_DOT_SDOT: the instruction for dot products of bytes; else the base instruction set is used
//
// A block of a panel is 17 cache lines, read in address order. Sums in a block are integers, so their order does not
// matter.

#include "q8.h"

// DOT adds to each lane of sum the dot product of the lane's 4 bytes of w with activations 4i to 4i+3 of block x. If
// DOT_OFFSET is 1, it multiplies q + 128, and the sum has to start at -128 sum q_x.
#if defined(GS_DOT_VNNI) && GS_VB == 64
#define DOT_OFFSET 1
#define DOT(sum, w, x, i) \
	((vi)_mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(w), _mm512_set1_epi32(*(const q8_word *)((x)->q + 4 * (i)))))
#elif defined(GS_DOT_VNNI)
#define DOT_OFFSET 1
#define DOT(sum, w, x, i) \
	((vi)_mm256_dpbusd_avx_epi32((__m256i)(sum), (__m256i)(w), _mm256_set1_epi32(*(const q8_word *)((x)->q + 4 * (i)))))
#elif defined(GS_DOT_SDOT)
#define DOT_OFFSET 0
#define DOT(sum, w, x, i) dot_sdot(sum, w, *(const q8_word *)((x)->q + 4 * (i)))
// Not the intrinsic: clang declares it only if the whole file's target has SDOT.
INLINE vi dot_sdot(vi sum, vu w, int32_t x) {
	__asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(w ^ 0x80808080u), "w"((vi){0} + x));
	return sum;
}
#elif defined(__x86_64__)
// Even and odd bytes are widened to int16. (PMADDUBSW multiplies bytes, but its sums saturate.)
#define DOT_OFFSET 1
#if GS_VB == 64
#define MADD(a, b) ((vi)_mm512_madd_epi16((__m512i)(a), (__m512i)(b)))
#define ODD_BYTES(w) _mm512_srli_epi16((__m512i)(w), 8)
#elif GS_VB == 32
#define MADD(a, b) ((vi)_mm256_madd_epi16((__m256i)(a), (__m256i)(b)))
#define ODD_BYTES(w) _mm256_srli_epi16((__m256i)(w), 8)
#else
#define MADD(a, b) ((vi)_mm_madd_epi16((__m128i)(a), (__m128i)(b)))
#define ODD_BYTES(w) _mm_srli_epi16((__m128i)(w), 8)
#endif
#define DOT(sum, w, x, i) \
	((sum) + MADD((w)&0x00ff00ffu, (vu){0} + (x)->even[i]) + MADD(ODD_BYTES(w), (vu){0} + (x)->odd[i]))
#elif defined(__aarch64__)
#define DOT_OFFSET 0
#define DOT(sum, w, x, i) dot_neon(sum, w, *(const q8_word *)((x)->q + 4 * (i)))
INLINE vi dot_neon(vi sum, vu w, int32_t x) {
	int8x16_t a = (int8x16_t)(w ^ 0x80808080u), b = vreinterpretq_s8_s32(vdupq_n_s32(x));
	// Each product is at most 127^2, so the sum of two fits.
	int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
	return (vi)vpadalq_s16((int32x4_t)sum, vpaddq_s16(low, high));
}
#else
#define DOT_OFFSET 1
#define DOT(sum, w, x, i)                                                                                           \
	((sum) + (vi)((w)&0xffu) * (x)->q[4 * (i)] + (vi)((w) >> 8 & 0xffu) * (x)->q[4 * (i) + 1] +                       \
	 (vi)((w) >> 16 & 0xffu) * (x)->q[4 * (i) + 2] + (vi)((w) >> 24) * (x)->q[4 * (i) + 3])
#endif

#ifndef Q8_WORD
#define Q8_WORD
typedef int32_t q8_word __attribute__((may_alias));
enum { Q8_GROUP = NVP < 4 ? NVP : 4, Q8_ROWS = GS_GP > GS_GR ? GS_GP : GS_GR }; // vectors of columns whose sums are in registers at a time
#endif

#define GS_JOIN(a, b) a##b
#define GS_BODY_OF(name) GS_JOIN(name, _body)

// `rows` rows of x, ldx blocks apart, by `panels` panels; one of the two is 1. It computes `vectors` vectors of columns
// from vector j0 on. A result does not depend on how many rows there are. It does not prefetch all lines: processors
// do that better with so many loads.
INLINE void GS_BODY_OF(GS_GEMV)(const int rows, const int panels, const int j0, const int vectors, int64_t blocks,
		const gs_q8_block *x, int64_t ldx, const char *w, int64_t stride, float *y) {
	const int group = vectors < Q8_GROUP ? vectors : Q8_GROUP;
	vf acc[Q8_ROWS][NVP];
#pragma GCC unroll 8
	for (int q = 0; q < rows * panels; q++)
#pragma GCC unroll 8
		for (int j = 0; j < vectors; j++) acc[q][j] = (vf){0};
#pragma GCC unroll 1
	for (int64_t b = 0; b < blocks; b++, x++, w += GS_Q8_BLOCK) {
		const char *panel[GS_GP];
#pragma GCC unroll 8
		for (int p = 0; p < panels; p++) {
			panel[p] = w + p * stride;
			__asm__("" : "+r"(panel[p])); // makes the compiler address all lines from one register per panel
			if (rows == 1)
				for (int i = 0; i <= GS_QB * GS_NR; i += 8 * GS_LINE) prefetch_l2(panel[p] + 2 * GS_Q8_BLOCK + i);
		}
#pragma GCC unroll 4
		for (int g = 0; g < vectors; g += Q8_GROUP) {
			vi sum[Q8_ROWS][Q8_GROUP];
#pragma GCC unroll 8
			for (int q = 0; q < rows * panels; q++)
#pragma GCC unroll 8
				for (int j = 0; j < group; j++)
					sum[q][j] = (vi){0} + (DOT_OFFSET ? x[q / panels * ldx].offset : 0);
#pragma GCC unroll 8
			for (int i = 0; i < GS_QB / 4; i++)
#pragma GCC unroll 8
				for (int p = 0; p < panels; p++) {
					const char *at = panel[p] + 2 * GS_NR + i * 4 * GS_NR + (j0 + g) * GS_VB;
#pragma GCC unroll 8
					for (int j = 0; j < group; j++) {
						vu v = load_u(at + j * GS_VB);
#pragma GCC unroll 8
						for (int r = 0; r < rows; r++) sum[r * panels + p][j] = DOT(sum[r * panels + p][j], v, x + r * ldx, i);
					}
				}
#pragma GCC unroll 8
			for (int q = 0; q < rows * panels; q++) {
				vf d[NVP];
				q8_scales(d, panel[q % panels]);
#pragma GCC unroll 8
				for (int j = 0; j < group; j++)
					acc[q][g + j] += __builtin_convertvector(sum[q][j], vf) * (d[j0 + g + j] * x[q / panels * ldx].d);
			}
		}
	}
#pragma GCC unroll 8
	for (int q = 0; q < rows * panels; q++)
#pragma GCC unroll 8
		for (int j = 0; j < vectors; j++) store(y + q * GS_NR + (j0 + j) * VL, acc[q][j]);
}

static void GS_GEMV(int panels, int64_t blocks, const gs_q8_block *x, const void *weights, int64_t stride, float *y) {
	const char *w = weights;
	for (; panels >= GS_GP; panels -= GS_GP, w += GS_GP * stride, y += GS_GP * GS_NR)
		GS_BODY_OF(GS_GEMV)(1, GS_GP, 0, NVP, blocks, x, 0, w, stride, y);
	for (; GS_GP > 2 && panels >= 2; panels -= 2, w += 2 * stride, y += 2 * GS_NR)
		GS_BODY_OF(GS_GEMV)(1, 2, 0, NVP, blocks, x, 0, w, stride, y);
	for (; panels > 0; panels--, w += stride, y += GS_NR)
		GS_BODY_OF(GS_GEMV)(1, 1, 0, NVP, blocks, x, 0, w, stride, y);
}

#if defined(GS_DOT_VNNI) || defined(GS_DOT_SDOT)
#define GS_ROWS_OF(name) GS_JOIN(name, _rows)
#define Q8_MANY(m)                                                                                                  \
	case m:                                                                                                            \
		for (int j0 = 0; j0 < NVP; j0 += GS_NV)                                                                           \
			GS_BODY_OF(GS_GEMV)(m, 1, j0, GS_NV, blocks, x, ldx, weights, 0, y);                                             \
		break;
// Multiplies m <= GS_GR rows with one panel, each as GS_GEMV does.
static void GS_ROWS_OF(GS_GEMV)(int m, int64_t blocks, const gs_q8_block *x, int64_t ldx, const void *weights,
		float *y) {
	switch (m) {
		Q8_MANY(1) Q8_MANY(2) Q8_MANY(3)
#if GS_GR == 6
		Q8_MANY(4) Q8_MANY(5) Q8_MANY(6)
#endif
	}
}
#undef Q8_MANY
#endif

#undef GS_GEMV
#undef GS_ROWS_OF
#undef GS_JOIN
#undef GS_BODY_OF
#undef DOT
#undef DOT_OFFSET
#undef MADD
#undef ODD_BYTES
