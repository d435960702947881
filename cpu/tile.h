// The two inner loops of products and attention.
//
//   tile   C[m][32] (+)= A[m][K] B[K][32] for m <= GS_MR rows: all sums stay in registers, B is read once per m rows.
//          (K. Goto, R. van de Geijn, Anatomy of High-Performance Matrix Multiplication, ACM TOMS 34(3), 2008)
//   gemv   y[32] = x[K] B[K][32]: one row, bound by reading B. It has several sums per column so that additions do not
//          wait for one another. A few rows are multiplied at once with the same sums for each.
//
// Each output of a tile is summed in the order of k, for every m. The registers hold the sums of GS_MR rows by GS_NV
// vectors.
#ifndef GS_TILE_H
#define GS_TILE_H

#include "divide.h"
#include "pool.h"
#include "simd.h"

// Rows that gemv_body multiplies at once: their sums stay in registers.
#define GS_GR (GS_MR / GS_GU)

enum {
	MR = GS_MR,
	AHEAD = 2, // rows of B for each cache line that is prefetched: few, as loads and prefetches share the fill buffers
	PREFETCH = 512, // how many floats ahead a gemv prefetches
};

// The type of B's values, and the memory that they come from:
enum tile_kind {
	BLOCK,       // float32, from the L1 or L2 cache; prefetches a line from `ahead` for every AHEAD rows
	STREAM_F32,  // float32, a whole panel from memory, each line used once; prefetches PREFETCH floats ahead
	STREAM_BF16, // the same with pairs of bfloat16
	TILE_KINDS
};

// prefetch_row prefetches a row of a panel for a loop that is at row b.
INLINE void prefetch_row(const float *b) {
	__builtin_prefetch(b + PREFETCH, 0, 3);
	__builtin_prefetch(b + PREFETCH + 16, 0, 3);
}

// tile_step adds the products of a column of A (m values, LDA apart) with a row of B to the sums.
INLINE void tile_step(const int m, const enum tile_kind kind, const float *a, const float *b, vf acc[MR][GS_NV]) {
	vf bk[GS_NV];
	if (kind == STREAM_F32) prefetch_row(b);
#pragma GCC unroll 8
	for (int j = 0; j < GS_NV; j++) bk[j] = load(b + j * VL);
#pragma GCC unroll 16
	for (int i = 0; i < m; i++) {
		float s = a[i * LDA];
#pragma GCC unroll 8
		for (int j = 0; j < GS_NV; j++) acc[i][j] += s * bk[j];
	}
}

// Rows of A are LDA floats apart, rows of C `ldc`, blocks of KC columns of A `block`.
INLINE void tile_body(const int m, const enum tile_kind kind, int64_t K, const float *a, int64_t block,
		const void *panel, const float *ahead, float *c, int64_t ldc, int accumulate) {
#pragma GCC unroll 1
	for (int j0 = 0; j0 < NVP; j0 += GS_NV) {
		vf acc[MR][GS_NV];
#pragma GCC unroll 16
		for (int i = 0; i < m; i++)
#pragma GCC unroll 8
			for (int j = 0; j < GS_NV; j++) acc[i][j] = (vf){0};
		const float *b = (const float *)panel + j0 * VL;
#pragma GCC unroll 1
		for (int64_t k0 = 0; k0 < K; k0 += KC) {
			const float *ak = a + k0 / KC * block;
			int64_t n = K - k0 < KC ? K - k0 : KC;
			if (kind == STREAM_BF16) {
#pragma GCC unroll 1
				for (int64_t k = 0; k + 1 < n; k += 2, b += GS_NR) {
					vf even[GS_NV], odd[GS_NV];
					prefetch_row(b);
#pragma GCC unroll 8
					for (int j = 0; j < GS_NV; j++) {
						vu pair = load_u(b + j * VL);
						even[j] = even_half(pair);
						odd[j] = odd_half(pair);
					}
#pragma GCC unroll 16
					for (int i = 0; i < m; i++) {
						float s = ak[i * LDA + k], t = ak[i * LDA + k + 1];
#pragma GCC unroll 8
						for (int j = 0; j < GS_NV; j++) acc[i][j] += s * even[j];
#pragma GCC unroll 8
						for (int j = 0; j < GS_NV; j++) acc[i][j] += t * odd[j];
					}
				}
				if (n & 1) { // the last row of an odd K
#pragma GCC unroll 16
					for (int i = 0; i < m; i++)
#pragma GCC unroll 8
						for (int j = 0; j < GS_NV; j++) acc[i][j] += ak[i * LDA + n - 1] * even_half(load_u(b + j * VL));
				}
			} else {
				int64_t k = 0;
#pragma GCC unroll 1
				for (; k + AHEAD <= n; k += AHEAD) {
					if (kind == BLOCK) __builtin_prefetch(ahead + k / AHEAD * (GS_LINE / 4), 0, 2);
#pragma GCC unroll 8
					for (int u = 0; u < AHEAD; u++, b += GS_NR) tile_step(m, kind, ak + k + u, b, acc);
				}
#pragma GCC unroll 1
				for (; k < n; k++, b += GS_NR) tile_step(m, kind, ak + k, b, acc);
			}
		}
		float *cj = c + j0 * VL;
		if (accumulate) {
#pragma GCC unroll 16
			for (int i = 0; i < m; i++)
#pragma GCC unroll 8
				for (int j = 0; j < GS_NV; j++) store(cj + i * ldc + j * VL, load(cj + i * ldc + j * VL) + acc[i][j]);
		} else {
#pragma GCC unroll 16
			for (int i = 0; i < m; i++)
#pragma GCC unroll 8
				for (int j = 0; j < GS_NV; j++) store(cj + i * ldc + j * VL, acc[i][j]);
		}
	}
}

