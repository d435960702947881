// What the kernels that draw tokens share: the order of logits, and random numbers.
#pragma once

#include "common.cuh"

namespace {

// Maps float32 to unsigned integers in the same order: the bits of negative values are inverted, the sign bit of others
// is set. -0 equals 0; a NaN is above everything.
__device__ inline unsigned key_of(float v) {
  if (v != v) return 0xffffffffu;
  const unsigned bits = v == 0.0f ? 0u : __float_as_uint(v);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline float of_key(unsigned key) { return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }

constexpr unsigned PLUS_INFINITY = 0xff800000u, MINUS_INFINITY = 0x007fffffu;  // as keys

// A rank orders by logit, and equal logits by id, the lower id being the greater rank.
__device__ inline uint64_t rank_of(unsigned key, int id) { return (uint64_t)key << 32 | ~(unsigned)id; }
__device__ inline unsigned rank_key(uint64_t rank) { return rank >> 32; }
__device__ inline int rank_id(uint64_t rank) { return ~(unsigned)rank; }

__device__ inline double warp_sum(double v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  return v;
}

// 53 random bits by Philox4x32-10 (J. Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011).
__device__ inline uint64_t random53(uint64_t seed, unsigned sequence, uint64_t position) {
  unsigned c0 = position, c1 = position >> 32, c2 = sequence, c3 = 0, k0 = seed, k1 = seed >> 32;
#pragma unroll 1
  for (int i = 0; i < 10; i++) {
    const unsigned h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
    const unsigned h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
    c0 = h1 ^ c1 ^ k0;
    c1 = l1;
    c2 = h0 ^ c3 ^ k1;
    c3 = l0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return ((uint64_t)c1 << 32 | c0) >> 11;
}

}  // namespace
