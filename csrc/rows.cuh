// Access to four elements of a row at once, float32 or bfloat16, as float32.
#pragma once

#include "common.cuh"

inline bool gs_aligned(gs_ptr p, unsigned bytes) { return p % bytes == 0; }

// Whether rows that begin at p, ld elements of element_bytes bytes apart, can be read as vectors of `width` elements.
inline bool gs_wide(gs_ptr p, int ld, unsigned element_bytes, int width) {
  return gs_aligned(p, element_bytes * width) && ld % width == 0;
}

inline unsigned gs_bytes(int dtype) { return dtype == GS_F32 ? 4 : 2; }

#ifdef __CUDACC__

// p is 16-byte aligned for float, 8-byte aligned for bfloat16.
__device__ inline float4 load4(const float *p) { return *reinterpret_cast<const float4 *>(p); }
__device__ inline float4 load4(const bf16 *p) {
  const uint2 u = *reinterpret_cast<const uint2 *>(p);
  // A bfloat16 is the upper half of the float32 of the same value.
  return make_float4(__uint_as_float(u.x << 16), __uint_as_float(u.x & 0xffff0000u), __uint_as_float(u.y << 16),
                     __uint_as_float(u.y & 0xffff0000u));
}
__device__ inline void store4(float *p, float4 v) { *reinterpret_cast<float4 *>(p) = v; }
__device__ inline void store4(bf16 *p, float4 v) {
  *reinterpret_cast<uint2 *>(p) = make_uint2(pack_bf16(v.x, v.y), pack_bf16(v.z, v.w));
}

__device__ inline float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

#endif
