// Weights in 8 bits: GS_Q8 of abi.h.
#pragma once

#include "common.cuh"

constexpr int Q8_BLOCK = 32;  // weights that share a scale

// Where the integers of a block of a row begin, and where its scale is, in bytes.
__host__ __device__ inline int q8_integers(int block) {
  return block * Q8_BLOCK + (block / (GS_Q8_GROUP / Q8_BLOCK) + 1) * GS_Q8_SCALES;
}
__host__ __device__ inline int q8_scale(int block) {
  constexpr int BLOCKS = GS_Q8_GROUP / Q8_BLOCK;
  return block / BLOCKS * (GS_Q8_GROUP + GS_Q8_SCALES) + block % BLOCKS * 2;
}

#ifdef __CUDACC__

// Weight k of a row, before it is rounded to bfloat16.
__device__ inline float q8_exact(const void *row, int k) {
  const char *const from = static_cast<const char *>(row);
  const unsigned short scale =
      __ldg(reinterpret_cast<const unsigned short *>(from + q8_scale(k / Q8_BLOCK)));
  const signed char q = __ldg(reinterpret_cast<const signed char *>(from + q8_integers(k / Q8_BLOCK) + k % Q8_BLOCK));
  return (float)q * __uint_as_float((unsigned)scale << 16);
}
__device__ inline float q8_at(const void *row, int k) { return to_float(from_float<bf16>(q8_exact(row, k))); }

#endif