typedef void tile_fn(int64_t K, const float *a, int64_t block, const void *panel, const float *ahead, float *c,
		int64_t ldc, int accumulate);

#define TILE(kind, m) \
	static __attribute__((noinline)) void tile_##kind##_##m(int64_t K, const float *a, int64_t block, const void *panel, \
	                                                        const float *ahead, float *c, int64_t ldc, int accumulate) { \
		tile_body(m, kind, K, a, block, panel, ahead, c, ldc, accumulate); \
	}

#if GS_MR == 12
#define TILES(X, kind) \
	X(kind, 1) X(kind, 2) X(kind, 3) X(kind, 4) X(kind, 5) X(kind, 6) \
	X(kind, 7) X(kind, 8) X(kind, 9) X(kind, 10) X(kind, 11) X(kind, 12)
#elif GS_MR == 6
#define TILES(X, kind) X(kind, 1) X(kind, 2) X(kind, 3) X(kind, 4) X(kind, 5) X(kind, 6)
#else
#define TILES(X, kind) X(kind, 1) X(kind, 2) X(kind, 3) X(kind, 4)
#endif

TILES(TILE, BLOCK) TILES(TILE, STREAM_F32) TILES(TILE, STREAM_BF16)

#define TILE_NAME(kind, m) tile_##kind##_##m,

// tile_of[kind][m] multiplies m rows.
static tile_fn *const tile_of[TILE_KINDS][MR + 1] = {
	{NULL, TILES(TILE_NAME, BLOCK)},
	{NULL, TILES(TILE_NAME, STREAM_F32)},
	{NULL, TILES(TILE_NAME, STREAM_BF16)},
};

