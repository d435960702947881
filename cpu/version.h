// The functions that a version of the kernels provides, and which versions this compiler can build.
#ifndef GS_VERSION_H
#define GS_VERSION_H

#include "pool.h"

// GCC 11 and clang 12 are the first to know the instructions. A program may use AMX tiles only after a request that is
// specific to Linux.
#if defined(__x86_64__) && (__GNUC__ >= 11 || __clang_major__ >= 12)
#define GS_HAVE_DOT 1
#if defined(__linux__)
#define GS_HAVE_AMX 1
#endif
#endif

// GS_TARGET compiles what follows, up to GS_TARGET_END, for these instructions. Those of GCC add up.
#define GS_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define GS_TARGET(set) GS_PRAGMA(clang attribute push(__attribute__((target(set))), apply_to = function))
#define GS_TARGET_END GS_PRAGMA(clang attribute pop)
#else
#define GS_TARGET(set) GS_PRAGMA(GCC target set)
#define GS_TARGET_END
#endif

// Values of GS_BF16_TILE: a version multiplies bfloat16 by dot products (AVX512_BF16) or on AMX tiles.
#define GS_BY_DOT 1
#define GS_BY_AMX 2

// 32 activations d q, quantised to 8 bits (q8.h).
typedef struct gs_q8_block {
	int8_t q[GS_QB];
	float d;
	int32_t offset;                        // -128 sum q: corrects the product for weights, which are stored as q + 128
	int32_t unused[6];                     // to the end of a cache line
	// Q as pairs of int16, for versions that multiply int16: 4i and 4i+2; 4i+1 and 4i+3.
	uint32_t even[GS_QB / 4], odd[GS_QB / 4];
} gs_q8_block;

// The arguments of gs_pack and gs_pack_file.
typedef struct gs_pack_job {
	const gs_weight *w;
	const void *src;
	int src_dtype, transposed;
	int64_t r0, r1;
	_Atomic int64_t bad; // source values that are NaN or infinite
	int fd; // if src is NULL: the file that has n sources
	gs_source *sources;
	int64_t n;
} gs_pack_job;

// A version: one translation unit defines it for one instruction set, or two that differ in gemv_q8 (kernels_impl.h).
struct gs_kernels {
	void (*op[GS_OPS])(gs_worker *, const gs_step *);
	void (*join)(void *shared, gs_step *step, gs_step *next); // of gs_join; NULL if it packs nothing
	void (*pack)(gs_worker *, gs_pack_job *);
	void (*quantise)(gs_q8_block *out, const float *x, int64_t n);
	void (*gemv_q8)(int panels, int64_t blocks, const gs_q8_block *x, const void *w, int64_t stride, float *y);
	// The same for m rows of x, ldx blocks apart, by one panel; NULL if the version has no dot products of bytes.
	void (*rows_q8)(int m, int64_t blocks, const gs_q8_block *x, int64_t ldx, const void *w, float *y);
	// By gs_arithmetic; NULL if the version has none. The value returned keeps the compiler from removing the loop.
	float (*arithmetic[GS_ARITHMETICS])(gs_worker *, int64_t count, int64_t *ops);
	float (*read)(const float *p, int64_t n);
	void (*copy)(float *z, const float *x, int64_t n, int past);
	void (*maxima)(float *maxima, const float *x, int64_t n, int64_t block);
	// Arrays (arrays.h); past: the result is written past the caches.
	void (*add)(float *z, const float *x, const float *y, int64_t n, int past);
	void (*square)(float *z, const float *x, int64_t n, int past);
	void (*widen)(float *z, const uint16_t *x, int64_t n);
	float (*sum)(const float *x, int64_t n);
};

#endif
