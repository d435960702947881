// 8-bit weights (GS_Q8, layout in kernels.h): making blocks of them, reading them back, and quantising the activations that they are
// multiplied with. Included by kernels_impl.h, once per instruction set; q8_gemv.h has the product.
//
// Activations become 8-bit integers too, x = d q with d = max |x| / 127 over 32 values, so that a block of a column is one dot product
// of bytes, exact in 32 bits, and one multiply-add in float32:
//
//   y[n] = sum over blocks b of d_x[b] d_W[b][n] sum over k in b of q_x[k] q_W[k][n]
//
// This is what llama.cpp does for its Q8_0 (ggml-org/llama.cpp, ggml/src/ggml-cpu/quants.c, ggml_vec_dot_q8_0_q8_0_generic).
#ifndef GS_Q8_H
#define GS_Q8_H

#include "simd.h"
#include "version.h"

// Adding it rounds a float of less than 2^22 to an integer, which then lies in the low bits: 1.5 * 2^23.
#define Q8_ROUND 12582912.0f

// Blocks whose largest value is below it are zeros: their scale or its inverse would leave float32's normal numbers.
#define Q8_LEAST 0x1p-119f

typedef int8_t vb __attribute__((vector_size(VL)));
typedef int8_t vb_any __attribute__((vector_size(VL), aligned(1), may_alias));
typedef int16_t v8s __attribute__((vector_size(16), may_alias));
typedef uint16_t v8u __attribute__((vector_size(16), may_alias));

enum { Q8_BLOCK_FLOATS = sizeof(gs_q8_block) / 4 }; // of scratch, and no less than the block's values

INLINE vf absolute(vf x) { return (vf)((vu)x & 0x7fffffffu); }

// quantise_row makes blocks of x[0:n], the last one filled up with zeros. A NaN or an infinity in x makes all scales NaN, and so all of
// the product. Where `pairs` is set, it fills in even and odd too.
INLINE void quantise_row(const int pairs, gs_q8_block *out, const float *x, int64_t n) {
	vf sick = {0};
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
			top = greater(top, absolute(v[j]));
			sick += v[j] * 0.0f;
		}
		float most = max_lanes(top), inverse = most >= Q8_LEAST ? 127.0f / most : 0;
		o->d = most >= Q8_LEAST ? most * (1.0f / 127) : 0;
		for (int j = 0; j < NVP; j++) {
			vf t = v[j] * inverse + Q8_ROUND;
			sum += t - Q8_ROUND;
			*(vb_any *)(o->q + j * VL) = __builtin_convertvector((vi)t, vb);
		}
		float total = sum_lanes(sum);
		o->offset = total >= -GS_QB * 127 && total <= GS_QB * 127 ? -128 * (int32_t)total : 0; // else there was a NaN
		if (pairs)
			for (int h = 0; h < 2; h++) {
				v8s q = *(const v8s *)(o->q + 16 * h);
				*(v8s *)(o->even + 4 * h) = (v8s)((v8u)q << 8) >> 8;
				*(v8s *)(o->odd + 4 * h) = q >> 8;
			}
	}
	float check = sum_lanes(sick);
	if (check != 0)
		for (o = out; o < out + (n + GS_QB - 1) / GS_QB; o++) o->d = check;
}

// Which of the two a version needs follows from its dot products.
static __attribute__((unused)) void quantise_bytes(gs_q8_block *out, const float *x, int64_t n) { quantise_row(0, out, x, n); }
static __attribute__((unused)) void quantise_pairs(gs_q8_block *out, const float *x, int64_t n) { quantise_row(1, out, x, n); }

INLINE int64_t q8_blocks(int64_t K) { return (K + GS_QB - 1) / GS_QB; }

INLINE char *q8_block_of(const gs_weight *w, int64_t panel, int64_t block) {
	return (char *)w->data + (panel * q8_blocks(w->K) + block) * GS_Q8_BLOCK;
}

// put_q8 writes a block of 32 rows of a panel.
INLINE void put_q8(char *dst, float (*row)[GS_NR]) {
	vf inverse[NVP];
	vu scale[NVP];
	for (int j = 0; j < NVP; j++) {
		vf top = {0}, sick = {0};
		for (int k = 0; k < GS_QB; k++) {
			vf v = load(row[k] + j * VL);
			top = greater(top, absolute(v));
			sick += v * 0.0f;
		}
		// Rounding d to bfloat16 lowers it by less than 1 part in 256: |W / d| stays below 127.5, which rounds to 127.
		scale[j] = to_bf16(top * (1.0f / 127) + sick) & 0xffffu;
		vf d = (vf)(scale[j] << 16);
		vi normal = ~(d < splat(Q8_LEAST / 127)); // or NaN
		scale[j] &= (vu)normal;
		inverse[j] = choose(normal, 1.0f / d, (vf){0});
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

// q8_scales widens the scales of a block's 32 columns.
INLINE void q8_scales(vf *d, const char *block) {
	for (int j = 0; j < NVP / 2; j++) {
		vu pair = load_u(block + j * GS_VB);
		d[j] = even_half(pair);
		d[j + NVP / 2] = odd_half(pair);
	}
}

// widen_q8 writes rows [k0, k0+n) of a panel as float32; k0 is a multiple of 32, and there is room for n rounded up to one.
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

// q8_at reads one weight: column n of row k.
INLINE float q8_at(const gs_weight *w, int64_t k, int64_t n) {
	const char *block = q8_block_of(w, n / GS_NR, k / GS_QB);
	uint16_t d = ((const uint16_t *)block)[n % 16 * 2 + n % GS_NR / 16];
	uint8_t q = ((const uint8_t *)block)[2 * GS_NR + k % GS_QB / 4 * 4 * GS_NR + n % GS_NR * 4 + k % 4];
	return widen_bf16(d) * (float)((int)q - 128);
}

#endif
