// Vectors of GS_VB bytes by the vector extension of GCC and clang, and functions of them. The same source compiles to
// AVX-512, AVX2, NEON or SSE2 code, depending on GS_VB and on the target that the translation unit sets.
#ifndef GS_SIMD_H
#define GS_SIMD_H

#include "kernels.h"
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { VL = GS_VB / 4, NVP = GS_NR / VL }; // lanes of a vector; vectors of a panel's row

typedef float vf __attribute__((vector_size(GS_VB)));
typedef int32_t vi __attribute__((vector_size(GS_VB)));
typedef uint32_t vu __attribute__((vector_size(GS_VB)));
typedef float vf_any __attribute__((vector_size(GS_VB), aligned(4), may_alias)); // in memory, aligned or not
typedef uint32_t vu_any __attribute__((vector_size(GS_VB), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

INLINE vf load(const float *p) { return *(const vf_any *)p; }
INLINE void store(float *p, vf v) { *(vf_any *)p = v; }

INLINE vu load_u(const void *p) { return *(const vu_any *)p; }
typedef uint16_t vh_any __attribute__((vector_size(GS_VB / 2), aligned(2), may_alias));
INLINE vu load_u16(const uint16_t *p) { return __builtin_convertvector(*(const vh_any *)p, vu); }
INLINE void store_u(void *p, vu v) { *(vu_any *)p = v; }
INLINE vf splat(float s) { return s - (vf){0}; } // s - 0 is s, also for -0

// GS_READS_AHEAD: weights that are read once are left to the processor, which is faster at it than prefetches of all
// lines into L1. A line in two or more is prefetched into L2, from where the processor reads on.
#ifndef GS_READS_AHEAD
#define GS_READS_AHEAD 0
#endif
INLINE void prefetch_l2(const void *p) { if (GS_READS_AHEAD) __builtin_prefetch(p, 0, 2); }

// copy_values is memcpy for short runs: if the length is not a constant, compilers may use a slow `rep movs` for
// memcpy.
INLINE void copy_values(float *dst, const float *src, int64_t n) {
	int64_t i = 0;
	for (; i + VL <= n; i += VL) store(dst + i, load(src + i));
	for (; i < n; i++) dst[i] = src[i];
}

// vselect returns the lanes of yes if mask is set, else those of no.
INLINE vf vselect(vi mask, vf yes, vf no) { return (vf)((mask & (vi)yes) | (~mask & (vi)no)); }

// vmax returns max(a, b) of each lane, and b if b is NaN.
INLINE vf vmax(vf a, vf b) {
#if GS_VB == 64
	return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif GS_VB == 32
	return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
	return vselect(a > b, a, b);
#endif
}

// vmin returns min(a, b) of each lane, and b if b is NaN.
INLINE vf vmin(vf a, vf b) {
#if GS_VB == 64
	return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif GS_VB == 32
	return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
	return vselect(a < b, a, b);
#endif
}

// Reductions over lanes as a tree: first the two halves of the vector, last two neighbours.
#if GS_VB == 64
INLINE float sum_lanes(vf v) { return _mm512_reduce_add_ps((__m512)v); }
INLINE float max_lanes(vf v) { return _mm512_reduce_max_ps((__m512)v); }
#elif GS_VB == 32
INLINE float sum_lanes(vf v) {
	__m128 t = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
	t = _mm_add_ps(t, _mm_movehl_ps(t, t));
	return _mm_cvtss_f32(_mm_add_ss(t, _mm_shuffle_ps(t, t, 1)));
}
INLINE float max_lanes(vf v) {
	__m128 t = _mm_max_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
	t = _mm_max_ps(t, _mm_movehl_ps(t, t));
	return _mm_cvtss_f32(_mm_max_ss(t, _mm_shuffle_ps(t, t, 1)));
}
#elif defined(__aarch64__)
INLINE float sum_lanes(vf v) { return vaddvq_f32((float32x4_t)v); }
INLINE float max_lanes(vf v) { return vmaxvq_f32((float32x4_t)v); }
#else
INLINE float sum_lanes(vf v) {
	float t[VL];
	store(t, v);
	for (int n = VL / 2; n > 0; n /= 2)
		for (int i = 0; i < n; i++) t[i] += t[i + n];
	return t[0];
}
INLINE float max_lanes(vf v) {
	float t[VL];
	store(t, v);
	for (int n = VL / 2; n > 0; n /= 2)
		for (int i = 0; i < n; i++) t[i] = t[i] > t[i + n] ? t[i] : t[i + n];
	return t[0];
}
#endif

// transpose4 writes the transpose of the 4 x 4 block at src (rows lds apart) to dst (rows ldd apart).
typedef float v4 __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));
typedef float v4_any __attribute__((vector_size(16), aligned(4), may_alias));
#if defined(__clang__)
#define SHUFFLE4(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define SHUFFLE4(a, b, i, j, k, l) __builtin_shuffle(a, b, (v4i){i, j, k, l})
#endif
INLINE void transpose4(float *dst, int64_t ldd, const float *src, int64_t lds) {
	v4 a = *(const v4_any *)src, b = *(const v4_any *)(src + lds);
	v4 c = *(const v4_any *)(src + 2 * lds), d = *(const v4_any *)(src + 3 * lds);
	v4 ab0 = SHUFFLE4(a, b, 0, 4, 1, 5), ab1 = SHUFFLE4(a, b, 2, 6, 3, 7);
	v4 cd0 = SHUFFLE4(c, d, 0, 4, 1, 5), cd1 = SHUFFLE4(c, d, 2, 6, 3, 7);
	*(v4_any *)dst = SHUFFLE4(ab0, cd0, 0, 1, 4, 5);
	*(v4_any *)(dst + ldd) = SHUFFLE4(ab0, cd0, 2, 3, 6, 7);
	*(v4_any *)(dst + 2 * ldd) = SHUFFLE4(ab1, cd1, 0, 1, 4, 5);
	*(v4_any *)(dst + 3 * ldd) = SHUFFLE4(ab1, cd1, 2, 3, 6, 7);
}

// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln(2)/2. ln 2 is split into two terms so that r is exact; the
// polynomial is that of expf in Cephes (S. L. Moshier, netlib.org/cephes, single/expf.c). The error is at most 2 ulp
// for -87.3 <= x <= 88.3. Smaller x give 1e-38, larger x give 2e38, NaN gives NaN.
INLINE vf vexp(vf x) {
	vf big = vmax(splat(-87.33f), vmin(splat(88.37f), x)); // keeps NaN
	// Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
	vf t = big * 1.44269504088896341f + 12582912.0f;
	vf n = t - 12582912.0f;
	vf r = big - n * 0.693359375f;
	r = r - n * -2.12194440e-4f;
	vf p = splat(1.9875691500e-4f);
	p = p * r + 1.3981999507e-3f;
	p = p * r + 8.3334519073e-3f;
	p = p * r + 4.1665795894e-2f;
	p = p * r + 1.6666665459e-1f;
	p = p * r + 5.0000001201e-1f;
	p = p * (r * r) + r + 1.0f;
	return p * (vf)(((vu)t << 23) + 0x3f800000u);
}

// vexp2(x) = 2^n 2^r, n = round(x), for x <= 0: the exponential of a softmax whose scale includes log2(e). The
// polynomial is that of exp2f in Cephes; the error is at most 2 ulp. x < -126 gives 1e-38, NaN gives NaN.
INLINE vf vexp2(vf x) {
	x = vmax(splat(-126.0f), x); // keeps NaN
	vf t = x + 12582912.0f;
	vf r = x - (t - 12582912.0f);
	vf p = splat(1.535336188319500e-4f);
	p = p * r + 1.339887440266574e-3f;
	p = p * r + 9.618437357674640e-3f;
	p = p * r + 5.550332471162809e-2f;
	p = p * r + 2.402264791363012e-1f;
	p = p * r + 6.931472028550421e-1f;
	p = p * r + 1.0f;
	return p * (vf)(((vu)t << 23) + 0x3f800000u);
}

// gelu_tanh(x) = x/2 (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3). The second form has no
// cancellation for x < 0. (D. Hendrycks, K. Gimpel, Gaussian Error Linear Units, 2016; "gelu_new" of Hugging Face
// transformers.)
INLINE vf gelu_tanh(vf x) {
	vf u2 = x * (-1.5957691216057308f + -0.07135481282f * (x * x));
	return x / (1.0f + vexp(u2));
}

// gelu_erf(x) = x/2 erfc(-x/sqrt(2)), with erfc(z) = t (a1 + t (a2 + ... t a5)) exp(-z^2), t = 1/(1 + p z), z >= 0: M.
// Abramowitz, I. Stegun, Handbook of Mathematical Functions, 7.1.26, |error| <= 1.5e-7.
INLINE vf gelu_erf(vf x) {
	vf z = (vf)((vi)(x * 0.70710678118654752f) & 0x7fffffff);
	vf t = 1.0f / (1.0f + z * 0.3275911f);
	vf q = splat(1.061405429f);
	q = q * t + -1.453152027f;
	q = q * t + 1.421413741f;
	q = q * t + -0.284496736f;
	q = q * t + 0.254829592f;
	q = q * t * vexp(-(z * z)) * 0.5f; // erfc(z)/2
	return x * vselect(x < 0.0f, q, 1.0f - q);
}

INLINE vf activate(int act, vf x) {
	switch (act) {
	case GS_GELU_TANH: return gelu_tanh(x);
	case GS_GELU_ERF: return gelu_erf(x);
	case GS_RELU: return vselect(x < 0.0f, (vf){0}, x); // keeps NaN
	case GS_SILU: return x / (1.0f + vexp(-x));
	case GS_QUICK_GELU: return x / (1.0f + vexp(-1.702f * x));
	}
	return x;
}

// Pairs of bfloat16: a 32-bit lane holds the even one in its low half, the odd one in its high half.
INLINE vf even_half(vu pair) { return (vf)(pair << 16); }
INLINE vf odd_half(vu pair) { return (vf)(pair & 0xffff0000u); }

INLINE float widen_bf16(uint16_t h) {
	uint32_t u = (uint32_t)h << 16;
	float f;
	memcpy(&f, &u, 4);
	return f;
}

// to_bf16 rounds to nearest, ties to even. The result is in the low half of each lane. NaN stays NaN.
INLINE vu to_bf16(vf x) {
	vu u = (vu)x, r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
	return (vu)vselect(x == x, (vf)r, (vf)((u >> 16) | 0x40u));
}

// padded rounds n up to a multiple of the columns of a panel.
INLINE int64_t padded(int64_t n) { return (n + GS_NR - 1) / GS_NR * GS_NR; }

// narrow rounds n values to bfloat16 and stores them as n / 2 words. n is a multiple of 2 VL.
INLINE void narrow(float *dst, const float *x, int64_t n) {
	for (int64_t i = 0; i < n; i += VL) {
		uint32_t u[VL];
		uint16_t h[VL];
		store_u(u, to_bf16(load(x + i)));
		for (int j = 0; j < VL; j++) h[j] = (uint16_t)u[j];
		memcpy(dst + i / 2, h, sizeof h);
	}
}

INLINE float *row_of(const gs_view *v, int64_t r) {
	if (v->per == 0) return v->p + r * v->ld;
	return v->p + (r / v->per * v->stride + r % v->per) * v->ld;
}

#endif
