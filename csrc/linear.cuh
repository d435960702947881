// What the files of gs_linear share.
#pragma once

#include "common.cuh"

// The plain kernel (linear.cu): any shape, any type.
int gs_linear_naive(gs_stream *s, const gs_linear_args *a);
// Matrix-vector kernels (gemv.cu): up to GS_GEMV_ROWS rows.
typedef enum {
  GS_GEMV_WIDE,      // as many blocks as an SM holds, weights in registers
  GS_GEMV_LEAN,      // half of that
  GS_GEMV_PREFETCH,  // and weights asked into the L2 cache ahead of time
  GS_GEMV_BULK,      // weights in shared memory by bulk copies, 100 KB ahead of time
  GS_GEMV_AHEAD,     // and what follows asked into the L2 cache
  GS_GEMV_AHEAD_HALF,  // the same with 52 KB
  GS_GEMV_AHEAD_FEW,   // and with fewer warps
  GS_GEMV_AHEAD_MIXED, // fewer where W does not fit the 52 KB
  GS_GEMV_KINDS
} gs_gemv;
int gs_linear_gemv(gs_stream *s, const gs_linear_args *a, gs_gemv kind);
// cuBLASLt (gemm.cu).
int gs_linear_blas(gs_stream *s, const gs_linear_args *a);
