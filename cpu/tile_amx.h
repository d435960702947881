// The register tile of bfloat16 products on AMX tiles (TDPBF16PS).
//
//   C[32][32] (+)= A[32][K] B[K][32]: bfloat16 operands, float32 sums that stay in four AMX tiles of 16 x 16
//
// One TDPBF16PS multiplies 16 rows by 32 columns of A with 32 rows by 16 columns of B, whose rows k and k+1 are
// interleaved: the layout of packed weights (kernels.h). It rounds to nearest and treats subnormal numbers as 0 (Intel
// 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBF16PS). The sums of a row depend on that row
// alone, so each output is summed in one order of k, for every m.
//
// Inline assembly names the tiles, and works with every compiler whose assembler knows AMX. The statements are
// volatile, so they stay in order.
#ifndef GS_TILE_AMX_H
#define GS_TILE_AMX_H

#include "linear.h"

enum {
	BR = 32,         // rows of a register tile
	BF16_AHEAD = 4, // columns of A for each cache line that is prefetched
};

// Packed A: for every 16 rows, blocks of 32 columns one after another, 16 x 32 values each, so that an AMX tile is 1
// KiB of contiguous memory.
INLINE uint16_t *bf16_at(uint16_t *a, int64_t K, int64_t r, int64_t k) {
	return a + (r / 16 * ((K + 31) / 32) + k / 32) * 512 + r % 16 * 32 + k % 32;
}

#define TILE_LOAD(t, p, stride) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(p), "r"((int64_t)(stride)))
#define TILE_STORE(t, p, stride) \
	__asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(p), "r"((int64_t)(stride)) : "memory")
#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t ::)
#define TILE_DOT(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#define TILE_DOT_BYTES(c, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
// Makes the compiler write to memory what it has stored, as tile loads do not name the memory that they read.
#define TILE_FENCE() __asm__ volatile("" ::: "memory")

// bf16_split returns the first row of tile i.
INLINE int64_t bf16_split(int64_t rows, int64_t tiles, int64_t i) {
	(void)tiles;
	return i * BR < rows ? i * BR : rows;
}

