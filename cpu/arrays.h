// Loops over arrays: sums, squares and the sum of all values, of a version's vectors (arrays.c shares them among threads).
#ifndef GS_ARRAYS_H
#define GS_ARRAYS_H

#include "simd.h"
#include "version.h"

// store_past writes a vector past the caches, where the processor can: the line is not read first, and drops nothing that is in use.
// p is aligned to the vector.
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

enum { ARRAY_AHEAD = 1024 }; // floats ahead that are prefetched: more than processors do by themselves

// array_map computes z = x + y, or z = x * x if y is NULL.
INLINE void array_map(float *z, const float *x, const float *y, int64_t n, int past) {
	int64_t i = 0;
	if (past) {
		const int64_t head = unaligned(z, n);
		for (; i < head; i++) z[i] = y ? x[i] + y[i] : x[i] * x[i];
		for (; i + 4 * VL <= n; i += 4 * VL) {
			__builtin_prefetch(x + i + ARRAY_AHEAD);
			if (y) __builtin_prefetch(y + i + ARRAY_AHEAD);
#pragma GCC unroll 4
			for (int u = 0; u < 4; u++) {
				vf a = load(x + i + u * VL);
				store_past(z + i + u * VL, y ? a + load(y + i + u * VL) : a * a);
			}
		}
		stores_done();
	}
	for (; i + VL <= n; i += VL) {
		vf a = load(x + i);
		store(z + i, y ? a + load(y + i) : a * a);
	}
	for (; i < n; i++) z[i] = y ? x[i] + y[i] : x[i] * x[i];
}

static void array_add(float *z, const float *x, const float *y, int64_t n, int past) { array_map(z, x, y, n, past); }
static void array_square(float *z, const float *x, int64_t n, int past) { array_map(z, x, NULL, n, past); }

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
