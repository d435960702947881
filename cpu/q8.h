// 8-bit weights (GS_Q8, layout in kernels.h): quantising weights and activations, and reading weights back. The product
// is in q8_gemv.h.
//
// Activations are quantised to 8 bits too, x = d q with d = max |x| / 127 over 32 values. A block of a column then
// takes one dot product of bytes, which is exact in 32 bits, and one multiply-add in float32:
//
//   y[n] = sum over blocks b of d_x[b] d_W[b][n] sum over k in b of q_x[k] q_W[k][n]
//
// llama.cpp does the same for Q8_0 (ggml-org/llama.cpp, ggml/src/ggml-cpu/quants.c, ggml_vec_dot_q8_0_q8_0_generic).
#ifndef GS_Q8_H
#define GS_Q8_H

#include "simd.h"
#include "version.h"

// 1.5 * 2^23. Adding it rounds a float of less than 2^22 to an integer, which is then in the low bits.
#define Q8_ROUND 12582912.0f

// A block whose largest value is smaller becomes zeros, as its scale or the inverse of it is not a normal float32
// number.
#define Q8_LEAST 0x1p-119f

typedef int16_t v8s __attribute__((vector_size(16), may_alias));
typedef uint16_t v8u __attribute__((vector_size(16), may_alias));

enum { Q8_BLOCK_FLOATS = sizeof(gs_q8_block) / 4 }; // of scratch

// store_bytes stores the lowest byte of each lane. GCC takes 50 instructions for __builtin_convertvector.
INLINE void store_bytes(int8_t *p, vi v) {
#if GS_VB == 64
	_mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8((__m512i)v));
#elif GS_VB == 32
	const __m256i low = _mm256_set1_epi32(0x0c080400);
	_mm_storel_epi64((__m128i *)p, _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(
		_mm256_shuffle_epi8((__m256i)v, low), _mm256_set_epi32(0, 0, 0, 0, 0, 0, 4, 0))));
#else
	typedef int8_t bytes __attribute__((vector_size(VL), aligned(1), may_alias));
	*(bytes *)p = __builtin_convertvector(v, bytes);
#endif
}

INLINE vf absolute(vf x) { return (vf)((vu)x & 0x7fffffffu); }

// quantise_row writes the blocks of x[0:n]; the last one is padded with zeros. If x has a NaN or an infinity, all
// scales become NaN, and so does the product. It fills in even and odd if `pairs` is set.
INLINE void quantise_row(const int pairs, gs_q8_block *out, const float *x, int64_t n) {
	vf invalid = {0};
	gs_q8_block *o = out;
	for (int64_t i = 0; i < n; i += GS_QB, o++) {
		float tail[GS_QB];
		const float *p = x + i;
		if (n - i < GS_QB) {
			memset(tail, 0, sizeof tail);
			memcpy(tail, p, (size_t)(n - i) * sizeof(float));
			p = tail;
		}
		vf v[NVP], top = {0}, sum = {0};
		for (int j = 0; j < NVP; j++) {
			v[j] = load(p + j * VL);
			top = vmax(top, absolute(v[j]));
			invalid += v[j] * 0.0f;
		}
		float most = max_lanes(top), inverse = most >= Q8_LEAST ? 127.0f / most : 0;
		o->d = most >= Q8_LEAST ? most * (1.0f / 127) : 0;
		for (int j = 0; j < NVP; j++) {
			vf t = v[j] * inverse + Q8_ROUND;
			sum += t - Q8_ROUND;
			store_bytes(o->q + j * VL, (vi)t);
		}
		float total = sum_lanes(sum);
		o->offset = total >= -GS_QB * 127 && total <= GS_QB * 127 ? -128 * (int32_t)total : 0; // else x has a NaN
		if (pairs)
			for (int h = 0; h < 2; h++) {
				v8s q = *(const v8s *)(o->q + 16 * h);
				*(v8s *)(o->even + 4 * h) = (v8s)((v8u)q << 8) >> 8;
				*(v8s *)(o->odd + 4 * h) = q >> 8;
			}
	}
	float check = sum_lanes(invalid);
	if (check != 0)
		for (o = out; o < out + (n + GS_QB - 1) / GS_QB; o++) o->d = check;
}

// A version uses one of the two, depending on its dot products.
static __attribute__((unused)) void quantise_bytes(gs_q8_block *out, const float *x, int64_t n) {
	quantise_row(0, out, x, n);
}
static __attribute__((unused)) void quantise_pairs(gs_q8_block *out, const float *x, int64_t n) {
	quantise_row(1, out, x, n);
}

INLINE int64_t q8_blocks(int64_t K) { return (K + GS_QB - 1) / GS_QB; }

INLINE char *q8_block_of(const gs_weight *w, int64_t panel, int64_t block) {
	return (char *)w->data + (panel * q8_blocks(w->K) + block) * GS_Q8_BLOCK;
}

// write_q8 quantises 32 rows of a panel and writes their block.
INLINE void write_q8(char *dst, float (*row)[GS_NR]) {
	vf inverse[NVP];
	vu scale[NVP];
	for (int j = 0; j < NVP; j++) {
		vf top = {0}, invalid = {0};
		for (int k = 0; k < GS_QB; k++) {
			vf v = load(row[k] + j * VL);
			top = vmax(top, absolute(v));
			invalid += v * 0.0f;
		}
		// Rounding to bfloat16 makes d at most 1 part in 256 smaller: |W / d| stays below 127.5, so |q| is at most 127.
		scale[j] = to_bf16(top * (1.0f / 127) + invalid) & 0xffffu;
		vf d = (vf)(scale[j] << 16);
		vi normal = ~(d < splat(Q8_LEAST / 127)); // set for NaN too
		scale[j] &= (vu)normal;
		inverse[j] = vselect(normal, 1.0f / d, (vf){0});
	}
	for (int j = 0; j < NVP / 2; j++) store_u(dst + j * GS_VB, scale[j] | scale[j + NVP / 2] << 16);
	for (int k = 0; k < GS_QB; k += 4)
		for (int j = 0; j < NVP; j++) {
			vu lane = {0};
			for (int i = 0; i < 4; i++) {
				vf t = load(row[k + i] + j * VL) * inverse[j] + (Q8_ROUND + 128);
				lane |= ((vu)t & 0xffu) << (8 * i);
			}
			store_u(dst + 2 * GS_NR + k * GS_NR + j * GS_VB, lane);
		}
}

// q8_scales widens the scales of the 32 columns of a block.
INLINE void q8_scales(vf *d, const char *block) {
	for (int j = 0; j < NVP / 2; j++) {
		vu pair = load_u(block + j * GS_VB);
		d[j] = even_half(pair);
		d[j + NVP / 2] = odd_half(pair);
	}
}

// widen_q8 writes n rows of a panel, from a block's first row on, as float32. dst has room for n rounded up to a
// multiple of 32.
static void widen_q8(float *dst, const char *block, int64_t n) {
	for (int64_t k0 = 0; k0 < n; k0 += GS_QB, block += GS_Q8_BLOCK) {
		vf d[NVP];
		q8_scales(d, block);
		for (int k = 0; k < GS_QB; k += 4, dst += 4 * GS_NR)
			for (int j = 0; j < NVP; j++) {
				vu q = load_u(block + 2 * GS_NR + k * GS_NR + j * GS_VB);
				for (int i = 0; i < 4; i++)
					store(dst + i * GS_NR + j * VL, __builtin_convertvector((vi)(q >> (8 * i) & 0xffu) - 128, vf) * d[j]);
			}
	}
}

#endif
