// What a version of the kernels provides, and which versions this compiler can build.
#ifndef GS_VERSION_H
#define GS_VERSION_H

#include "pool.h"

// What the compiler and the system can: GCC 11 and clang 12 know the instructions, and only Linux is known to hand out tiles.
#if defined(__x86_64__) && (__GNUC__ >= 11 || __clang_major__ >= 12)
#define GS_HAVE_DOT 1
#if defined(__linux__)
#define GS_HAVE_AMX 1
#endif
#endif

// How a version multiplies bfloat16 (GS_BF16_TILE): by dot products of AVX512_BF16 or by AMX tiles.
#define GS_BY_DOT 1
#define GS_BY_AMX 2

// 32 activations as integers, d q: what q8.h multiplies weights with.
typedef struct gs_q8_block {
	int8_t q[GS_QB];
	float d;
	int32_t offset;                        // -128 sum q, what weights held as q + 128 add too much
	int32_t unused[6];                     // to the end of a cache line
	uint32_t even[GS_QB / 4], odd[GS_QB / 4]; // q as pairs of int16, for processors that multiply those: 4i and 4i+2; 4i+1 and 4i+3
} gs_q8_block;

typedef struct gs_pack_job {
	const gs_weight *w;
	const void *src;
	int src_dtype, transposed;
	int64_t r0, r1;
	_Atomic int64_t bad;
} gs_pack_job;

// What one instruction set's translation unit provides (kernels_impl.h).
struct gs_kernels {
	const char *name;
	void (*op[GS_OPS])(gs_worker *, const gs_step *);
	void (*pack)(gs_worker *, gs_pack_job *);
	void (*quantise)(gs_q8_block *out, const float *x, int64_t n);
	void (*gemv_q8)(int panels, int64_t blocks, const gs_q8_block *x, const void *w, int64_t stride, float *y);
	// By gs_arithmetic; NULL where there is none. The value depends on what was computed, and is not used.
	float (*arithmetic[GS_ARITHMETICS])(gs_worker *, int64_t count, int64_t *ops);
	float (*read)(const float *p, int64_t n);
	void (*maxima)(float *maxima, const float *x, int64_t n, int64_t block);
};

#endif