// bf16_begin configures the thread's eight tiles as 16 rows of 64 bytes. bf16_end releases them, so that the system has
// no tiles to save when it switches threads.
static void bf16_begin(void) {
	static const struct {
		uint8_t palette, start, reserved[14];
		uint16_t bytes[16];
		uint8_t rows[16];
	} config = {.palette = 1, .bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
	_Static_assert(sizeof config == 64, "the configuration of tiles is 64 bytes");
	__asm__ volatile("ldtilecfg %0" ::"m"(config));
}
static void bf16_end(void) { __asm__ volatile("tilerelease" ::); }

// The sums of a register tile are AMX tiles 0 to 3 for 32 rows (halves 2), 0 and 1 for 16. sums_begin loads them from c
// or sets them to 0, sums_end stores them.
INLINE void sums_begin(const int halves, const float *c, int64_t ldc, int accumulate) {
	const float *c1 = c + 16 * ldc;
	TILE_FENCE();
	if (accumulate) {
		TILE_LOAD(0, c, ldc * 4);
		TILE_LOAD(1, c + 16, ldc * 4);
		if (halves == 2) {
			TILE_LOAD(2, c1, ldc * 4);
			TILE_LOAD(3, c1 + 16, ldc * 4);
		}
	} else {
		TILE_ZERO(0);
		TILE_ZERO(1);
		if (halves == 2) {
			TILE_ZERO(2);
			TILE_ZERO(3);
		}
	}
}

INLINE void sums_end(const int halves, float *c, int64_t ldc) {
	float *c1 = c + 16 * ldc;
	TILE_STORE(0, c, ldc * 4);
	TILE_STORE(1, c + 16, ldc * 4);
	if (halves == 2) {
		TILE_STORE(2, c1, ldc * 4);
		TILE_STORE(3, c1 + 16, ldc * 4);
	}
}

// prefetch_next prefetches the lines that belong to block i.
INLINE void prefetch_next(const char *ahead, int64_t i) {
#pragma GCC unroll 16
	for (int line = 0; line < 32 / BF16_AHEAD; line++) __builtin_prefetch(ahead +
		(i * (32 / BF16_AHEAD) + line) * GS_LINE, 0, 2);
}

// prefetch_l1 prefetches n lines into the L1 cache.
INLINE void prefetch_l1(const void *p, const int n) {
#pragma GCC unroll 32
	for (int line = 0; line < n; line++) __builtin_prefetch((const char *)p + line * GS_LINE, 0, 3);
}

// amx_body multiplies a register tile of 32 rows (halves 2) or 16 over `blocks` blocks of 32 columns of A. a0 is the
// first 16 rows, a1 the next 16, next the rows that follow. If tail is not NULL, it is B for the last block. Meanwhile
// it finishes f and brings into L1 what is multiplied next, as loads of tiles wait for L2.
INLINE void amx_body(const int halves, int64_t blocks, const uint16_t *a0, const uint16_t *a1, const uint16_t *next,
		const float *b, const float *tail, const char *ahead, float *c, int64_t ldc, int accumulate, unfinished *f) {
	enum { ROW = GS_NR * 4 }; // bytes of a pair of rows of B
	const int per = finish_per(f, blocks);
	sums_begin(halves, c, ldc, accumulate);
#pragma GCC unroll 1
	for (int64_t i = 0; i < blocks; i++) {
		const int last = i == blocks - 1;
		const float *bk = tail && last ? tail : b + i * 16 * GS_NR;
		const uint16_t *ak = last ? next : a0 + (i + 1) * 512;
		TILE_LOAD(6, bk, ROW);
		TILE_LOAD(4, a0 + i * 512, 64);
		TILE_DOT(0, 4, 6);
		if (ahead) prefetch_l1(ak, 16);
		TILE_LOAD(7, bk + 16, ROW);
		TILE_DOT(1, 4, 7);
		if (ahead && halves == 2) prefetch_l1(ak + (a1 - a0), 16);
		prefetch_l1(last && ahead ? b : bk + 16 * GS_NR, 32);
		if (halves == 2) {
			TILE_LOAD(5, a1 + i * 512, 64);
			TILE_DOT(2, 5, 6);
			TILE_DOT(3, 5, 7);
		}
		if (ahead) prefetch_next(ahead, i);
		finish_next(f, per);
	}
	sums_end(halves, c, ldc);
}

static __attribute__((noinline)) void amx_32(int64_t blocks, const uint16_t *a0, const uint16_t *a1,
		const uint16_t *next, const float *b, const float *tail, const char *ahead, float *c, int64_t ldc, int accumulate,
		unfinished *f) {
	amx_body(2, blocks, a0, a1, next, b, tail, ahead, c, ldc, accumulate, f);
}

static __attribute__((noinline)) void amx_16(int64_t blocks, const uint16_t *a0, const uint16_t *next, const float *b,
		const float *tail, const char *ahead, float *c, int64_t ldc, int accumulate, unfinished *f) {
	amx_body(1, blocks, a0, a0, next, b, tail, ahead, c, ldc, accumulate, f);
}

// bf16_tile multiplies columns [k, k+n) of rows [r, r+m) of A with the rows of a panel from b on. r is a multiple of
// 16, k of 32. c has room for m rounded up to 16 rows, `ldc` floats apart. If the last block of B has fewer than 32
// rows, tail is that block padded with zeros, else NULL. It finishes f, prefetches a cache line from `ahead` for every
// BF16_AHEAD columns, and the next blocks of A and B into L1; if `ahead` is NULL, only that of B, in the order of memory.
INLINE void bf16_tile(int m, int64_t K, uint16_t *a, int64_t r, int64_t k, int64_t n, const float *b,
		const float *tail, const char *ahead, float *c, int64_t ldc, int accumulate, unfinished *f) {
	const uint16_t *a0 = bf16_at(a, K, r, k), *next = bf16_at(a, K, r + BR, k);
	if (m > 16)
		amx_32((n + 31) / 32, a0, bf16_at(a, K, r + 16, k), next, b, tail, ahead, c, ldc, accumulate, f);
	else
		amx_16((n + 31) / 32, a0, next, b, tail, ahead, c, ldc, accumulate, f);
}

#endif