// gemv_body multiplies `rows` rows of x, ldx floats apart, with `panels` panels, which are `stride` floats apart; one of
// the two is 1. It computes `vectors` vectors of a panel's columns. If GS_GU is 2, even and odd k have their own sums.
// So a result does not depend on how many rows there are. With GS_READS_AHEAD it prefetches all lines only where it
// computes longer than it reads.
INLINE void gemv_body(const int rows, const int panels, const int vectors, const int bf16, int64_t K, const float *x,
		int64_t ldx, const float *b, int64_t stride, float *y) {
	vf acc[GS_GP > GS_GR ? GS_GP : GS_GR][GS_GU][NVP];
#pragma GCC unroll 8
	for (int q = 0; q < rows * panels; q++)
#pragma GCC unroll 8
		for (int u = 0; u < GS_GU; u++)
#pragma GCC unroll 8
			for (int j = 0; j < vectors; j++) acc[q][u][j] = (vf){0};
	int64_t k = 0;
	if (bf16) {
#pragma GCC unroll 1
		for (; k + 1 < K; k += 2, b += GS_NR) {
#pragma GCC unroll 8
			for (int p = 0; p < panels; p++) {
				if (rows > 1 || !GS_READS_AHEAD) prefetch_row(b + p * stride);
				else prefetch_l2(b + p * stride + 2 * PREFETCH);
				vf even[NVP], odd[NVP];
#pragma GCC unroll 8
				for (int j = 0; j < vectors; j++) {
					vu pair = load_u(b + p * stride + j * VL);
					even[j] = even_half(pair);
					odd[j] = odd_half(pair);
				}
#pragma GCC unroll 8
				for (int i = 0; i < rows; i++) {
					float s = x[i * ldx + k], t = x[i * ldx + k + 1];
#pragma GCC unroll 8
					for (int j = 0; j < vectors; j++) {
						acc[i * panels + p][0][j] += s * even[j];
						acc[i * panels + p][GS_GU - 1][j] += t * odd[j];
					}
				}
			}
		}
		if (k < K) {
#pragma GCC unroll 8
			for (int q = 0; q < rows * panels; q++)
#pragma GCC unroll 8
				for (int j = 0; j < vectors; j++)
					acc[q][0][j] += x[q / panels * ldx + k] * even_half(load_u(b + q % panels * stride + j * VL));
		}
	} else {
#pragma GCC unroll 1
		for (; k + GS_GU <= K; k += GS_GU, b += GS_GU * GS_NR) {
#pragma GCC unroll 8
			for (int p = 0; p < panels; p++)
#pragma GCC unroll 8
				for (int u = 0; u < GS_GU; u++) {
					const float *row = b + p * stride + u * GS_NR;
					if (!GS_READS_AHEAD) prefetch_row(row);
					else if (rows == 1) prefetch_l2(row + PREFETCH);
					vf bk[NVP];
#pragma GCC unroll 8
					for (int j = 0; j < vectors; j++) bk[j] = load(row + j * VL);
#pragma GCC unroll 8
					for (int i = 0; i < rows; i++) {
						float s = x[i * ldx + k + u];
#pragma GCC unroll 8
						for (int j = 0; j < vectors; j++) acc[i * panels + p][u][j] += s * bk[j];
					}
				}
		}
		if (k < K) {
#pragma GCC unroll 8
			for (int q = 0; q < rows * panels; q++)
#pragma GCC unroll 8
				for (int j = 0; j < vectors; j++)
					acc[q][0][j] += x[q / panels * ldx + k] * load(b + q % panels * stride + j * VL);
		}
	}
#pragma GCC unroll 8
	for (int q = 0; q < rows * panels; q++)
#pragma GCC unroll 8
		for (int j = 0; j < vectors; j++) {
			vf s = acc[q][0][j];
			if (GS_GU > 1) s += acc[q][GS_GU - 1][j];
			store(y + q * GS_NR + j * VL, s);
		}
}

#if GS_GU > 2
#error "GS_GU is 1 or 2: gemv_body has sums for even and odd k"
#endif

#define GEMV(type, bf16)                                                                                            \
	static __attribute__((noinline)) void gemv_##type(int panels, int64_t K, const float *x, const float *b,           \
		int64_t stride, float *y) {                                                                                       \
		for (; GS_READS_AHEAD && panels >= GS_GP; panels -= GS_GP, b += GS_GP * stride, y += GS_GP * GS_NR)               \
			gemv_body(1, GS_GP, NVP, bf16, K, x, 0, b, stride, y);                                                           \
		for (; GS_GP > 1 && panels >= 2; panels -= 2, b += 2 * stride, y += 2 * GS_NR)                                    \
			gemv_body(1, 2, NVP, bf16, K, x, 0, b, stride, y);                                                               \
		for (; panels > 0; panels--, b += stride, y += GS_NR) gemv_body(1, 1, NVP, bf16, K, x, 0, b, stride, y);          \
	}
GEMV(f32, 0) GEMV(bf16, 1)

// rows_of_panel[bf16][m] multiplies m <= GS_GR rows with one panel, each as gemv does.
typedef void rows_fn(int64_t K, const float *x, int64_t ldx, const float *b, float *y);

#define FEW(type, bf16, m)                                                                                          \
	static __attribute__((noinline)) void few_##type##_##m(int64_t K, const float *x, int64_t ldx, const float *b,     \
		float *y) {                                                                                                       \
		for (int j = 0; j < NVP; j += GS_NV) gemv_body(m, 1, GS_NV, bf16, K, x, ldx, b + j * VL, 0, y + j * VL);          \
	}
#define FEW_NAME(type, bf16, m) few_##type##_##m,
#if GS_GR == 6
#define FEWS(X, type, bf16) \
	X(type, bf16, 1) X(type, bf16, 2) X(type, bf16, 3) X(type, bf16, 4) X(type, bf16, 5) X(type, bf16, 6)
#elif GS_GR == 4
#define FEWS(X, type, bf16) X(type, bf16, 1) X(type, bf16, 2) X(type, bf16, 3) X(type, bf16, 4)
#else
#define FEWS(X, type, bf16) X(type, bf16, 1) X(type, bf16, 2) X(type, bf16, 3)
#endif

FEWS(FEW, f32, 0) FEWS(FEW, bf16, 1)

static rows_fn *const rows_of_panel[2][GS_GR + 1] = {{NULL, FEWS(FEW_NAME, f32, 0)}, {NULL, FEWS(FEW_NAME, bf16, 1)}};

#endif
