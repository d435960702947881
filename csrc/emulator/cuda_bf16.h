// The bfloat16 numbers of CUDA that the decode kernels take, for CPUs: see cuda_runtime.h.
#pragma once

#include "cuda_runtime.h"

struct __nv_bfloat16 {
  uint16_t bits;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
inline float __bfloat162float(__nv_bfloat16 v) { return __uint_as_float((unsigned)v.bits << 16); }
inline __nv_bfloat16 __float2bfloat16_rn(float v) {
  const unsigned bits = __float_as_uint(v);
  if (v != v) return {0x7fff};
  return {(uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 v) { return v.bits; }
