// Loops over arrays: sums, squares, copies and the sum of all values, of a version's vectors (arrays.c shares them
// among threads).
#ifndef GS_ARRAYS_H
#define GS_ARRAYS_H

#include "simd.h"
#include "version.h"

// store_past writes a vector past the caches, where the processor can: the line is not read first, and drops nothing
// that is in use. p is aligned to the vector.
INLINE void store_past(float *p, vf v) {
#if GS_VB == 64
	_mm512_stream_ps(p, (__m512)v);
#elif GS_VB == 32
	_mm256_stream_ps(p, (__m256)v);
#elif defined(__x86_64__)
	_mm_stream_ps(p, (__m128)v);
#else
	store(p, v);
#endif
}

INLINE void stores_done(void) {
#if defined(__x86_64__)
	_mm_sfence();
#endif
}

// The values before the first aligned vector of z.
INLINE int64_t unaligned(const float *z, int64_t n) {
	int64_t head = (int64_t)((GS_VB - ((uintptr_t)z & (GS_VB - 1))) & (GS_VB - 1)) / 4;
	return head < n ? head : n;
}

enum {
	ARRAY_AHEAD = 1024, // floats ahead that are prefetched: more than processors do by themselves
	LINE_FLOATS = 16,   // of a cache line
	ADD, SQUARE, COPY
};

INLINE vf mapped(int what, vf x, const float *y) { return what == ADD ? x + load(y) : what == SQUARE ? x * x : x; }

INLINE float mapped_one(int what, float x, const float *y) { return what == ADD ? x + *y : what == SQUARE ? x * x : x; }

// array_map computes z = x + y, z = x * x or z = x. Of one input every cache line is prefetched, from twice as far:
// squares became a fifth faster by that on two cores of an EPYC (Zen 5), sums of two inputs no faster.
INLINE void array_map(int what, float *z, const float *x, const float *y, int64_t n, int past) {
	int64_t i = 0;
	if (past) {
		const int64_t head = unaligned(z, n);
		for (; i < head; i++) z[i] = mapped_one(what, x[i], y + i);
		for (; i + 4 * VL <= n; i += 4 * VL) {
			if (what == ADD) {
				__builtin_prefetch(x + i + ARRAY_AHEAD);
				__builtin_prefetch(y + i + ARRAY_AHEAD);
			} else
#pragma GCC unroll 4
				for (int u = 0; u < 4 * VL; u += LINE_FLOATS) __builtin_prefetch(x + i + u + 2 * ARRAY_AHEAD);
#pragma GCC unroll 4
			for (int u = 0; u < 4; u++) store_past(z + i + u * VL, mapped(what, load(x + i + u * VL), y + i + u * VL));
		}
		stores_done();
	}
	for (; i + VL <= n; i += VL) store(z + i, mapped(what, load(x + i), y + i));
	for (; i < n; i++) z[i] = mapped_one(what, x[i], y + i);
}

static void array_add(float *z, const float *x, const float *y, int64_t n, int past) {
	array_map(ADD, z, x, y, n, past);
}
static void array_square(float *z, const float *x, int64_t n, int past) { array_map(SQUARE, z, x, x, n, past); }
static void array_widen(float *z, const uint16_t *x, int64_t n) {
	for (int64_t i = 0; i < n; i++) z[i] = widen_bf16(x[i]);
}
static void array_copy(float *z, const float *x, int64_t n, int past) { array_map(COPY, z, x, x, n, past); }

// array_sum adds n values in an order that depends on n alone.
static float array_sum(const float *x, int64_t n) {
	vf s[8] = {{0}};
	int64_t i = 0;
	for (; i + 8 * VL <= n; i += 8 * VL) {
#pragma GCC unroll 8
		for (int u = 0; u < 8; u++) {
			if (u % (64 / GS_VB) == 0) __builtin_prefetch(x + i + u * VL + ARRAY_AHEAD);
			s[u] += load(x + i + u * VL);
		}
	}
	float rest = 0;
	for (; i < n; i++) rest += x[i];
	return sum_lanes(((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))) + rest;
}

#endif
